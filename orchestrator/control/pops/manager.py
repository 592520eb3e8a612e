"""The manager of firewall servers: programs of the tenants placed on each.

    commit ──▶ prepare: the lists that changed are compiled in its transaction, and refused there; so is what comes
                        more often than it may (`pops/rates.py`)
           ──▶ published: servers that have nothing under way get their programs at once, by who committed;
                          for others it is noted, until they were read back or their window ends

What is gathered so is nothing but "there is something new": programs are made of the store's latest state, so
whoever is killed meanwhile has lost nothing, and a change counts as enforced only when every server was read back at
its generation. A list that did not change is not compiled again. A server that was read back to hold the very program
that a new generation asks of it is not asked again: it is vouched for (`vouched`) as soon as another reports.

A tenant that moves is served by the old server until everybody was read back to hold the generation in which it moved,
the edge switches that send its packets among them: make before break.

Where a server's program cannot be made, the server holds what it held, others get theirs, and it is tried again, from
scratch: at every change, and without one after a second, two, four ... up to a minute. An event says why.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import structlog

from orchestrator.compile.servers.programs import Ask, Peer, ServerCompiler
from orchestrator.compile.servers.tenants import Lists, TenantCompiler
from orchestrator.control.pops.pacing import NEVER, UpdateRates, Windows
from orchestrator.control.publisher import Publisher
from orchestrator.errors import AclflowError, NotFound, TryAgain
from orchestrator.policy.model import TenantId
from orchestrator.policy.prefilter import Misdirect, Share
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.pops.poprecords import Pop, ServerState
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState

_MEET = ("169.254.66.{}", "fd66::{:x}")
"""The addresses of a server where servers meet, by its number."""

Leaving = Mapping[tuple[int, str], int]
"""The generation in which a tenant left a server, by the server's number and the tenant."""


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """The goal of a domain's servers.

    A tenant that moves is kept by the server that it leaves until the move is enforced everywhere.
    """

    snapshot: PolicySnapshot
    pop: Pop
    lists: Lists
    changed: frozenset[str]
    """The tenants whose lists changed with it."""

    def moves_from(self, before: Goal) -> Leaving:
        """Which servers that are still there tenants leave, compared with the goal before."""
        lost = {each.number for each in self.pop.servers if each.state is ServerState.LOST}
        there = {each.number for each in self.pop.servers} - lost
        names = {tenant.number: str(tenant.id) for tenant in self.snapshot.policy.tenants}
        return {
            (server, names[tenant]): self.snapshot.generation
            for tenant, server in before.pop.places.items()
            if self.pop.places.get(tenant) not in (None, server) and server in there and tenant in names
        }


@dataclass(slots=True)
class Asks:
    """Servers' settings for programs, by server: unchanged ones are the same objects."""

    _found: Mapping[int, Ask] = field(default_factory=dict)
    _made_of: tuple[object, ...] = ()
    """The PoP, who leaves which server, and who there is."""

    def of(self, goal: Goal, leaving: Leaving) -> Mapping[int, Ask]:
        """Make the asks of a goal, while servers keep tenants that leave them."""
        roster = tuple((each.id, each.number) for each in goal.snapshot.policy.tenants)
        made_of = goal.pop, tuple(leaving), roster
        if made_of != self._made_of:
            numbers = [each.number for each in goal.pop.servers]
            self._found = {each: Ask(_share(goal, each, leaving), _peers(goal.pop, each)) for each in numbers}
            self._made_of = made_of
        return self._found


def _share(goal: Goal, number: int, leaving: Leaving) -> Share:
    """Make a server's share: whom it serves, and where the others are."""
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
    """Return the other servers where packets are handed to them; else none."""
    if pop.settings.misdirect is not Misdirect.REHOME:
        return ()
    others = [each.number for each in pop.servers if each.number != number and each.state is not ServerState.LOST]
    return tuple(Peer(each, tuple(ipaddress.ip_address(form.format(each)) for form in _MEET)) for each in others)


log = structlog.get_logger()

_LOOK_S = 0.5
"""How often to look whether tenants that moved may be let go."""


