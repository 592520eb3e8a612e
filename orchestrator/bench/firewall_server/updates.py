"""Time from a REST call to servers read back: single pairs, and bursts.

The clock of a call starts with it and stops with its answer, which comes when every server holds the change. In the
burst each tenant has a client of its own, which asks for the next update when the last was answered.

The servers' agents are in network namespaces of their own:

    root    `aclflow serve` on a fresh database ══ management link ══ server     `aclflow agent`, nftables of its own

Nothing else is in the domain, no host and no edge switch: what is enforced was read back by every server.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pyroute2 import IPRoute

from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.results import Figure, Results, Stack, Target
from orchestrator.client import Client, Written
from orchestrator.compile.nftables.served import REHOME
from orchestrator.compile.servers.exactpairs import HOSTS4
from orchestrator.enforce.drivers.nftables.pairs import NAMES, PairTable
from orchestrator.errors import Drifted, Unreachable
from orchestrator.lab import namespaces, network, processes
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import Management
from orchestrator.lab.processes import Process
from orchestrator.lab.service import COMMAND, administrators_token
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId

_PATIENCE_S = 60
_SERVERS = 2
_TENANTS = Prefix.parse("198.18.0.0/15").network
_SOURCES = Prefix.parse("10.0.0.0/8").network
_A_TENANT = 256
_SETTLE_S = 0.02
_MOST = 1_000_000
_ONE = Target(10.0)

T = TypeVar("T")

_REPORTS = re.compile(r"^aclflow_reports_total\{[^}]*\} (\S+)$", re.MULTILINE)
DOMAIN, POP = "bench", "bench"
_MANAGED_PATIENCE_S = 120.0
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
        until = time.monotonic() + _MANAGED_PATIENCE_S
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

    def await_enforced(self, client: Client, generation: int, patience_s: float = _MANAGED_PATIENCE_S) -> None:
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


@dataclass(slots=True)
class Updates:
    """Results of updates.

    Milliseconds of single updates and of their stages; seconds of a burst, its updates' milliseconds, in how many
    generations, and in how many programs of all servers it was enforced.
    """

    one_ms: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    burst_s: float = 0.0
    burst_ms: list[float] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)
    programs: int = 0


def measure(place: Layout, sizes: Sizes, step: Callable[[str], None]) -> Updates:
    """Measure single updates, then the burst.

    Raises Missing, Unreachable, and Drifted where a set does not hold in the end what was acknowledged.
    """
    found = Updates()
    with run_servers(place, _SERVERS, tenant_prefixes(sizes.tenants)) as servers:
        step(f"one of {sizes.held:,} pairs more, from REST")
        _singles(servers, sizes, found)
        step(f"{sizes.burst:,} updates of {sizes.tenants} tenants at once")
        burst(servers, sizes.tenants, sizes.burst // sizes.tenants, found)
    return found


STEPS = 2


def tenant_prefixes(tenants: int) -> Mapping[str, Sequence[Prefix]]:
    """Tenants with 256 addresses each."""
    return {name(number): (Prefix(Family.IPV4, _TENANTS + _A_TENANT * number, 24),) for number in range(tenants)}


def name(tenant: int) -> str:
    """Return a tenant's name."""
    return f"t{tenant}"


def pair(tenant: int, number: int) -> Rule:
    """A permit from one address to one address of a tenant's."""
    source, destination = _SOURCES + number, _TENANTS + _A_TENANT * tenant + number % _A_TENANT
    return Rule(
        RuleId(f"p{number}"), Action.PERMIT,
        source=Addresses((Prefix(Family.IPV4, source, 32),)),
        destination=Addresses((Prefix(Family.IPV4, destination, 32),)),
    )  # fmt: skip


