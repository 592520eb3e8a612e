"""How soon a changed list cuts the connections that it forbids, of 10,000 that talk.

    clients, an address each ──▶ switch, or a kernel's nftables ──▶ server        each end is a process

An edit forbids a random tenth of the connections: one rule, first in the list, that denies their clients. The clock
begins with the edited policy, and ends when the last byte of a forbidden connection is heard. So it has the compiler,
the change of the rows and the caches behind them in it, and neither the service nor the way to it. Every
connection that the list still permits is heard afterwards (`bench/traffic/talks.py`).

The lists are of a kind that domains that track connections have. On a switch there is another figure, of a list in
which every other rule names a source port: there each connection has cache entries of its own, all of which the
switch looks at before the last one is cut.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic import filters
from orchestrator.bench.traffic.addresses import SERVER, SERVER_ADDRESS, Clients, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import CLIENT, MIDDLE, RIGHT, Line, site
from orchestrator.bench.traffic.line import SERVER as SERVER_END
from orchestrator.bench.traffic.rules import Kind, Listed
from orchestrator.bench.traffic.talks import Cut, Pace, connect_all, draw_tenth, measure_cut
from orchestrator.bench.traffic.vnf import VnfAcl, vnf_acl
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.errors import Drifted, Missing
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program
from orchestrator.wire.firewalls import Plane

CONNECTIONS = 10_000
TALK = PortRange(7001, 7001)
_RULES = 1_000
CUT_MS, NONE = Target(1000, whole=True), Target(0, whole=True)


def domain_policy(*rules: Rule, kind: Kind = Kind.FEW_SOURCE_PORTS) -> Policy:
    """Return the policy of a domain that tracks connections.

    Its list has these rules, many others, and one that permits the connections. These rules stand first and have the
    highest numbers: the service gives a new rule the next number, wherever it is.
    """
    talk = Rule(
        RuleId("talk"), Action.PERMIT, protocol=TCP, destination=Addresses((SERVER,)), destination_ports=(TALK,)
    )
    standing = (*Listed(_RULES, kind=kind).acl().rules, talk)
    made = policy(Acl((*rules, *standing), egress_default=Action.DENY), server_port=RIGHT)
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate((*standing, *rules), 1)}
    tenants = replace(made.tenants[0], rule_numbers=numbers), *made.tenants[1:]
    return replace(made, tenants=tenants, return_traffic=ReturnTraffic.TRACKED)


def forbid(clients: Sequence[str]) -> Rule:
    """Return the rule that forbids the connections of these clients."""
    sources = Addresses(tuple(Prefix.parse(each) for each in clients))
    return Rule(RuleId("forbidden"), Action.DENY, source=sources)


class Firewall(Protocol):
    """A firewall in the middle of a line, which tracks connections."""

    def begin(self, wanted: Policy) -> None:
        """Hold a policy, and no connection."""
        ...

    def edit(self, wanted: Policy) -> None:
        """Go over to another policy as in production, from its compilation on."""
        ...


@dataclass(slots=True)
class _SwitchFirewall:
    vnf: VnfAcl
    cache: CompileCache = field(default_factory=CompileCache)

    def begin(self, wanted: Policy) -> None:
        """Load a policy from scratch, and forget all connections."""
        self.cache = CompileCache()
        self.vnf.load(self.cache.compile_program(wanted, domain="bench", generation=1))
        self.vnf.forget_connections()

    def edit(self, wanted: Policy) -> None:
        """Change to another policy by the delta between the two."""
        program = self.cache.compile_program(wanted, domain="bench", generation=2)
        if self.cache.change is None:
            raise Drifted("an edit has no program before it")
        self.vnf.change(self.cache.change, program)


class _FilterFirewall:
    """The kernel's nftables in the middle, written by our driver."""

    def __init__(self, line: Line) -> None:
        self._driver = nftables_driver(lambda command, text: line.run(MIDDLE, *command, text=text))
        self._line = line
        self._held: Program | None = None

    def begin(self, wanted: Policy) -> None:
        """Load a policy from scratch into an empty filter."""
        filters.clear(self._line, Filter.NFTABLES)
        self._held = self._compile(wanted, 1)
        self._driver.apply(
            gap.correction(self._driver.observe(), self._held, self._driver.resolve), gap.stamp_of(self._held)
        )

    def edit(self, wanted: Policy) -> None:
        if self._held is None:
            raise Drifted("an edit has no program before it")
        program = self._compile(wanted, 2)
        self._driver.apply(gap.step(self._held, program, (), self._driver.resolve), gap.stamp_of(program))

    @staticmethod
    def _compile(wanted: Policy, generation: int) -> Program:
        return filter_program(wanted, [Plane.NFTABLES], domain="bench", generation=generation)


