"""A lab's firewall cluster: VNFs that share their connections, behind its spreading switch.

    spread bridge ─ cl1 ══ left ─ fw1 ─ right ══ cr1 ─ spread bridge      each asked by BFD every 10 ms
                                   ╠══ x2 ══ x1 ═ fw2                     a cable for each pair, for their messages
                                   ╚══ x3 ══ x1 ═ fw3

Each is a namespace with `aclflow statesync run` and no filter; where the lab has a file of lists for them (`lists_of`),
they close what it forbids. The switch's program is the service's; to pass over one
that is down it needs neither the service nor a controller.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from orchestrator.client import Client
from orchestrator.client.spread import Carrier, Link
from orchestrator.errors import AclflowError, BadInput, NotFound, Unreachable
from orchestrator.hosts.healthchecks import set_check
from orchestrator.lab import bridges, namespaces, network, processes
from orchestrator.lab.forwarders import Forwarder
from orchestrator.lab.ovs import SWITCH, run_program
from orchestrator.lab.pop import Lab
from orchestrator.lab.processes import Process, wait_until
from orchestrator.lab.spec import LEFT, RIGHT
from orchestrator.policy.addresses import Family, format_mac

MOST = 9
_MACS = 0x0AAC1F060000
_PATIENCE_S = 60.0
_GIVEN_UP_S = 6.0
_DOWN = re.compile(r"^(\S+Z)\|.*\|(\S+): BFD state change: up->down", re.MULTILINE)
"""A line of the switch's log: when it gave an interface up, and which."""
_CLI = (sys.executable, "-m", "orchestrator.cli")