def burst(servers: Managed, tenants: int, updates: int, found: Updates) -> None:
    """Update all tenants at once, each `updates` times.

    Raises Unreachable for one that is not enforced, Drifted.
    """
    before, failed = servers.reports(), []

    def write_for_tenant(tenant: int) -> None:
        try:
            with servers.client() as client:
                waiting = client.waiting(_PATIENCE_S)
                for number in range(updates):
                    began = time.perf_counter()
                    written = waiting.acls.insert_rule(name(tenant), pair(tenant, number), position=0)
                    _check_enforced(written)
                    found.burst_ms.append(1000 * (time.perf_counter() - began))
                    found.generations.add(written.generation)
        except Exception as error:  # noqa: BLE001 -- told below, on the thread that asked
            failed.append(error)

    threads = [threading.Thread(target=write_for_tenant, args=(tenant,)) for tenant in range(tenants)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.burst_s = time.perf_counter() - began
    if failed:
        raise failed[0]
    found.programs = servers.reports() - before
    check(servers, {pair(tenant, number) for tenant in range(tenants) for number in range(updates)})


def check(servers: Managed, wanted: set[Rule]) -> None:
    """Compare what the kernels of all servers hold with some rules. Raises Drifted."""
    keys = {
        b"".join(side.prefixes[0].network.to_bytes(4, "big") for side in (rule.source, rule.destination))
        for rule in wanted
    }
    there = [key for server in servers.servers for key in servers.inside(server, _read_elements)]
    if sorted(there) != sorted(keys):
        raise Drifted(f"the servers hold {len(there)} pairs, {len(keys)} were acknowledged")


def record(results: Results, found: Updates, sizes: Sizes) -> None:
    """Put the figures among a suite's."""
    each_server = found.programs / _SERVERS
    figures = {
        "add_one_rest_ms": Figure.of(found.one_ms, "ms", _ONE),
        "burst_s": Figure.of([found.burst_s], "s"),
        "burst_updates_per_s": Figure.of([sizes.burst / found.burst_s], "1/s"),
        "burst_update_ms": Figure.of(found.burst_ms, "ms"),
        "burst_generations": Figure.of([len(found.generations)], "generations"),
        "burst_programs_a_server": Figure.of([each_server], "programs"),
    }
    results.figures.update(figures)
    heights = {stage: (statistics.median(values),) for stage, values in found.stages.items() if "." not in stage}
    label = "milliseconds, median of each stage"
    results.stacks.append(Stack("where the time of one pair goes", ("one pair",), heights, label))
    results.notes.append(
        f"add_one_rest_ms: REST to read back on {_SERVERS} firewall servers, all that the domain enforces with, for a "
        f"tenant of {sizes.held:,} pairs; the burst: {sizes.burst:,} updates of {sizes.tenants} tenants, each "
        "answered when enforced, and what the kernels hold in the end compared with what was acknowledged"
    )


def _singles(servers: Managed, sizes: Sizes, found: Updates) -> None:
    """Add pairs one by one to a long list, and empty it afterwards."""
    held = tuple(pair(0, sizes.changes + number) for number in range(sizes.held))
    with servers.client() as client:
        waiting = client.waiting(_PATIENCE_S)
        waiting.acls.put(name(0), Acl(held))
        for number in range(sizes.changes):
            time.sleep(_SETTLE_S)
            began = time.perf_counter()
            written = waiting.acls.insert_rule(name(0), pair(0, number), position=number)
            found.one_ms.append(1000 * (time.perf_counter() - began))
            _check_enforced(written)
            for stage, seconds in written.stages.items():
                found.stages.setdefault(stage, []).append(1000 * seconds)
        check(servers, {*held, *(pair(0, number) for number in range(sizes.changes))})
        waiting.acls.put(name(0), Acl())


def _check_enforced(written: Written) -> None:
    if not written.enforced:
        raise Unreachable(f"generation {written.generation} was not enforced in {_PATIENCE_S} s")


def _read_elements() -> list[bytes]:
    tables = [PairTable(each) for each in NAMES]
    try:
        found = [table.elements(HOSTS4, _MOST) for table in tables]
        return [key.tobytes() for keys in found if keys is not None for key in keys]
    finally:
        for table in tables:
            table.close()