@contextmanager
def _switch(line: Line) -> Iterator[Firewall]:
    """Open a firewall that is an Open vSwitch."""
    with vnf_acl(line, Ports.SYSTEM, tracks_prefixes=True) as vnf:
        yield _SwitchFirewall(vnf)


@contextmanager
def _filter(line: Line) -> Iterator[Firewall]:
    """Open a firewall that is nftables; its tables are removed in the end."""
    try:
        yield _FilterFirewall(line)
    finally:
        filters.clear(line, Filter.NFTABLES)


@dataclass(frozen=True, slots=True)
class Subject:
    """A firewall and the kind of its list."""

    firewall: Callable[[Line], AbstractContextManager[Firewall]]
    kind: Kind = Kind.FEW_SOURCE_PORTS


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        "cut_10k": Subject(_switch),
        "cut_10k_ports": Subject(_switch, Kind.FIVE_TUPLES),
        "cut_10k_nftables": Subject(_filter),
    }
)
"""The firewalls that are measured, by the beginning of their figures' names."""


def measure(
    results: Results,
    rounds: int,
    progress: Callable[[str], None],
    layout: Layout | None = None,
    connections: int = CONNECTIONS,
    names: Iterable[str] = SUBJECTS,
) -> None:
    """Record for each firewall how soon an edit ends the connections that it forbids.

    Also how many of these go on, and how many of the others end.
    """
    for name in names:
        try:
            found = list(_measure_subject(name, rounds, progress, layout, connections))
        except (Missing, Drifted) as error:
            results.absent[f"{name}_ms"] = str(error)
            continue
        results.figures[f"{name}_ms"] = Figure.of([each.cut_ms for each in found], "ms", CUT_MS)
        results.figures[f"{name}_missed"] = Figure.of([float(each.missed) for each in found], "1", NONE)
        results.figures[f"{name}_lost"] = Figure.of([float(each.lost) for each in found], "1", NONE)
    pace = Pace.of(CONNECTIONS)
    results.notes.append(
        f"cut_10k: {CONNECTIONS:,} connections, each of a client of its own, through a list of {_RULES:,} rules; an"
        " edit forbids a random tenth. _ms: from the edited policy (compiler, change, caches) to the last byte that one"
        f" of these says and the other end hears; each speaks every {1e3 * pace.forbidden_every_s:.0f} ms, from two"
        " processes beside the one that compiles, on the same processors. All are listened to for"
        f" {pace.after_s:.0f} s after the edit. missed: forbidden connections heard in the last fifth of the time since"
        " it began; lost: permitted ones that are not heard after the cut. _ports: every other rule names a source port"
    )


def _measure_subject(
    name: str,
    rounds: int,
    progress: Callable[[str], None],
    layout: Layout | None,
    connections: int,
) -> Iterator[Cut]:
    subject = SUBJECTS[name]
    with site(layout) as place, Line(place, "cuts") as line, subject.firewall(line) as firewall:
        for turn in range(rounds):
            progress(f"connections of which an edit forbids a tenth: {name}, round {turn + 1} of {rounds}")
            yield measure_round(line, firewall, connections, turn, subject.kind)


def measure_round(line: Line, firewall: Firewall, connections: int, seed: int, kind: Kind) -> Cut:
    """Open connections, forbid a random tenth of them, and listen.

    Raises Drifted where one is silent before the edit.
    """
    clients, forbidden = Clients.OUTSIDE.addresses(connections), draw_tenth(connections, seed)
    edited = domain_policy(forbid([clients[each] for each in sorted(forbidden)]), kind=kind)
    firewall.begin(domain_policy(kind=kind))
    with ExitStack() as stack:
        door = stack.enter_context(line.inside(SERVER_END, _listen))
        ends = [(client, 0) for client in clients]
        talks = line.inside(CLIENT, lambda: connect_all(stack, door, ends, forbidden))
        return measure_cut(talks, lambda: firewall.edit(edited))


def _listen() -> socket.socket:
    return socket.create_server((SERVER_ADDRESS, TALK.low), backlog=1024)