def key_of(domain: str, server: str) -> str:
    """Return the key of a server's programs; no name has a slash."""
    return f"{domain}/{server}"


def require_server(unit: Unit, domain: str, server: str) -> None:
    """Raises NotFound where a domain's PoP has no such firewall server."""
    pop = unit.pops.of_domain(domain)
    if pop is None or all(each.name != server for each in pop.servers):
        raise NotFound(f"the domain '{domain}' has no firewall server '{server}'")


@dataclass(slots=True, eq=False)
class _Domain:
    """The state of a domain.

    `leaving`: the servers that a tenant has left, until the generation is enforced; `vouched`: what servers hold that
    were not asked, as they would report it; `unmade`: why servers' programs could not be made.
    """

    rates: UpdateRates
    tenants: TenantCompiler = field(default_factory=TenantCompiler)
    compilers: dict[str, ServerCompiler] = field(default_factory=dict)
    prepared: dict[int, Goal] = field(default_factory=dict)
    goal: Goal | None = None
    leaving: dict[tuple[int, str], int] = field(default_factory=dict)
    asks: Asks = field(default_factory=Asks)
    vouched: dict[str, PointReport] = field(default_factory=dict)
    unmade: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Unmade:
    """A server whose program cannot be made, and why; None: it was made after all."""

    domain: str
    server: str
    because: str | None


