"""The manager of firewall servers: each PoP's servers get programs of the tenants that are placed on them.

    commit ──▶ prepare: the lists that changed are compiled in its transaction, and refused there; so is what comes
                        more often than it may (`updaterates.py`)
           ──▶ published: servers that have nothing under way get their programs at once, by who committed;
                          for others it is noted, until they were read back or their window ends

What is gathered so is nothing but "there is something new": programs are made of the store's latest state, so
whoever is killed meanwhile has lost nothing, and a change counts as enforced only when every server was read back at
its generation. A list that did not change is not compiled again. A server that was read back to hold the very program
that a new generation asks of it is not asked again: it is vouched for (`vouched`) as soon as another reports.

A tenant that moves is served by the old server until everybody was read back to hold the generation in which it moved,
the edge switches that send its packets among them: make before break.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from orchestrator.compile.servedtenants import Lists, TenantCompiler
from orchestrator.compile.servers import Ask, Peer, ServerCompiler
from orchestrator.control.publisher import Publisher
from orchestrator.control.serverwindows import NEVER, Windows
from orchestrator.control.updaterates import UpdateRates
from orchestrator.errors import AclflowError, NotFound
from orchestrator.policy.model import TenantId
from orchestrator.policy.prefilter import Misdirect, Share
from orchestrator.store.pointrecords import PointReport, PointState
from orchestrator.store.poprecords import Pop, ServerState
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit

log = structlog.get_logger()

_LOOK_S = 0.5
"""How often to look whether tenants that moved may be let go."""
_MEET = ("169.254.66.{}", "fd66::{:x}")
"""The addresses of a server where servers meet, by its number."""


def key_of(domain: str, server: str) -> str:
    """Under which a server's programs are published; no name has a slash in it."""
    return f"{domain}/{server}"


def require_server(unit: Unit, domain: str, server: str) -> None:
    """Raises NotFound where a domain's PoP has no such firewall server."""
    pop = unit.pops.of_domain(domain)
    if pop is None or all(each.name != server for each in pop.servers):
        raise NotFound(f"the domain '{domain}' has no firewall server '{server}'")


@dataclass(frozen=True, slots=True, eq=False)
class _Goal:
    """What a domain's servers are to hold."""

    snapshot: PolicySnapshot
    pop: Pop
    lists: Lists
    changed: frozenset[str]
    """The tenants whose lists changed with it."""


@dataclass(slots=True, eq=False)
class _Domain:
    """What is kept of a domain. `leaving`: the servers that a tenant has left, until the generation is enforced;
    `vouched`: what servers hold that were not asked, as they would report it."""

    tenants: TenantCompiler = field(default_factory=TenantCompiler)
    compilers: dict[str, ServerCompiler] = field(default_factory=dict)
    prepared: dict[int, _Goal] = field(default_factory=dict)
    goal: _Goal | None = None
    leaving: dict[tuple[int, str], int] = field(default_factory=dict)
    asks: dict[int, Ask] = field(default_factory=dict)
    asks_of: tuple[object, ...] = ()
    """What `asks` was made of: the PoP, who leaves which server, and who there is."""
    vouched: dict[str, PointReport] = field(default_factory=dict)
    rates: UpdateRates = field(default_factory=lambda: UpdateRates(time.monotonic))
    lock: threading.Lock = field(default_factory=threading.Lock)


