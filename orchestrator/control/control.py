"""Control: every change is compiled before it is committed, and what is committed is published.

    write(work) ── begin ── work(unit) ... ── make the programs of domains that moved ── commit ──▶ heard ── publish
                                               │ TooLarge, NotExpressible (`maker.py`)    │
                                               ▼                                          a commit that nobody here
                                            roll back: the caller is told                 compiled (another process, a
                                            before anything was acknowledged              start): `catchingup.py`

Between a decision what to publish and its publication nobody else decides: the `Maker`'s lock is held.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator import stages
from orchestrator.control.catchingup import CatchingUp
from orchestrator.control.ceilings import Admission, Ceilings
from orchestrator.control.compiler import Compiler
from orchestrator.control.idlehosts import IdleHosts
from orchestrator.control.maker import Maker, Step, TwoSteps
from orchestrator.control.pops.edges import EdgeReport
from orchestrator.control.pops.heavy import HeavyChooser
from orchestrator.control.pops.manager import key_of, require_server
from orchestrator.control.promote import Promoter
from orchestrator.control.publisher import Answer, Held, Publisher
from orchestrator.control.staging import Staging
from orchestrator.control.tiers import Tiers, require
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.control.together import Jobs, NotCommitted, Together
from orchestrator.errors import Busy, TryAgain
from orchestrator.program.program import Tier
from orchestrator.store import Store
from orchestrator.store.records import Committed, Principal
from orchestrator.store.unit import Unit

T = TypeVar("T")


@dataclass(slots=True)
class _Prepared:
    """What a thread is about to commit: the pieces of work, and the steps of the domains that they move."""

    jobs: Jobs
    steps: dict[str, Step] = field(default_factory=dict)
    has_begun: bool = False
    is_committing: bool = False

    def lap(self, stage: str) -> None:
        """End a stage of all of them."""
        for job in self.jobs:
            job.lap(stage)


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
        ceilings: Ceilings | None = None,
    ) -> None:
        self.ceilings = ceilings or Ceilings()
        self._store = store
        self._publisher = publisher
        self._tiers = tiers or Tiers()
        self._staging = Staging(is_alone=store.is_alone)
        self._idle = IdleHosts()
        admission = Admission(self.ceilings)
        self._maker = Maker(store, compiler, publisher, self._tiers, self._staging, self._idle, admission)
        chores = timekeeper or Timekeeper(), promoter or Promoter(), HeavyChooser()
        self._loop = CatchingUp(self, self._maker, self._staging, chores)
        self._mine = threading.local()
        self._together = Together(self._carry, store.patience_s)
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
        except TwoSteps:
            self._write(jobs, stride=2)

    def _write(self, jobs: Jobs, *, stride: int) -> None:
        """Raises TwoSteps, NotCommitted, and what a commit raises that failed."""
        self._mine.prepared = prepared = _Prepared(jobs)
        try:
            with self._maker.deciding, self._store.write(stride=stride) as unit:
                prepared.has_begun = True
                for job in jobs:
                    job.lap("turn")
                    job.moved = unit.note_moves()
                    job.do(unit)
                    job.lap("database")
                for domain, generation in unit.generations.items():
                    prepared.steps[domain] = self._maker.made(unit, domain, generation, prepared.lap, stride)
                prepared.is_committing = True
        except TwoSteps:
            raise
        except BaseException as error:
            if prepared.has_begun and not prepared.is_committing:
                raise NotCommitted(error) from error
            if isinstance(error, TryAgain):  # the change may be there all the same
                for domain in prepared.steps:
                    self._loop.look_at(domain)
            raise
        finally:
            self._mine.prepared = _Prepared(())
        if unit.sets_times:  # one rule may expire sooner than any other
            self._loop.look_at_times()

    def delete_domain(self, domain: str, work: Callable[[Unit], T]) -> T:
        """A write that removes a domain."""
        answer = self.write(work)
        self._maker.forget(domain)
        return answer

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
                self._loop.look_at(domain)
            return await publisher.watch(key, held, wait_s)
        if tier is not Tier.HOST:
            await asyncio.to_thread(self._check_tier, tier, domain, stored_generation)
            return await self._tiers.publisher(tier).watch(domain, held, wait_s, at_least=lambda: stored_generation)

        def due() -> int:
            return self._staging.due(domain, stored_generation)

        program = self._publisher.program(domain)
        if self._idle.follow(domain) or program is None or program.generation < due():
            self._loop.look_at(domain)
        return await self._publisher.watch(domain, held, wait_s, at_least=due)

    def _check_tier(self, tier: Tier, domain: str, stored_generation: int) -> None:
        """Have a tier's program made where it is behind. Raises NotFound where the domain does not have the tier."""
        program = self._tiers.publisher(tier).program(domain)
        if program is None:
            self.read(lambda unit: require(unit, tier, domain))
        if program is None or program.generation < stored_generation:
            self._loop.look_at(domain)

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
        return self._maker.flows_of(domain, tenant)

    # ------------------------------------------------------------------------------------------------- what happens

    def start(self) -> None:
        """Compile every domain and go on from there. Returns at once; `check_ready` says how far it is."""
        self._unsubscribe = self._store.subscribe(self._heard)
        self._loop.start()

    def stop(self) -> None:
        """End the loop after the compilation it is at."""
        self._unsubscribe()
        self._loop.stop()
        self._tiers.servers.stop()

    def check_ready(self) -> None:
        """Raise Busy or Unreachable unless the database answers and the domains found at the start are published."""
        self._store.check()
        if not self._loop.has_started:
            raise Busy("the programs are being compiled")

    def reported(self, domain: str, host: str, generation: int) -> None:
        """A host of a domain was read back at a generation: what is held at an intersection may go on, and a firewall
        server can take the next program."""
        self._tiers.servers.held(domain, host, generation)
        self._staging.reported(domain, generation)
        self._loop.look_at_staged()

    def _heard(self, committed: Committed) -> None:
        """A commit: publish what this thread compiled for it, leave the rest to the loop."""
        prepared: _Prepared = getattr(self._mine, "prepared", _NOTHING)
        prepared.lap("commit")
        if not committed.domains and committed.last_event is None:  # notices may have been lost: look for ourselves
            self._loop.look_at_all()
        for domain, generation in committed.domains.items():
            step = prepared.steps.get(domain)
            if step is None or step.target != generation or self._maker.publish(domain, step):
                self._loop.look_at(domain)
        prepared.lap("publish")