class ServerManager:
    """Compiles servers' programs and publishes them in windows. Safe between threads.

    `enforced(domain, generation)`: whether everybody in a domain was read back to hold a generation. `vouches`: whether
    servers are vouched for; where others send them programs, too, every server is asked for every generation instead.
    `tells` is told, on the manager's own thread, of programs that cannot be made, and that can again.
    """

    def __init__(
        self,
        publisher: Publisher,
        enforced: Callable[[str, int], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        vouches: bool = True,
        tells: Callable[[Unmade], None] = lambda _: None,
    ) -> None:
        self.publisher = publisher
        self._enforced = enforced
        self._clock = clock
        self._vouches = vouches
        self._tells = tells
        self._untold: list[Unmade] = []
        self._windows = Windows()
        self._domains: dict[str, _Domain] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def prepare(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> None:
        """Compile changed lists inside a transaction.

        Raises what refuses one, with its place.
        """
        pop = unit.pops.of_domain(domain)
        if pop is None or not pop.servers:
            return
        known, per_s = self._domain_state(domain), pop.settings.tenant_updates_s
        known.rates.check(unit.changed_lists - unit.reverted_lists, per_s)
        with known.lock:
            known.tenants.general(pop.settings.classify)
            known.prepared[snapshot.generation] = Goal(
                snapshot, pop, known.tenants.lists(snapshot.policy), unit.changed_lists
            )

    def publish(self, domain: str, generation: int) -> None:
        """Set a committed generation as the goal of a domain's servers, in their windows."""
        known = self._domains.get(domain)
        if known is None:
            return
        with known.lock:
            goal = known.prepared.get(generation)
            known.prepared = {each: goal for each, goal in known.prepared.items() if each > generation}
            if goal is None or (known.goal is not None and known.goal.snapshot.generation >= generation):
                return
            known.rates.take(goal.changed, goal.pop.settings.tenant_updates_s)
            if known.goal is not None:
                known.leaving.update(goal.moves_from(known.goal))
            known.goal = goal
            self._drop_who_left(domain, known, goal)
            servers = self._servers_touched(domain, known, goal)
            self._note(goal, servers)  # before another thread sends it of its own accord: it would be sent twice
        self._serve_due(servers)  # here and now: a thread that had to be woken would be later
        self._wake()

    def note_held(self, domain: str, server: str, generation: int) -> None:
        """Note that a server was read back to hold a generation."""
        with self._changed:
            is_due = self._windows.note_held(key_of(domain, server), generation, self._clock())
        if is_due:
            self._wake()

    def vouched_reports(self, domain: str) -> tuple[PointReport, ...]:
        """Return reports of servers without changes: they hold what was last read back."""
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

    def _domain_state(self, domain: str) -> _Domain:
        with self._changed:
            return self._domains.setdefault(domain, _Domain(UpdateRates(self._clock)))

    def _drop_who_left(self, domain: str, known: _Domain, goal: Goal) -> None:
        """Forget removed servers.

        One that comes under the name of one of them was never read back.
        """
        for name in known.compilers.keys() - {each.name for each in goal.pop.servers}:
            key = key_of(domain, name)
            del known.compilers[name]
            known.vouched.pop(name, None)
            known.unmade.pop(name, None)
            self.publisher.drop(key)
            with self._changed:
                self._windows.forget(key)

    def _servers_touched(self, domain: str, known: _Domain, goal: Goal) -> list[str]:
        """Return the servers that a goal changes.

        All, if it would be none, for somebody must say that it is enforced. The others are vouched for.
        """
        servers = {key_of(domain, each.name): each for each in goal.pop.servers}
        with self._changed:
            idle = [key for key in servers if self._vouches and self._windows.is_idle(key)]
        asks, policy = known.asks.of(goal, known.leaving), goal.snapshot.policy
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

    def _note(self, goal: Goal, servers: Iterable[str]) -> None:
        """Note that there is something new for some servers."""
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
                self._tell()
            except TryAgain as error:
                log.warning("firewall servers wait for the store", error=str(error))
            except Exception:
                log.exception("firewall servers' turn failed")  # nobody else would do the next

    def _serve_due(self, servers: Iterable[str]) -> None:
        """Give those of some servers that are due their programs."""
        for server in servers:
            self._serve(server)

    def _patience(self) -> float | None:
        """How long to wait."""
        waits = self._windows.next_at - self._clock()
        if self._untold or any(known.leaving for known in self._domains.values()):
            return min(waits, _LOOK_S)
        return waits if waits != NEVER else None

    def _let_go(self) -> None:
        """Remove tenants from servers they left, once all hold the new places."""
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
        """Send a server its program if due.

        When this returns it has it, whichever thread made it: one that took it, and came to make it later, would send
        once more what another has sent by then.
        """
        domain, _, name = key.partition("/")
        known = self._domains.get(domain)
        with known.lock if known is not None else nullcontext():
            with self._changed:
                is_due = self._windows.take(key, self._clock())
            if not is_due or known is None or known.goal is None:
                return
            try:
                self._compile_server(domain, known, known.goal, name)
            except Exception as error:  # what is committed stays so, and other servers get theirs
                known.compilers[name] = ServerCompiler(key, known.tenants)
                with self._changed:
                    self._windows.note_failure(key, self._clock())
                if self._note_unmade(domain, known, name, _words_of(error)):
                    log.exception("a server's program cannot be made", domain=domain, server=name)

    def _note_unmade(self, domain: str, known: _Domain, name: str, because: str | None) -> bool:
        """Record whether a server's program can be made; return whether that is new."""
        if known.unmade.get(name) == because:
            return False
        if because is None:
            del known.unmade[name]
        else:
            known.unmade[name] = because
        with self._changed:
            self._untold.append(Unmade(domain, name, because))
        return True

    def _tell(self) -> None:
        """Log the recorded events.

        An event that cannot be logged now is logged later.
        """
        while self._untold:
            self._tells(self._untold[0])
            with self._changed:
                del self._untold[0]

    def _compile_server(self, domain: str, known: _Domain, goal: Goal, name: str) -> None:
        number = next((each.number for each in goal.pop.servers if each.name == name), None)
        if number is None:  # it left after this was noted
            return
        key = key_of(domain, name)
        if name not in known.compilers:
            known.compilers[name] = ServerCompiler(key, known.tenants)
        policy, generation = goal.snapshot.policy, goal.snapshot.generation
        asks = known.asks.of(goal, known.leaving)
        program, change = known.compilers[name].program(policy, asks[number], generation, goal.lists)
        known.vouched.pop(name, None)
        with self._changed:
            self._windows.note_sent(key, generation, self._clock())
        self.publisher.publish(program, change, again=True)
        self._note_unmade(domain, known, name, None)


def _words_of(error: Exception) -> str:
    """Return an error's text, with its kind if it is a fault of ours."""
    return str(error) if isinstance(error, AclflowError) else f"{type(error).__name__}: {error}"