@dataclass(frozen=True, slots=True)
class Firewall:
    """One member of the cluster of a lab."""

    lab: Lab
    number: int

    @property
    def name(self) -> str:
        """Its name: fw1, fw2 ..."""
        return f"fw{self.number}"

    @property
    def address(self) -> str:
        """Where other members reach it."""
        return f"169.254.9.{self.number}"

    @property
    def forwarder(self) -> Forwarder:
        """The firewall's namespace and links."""
        left, right = ((f"c{side}{self.number}", _MACS + 2 * self.number + place) for place, side in enumerate("lr"))
        return Forwarder(self.lab.layout.namespace(self.name), left, right)

    @property
    def carrier(self) -> Carrier:
        """How the service knows it."""
        left, right = (Link(port, format_mac(mac)) for port, mac in (self.forwarder.left, self.forwarder.right))
        return Carrier(self.name, self.number, left, right)

    def processes(self) -> list[Process]:
        """Return its member process, if it runs."""
        marked = processes.marked_processes(self.lab.layout.run_dir)
        return [each for each in marked if _is_inside(each.pid, self.forwarder.namespace)]

    def show(self) -> dict[str, Any]:
        """Return the output of `aclflow statesync show`.

        Raises Unreachable where no member runs.
        """
        try:
            found: dict[str, Any] = json.loads(self.forwarder.run(*_CLI, "statesync", "show", "--json"))
        except AclflowError as error:
            raise Unreachable(f"{self.name}: {error}") from None
        return found

    def kill(self) -> float:
        """Take its power, and return when that was (monotonic seconds).

        Its links stay up, as of a machine behind a switch, so that only its silence tells.
        """
        died = namespaces.inside(self.forwarder.namespace, _stop_forwarding)
        for each in self.processes():
            processes.kill(each)
        return died

    def drain(self) -> None:
        """Stop its member process; it goes when the switch sends nothing any more.

        Its links stay up.
        """
        processes.stop(self.processes(), patience_s=_PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Death:
    """A firewall that died under a download, and what became of its connections.

    `noticed_s` is after how long the switch gave it up, `pause_s` how long the download stood.
    """

    victim: str
    successor: str
    noticed_s: float | None
    pause_s: float
    alive: int
    held: int

    @property
    def lost(self) -> int:
        """Connections that did not outlive it."""
        return self.held - self.alive


@dataclass(frozen=True, slots=True)
class Return:
    """Firewalls that came back empty: when they served, and how long the download stood."""

    names: tuple[str, ...]
    whole_s: float
    pause_s: float


def start(lab: Lab, client: Client, size: int) -> list[Firewall]:
    """Bring up so many firewalls and spread the lab's traffic over them.

    Raises BadInput, Missing, Unreachable.
    """
    if not lab.spec.spread:
        raise BadInput("this lab has no spreading switch: put `spread: true` into its description", place="--pop")
    if not 2 <= size <= MOST:
        raise BadInput(f"a cluster has 2 to {MOST} members, not {size}", place="SIZE")
    if members_of(lab):
        raise BadInput("this lab has a cluster already", place="SIZE")
    members = [Firewall(lab, number) for number in range(1, size + 1)]
    prefixes = [prefix for tenant in lab.spec.tenants for prefix in tenant.prefixes]
    tenants = [str(prefix) for prefix in prefixes if prefix.family is Family.IPV4]
    key = lab.layout.run_dir / "cluster.key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(16))
    for each in members:
        each.forwarder.create(lab.layout.ovs_namespace, *tenants)
        for other in members[: each.number - 1]:
            _connect(each, other)
    for each in members:
        run_member(each, members, key)
        attach(each)
    processes.make_real_time(lab.state.process(SWITCH))
    lab.ovs.appctl("vlog/disable-rate-limit", "bfd")
    generation = spread(client, lab, members)
    wait_until(
        lambda: client.spread.read(lab.spec.domain).enforced >= generation,
        "the switch does not spread over them",
        every_s=0.1,
    )
    wait_until(lambda: all(is_up(each) for each in members), "the switch does not find them well", every_s=0.1)
    return members


def spread(client: Client, lab: Lab, members: list[Firewall]) -> int:
    """Spread the lab's traffic over these firewalls; the spread's generation."""
    carriers = [each.carrier for each in members]
    return client.spread.configure(lab.spec.domain, carriers, stateful=True, synchronised=True)


def members_of(lab: Lab) -> list[Firewall]:
    """The firewalls of a lab's cluster that have a namespace."""
    there = set(namespaces.with_prefix(lab.layout.prefix))
    found = [Firewall(lab, number) for number in range(1, MOST + 1)]
    return [each for each in found if each.forwarder.namespace in there]


def member(lab: Lab, name: str) -> Firewall:
    """The firewall of a name. Raises NotFound."""
    for each in members_of(lab):
        if each.name == name:
            return each
    raise NotFound(f"the lab has no firewall '{name}'; it has {', '.join(e.name for e in members_of(lab)) or 'none'}")


def revive(firewall: Firewall) -> None:
    """Start a killed firewall again: it is empty, and serves once it is complete."""
    namespaces.inside(firewall.forwarder.namespace, partial(namespaces.set_kernel, {_FORWARDING: "1"}))
    run_member(firewall, members_of(firewall.lab), firewall.lab.layout.run_dir / "cluster.key")


def kill_and_watch(firewall: Firewall) -> tuple[float, float | None]:
    """Kill a firewall; return when (monotonic seconds), and the switch's delay in noticing.

    None where it has not within six seconds, as when it was dead before.
    """
    log_size, at = _find_log(firewall).stat().st_size, datetime.now(UTC)
    died = firewall.kill()
    until = time.monotonic() + _GIVEN_UP_S
    noticed = _sides_given_up(firewall, log_size, at)
    while len(noticed) < len(firewall.forwarder.ports) and time.monotonic() < until:
        time.sleep(0.01)
        noticed = _sides_given_up(firewall, log_size, at)
    return died, max(noticed, default=None)


def _sides_given_up(firewall: Firewall, log_from: int, since: datetime) -> list[float]:
    """Return the seconds after which the switch gave up sides of a firewall.

    Read from the switch's log, from byte `log_from` on.
    """
    with _find_log(firewall).open() as text:
        text.seek(log_from)
        changes = _DOWN.findall(text.read())
    first = {port: at for at, port in reversed(changes) if port in firewall.forwarder.ports}
    return [(datetime.fromisoformat(at) - since).total_seconds() for at in first.values()]


def _find_log(firewall: Firewall) -> Path:
    lab = firewall.lab
    return lab.ovs.logs / f"{SWITCH}.log"


def attach(firewall: Firewall) -> None:
    """Give the switch a firewall's interfaces, and have it ask whether the firewall is well."""
    ovs, ports = firewall.lab.ovs, firewall.forwarder.ports
    bridges.attach_firewall(ovs, ports)
    for port in ports:
        ovs.vsctl(*set_check(port))


def is_up(firewall: Firewall) -> bool:
    """Whether the switch finds a firewall well on both sides."""
    ports = firewall.forwarder.ports
    return all("state=up" in firewall.lab.ovs.vsctl("get", "interface", port, "bfd_status") for port in ports)


def lists_of(lab: Lab) -> Path:
    """Return where the lists are that all members hold connections to, once there are any."""
    return lab.layout.run_dir / "cluster-lists.json"


def run_member(firewall: Firewall, members: list[Firewall], key: Path) -> None:
    """Start a firewall's member process."""
    others = [each for each in members if each.number != firewall.number]
    words = [
        *_CLI, "statesync", "run", "--self", str(firewall.number), "--interface", LEFT, "--interface", RIGHT,
        "--key-file", str(key), "--silent", "0.5",
    ]  # fmt: skip
    words += [word for each in members for word in ("--member", f"{each.number}={each.address}")]
    words += [word for each in others for word in ("--messages", f"x{each.number}")]
    lists = lists_of(firewall.lab)
    if lists.exists():
        words += ["--lists", str(lists)]
    layout = firewall.lab.layout
    log = layout.logs / f"{firewall.name}.log"
    processes.spawn(firewall.name, words, mark=layout.run_dir, log=log, namespace=firewall.forwarder.namespace)


_FORWARDING = "net/ipv4/ip_forward"


def _connect(one: Firewall, other: Firewall) -> None:
    """A cable between two firewalls, with their addresses."""
    far = other.forwarder.namespace

    def add_link() -> None:
        with IPRoute() as routes, network.descriptor(far) as there:
            peer = {"ifname": f"x{one.number}", "net_ns_fd": there}
            routes.link("add", ifname=f"x{other.number}", kind="veth", peer=peer)

    namespaces.inside(one.forwarder.namespace, add_link)
    for near, away in ((one, other), (other, one)):
        namespaces.inside(near.forwarder.namespace, partial(_address, near.address, f"x{away.number}", away.address))


def _address(own: str, name: str, to: str) -> None:
    """Set an interface's addresses. Called inside a firewall."""
    with IPRoute() as routes:
        index, loopback = (routes.link_lookup(ifname=each)[0] for each in (name, "lo"))
        with suppress(Exception):  # it is there already, for another cable
            routes.addr("add", index=loopback, address=own, prefixlen=32)
        routes.link("set", index=index, state="up")
        routes.route("add", dst=f"{to}/32", oif=index, prefsrc=own, scope=253)


def _stop_forwarding() -> float:
    """Stop forwarding; return when, in monotonic seconds. Called inside a firewall."""
    namespaces.set_kernel({_FORWARDING: "0"})
    died = time.monotonic()
    filters = "".join(f"filter del dev {name} {hook}\n" for name in (LEFT, RIGHT) for hook in ("ingress", "egress"))
    with suppress(AclflowError):  # it was killed before
        run_program(["tc", "-force", "-batch", "-"], filters)
    return died


def _is_inside(pid: int, namespace: str) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == Path("/run/netns", namespace).stat().st_ino
    except OSError:  # it has ended
        return False
