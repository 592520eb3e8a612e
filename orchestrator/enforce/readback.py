"""Change a device's rows, read back what the change touched, and count on from there."""

from __future__ import annotations

from collections.abc import Generator

from orchestrator.enforce import gap
from orchestrator.enforce.bookmark import Marks
from orchestrator.enforce.changing import Changed, Waiting
from orchestrator.enforce.counting import Change
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.standing import Device
from orchestrator.errors import Drifted
from orchestrator.program.delta import Delta
from orchestrator.program.program import Program
from orchestrator.stages import StageClock


def change_rows(
    device: Device, change: Delta, program: Program, clock: StageClock
) -> Generator[Waiting, None, Changed]:
    """Change a few rows of a program, and read them back by key.

    The rows have symbols, and all is one exchange. Raises Drifted.
    """
    stamp = gap.stamp_of(program)
    changing = device.change(change, stamp)
    clock.lap("plan")
    found = yield from changing
    _refuse_mismatch(gap.changed_otherwise(found, stamp))
    clock.lap("wire")
    return found


def apply_change(device: Device, change: Delta, program: Program, clock: StageClock) -> None:
    """Apply a change of any number of resolved rows, and read them back by cookie.

    Raises Drifted.
    """
    stamp = gap.stamp_of(program)
    device.apply(change, stamp)
    clock.lap("wire")
    cookies = gap.touched_cookies(change)
    observed = device.observe(cookies)
    _refuse_mismatch(gap.mismatch(observed, gap.expected_rows(program, cookies, device.resolve), stamp))
    clock.lap("readback")


def recount_change(device: Device, change: Delta, last: Hits | None) -> Change:
    """Return a change's effect on a device's counters."""
    gone = device.counter_keys(device.resolve(change.removed, change.removed_ports))
    added = device.resolve(change.added, change.ports)
    fresh = device.counter_keys(added)
    if fresh is None:
        return Change(last, gone)
    return Change(last, gone, Marks.new_marks(fresh, added.take(~added.are_groups()).cookie))


def _refuse_mismatch(trouble: gap.Mismatch | None) -> None:
    if trouble is not None:
        raise Drifted(trouble.text)
