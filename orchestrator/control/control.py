"""Control: every change is compiled before it is committed, and what is committed is published.

    write(work) ── begin ── work(unit) ... ── compile the domains that moved ── commit ──▶ heard ── publish
                                               │ TooLarge, NotExpressible                │
                                               ▼                                        a commit that nobody here
                                            roll back: the caller is told               compiled (another process, a
                                            before anything was acknowledged            start): the loop compiles the
                                                                                        latest state, once

What may be published next follows from what was published (`staging.py`), so nobody publishes between somebody's
decision and what comes of it: `_deciding` is held from the one to the other.

The loop runs on a thread of its own, off the event loop, and works towards the latest goal: generations that came and
went meanwhile are never compiled. It also does what time brings (`timekeeper.py`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from orchestrator import stages
from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.control.edges import EdgeReport
from orchestrator.control.heavy import HeavyChooser
from orchestrator.control.idlehosts import IdleHosts
from orchestrator.control.manager import key_of, require_server
from orchestrator.control.promote import Promoter, settled
from orchestrator.control.publisher import Answer, Held, Publisher
from orchestrator.control.quota import Usage
from orchestrator.control.staging import Staging
from orchestrator.control.tiers import Programs, Tiers, require
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.control.together import Jobs, NotCommitted, Together
from orchestrator.errors import Busy, NotFound, TryAgain
from orchestrator.program.program import Program, Tier
from orchestrator.store import Store
from orchestrator.store.records import Committed, PolicySnapshot, Principal
from orchestrator.store.unit import Unit

T = TypeVar("T")

log = structlog.get_logger()

_RETRY_S = 1.0
_STAGED_LOOK_S = 0.2
"""How often to look whether a domain may go on that is held at an intersection."""
_GIVES_WAY_S = 0.0001
"""How long who has published lets go of the interpreter, so that the event loop sends first: what is left to be done
can be done while switches work, and without this the loop would wait for as long as a thread may go on."""
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Step:
    """A program to be published on the way to generation `target`: that of the target, or of what must come first.
    None where nobody has a use for it (`idlehosts.py`)."""

    target: int
    snapshot: PolicySnapshot
    compiled: Compiled | None
    others: Programs
    """The target's programs for the domain's firewall VNFs and edge switches, if it has any."""


@dataclass(slots=True)
class _Prepared:
    """What a thread is about to commit: the pieces of work, and the steps of the domains that they move."""

    jobs: Jobs
    steps: dict[str, _Step] = field(default_factory=dict)
    has_begun: bool = False
    is_committing: bool = False

    def lap(self, stage: str) -> None:
        """End a stage of all of them."""
        for job in self.jobs:
            job.lap(stage)


class _TwoSteps(Exception):
    """The change takes two generations."""


_NOTHING = _Prepared(())


class Control:
    """The writing side of a service. `write` and `read` may be called from any thread."""

    def __init__(
        self,
        store: Store,
        compiler: Compiler,
        publisher: Publisher,
        timekeeper: Timekeeper | None = None,
        tiers: Tiers | None = None,
        promoter: Promoter | None = None,
    ) -> None:
        self._store = store
        self._compiler = compiler
        self._publisher = publisher
        self._tiers = tiers or Tiers()
        self._timekeeper = timekeeper or Timekeeper()
        self._promoter = promoter or Promoter()
        self._chooser = HeavyChooser()
        self._usage = Usage()
        self._staging = Staging()
        self._idle = IdleHosts()
        self._mine = threading.local()
        self._deciding = threading.Lock()
        self._together = Together(self._carry, store.patience_s)
        self._wake = threading.Condition()
        self._behind: set[str] = set()
        self._all_behind = True
        self._started = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._unsubscribe: Callable[[], None] = lambda: None

    # ----------------------------------------------------------------------------------------------- units of work

    def read(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a snapshot of the store."""
        with self._store.read() as unit:
            return work(unit)

    def known_bearer(self, secret: str) -> Principal | None:
        """Who bears a token, if that is known without waiting for the database."""
        return self._store.known_bearer(secret)

    def bearer(self, secret: str) -> Principal:
        """Who bears a token. Raises Unauthenticated."""
        return self._store.bearer(secret)

    def known_certified(self, fingerprint: bytes) -> Principal | None:
        """Who shows a certificate, if that is known without waiting for the database."""
        return self._store.known_certified(fingerprint)

    def certified(self, fingerprint: bytes) -> Principal:
        """Who shows a certificate. Raises Unauthenticated."""
        return self._store.certified(fingerprint)

    def write(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a transaction, compile what it changed, commit, publish; with others that come meanwhile.

        Raises what `work` and the compiler raise; then nothing was changed. `work` may be done more than once, each
        time after it was rolled back: alone where others failed with it, and where an intersection must be enforced
        first, which takes a generation of its own.
        """
        stages.lap("read")
        return self._together.do(work)

    def _carry(self, jobs: Jobs) -> None:
        """Do some pieces of work in one transaction."""
        try:
            self._write(jobs, stride=1)
        except _TwoSteps:
            self._write(jobs, stride=2)

    def _write(self, jobs: Jobs, *, stride: int) -> None:
        """Raises _TwoSteps, NotCommitted, and what a commit raises that failed."""
        self._mine.prepared = prepared = _Prepared(jobs)
        try:
            with self._deciding, self._store.write(stride=stride) as unit:
                prepared.has_begun = True
                for job in jobs:
                    job.lap("turn")
                    with unit.noting_moves() as job.moved:
                        job.do(unit)
                    job.lap("database")
                for domain, generation in unit.generations.items():
                    prepared.steps[domain] = self._prepared(unit, domain, generation, prepared, stride)
                prepared.is_committing = True
        except _TwoSteps:
            raise
        except BaseException as error:
            if prepared.has_begun and not prepared.is_committing:
                raise NotCommitted(error) from error
            if isinstance(error, TryAgain):  # the change may be there all the same
                for domain in prepared.steps:
                    self._catch_up(domain)
            raise
        finally:
            self._mine.prepared = _Prepared(())
        if unit.sets_times:  # one rule may expire sooner than any other
            with self._wake:
                self._wake.notify()

    def _prepared(self, unit: Unit, domain: str, generation: int, prepared: _Prepared, stride: int) -> _Step:
        """Compile a domain that moved, and tell of it. Raises what the compilers raise, and _TwoSteps."""
        snapshot = unit.domains.policy(domain)
        prepared.lap("database")
        compiled, before = None, None
        if not self._idle.is_idle(unit, domain, snapshot):
            before = self._program_before(domain)
            compiled = self._compiler.compile(domain, snapshot)
        snapshot = settled(unit, domain, snapshot, () if compiled is None else compiled.lifts)
        others = self._tiers.compile(unit, domain, snapshot)
        prepared.lap("compile")
        told = {"generation": generation}
        if compiled is None:
            step = _Step(generation, snapshot, None, others)
        else:
            self._usage.hold(unit, compiled, before)
            step = self._first_step(unit, domain, snapshot, compiled, others, stride)
            told["flows"] = len(compiled.program.blocks)
        unit.events.append("generation.published", domain, told)
        prepared.lap("database")
        return step

    def _program_before(self, domain: str) -> Program | None:
        """The hosts' program as it is without the transaction under way. Raises what the compiler raises."""
        if not self._idle.is_behind(domain):
            return self._publisher.program(domain)
        return self._compiler.compile(domain, self.read(lambda unit: unit.domains.policy(domain))).program

    def _first_step(
        self,
        unit: Unit,
        domain: str,
        newest: PolicySnapshot,
        compiled: Compiled,
        others: Programs,
        stride: int,
    ) -> _Step:
        """What is published when this is committed. Raises _TwoSteps if that takes a generation that is not free."""
        first = self._staging.next(unit, domain, newest)
        if first is not newest:
            if stride == 1:
                raise _TwoSteps
            compiled = self._compiler.compile(domain, first)
        return _Step(newest.generation, first, compiled, others)

    def delete_domain(self, domain: str, work: Callable[[Unit], T]) -> T:
        """A write that removes a domain."""
        answer = self.write(work)
        with self._deciding:
            self._forget(domain)
        return answer

    def _forget(self, domain: str) -> None:
        self._publisher.drop(domain)
        self._compiler.forget(domain)
        self._staging.forget(domain)
        self._idle.forget(domain)
        self._tiers.forget(domain)

    async def watch(
        self,
        domain: str,
        held: Held | None,
        wait_s: float,
        *,
        stored_generation: int,
        tier: Tier = Tier.HOST,
        server: str | None = None,
    ) -> Answer | None:
        """What is newer than `held` and not older than the store; see `Publisher.watch`. `server` names a firewall
        server of the domain's PoP, which has a program of its own.

        Raises NotFound for the tier of firewalls where the domain has none, and for that of edges without a PoP.
        """
        if server is not None:
            await asyncio.to_thread(self.read, lambda unit: require_server(unit, domain, server))
            publisher, key = self._tiers.servers.publisher, key_of(domain, server)
            if publisher.program(key) is None:
                self._catch_up(domain)
            return await publisher.watch(key, held, wait_s)
        if tier is not Tier.HOST:
            await asyncio.to_thread(self._check_tier, tier, domain, stored_generation)
            return await self._tiers.publisher(tier).watch(domain, held, wait_s, at_least=stored_generation)
        program, due = self._publisher.program(domain), self._staging.due(domain, stored_generation)
        if self._idle.follow(domain) or program is None or program.generation < due:
            self._catch_up(domain)
        return await self._publisher.watch(domain, held, wait_s, at_least=due)

    def _check_tier(self, tier: Tier, domain: str, stored_generation: int) -> None:
        """Have a tier's program made where it is behind. Raises NotFound where the domain does not have the tier."""
        program = self._tiers.publisher(tier).program(domain)
        if program is None:
            self.read(lambda unit: require(unit, tier, domain))
        if program is None or program.generation < stored_generation:
            self._catch_up(domain)

    async def follow(
        self,
        domain: str,
        held: Held | None,
        lasts_s: float,
        *,
        heartbeat_s: float,
        stored_generation: int,
        tier: Tier = Tier.HOST,
        server: str | None = None,
    ) -> AsyncIterator[Answer | None]:
        """What is newer than `held`, as it comes; see `Publisher.follow`. Raises as `watch`, Busy while there is no
        program yet."""
        first = await self.watch(domain, held, 0.0, stored_generation=stored_generation, tier=tier, server=server)
        if server is not None:
            servers = self._tiers.servers.publisher
            return servers.follow(key_of(domain, server), first, held, lasts_s, heartbeat_s=heartbeat_s)
        publisher = self._publisher if tier is Tier.HOST else self._tiers.publisher(tier)
        return publisher.follow(domain, first, held, lasts_s, heartbeat_s=heartbeat_s)

    def edge_report(self, domain: str) -> EdgeReport | None:
        """What the program of a domain's edge came out as; None while there is none."""
        return self._tiers.edges.report(domain)

    def flows_of(self, domain: str, tenant: int) -> int | None:
        """How many flow entries of a domain's program a tenant has; None while there is no program of its policy."""
        program = None if self._idle.is_behind(domain) else self._publisher.program(domain)
        return None if program is None else self._usage.of(program).get(tenant, 0)

    # ---------------------------------------------------------------------------------------------------- the loop

    def start(self) -> None:
        """Compile every domain and go on from there. Returns at once; `check_ready` says how far it is."""
        self._unsubscribe = self._store.subscribe(self._heard)
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the compilation it is at."""
        self._unsubscribe()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._tiers.servers.stop()

    def check_ready(self) -> None:
        """Raise Busy or Unreachable unless the database answers and the domains found at the start are published."""
        self._store.check()
        if not self._started:
            raise Busy("the programs are being compiled")

    def _heard(self, committed: Committed) -> None:
        """A commit: publish what this thread compiled for it, leave the rest to the loop."""
        prepared: _Prepared = getattr(self._mine, "prepared", _NOTHING)
        prepared.lap("commit")
        if not committed.domains and committed.last_event is None:  # notices may have been lost: look for ourselves
            with self._wake:
                self._all_behind = True
                self._wake.notify()
        for domain, generation in committed.domains.items():
            step = prepared.steps.get(domain)
            if step is None or step.target != generation:
                self._catch_up(domain)
            else:
                self._publish(domain, step)
        prepared.lap("publish")

    def reported(self, domain: str, host: str, generation: int) -> None:
        """A host of a domain was read back at a generation: what is held at an intersection may go on, and a firewall
        server can take the next program."""
        self._tiers.servers.held(domain, host, generation)
        self._staging.reported(domain, generation)
        self._go_on()

    def _go_on(self) -> None:
        for domain in self._staging.staged:
            self._catch_up(domain)

    def _catch_up(self, domain: str) -> None:
        with self._wake:
            self._behind.add(domain)
            self._wake.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._find_those_behind()
                self._compile_those_behind()
                staged = bool(self._staging.staged)
                if not self._started:
                    self._started = True
                    log.info("ready", domains=len(self._publisher.programs()))
                sleep_s = min(each.tick(self) for each in (self._timekeeper, self._promoter, self._chooser))
                self._sleep(min(sleep_s, _STAGED_LOOK_S) if staged else sleep_s)
                self._go_on()
            except TryAgain as error:
                log.warning("control loop tries again", error=str(error))
                self._sleep(_RETRY_S, even_if_behind=True)
            except Exception:
                log.exception("control loop failed")  # a defect in one turn must not end the service's only loop
                self._sleep(_RETRY_S, even_if_behind=True)

    def _find_those_behind(self) -> None:
        if not self._all_behind:
            return
        self._all_behind = False
        try:
            domains = self.read(_every_domain)
        except BaseException:
            self._all_behind = True
            raise
        with self._wake:
            self._behind.update(domains)

    def _compile_those_behind(self) -> None:
        while not self._stopping:
            with self._wake:
                if not self._behind:
                    return
                domain = self._behind.pop()
            try:
                with self._deciding:
                    self._compile_latest(domain)
            except TryAgain:
                self._catch_up(domain)
                raise
            except Exception:
                log.exception("does not compile", domain=domain)  # and so is not served; all others are

    def _compile_latest(self, domain: str) -> None:
        try:
            snapshot = self.read(lambda unit: unit.domains.policy(domain))
        except NotFound:
            self._forget(domain)
            return
        program = self._publisher.program(domain)
        if program is not None and program.generation >= snapshot.generation:
            return
        now = self.read(lambda unit: self._staging.next(unit, domain, snapshot))
        if program is None or program.generation < now.generation:
            others = self.read(lambda unit: self._tiers.compile(unit, domain, snapshot))
            self._publish(domain, _Step(snapshot.generation, now, self._compiler.compile(domain, now), others))

    def _publish(self, domain: str, step: _Step) -> None:
        started = time.perf_counter()
        if step.compiled is None:
            self._tiers.publish(domain, step.target, step.others)
            if self._idle.left(domain):
                self._catch_up(domain)
            time.sleep(_GIVES_WAY_S)
            return
        program = step.compiled.program
        self._staging.published(step.target, step.snapshot, program)
        self._tiers.publish(domain, step.target, step.others)
        self._idle.made(domain)
        if self._publisher.publish(program, step.compiled.change):
            time.sleep(_GIVES_WAY_S)
            log.info(
                "published",
                domain=domain,
                generation=program.generation,
                digest=program.digest.hex(),
                flows=len(program.blocks),
                seconds=round(time.perf_counter() - started, 4),
            )

    def _sleep(self, seconds: float, *, even_if_behind: bool = False) -> None:
        with self._wake:
            if not self._stopping and (even_if_behind or not (self._behind or self._all_behind)):
                self._wake.wait(seconds)


def _every_domain(unit: Unit) -> list[str]:
    found: list[str] = []
    while page := unit.domains.list(limit=_PAGE, marker=found[-1] if found else None):
        found += [record.id for record in page]
    return found