class ServerManager:
    """Compiles servers' programs and publishes them in windows. Safe between threads.

    `enforced(domain, generation)`: whether everybody in a domain was read back to hold a generation. `vouches`: whether
    servers are vouched for; where others send them programs, too, every server is asked for every generation instead.
    """

    def __init__(
        self,
        publisher: Publisher,
        enforced: Callable[[str, int], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        vouches: bool = True,
    ) -> None:
        self.publisher = publisher
        self._enforced = enforced
        self._clock = clock
        self._vouches = vouches
        self._windows = Windows()
        self._domains: dict[str, _Domain] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def prepare(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> None:
        """Compile the lists that changed, as part of a transaction. Raises what refuses one, with its place."""
        pop = unit.pops.of_domain(domain)
        if pop is None or not pop.servers:
            return
        known, per_s = self._known(domain), pop.settings.tenant_updates_s
        known.rates.check(unit.changed_lists, per_s)
        with known.lock:
            known.tenants.general(pop.settings.classify)
            known.prepared[snapshot.generation] = _Goal(
                snapshot, pop, known.tenants.lists(snapshot.policy), unit.changed_lists
            )

    def publish(self, domain: str, generation: int) -> None:
        """A generation that was prepared is committed: the domain's servers are to hold it, in their windows."""
        known = self._domains.get(domain)
        if known is None:
            return
        with known.lock:
            goal = known.prepared.get(generation)
            known.prepared = {each: goal for each, goal in known.prepared.items() if each > generation}
            if goal is None or (known.goal is not None and known.goal.snapshot.generation >= generation):
                return
            known.rates.take(goal.changed, goal.pop.settings.tenant_updates_s)
            _note_moves(known, goal)
            known.goal = goal
            self._drop_who_left(domain, known, goal)
            servers = self._touched(domain, known, goal)
        self._note(goal, servers)
        self._serve_due(servers)  # here and now: a thread that had to be woken would be later
        self._wake()

    def held(self, domain: str, server: str, generation: int) -> None:
        """A server was read back to hold a generation."""
        with self._changed:
            is_due = self._windows.held(key_of(domain, server), generation, self._clock())
        if is_due:
            self._wake()

    def vouched(self, domain: str) -> tuple[PointReport, ...]:
        """What those servers of a domain hold that were not asked, for it is what they were last read back with."""
        known = self._domains.get(domain)
        return tuple(known.vouched.copy().values()) if known is not None else ()

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain."""
        with self._changed:
            known = self._domains.pop(domain, None)
            servers = [] if known is None else [key_of(domain, server) for server in tuple(known.compilers)]
            for server in servers:
                self._windows.forget(server)
        for server in servers:
            self.publisher.drop(server)

    def stop(self) -> None:
        """End the thread after the program it is at."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # -------------------------------------------------------------------------------------------------------- inside

    def _known(self, domain: str) -> _Domain:
        with self._changed:
            return self._domains.setdefault(domain, _Domain())

    def _drop_who_left(self, domain: str, known: _Domain, goal: _Goal) -> None:
        """Forget servers that are no more: one that comes under the name of one of them was never read back."""
        for name in known.compilers.keys() - {each.name for each in goal.pop.servers}:
            key = key_of(domain, name)
            del known.compilers[name]
            known.vouched.pop(name, None)
            self.publisher.drop(key)
            with self._changed:
                self._windows.forget(key)

    def _touched(self, domain: str, known: _Domain, goal: _Goal) -> list[str]:
        """The servers that a goal asks something else of than what they hold; all, if it would be none, for somebody
        must say that it is enforced. The others are vouched for."""
        servers = {key_of(domain, each.name): each for each in goal.pop.servers}
        with self._changed:
            idle = [key for key in servers if self._vouches and self._windows.is_idle(key)]
        asks, policy = _asks(known, goal), goal.snapshot.policy
        still: dict[str, PointReport] = {}
        for key in idle:
            server, program = servers[key], self.publisher.program(key)
            compiler = known.compilers.get(server.name)
            if program is None or compiler is None or not compiler.is_the_last(policy, asks[server.number], goal.lists):
                continue
            generation, flows = goal.snapshot.generation, len(program.blocks)
            still[key] = PointReport(server.name, generation, program.digest, PointState.ENFORCED, None, flows)
        if len(still) == len(servers):
            return list(servers)
        known.vouched |= {report.host: report for report in still.values()}
        return [key for key in servers if key not in still]

    def _note(self, goal: _Goal, servers: Iterable[str]) -> None:
        """There is something new for some servers."""
        with self._changed:
            for server in servers:
                self._windows.note(server, self._clock(), goal.pop.settings.window_ms / 1000)

    def _wake(self) -> None:
        """Have the thread look, if there is something to come."""
        with self._changed:
            if self._patience() is None:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="firewall-servers", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                if self._windows.next_at > self._clock():
                    self._changed.wait(self._patience())
                due = self._windows.due
            try:
                self._serve_due(due)
                self._let_go()
            except Exception:
                log.exception("firewall servers' turn failed")  # nobody else would do the next

    def _serve_due(self, servers: Iterable[str]) -> None:
        """Give those of some servers that are due their programs."""
        for server in servers:
            with self._changed:
                is_due = self._windows.take(server, self._clock())
            if is_due:
                self._serve(server)

    def _patience(self) -> float | None:
        """How long to wait."""
        waits = self._windows.next_at - self._clock()
        if any(known.leaving for known in self._domains.values()):
            return min(waits, _LOOK_S)
        return waits if waits != NEVER else None

    def _let_go(self) -> None:
        """Take tenants from servers that they left, where everybody was read back to hold that they did."""
        for domain, known in list(self._domains.items()):
            done = {generation for generation in set(known.leaving.values()) if self._is_enforced(domain, generation)}
            if done:
                with known.lock:
                    left = {server for (server, _), generation in known.leaving.items() if generation in done}
                    known.leaving = {each: at for each, at in known.leaving.items() if at not in done}
                    servers = known.goal.pop.servers if known.goal is not None else ()
                if known.goal is not None:
                    self._note(known.goal, [key_of(domain, each.name) for each in servers if each.number in left])

    def _is_enforced(self, domain: str, generation: int) -> bool:
        try:
            return self._enforced(domain, generation)
        except AclflowError:  # the domain is gone, or the database away: later
            return False

    def _serve(self, key: str) -> None:
        domain, _, name = key.partition("/")
        known = self._domains.get(domain)
        if known is None:
            return
        try:
            with known.lock:
                if known.goal is not None:
                    self._compile(domain, known, known.goal, name)
        except Exception:  # what is committed stays so, and other servers get theirs
            log.exception("a server's program does not compile", domain=domain, server=name)

    def _compile(self, domain: str, known: _Domain, goal: _Goal, name: str) -> None:
        number = next((each.number for each in goal.pop.servers if each.name == name), None)
        if number is None:  # it left after this was noted
            return
        key = key_of(domain, name)
        if name not in known.compilers:
            known.compilers[name] = ServerCompiler(key, known.tenants)
        policy, generation = goal.snapshot.policy, goal.snapshot.generation
        program, change = known.compilers[name].program(policy, _asks(known, goal)[number], generation, goal.lists)
        known.vouched.pop(name, None)
        with self._changed:
            self._windows.sent(key, generation, self._clock())
        self.publisher.publish(program, change, again=True)


def _note_moves(known: _Domain, goal: _Goal) -> None:
    """Note which servers tenants leave with a new goal: they keep them until that is enforced."""
    before = known.goal
    if before is None:
        return
    lost = {each.number for each in goal.pop.servers if each.state is ServerState.LOST}
    there = {each.number for each in goal.pop.servers} - lost
    names = {tenant.number: str(tenant.id) for tenant in goal.snapshot.policy.tenants}
    for tenant, server in before.pop.places.items():
        if goal.pop.places.get(tenant) not in (None, server) and server in there and tenant in names:
            known.leaving[server, names[tenant]] = goal.snapshot.generation


def _asks(known: _Domain, goal: _Goal) -> Mapping[int, Ask]:
    """What programs of servers are made of besides lists, by server; the same objects as long as it is the same."""
    roster = tuple((each.id, each.number) for each in goal.snapshot.policy.tenants)
    made_of = goal.pop, tuple(known.leaving), roster
    if made_of != known.asks_of:
        numbers = [each.number for each in goal.pop.servers]
        known.asks = {each: Ask(_share(goal, each, known.leaving), _peers(goal.pop, each)) for each in numbers}
        known.asks_of = made_of
    return known.asks


def _share(goal: _Goal, number: int, leaving: Mapping[tuple[int, str], int]) -> Share:
    """Whom a server serves, and where the others are."""
    placed = {
        tenant.id: server
        for tenant in goal.snapshot.policy.tenants
        if (server := goal.pop.places.get(tenant.number)) is not None
    }
    kept = {TenantId(tenant) for server, tenant in leaving if server == number}
    mine = {tenant for tenant, server in placed.items() if server == number} | (kept & placed.keys())
    elsewhere = {tenant: server for tenant, server in placed.items() if tenant not in mine}
    return Share(frozenset(mine), elsewhere, goal.pop.settings.misdirect)


def _peers(pop: Pop, number: int) -> tuple[Peer, ...]:
    """The other servers, where packets are handed to them; else servers need not meet."""
    if pop.settings.misdirect is not Misdirect.REHOME:
        return ()
    others = [each.number for each in pop.servers if each.number != number and each.state is not ServerState.LOST]
    return tuple(Peer(each, tuple(ipaddress.ip_address(form.format(each)) for form in _MEET)) for each in others)
