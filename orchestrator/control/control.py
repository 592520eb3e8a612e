"""Control: every change is compiled before it is committed, and what is committed is published.

    carry_out(work) ── wait for a turn ── do the work ── make and prove programs ── commit ── publish ──▶ Written
                                          │              │ TooLarge, NotExpressible    │
                                          ▼              ▼                             a commit that nobody here
                                          roll back: the caller is told before         compiled (another process, a
                                          anything was acknowledged                    start): `controlloop.py`

Each step takes what the one before returned: a `Turn`, `_Edited`, `Committed`.
Between a decision what to publish and its publication nobody else decides: a turn of the `Maker`'s is held.

On PostgreSQL domains are independent: each has a queue, a turn and a part of the store of its own, so a write that
takes long in one keeps no other waiting. A write that moves several domains, or does not say which, waits for all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import structlog

from orchestrator import stages
from orchestrator.compile.estimate import Estimate
from orchestrator.control.ceilings import Admission, Ceilings, hold_flows, hold_rules, takes_long
from orchestrator.control.compiler import Compiler
from orchestrator.control.controlloop import CatchingUp
from orchestrator.control.duties import Duties, IdleHosts
from orchestrator.control.maker import Maker, Step
from orchestrator.control.pops.edges import EdgeReport
from orchestrator.control.pops.heavy import HeavyChooser
from orchestrator.control.precompiling import Precompiler, carry_once_tried
from orchestrator.control.promote import Promoter
from orchestrator.control.publisher import Publisher
from orchestrator.control.staging import Staging
from orchestrator.control.tiers import Tiers
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.control.units import NO_DOMAIN, Homes, LoopUnits
from orchestrator.control.watches import Watches
from orchestrator.control.writequeue import Jobs, NotCommitted, WriteQueue, Written
from orchestrator.errors import Busy, NotFound, TryAgain
from orchestrator.policy.model import ReturnTraffic
from orchestrator.store import Store
from orchestrator.store.engine import Turn
from orchestrator.store.records import Committed, Principal
from orchestrator.store.transaction import Elsewhere, domain_part
from orchestrator.store.unit import Unit

T = TypeVar("T")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Edited:
    """The result of jobs in a transaction, and the programs to publish after its commit."""

    written: Sequence[Written[Any]]
    steps: Mapping[str, Step]


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
        duties: Duties | None = None,
        precompiler: Precompiler | None = None,
    ) -> None:
        self.ceilings = ceilings or Ceilings()
        self._store = store
        self.publisher = publisher
        self.tiers = tiers or Tiers()
        self._staging = Staging(is_alone=store.is_alone)
        self.idle_hosts = IdleHosts()
        self._precompiler = precompiler
        admission = Admission(self.ceilings, precompiler)
        self._duties = duties or Duties()
        sealed = self._duties.sealed
        self.maker = Maker(store, compiler, publisher, self.tiers, self._staging, self.idle_hosts, admission, sealed)
        units = LoopUnits(self, self.maker.deciding)
        chores = timekeeper or Timekeeper(), promoter or Promoter(), HeavyChooser()
        self.loop = CatchingUp(units, self.maker, self._staging, chores, duties=self._duties)
        self.watches = Watches(
            self, self.loop, publisher, self.tiers, self._staging, self.idle_hosts, self._duties, self._make_asked
        )
        self._queues: dict[str | None, WriteQueue] = {None: WriteQueue(partial(self._carry, None), store.patience_s)}
        self._queues_lock = threading.Lock()
        self._homes = Homes()
        self._unsubscribe: Callable[[], None] = lambda: None

    # ----------------------------------------------------------------------------------------------- units of work

    def read(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a snapshot of the store."""
        with self._store.read() as unit:
            return work(unit)

    def known_bearer(self, secret: str) -> Principal | None:
        """Return a token's bearer, if known without waiting for the database."""
        return self._store.known_bearer(secret)

    def bearer(self, secret: str) -> Principal:
        """Return a token's bearer. Raises Unauthenticated."""
        return self._store.bearer(secret)

    def known_certified(self, fingerprint: bytes) -> Principal | None:
        """Return a certificate's bearer, if known without waiting for the database."""
        return self._store.known_certified(fingerprint)

    def certificate_bearer(self, fingerprint: bytes) -> Principal:
        """Return a certificate's bearer.

        Raises Unauthenticated.
        """
        return self._store.certificate_bearer(fingerprint)

    def write(self, work: Callable[[Unit], T], *, domain: str | None = None) -> T:
        """Carry out `work` and return its answer; see `carry_out`."""
        return self.carry_out(work, domain=domain).answer

    def carry_out(
        self,
        work: Callable[[Unit], T],
        *,
        payer: str | None = None,
        tenant: str | None = None,
        domain: str | None = None,
        puts: Estimate | None = None,
    ) -> Written[T]:
        """Do `work` in a transaction, compile, commit and publish, together with waiting writes.

        `payer` is the tenant whose list it changes: one that takes long turns lets others go first. `domain` is all
        that it changes, or that of `tenant` or `payer`; without any of these it may change all domains. `puts` is of
        the payer's new list where that is known (`Ceilings.check_list`): a long one is compiled in a process before its
        turn, and carried out alone, some time after other long turns.

        Raises what `work` and the compiler raise; then nothing was changed. `work` may be done more than once, each
        time after it was rolled back: alone where others failed with it, and where an intersection goes first.
        """
        stages.lap("read")
        if payer is not None and puts is not None:
            self._hold_quota(payer, puts)
            if self._precompiler is not None:
                self._precompiler.try_new(payer, puts, self._read_return_traffic)
        return self._do_in_turn(
            lambda queue, is_large: queue.do(work, payer, is_large=is_large), domain, tenant or payer, puts
        )

    def rehearse(
        self,
        work: Callable[[Unit], T],
        *,
        payer: str | None = None,
        domain: str | None = None,
        puts: Estimate | None = None,
    ) -> T:
        """Do `work` as `carry_out` does, up to the commit; then undo it.

        Work that another person must approve is done, too. Raises what `carry_out` raises.
        """
        if payer is not None and puts is not None:
            self._hold_quota(payer, puts)
        return self._do_in_turn(
            lambda queue, is_large: queue.do(work, payer, is_large=is_large, is_rehearsal=True), domain, payer, puts
        ).answer

    def _do_in_turn(
        self,
        do: Callable[[WriteQueue, bool], Written[T]],
        domain: str | None,
        tenant: str | None,
        puts: Estimate | None,
    ) -> Written[T]:
        """Do something in the queue of a domain, or of a tenant's domain.

        Without either it is the queue of writes to several. `do` is given the queue, and whether it is known to take
        long.
        """
        if domain is None and tenant is not None and not self._store.is_alone:
            domain = self._home(tenant) or NO_DOMAIN
        part = None if domain is None else self._store.part(domain)
        is_large = takes_long(puts)

        def do_in(queue: WriteQueue) -> Written[T]:
            return carry_once_tried(self._precompiler, lambda *, is_large: do(queue, is_large), is_large=is_large)

        try:
            return do_in(self.queue(part))
        except Elsewhere:  # the tenant is in another domain by now, or more than a domain changes
            self._homes.forget(tenant or "")
            return do_in(self.queue(None))

    def _hold_quota(self, tenant: str, new: Estimate) -> None:
        """Refuse a list over its quotas before it waits for its turn.

        It is held to them there again. Raises TooLarge.
        """
        with suppress(NotFound):  # its turn will say so
            quota = self.read(lambda unit: unit.tenants.quota(tenant))
            hold_rules(tenant, len(new.acl.listed), quota.rules, lambda: self._read_rules(tenant))
            hold_flows(tenant, new, quota.flows, lambda: self._estimate_current(tenant).bounds.most)

    def _estimate_current(self, tenant: str) -> Estimate:
        is_tracked = self._read_return_traffic(tenant) is ReturnTraffic.TRACKED
        return Estimate.of(self.read(lambda unit: unit.acls.current(tenant)).acl, is_tracked=is_tracked)

    def _read_rules(self, tenant: str) -> int:
        """Return how many rules a tenant's list has."""
        newest = self.read(lambda unit: unit.acls.versions(tenant, limit=1))
        return newest[0].rules if newest else 0

    def _read_return_traffic(self, tenant: str) -> ReturnTraffic:
        return self.read(lambda unit: unit.domains.get(unit.tenants.domain(tenant)).return_traffic)

    def _home(self, tenant: str) -> str | None:
        """Return the domain that a tenant was in lately, if there is such a tenant."""
        known = self._homes.find(tenant)
        if known is None:
            with suppress(NotFound):
                known = self.read(lambda unit: unit.tenants.domain(tenant))
                self._homes.keep(tenant, known)
        return known

    def queue(self, domain: str | None) -> WriteQueue:
        """Return the queue of writes to a domain; None: of those to several."""
        with self._queues_lock:
            queue = self._queues.get(domain)
            if queue is None:
                queue = self._queues[domain] = WriteQueue(partial(self._carry, domain), self._store.patience_s)
            return queue

    def _carry(self, domain: str | None, jobs: Jobs) -> Sequence[Written[Any]]:
        """Carry out jobs in one transaction, of a domain's part or of the store.

        Raises NotCommitted, and what a commit raises that failed.
        """
        staged = self._staging.staged  # what was held back before may be so again
        takes_two = jobs[0].is_long or bool(staged if domain is None else domain in staged)
        edited = None if takes_two else self._write(domain, jobs, stride=1)
        edited = edited or self._write(domain, jobs, stride=2)
        assert edited is not None, "an intersection had no generation although one was left free"
        return edited.written

    def _write(self, domain: str | None, jobs: Jobs, *, stride: int) -> _Edited | None:
        """Edit, compile and prove, commit, publish. None where that takes another `stride`: nothing was changed."""
        part = None if domain is None else domain_part(domain)
        with self.maker.deciding.of(domain):
            with self._store.turn(stride=stride, part=part, rehearses=jobs[0].is_rehearsal) as turn:
                edited = self._edit(turn.unit, jobs, stride)
                if edited is None or jobs[0].is_rehearsal:
                    return edited
                committed = self._commit(turn, edited)
            _lap(jobs, "commit")
            self._publish(committed, edited)
            _lap(jobs, "publish")
            self._store.tell(committed, besides=self.hear)
        if turn.unit.sets_times:  # one rule may expire sooner than any other
            self.loop.look_at_times()
        return edited

    def _edit(self, unit: Unit, jobs: Jobs, stride: int) -> _Edited | None:
        """Do the work, and make and prove the next programs of its domains.

        Raises NotCommitted.
        """
        try:
            written = [job.do(unit) for job in jobs]
            steps: dict[str, Step] = {}
            for domain, generation in unit.generations.items():
                step = self.maker.make_step(unit, domain, generation, lambda stage: _lap(jobs, stage), stride)
                if step is None:
                    return None
                steps[domain] = step
        except BaseException as error:
            raise NotCommitted(error) from error
        return _Edited(written, steps)

    def _commit(self, turn: Turn, edited: _Edited) -> Committed:
        """Commit the turn; return what was committed.

        Where the answer was lost, the change may be there all the same, and the loop looks.
        """
        try:
            return turn.commit()
        except TryAgain:
            for domain in edited.steps:
                self.loop.look_at(domain)
            raise

    def _publish(self, committed: Committed, edited: _Edited) -> None:
        """Publish a commit's programs; the loop handles domains that are behind.

        It is on the disk by now, so whatever fails here must not look like a failed write.
        """
        for domain, generation in committed.domains.items():
            step = edited.steps.get(domain)
            try:
                is_behind = step is None or step.target != generation or self.maker.publish(domain, step)
            except Exception:
                log.exception("not published: the control loop tries again", domain=domain)
                is_behind = True
            if is_behind:
                self.loop.look_at(domain)

    def delete_domain(self, domain: str, work: Callable[[Unit], T]) -> Written[T]:
        """A write that removes a domain."""
        written = self.carry_out(work)
        self.maker.forget(domain)
        self._duties.forget(domain)
        with self._queues_lock:
            self._queues.pop(domain, None)
        return written

    def edge_report(self, domain: str) -> EdgeReport | None:
        """Return the result of a domain's edge program; None while there is none."""
        self._make_for_questions(domain)
        return self.tiers.edges.report(domain)

    def flows_of(self, domain: str, tenant: int) -> int | None:
        """Return a tenant's flow entries in its domain's program; None while there is none."""
        self._make_for_questions(domain)
        return self.maker.flows_of(domain, tenant)

    def _make_for_questions(self, domain: str) -> None:
        """Make the programs of a domain that nobody follows here, where that can be done."""
        if not self._duties.is_followed(domain):
            with suppress(Busy):
                self._make_asked(domain)

    def _make_asked(self, domain: str) -> None:
        """Make the newest programs of a domain now. Raises Busy where that cannot be done."""
        try:
            self.maker.catch_up(domain)
        except Exception as error:
            log.exception("does not compile", domain=domain)
            raise Busy(f"the program of '{domain}' cannot be made now") from error

    # ------------------------------------------------------------------------------------------------- what happens

    def start(self) -> None:
        """Start compiling every domain; return at once.

        `check_ready` says how far it is.
        """
        self._duties.join(self.loop.look_at_all)
        self._unsubscribe = self._store.subscribe(self.hear)
        self.loop.start()

    def stop(self) -> None:
        """End the loop after its present compilation, and leave the domains to other services."""
        self._duties.leave()
        self._unsubscribe()
        self.loop.stop()
        self.tiers.servers.stop()

    def check_ready(self, domain: str | None = None) -> None:
        """Raise Busy or Unreachable until the domains found at the start are published.

        Of one domain: until its newest generation is published, whatever becomes of the others. Raises NotFound.
        """
        self._store.check()
        if domain is None and not self.loop.has_started:
            raise Busy(f"the programs are being compiled: {self.loop.left} domains are left")
        if domain is not None and not self._is_given_out(domain, self._read_generation(domain)):
            self.loop.look_at(domain, first=True)
            raise Busy(f"the program of '{domain}' is being compiled")

    def is_compiled(self, domain: str, generation: int) -> bool:
        """Return whether a generation, or the intersection before it, is published.

        Where nobody follows the domain here: whether it compiled when this service tried last.
        """
        if not self._duties.is_followed(domain):
            is_made = self.publisher.program(domain) is not None or not self._duties.owns(domain)
            return is_made and not self.loop.has_failed(domain)
        return self._is_given_out(domain, generation)

    def _is_given_out(self, domain: str, generation: int) -> bool:
        program = self.publisher.program(domain)
        if program is not None and program.generation >= self._staging.due(domain, generation):
            return True
        return self.idle_hosts.is_behind(domain)

    def _read_generation(self, domain: str) -> int:
        return self.read(lambda unit: unit.domains.get(domain).generation)

    def note_report(self, domain: str, host: str, generation: int) -> None:
        """Note a host's read-back.

        A domain that waits at an intersection may go on, and a firewall server can take the next program.
        """
        self.tiers.servers.note_held(domain, host, generation)
        self._staging.note_report(domain, generation)
        self.loop.look_at_reported(domain)

    def hear(self, committed: Committed) -> None:
        """A commit that was not carried out here: the loop looks at what it moved."""
        if not committed.domains and committed.last_event is None:  # notices may have been lost: look for ourselves
            self.loop.look_at_all()
        for domain in committed.domains:
            self.loop.look_at_changed(domain, committed.steps.get(domain))


def _lap(jobs: Jobs, stage: str) -> None:
    """End a stage of some jobs."""
    for job in jobs:
        job.lap(stage)
