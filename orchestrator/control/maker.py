"""Make a domain's next programs on every tier, in a transaction or from the store.

    a transaction ── made(unit, ...) ──▶ Step ── commit ──▶ publish        refused: nothing was acknowledged
    the latest ───── catch_up(domain) ─────────────────────▶ publish       a commit that nobody here compiled, a start
    a sealed step ── take_steps(domain, ...) ──────────────▶ publish       another service's commit (`sealedsteps.py`)

What may be published next follows from what was published (`staging.py`), so nobody publishes between somebody's
decision and what comes of it: `deciding` is held from the one to the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from orchestrator.control.ceilings import Admission
from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.control.duties import IdleHosts
from orchestrator.control.promote import settle_lifts
from orchestrator.control.publisher import Publisher
from orchestrator.control.quota import Usage
from orchestrator.control.sealedsteps import SealedSteps
from orchestrator.control.staging import Staging
from orchestrator.control.tiers import Programs, Tiers
from orchestrator.control.units import Turns
from orchestrator.errors import NotFound, Stale
from orchestrator.interpreter import give_back
from orchestrator.policy.connections import check_trackable
from orchestrator.policy.model import Policy, ReturnTraffic
from orchestrator.program.delta import apply
from orchestrator.program.program import Program
from orchestrator.program.wire import written
from orchestrator.store import Store
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.transaction import domain_part
from orchestrator.store.unit import Unit

log = structlog.get_logger()

_GIVES_WAY_S = 0.0001
"""How long who has published lets go of the interpreter, so that the event loop sends first: what is left to be done
can be done while switches work, and without this the loop would wait for as long as a thread may go on."""


@dataclass(frozen=True, slots=True)
class Step:
    """A program to publish on the way to generation `target`.

    That of the target, or of what must come first. None where nobody needs it (`duties.py`).
    """

    target: int
    snapshot: PolicySnapshot
    compiled: Compiled | None
    others: Programs
    """The target's programs for the domain's firewall VNFs and edge switches, if it has any."""


class Maker:
    """Makes and publishes the programs of domains.

    `deciding` is held while `made` and what comes of it are one: of the domain, where it has a part of the store for
    itself, else of all domains.
    """

    def __init__(
        self,
        store: Store,
        compiler: Compiler,
        publisher: Publisher,
        tiers: Tiers,
        staging: Staging,
        idle: IdleHosts,
        admission: Admission,
        sealed: SealedSteps | None = None,
    ) -> None:
        self.deciding = Turns(None if store.is_alone else store.patience_s)
        self._store = store
        self._compiler = compiler
        self._publisher = publisher
        self._tiers = tiers
        self._staging = staging
        self._idle = idle
        self._admission = admission
        self._sealed = sealed
        self._usage = Usage()

    @property
    def domains(self) -> int:
        """How many domains have a hosts' program that is given out."""
        return len(self._publisher.programs())

    def make_step(
        self, unit: Unit, domain: str, generation: int, lap: Callable[[str], None], stride: int
    ) -> Step | None:
        """Compile a domain that moved.

        `lap` ends a stage, `stride` is how far the generation went.

        None where an intersection must be enforced first, and no generation was left free for it. Raises what the
        compilers raise.
        """
        snapshot = unit.domains.policy(domain)
        self._admission.check(unit, domain, snapshot, lambda: self._read_committed(domain).policy)
        lap("database")
        compiled, before = None, None
        if not self._idle.is_idle(unit, domain, snapshot):
            before = self._program_before(unit, domain, generation - stride)
            compiled = self._compiler.compile(domain, snapshot)
        elif snapshot.policy.return_traffic is ReturnTraffic.TRACKED:
            check_trackable(snapshot.policy, carries_stateless=True)
        snapshot = settle_lifts(unit, domain, snapshot, () if compiled is None else compiled.lifts)
        others = self._tiers.compile(unit, domain, snapshot)
        lap("compile")
        told = {"generation": generation}
        if compiled is None:
            step = Step(generation, snapshot, None, others)
        else:
            self._usage.hold(unit, compiled.program, compiled.change, before)
            first = self._first_step(unit, domain, snapshot, compiled, others, stride)
            if first is None:
                return None
            step = self._pass_on(unit, domain, first)
            told["flows"] = len(compiled.program.blocks)
        unit.events.append("generation.published", domain, told)
        lap("database")
        return step

    def publish(self, domain: str, step: Step) -> bool:
        """Publish a step's programs; return whether the domain is behind all the same.

        That is so where somebody came to follow it meanwhile.
        """
        started = time.perf_counter()
        if step.compiled is None:
            self._tiers.publish(domain, step.target, step.others)
            is_behind = self._idle.left(domain)
            time.sleep(_GIVES_WAY_S)
            return is_behind
        program = step.compiled.program
        self._staging.note_published(step.target, step.snapshot, program)
        if step.snapshot.generation == step.target:
            self._compiler.follow(domain)
        self._tiers.publish(domain, step.target, step.others)
        self._idle.note_published(domain)
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
            if step.compiled.is_large:  # switches are busy with it, and nobody waits for us
                give_back()
        return False

    def catch_up(self, domain: str, *, wait_s: float | None = None) -> bool:
        """Publish a domain's present state, or forget a deleted one.

        Return whether that was done: not where a writer of the domain is still at work here after `wait_s`. Raises what
        the compilers raise.
        """
        with self.deciding.of(self._store.part(domain), wait_s) as is_held:
            if is_held:
                self._make_latest(domain)
            return is_held

    def take_steps(self, domain: str, steps: Sequence[str], *, wait_s: float | None = None) -> bool:
        """Publish another service's programs by sealed steps; return whether nothing is left to do.

        Something is left where a step is none of ours, or does not start from a program that was published here, and
        where an intersection goes first, or a writer of the domain is still at work here after `wait_s`. Programs that
        are published so are not proven here yet.
        """
        with self.deciding.of(self._store.part(domain), wait_s) as is_held:
            may_take = is_held and not self._staging.is_staged(domain)
            return may_take and all(self._take_step(domain, step) for step in steps)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain that is no more."""
        with self.deciding.of(self._store.part(domain)):
            self._forget_domain(domain)

    def flows_of(self, domain: str, tenant: int) -> int | None:
        """Return a tenant's flow entries in its domain's program; None while there is none."""
        program = None if self._idle.is_behind(domain) else self._publisher.program(domain)
        return None if program is None else self._usage.of(program).get(tenant, 0)

    def _program_before(self, unit: Unit, domain: str, generation: int) -> Program | None:
        """Return the host program of a generation, without the running transaction after it.

        Where quotas are counted, it is made if it is not published here; else nothing is told from it. Raises what the
        compiler raises.
        """
        program = None if self._idle.is_behind(domain) else self._publisher.program(domain)
        is_newest = program is not None and program.generation == generation
        if is_newest or not any(unit.tenants.quota(tenant).flows is not None for tenant in unit.changed_lists):
            return program
        return self._compiler.compile(domain, self._read_committed(domain)).program

    def _read_committed(self, domain: str) -> PolicySnapshot:
        """Return a domain's policy without a running transaction; empty where there is none."""
        with self._store.read() as unit:
            try:
                return unit.domains.policy(domain)
            except NotFound:
                return PolicySnapshot(Policy(), 0)

    def _first_step(
        self,
        unit: Unit,
        domain: str,
        newest: PolicySnapshot,
        compiled: Compiled,
        others: Programs,
        stride: int,
    ) -> Step | None:
        """Return the step to publish at commit; None if its generation is not free."""
        held_back = self._staging.held_back(unit, domain, newest)
        if not held_back:
            return Step(newest.generation, newest, compiled, others)
        if stride == 1:
            return None
        unit.intersections.keep(domain, newest.generation, held_back)
        first = self._staging.intersection_of(domain, newest, held_back)
        return Step(newest.generation, first, self._compiler.compile(domain, first, is_intersection=True), others)

    def _pass_on(self, unit: Unit, domain: str, step: Step) -> Step:
        """Pass a step to other services with its commit.

        Steps of hosts' programs to the newest policy are passed, in domains without other tiers.
        """
        compiled = step.compiled
        if self._sealed is None or not self._sealed.has_readers or compiled is None or compiled.change is None:
            return step
        is_other = step.snapshot.generation != step.target or any(each is not None for each in step.others.values())
        if is_other or compiled.is_large:
            return step
        change = written(compiled.change)  # its bytes are needed again when it is published
        sealed = self._sealed.seal(domain, change)
        if sealed is not None:
            unit.pass_step(domain, sealed)
        return replace(step, compiled=replace(compiled, change=change))

    def _take_step(self, domain: str, sealed: str) -> bool:
        """Publish a step's program, unless that or a newer one is published."""
        step = None if self._sealed is None else self._sealed.open(domain, sealed)
        program = self._publisher.program(domain)
        if step is None or program is None:
            return False
        if program.generation >= step.generation:
            return True
        base = self._publisher.find_recent(domain, step.base)
        if base is None or self._tiers.has_programs(domain):
            return False
        try:
            following = apply(base, step)
        except Stale:
            return False
        if following.blocks.digest(following.ports) != step.target:
            return False
        self._idle.note_published(domain)
        self._publisher.publish(following, step, is_proven=False)
        time.sleep(_GIVES_WAY_S)
        return True

    def _make_latest(self, domain: str) -> None:
        program = self._publisher.program(domain)
        try:
            with self._store.read() as unit:
                snapshot = unit.domains.policy(domain)
                ahead = -1 if program is None else program.generation - snapshot.generation
                if ahead > 0 or (ahead == 0 and self._publisher.is_proven(domain)):
                    return
                others = None
                is_open = unit.intersections.is_open(domain, snapshot.generation)
                now = self._staging.following(unit, domain, snapshot)
                if not is_open and (program is None or program.generation < now.generation):
                    others = self._tiers.compile(unit, domain, snapshot)  # here: each transaction costs about as much
            if is_open:
                snapshot, now = self._read_decided(domain)
        except NotFound:
            self._forget_domain(domain)
            return
        if program is None or program.generation < now.generation:
            self._admission.learn(domain, snapshot.policy)
            if others is None:
                with self._store.read() as unit:
                    others = self._tiers.compile(unit, domain, snapshot)
            compiled = self._compiler.compile(domain, now, is_intersection=now is not snapshot)
            self.publish(domain, Step(snapshot.generation, now, compiled, others))
        elif now is snapshot and not self._publisher.is_proven(domain):
            self._prove(domain, snapshot)

    def _prove(self, domain: str, snapshot: PolicySnapshot) -> None:
        """Compile and prove a program that came by steps; replace a wrong one."""
        self._admission.learn(domain, snapshot.policy)
        program = self._compiler.compile(domain, snapshot).program
        self._compiler.follow(domain)
        if not self._publisher.confirm(program):
            log.critical("what another service passed is not the policy's program: replaced", domain=domain)
            self._publisher.publish(program, again=True)
        self._staging.note_published(snapshot.generation, snapshot, program)

    def _read_decided(self, domain: str) -> tuple[PolicySnapshot, PolicySnapshot]:
        """Return a domain's newest snapshot, and the one that may be published.

        For states reached otherwise than by a change. Raises NotFound.
        """
        with self._store.write(part=domain_part(domain)) as unit:
            snapshot = unit.domains.policy(domain)
            if unit.intersections.is_open(domain, snapshot.generation):
                self._staging.decide(unit, domain, snapshot)
            return snapshot, self._staging.following(unit, domain, snapshot)

    def _forget_domain(self, domain: str) -> None:
        self._publisher.drop(domain)
        self._compiler.forget(domain)
        self._staging.forget(domain)
        self._idle.forget(domain)
        self._admission.forget(domain)
        self._tiers.forget(domain)
