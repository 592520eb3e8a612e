"""A service and firewall servers, each agent in a network namespace of its own.

    root    `aclflow serve` on a fresh database ══ management link ══ server     `aclflow agent`, nftables of its own

Nothing else is in the domain, no host and no edge switch: what is enforced was read back by every server.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pyroute2 import IPRoute

from orchestrator.client import Client
from orchestrator.compile.nftables.served import REHOME
from orchestrator.errors import Unreachable
from orchestrator.lab import namespaces, network, processes
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import Management
from orchestrator.lab.processes import Process
from orchestrator.lab.service import COMMAND, administrators_token
from orchestrator.policy.addresses import Prefix

T = TypeVar("T")

_REPORTS = re.compile(r"^aclflow_reports_total\{[^}]*\} (\S+)$", re.MULTILINE)
DOMAIN, POP = "bench", "bench"
_PATIENCE_S = 120.0
_LOOK_S = 0.05
_PORT = 8420
_NOWHERE = "rehome-end"


@dataclass(slots=True)
class Managed:
    """A running service with its servers.

    Its processes end with the site that it was made in.
    """

    place: Layout
    url: str
    token: str
    servers: tuple[str, ...]
    running: dict[str, Process] = field(default_factory=dict)

    def client(self) -> Client:
        """An administrator's client; close it when done."""
        return Client(self.url, self.token, plain_http=True)

    def start_service(self, settings: Mapping[str, str]) -> None:
        """Start the service (again), and wait until it is ready. Raises Unreachable."""
        own = {
            "ACLFLOW_STATE_DIR": str(self.place.run_dir / "service"),
            "ACLFLOW_LISTEN_HOST": self.url.split("//")[1].partition(":")[0],
            "ACLFLOW_LISTEN_PORT": str(_PORT),
            "ACLFLOW_AUDIT_SYSLOG": "none",
        }
        self._spawn_program("service", ["serve"], {**own, **settings})
        until = time.monotonic() + _PATIENCE_S
        with self.client() as client:
            while not client.is_ready():
                if time.monotonic() > until:
                    raise Unreachable("the service is not ready")
                time.sleep(_LOOK_S)

    def start_agent(self, server: str, invitation: str = "", options: Sequence[str] = ()) -> None:
        """Start a server's agent (again); the first start needs an invitation."""
        own = {
            "ACLFLOW_STATE_DIR": str(self.place.run_dir / server),
            "ACLFLOW_URL": self.url,
            "ACLFLOW_TOKEN": invitation,
        }
        words = ["agent", "--driver", "firewall-server", "--name", server, *options]
        self._spawn_program(server, words, own, namespace=self.place.namespace(server))

    def kill(self, name: str) -> None:
        """End the service or a server's agent as a crash would."""
        processes.kill(self.running.pop(name))

    def reports(self) -> int:
        """Count the servers' reports since the service started: one for each program they hold."""
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:  # noqa: S310 -- of this machine
            return int(sum(map(float, _REPORTS.findall(answer.read().decode()))))

    def inside(self, server: str, call: Callable[[], T]) -> T:
        """Call a function in a server's namespace and return its result."""
        return namespaces.inside(self.place.namespace(server), call)

    def log(self, name: str) -> Path:
        """Where the service or a server's agent writes."""
        return self.place.logs / f"{name}.log"

    def await_enforced(self, client: Client, generation: int, patience_s: float = _PATIENCE_S) -> None:
        """Wait until every server holds a generation. Raises Unreachable, naming who does not."""
        state = client.domains.wait_until_enforced(DOMAIN, generation, timeout_s=patience_s)
        if not state.done:
            raise Unreachable(f"generation {generation} is not enforced by {[each.host for each in state.laggards]}")

    def _spawn_program(
        self, name: str, words: Sequence[str], settings: Mapping[str, str], *, namespace: str | None = None
    ) -> None:
        self.running[name] = processes.spawn(
            name, [*COMMAND, *words], mark=self.place.run_dir, log=self.log(name), namespace=namespace,
            settings=settings,
        )  # fmt: skip


@contextmanager
def run_servers(
    place: Layout, servers: int, tenants: Mapping[str, Sequence[Prefix]], settings: Mapping[str, str] | None = None
) -> Iterator[Managed]:
    """Run a service with servers that hold the tenants' empty lists, during the block.

    `settings` are the service's. Raises Unreachable, Missing.
    """
    names = tuple(f"fs{number}" for number in range(1, servers + 1))
    links = {name: _namespace(place, name, number) for number, name in enumerate(names, 1)}
    (place.run_dir / "service").mkdir(mode=0o700)
    made = Managed(
        place,
        f"http://{links[names[0]].controller}:{_PORT}",
        administrators_token(place.run_dir / "service", "made by the suite"),
        names,
    )
    try:
        made.start_service(settings or {})
        for name in names[1:]:
            _add_route(place.namespace(name), links[names[0]].controller, links[name].controller)
        with made.client() as client:
            made.await_enforced(client, _onboard(made, client, tenants))
        yield made
    finally:
        processes.stop(tuple(made.running.values()))
        network.remove_management(place)
        for name in names:
            namespaces.remove(place.namespace(name))


def _onboard(made: Managed, client: Client, tenants: Mapping[str, Sequence[Prefix]]) -> int:
    """Domain, PoP, servers, tenants, agents; the generation that holds everything."""
    client.domains.create(DOMAIN)
    for name in made.servers:
        client.firewalls.add(DOMAIN, name, "nftables")
    client.pops.add(POP, DOMAIN, ("outside",), heavy_interval_s=0.0)
    for number, name in enumerate(made.servers, 1):
        client.pops.add_server(POP, name, f"to-{name}", f"0a:ac:1f:04:00:{number:02x}")
    for tenant, prefixes in tenants.items():
        client.tenants.create(tenant, domain=DOMAIN, prefixes=prefixes)
    for name in made.servers:
        made.start_agent(name, client.enrolment.invite(DOMAIN))
    return client.domains.read(DOMAIN).generation


def _namespace(place: Layout, server: str, number: int) -> Management:
    """Create a server's namespace and interface; return its link to the service."""
    name = place.namespace(server)
    namespaces.create(name)
    namespaces.inside(name, _add_rehome_link)
    return network.create_management(name, place.firewall_link(number))


def _add_rehome_link() -> None:
    with IPRoute() as inner:
        inner.link("add", ifname=REHOME, kind="veth", peer={"ifname": _NOWHERE})
        for each in (REHOME, _NOWHERE, "lo"):
            inner.link("set", index=inner.link_lookup(ifname=each)[0], state="up")


def _add_route(namespace: str, service: str, gateway: str) -> None:
    def add_inside() -> None:
        with IPRoute() as inner:
            inner.route("add", dst=f"{service}/32", gateway=gateway)

    namespaces.inside(namespace, add_inside)
