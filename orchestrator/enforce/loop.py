"""The loop that keeps one device at its program: observe, compare, apply, read back, report.

`standing.next_step` decides, `gap` compares; this is the thread around them. The latest goal wins: goals in between may
never reach a device. Every step runs against the device and the goal of the moment when it began, and what it found out
is dropped if that device is gone by then. One step is done at a time, by the loop's own thread or, for a change of a
few rows, by whoever brings the goal (`take`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from orchestrator.enforce import gap
from orchestrator.enforce.changing import Work, finish
from orchestrator.enforce.counting import Counting
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.readback import apply_change, change_rows, recount_change
from orchestrator.enforce.standing import (
    NEVER,
    Act,
    Device,
    Goal,
    Point,
    Rest,
    Role,
    Standing,
    Timing,
    next_step,
)
from orchestrator.errors import AclflowError, Drifted, Refused, Unreachable
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program
from orchestrator.stages import StageClock
from orchestrator.wire.points import PointState

log = structlog.get_logger()

TAKES_A_WHILE = 2000
"""A change of more rows than this is announced as being applied; a smaller one is over before anybody could read it."""

MOST_OF_THE_TIME = 0.05
"""Looking and counting may take this part of the time, for a new goal has to wait while they do."""


class Loop:
    """Keeps one device at its program, in its own thread.

    Every method may be called from any thread.
    """

    def __init__(
        self,
        host: str,
        report: Callable[[Point], None],
        counting: Counting,
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._report = report
        self._counting = counting
        self._timing = timing or Timing()
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._standing = Standing(absent_at=clock() + self._timing.absent_after_s)
        self._epoch = 0
        self._is_ours = True
        self._yields = False
        self._point = Point(host, PointState.DISCONNECTED)
        self._told: Point | None = None
        self._log = log.bind(host=host)
        self.is_acting = False
        self._held_up = False  # our own thread rests only because somebody else acts
        self._handed: Work | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"loop-{host}", daemon=True)

    def start(self) -> None:
        """Start the loop's thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the step under way. The device keeps what it holds."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    @property
    def is_busy(self) -> bool:
        """Return whether a goal is being worked on, so that a report will come."""
        standing = self._standing
        return (
            standing.role is Role.MASTER
            and not standing.failures
            and standing.goal is not None
            and not standing.is_reached
        )

    # ---------------------------------------------------------------------------------------------------- what happens

    def aim(self, goal: Goal) -> None:
        """Have the device hold this goal from now on."""
        self._change_standing(goal=goal, retry_at=0.0, failures=0)

    def take(self, goal: Goal) -> Work | None:
        """Set a goal; return the step to it if it is small and possible now.

        The caller must carry that on at once, or hand it over (`take_over`). Else it is the loop's own business.
        """
        with self._changed:
            self._standing = standing = replace(self._standing, goal=goal, retry_at=0.0, failures=0)
            is_near = gap.small_step(standing.held, goal.program, goal.trail) is not None
            if is_near and not self.is_acting and self._choose_step() is Act.ADVANCE:
                return self._begin_step(Act.ADVANCE)
            self._changed.notify()
            return None

    def take_over(self, work: Work) -> None:
        """Go on with a step that somebody else began."""
        with self._changed:
            self._handed = work
            self._changed.notify()

    @property
    def leads(self) -> bool:
        """Whether the device is connected and ours to write."""
        return self._standing.role is Role.MASTER

    @property
    def stands_by(self) -> bool:
        """Whether the device is connected, and somebody else's to write."""
        standing = self._standing
        return standing.device is not None and standing.role is Role.STANDBY

    def lead(self, epoch: int, *, yields: bool = False) -> None:
        """Claim devices with this epoch from now on; a standby tries again with it.

        `yields`: what another controller takes is not claimed again, when it connects anew either.
        """
        with self._changed:
            self._epoch = epoch
            self._is_ours, self._yields = True, yields
            if self._standing.role is Role.STANDBY:
                self._change_standing(role=Role.UNCLAIMED)

    def keep_epoch(self, epoch: int) -> None:
        """Claim devices with this epoch when they are ours to claim; nothing else changes."""
        with self._changed:
            self._epoch = epoch

    def expect_nothing(self) -> None:
        """Say nothing of a device that never connects here."""
        self._change_standing(absent_at=NEVER)

    def stand_by(self, epoch: int) -> None:
        """Leave the device to another controller, unless we lead it; say nothing of it."""
        with self._changed:
            self._epoch, self._yields = epoch, True
            if not self.leads:
                self._is_ours = False
                self._change_standing(role=Role.STANDBY, absent_at=NEVER)

    def attach(self, device: Device) -> None:
        """Take a device as connected; it replaces an earlier one."""
        with self._changed:
            self._forget(device, role=self._first_role, absent_at=NEVER)

    def detach(self, device: Device) -> None:
        """Let go of a device whose connection is gone, unless it was replaced already."""
        with self._changed:
            if self._standing.device is device:
                # A controller that stands by says nothing: the device may well be connected to the one that leads.
                led = self._standing.role is Role.MASTER
                self._forget(None, role=self._first_role, absent_at=self._clock() if led else NEVER)

    @property
    def _first_role(self) -> Role:
        """Our role for a device that has just connected."""
        return Role.UNCLAIMED if self._is_ours else Role.STANDBY

    def ports_changed(self, device: Device) -> None:
        """A device's ports have other numbers or names: what it holds may name wrong ones."""
        with self._changed:
            if self._standing.device is device:
                self._forget(device)

    def give_way(self, device: Device) -> None:
        """Stop leading a device that another controller leads now."""
        with self._changed:
            if self._standing.device is device:
                self._is_ours = not self._yields
                self._forget(device, role=Role.STANDBY)

    def _forget(self, device: Device | None, **changes: object) -> None:
        """Forget everything known of the device."""
        events = self._standing.events + 1
        self._change_standing(device=device, held=None, retry_at=0.0, failures=0, events=events, **changes)

    def _change_standing(self, **changes: object) -> None:
        with self._changed:
            self._standing = replace(self._standing, **changes)  # type: ignore[arg-type]  # fields of Standing
            self._changed.notify()

    # ------------------------------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while (work := self._next_work()) is not None:
            finish(work)

    def _next_work(self) -> Work | None:
        """Wait for the next work; None when it is time to stop."""
        with self._changed:
            while not self._stopping:
                if self._handed is not None:
                    work, self._handed = self._handed, None
                    return work
                step = Rest() if self.is_acting else self._choose_step()
                if isinstance(step, Act):
                    return self._begin_step(step)
                self._held_up = self.is_acting
                self._changed.wait(None if step.until == NEVER else max(0.0, step.until - self._clock()))
        return None

    def _choose_step(self) -> Act | Rest:
        return next_step(self._standing, self._clock())

    def _begin_step(self, act: Act) -> Work:
        """Begin one step from the present standing.

        Nobody else begins one before it is done. To be called with the lock.
        """
        self.is_acting = True
        return self._act(act, self._standing)

    def _act(self, act: Act, standing: Standing) -> Work:
        """Do one step, and turn whatever goes wrong into a standing and a report."""
        try:
            yield from self._do(act, standing)
        except Unreachable as error:
            self._fail(standing, PointState.DISCONNECTED, error, role=Role.UNCLAIMED)
        except Refused as error:
            # Word that somebody else leads now may still be on its way to us; then this is theirs to report.
            if act is Act.CLAIM or self._leads_still(standing):
                self._fail(standing, PointState.REFUSED, error)
        except AclflowError as error:
            self._fail(standing, PointState.DRIFTED, error)
        except Exception as error:  # noqa: BLE001
            # A fault of ours must not end the loop: say so, and begin again from what the device really holds.
            self._log.exception("loop.fault")
            self._fail(standing, PointState.REFUSED, error)
        finally:
            with self._changed:
                self.is_acting = False
                if self._held_up or isinstance(self._choose_step(), Act):
                    self._held_up = False
                    self._changed.notify()

    def _do(self, act: Act, standing: Standing) -> Work:
        """Do the next act for the device."""
        device, goal = standing.device, standing.goal
        if device is None:
            self._change_standing(absent_at=NEVER)
            self._tell(replace(self._point, state=PointState.DISCONNECTED, error=None))
        elif act is Act.CLAIM:
            self._claim(standing, device)
        elif act is Act.COUNT:
            self._poll(standing, device)
        elif act is Act.ADVANCE and standing.held is not None and goal is not None:
            yield from self._advance(standing, goal, standing.held, device)
        elif goal is not None:
            self._observe(standing, goal, device)

    def _advance(self, standing: Standing, goal: Goal, held: Program, device: Device) -> Work:
        """Bring the device from what it is known to hold to the goal."""
        clock = self._stage_clock(goal)
        small = gap.small_step(held, goal.program, goal.trail)
        if small is not None:
            changed = yield from change_rows(device, small, goal.program, clock)
            self._note_reached(standing, goal.program, clock)
            self._counting.note_change(self._host, lambda: recount_change(device, small, changed.last))
        else:
            change = gap.step(held, goal.program, goal.trail, device.resolve)
            clock.lap("plan")
            if device.counter_keys(change.removed) is None:  # some counters begin anew, and nobody knows which
                self._poll(standing, device)
            self._write(change, goal.program, device, clock)
            self._note_reached(standing, goal.program, clock)

    def _poll(self, standing: Standing, device: Device) -> None:
        """Read the counters.

        They are dropped if somebody else leads the device by now: they count it.
        """
        began = self._clock()
        hits = device.hits()
        took_s = self._clock() - began
        if self._settle(standing, count_at=self._later(began, self._timing.count_every_s)):
            self._counting.note_poll(self._host, hits, took_s)

    def _claim(self, standing: Standing, device: Device) -> None:
        """Claim the device; until that succeeds nothing is written on this connection."""
        granted = device.claim(self._epoch)
        self._log.info("device.claimed" if granted else "device.standby", epoch=self._epoch)
        self._is_ours = granted or not self._yields
        self._settle(standing, role=Role.MASTER if granted else Role.STANDBY)

    def _leads_still(self, standing: Standing) -> bool:
        """Ask the device whether we still lead it.

        Without an answer the refusal stands, and its connection is about to end.
        """
        try:
            granted = standing.device is not None and standing.device.claim(self._epoch)
        except AclflowError:
            return True
        if not granted:
            self._log.info("device.standby", epoch=self._epoch)
            self._settle(standing, role=Role.STANDBY, held=None)
        return granted

    def _observe(self, standing: Standing, goal: Goal, device: Device) -> None:
        """Read what the device holds, and bring it to the goal."""
        began = self._clock()
        clock = self._stage_clock(goal)
        observed = device.observe()
        clock.lap("observe")
        if goal.remembered and observed.stamp is not None and observed.stamp.generation > goal.program.generation:
            self._log.warning("device.ahead", holds=observed.stamp.generation, remembered=goal.program.generation)
            with self._changed:
                if self._standing.goal is goal:  # else what to do came meanwhile
                    self._settle(standing, retry_at=NEVER)
            return
        change = gap.correction(observed, goal.program, device.resolve)
        rows = len(change.removed) + len(change.added)
        if rows or observed.stamp != gap.stamp_of(goal.program):
            if standing.is_reached:
                self._log.warning("device.drifted", surplus=len(change.removed), missing=len(change.added))
                text = gap.Mismatch(len(change.added), len(change.removed), not rows).text
                self._tell(replace(self._point, state=PointState.DRIFTED, error=text))
            clock.lap("plan")
            unknown = device.counter_keys(change.removed) is None  # which begin anew: what all had counted is kept
            self._write(change, goal.program, device, clock, device.hits() if unknown else None)
        self._told = None  # said again although nothing is new: a sign of life, and a remedy for reports gone astray
        again_at = self._later(began, self._timing.observe_every_s)
        self._note_reached(standing, goal.program, clock, observed.ports, observe_at=again_at)

    def _later(self, began: float, period_s: float) -> float:
        """Return the next time of a periodic step, later if it takes long."""
        now = self._clock()
        return now + max(period_s, (now - began) / MOST_OF_THE_TIME)

    def _stage_clock(self, goal: Goal) -> StageClock:
        """Return a clock for a step's stages, with fetching, copying and waking before."""
        clock = StageClock(self._clock)
        if goal.arrived_at != NEVER:
            clock.add("copy", max(0.0, self._clock() - goal.arrived_at))
        return clock

    def _write(
        self, change: Delta, program: Program, device: Device, clock: StageClock, last: Hits | None = None
    ) -> None:
        """Apply, and read back the touched rows.

        `last`: the counters, if they were read right before. Raises Drifted when what is there is not what was meant.
        """
        rows = len(change.removed) + len(change.added)
        if rows > TAKES_A_WHILE:
            self._tell(replace(self._point, state=PointState.APPLYING, error=None))
        apply_change(device, change, program, clock)
        self._counting.note_change(self._host, lambda: recount_change(device, change, last))
        self._log.debug("device.written", generation=program.generation, rows=rows, took_s=clock.seconds)

    def _note_reached(
        self,
        standing: Standing,
        program: Program,
        clock: StageClock,
        ports: frozenset[str] | None = None,
        **changes: object,
    ) -> None:
        """Note that the device was read back to hold a program."""
        if self._settle(standing, held=program, failures=0, **changes):
            point = Point(self._host, PointState.ENFORCED, program.generation, program.digest, len(program.blocks))
            self._tell(replace(point, took=clock.seconds, ports=ports))

    def _fail(self, standing: Standing, state: PointState, error: Exception, **changes: object) -> None:
        """Record a failure; try again later, or at once for a newer goal."""
        with self._changed:
            failures = standing.failures + 1 if self._standing.goal is standing.goal else 0
            # A first drift may be repaired at once; a device that drifts again and again may not be ours alone.
            at_once = failures == 0 or (failures == 1 and isinstance(error, Drifted))
            retry_at = 0.0 if at_once else self._clock() + self._timing.delay_s(failures)
            current = self._settle(standing, held=None, failures=failures, retry_at=retry_at, **changes)
        if current:
            self._log.warning("device.failed", state=state.value, error=str(error), failures=failures)
            self._tell(replace(self._point, state=state, error=str(error)))

    def _settle(self, standing: Standing, **changes: object) -> bool:
        """Store a step's result, unless something happened to the device meanwhile."""
        with self._changed:
            if self._standing.device is not standing.device or self._standing.events != standing.events:
                return False
            self._standing = replace(self._standing, **changes)  # type: ignore[arg-type]  # fields of Standing
            return True

    def _tell(self, point: Point) -> None:
        """Report what is new."""
        if point != self._told:
            self._point = self._told = point
            self._report(point)
