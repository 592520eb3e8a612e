"""A running change of a few rows, which one thread continues for several devices.

A device writes such a change and reads back exactly what it touched. It does so as a generator that yields whatever it
waits for, so whoever drives it (`finish` for one device, `advance` for several) chooses how to wait.

A change of a few rows takes a switch less time than it takes this process to switch between threads. So whoever learns
of a new goal carries the steps of all devices that can take it at once, in turns: all are written before any is
awaited. A device that keeps the others waiting goes on in its own thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, Flow, FlowTable

FEW_ROWS = 64
"""A change of more rows is applied by column and read back by cookie."""

Result = TypeVar("Result")


class Waiting(Protocol):
    """An answer that is on its way."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a limited time (None: unlimited); return whether going on is worth it."""
        ...


class _Lasting:
    """Marks a long wait: a thread with several devices or goals hands it over."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return at once: a caller would wait for ever."""
        return timeout_s is None


LASTING: Waiting = _Lasting()


@dataclass(frozen=True, slots=True)
class Changed:
    """A device's rows after a change, under the changed keys."""

    wanted: tuple[Flow, ...]
    """The rows that it must hold there, with its own port numbers, tenant 0."""
    found: tuple[Flow, ...]
    """The rows that it holds there."""
    stamp: Stamp | None
    last: Hits | None = None
    """The counts of the removed rows, read right before; None: not known."""


Changing = Generator[Waiting, None, Changed]
Work = Generator[Waiting, None, None]


class Whole(Protocol):
    """A device that has no shorter way than applying and then observing."""

    def observe(self, cookies: U64 | None = None) -> Observed: ...

    def apply(self, delta: Delta, stamp: Stamp) -> None: ...

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable: ...


def finish(work: Generator[Waiting, None, Result]) -> Result:
    """Carry one piece of work to its end, waiting as long as it takes."""
    try:
        while True:
            next(work).wait()
    except StopIteration as end:
        result: Result = end.value
        return result


def wholly(device: Whole, delta: Delta, stamp: Stamp) -> Changed:
    """Apply a change and read it back, for devices that have no shorter way."""
    wanted = device.resolve(delta.added, delta.ports).rows()
    gone = device.resolve(delta.removed, delta.removed_ports).rows()
    device.apply(delta, stamp)
    observed = device.observe(np.union1d(delta.removed.cookie, delta.added.cookie))
    touched = {row.key for row in (*wanted, *gone)}
    found = tuple(row for row in observed.flows.rows() if row.key in touched)
    return Changed(tuple(wanted), found, observed.stamp)


class Counting(Whole, Protocol):
    """A device whose counters are read at once."""

    def hits(self) -> Hits: ...


def change_wholly(device: Counting, delta: Delta, stamp: Stamp) -> Changing:
    """Apply a change and read it back.

    Counters are read right before, for some of them begin anew.
    """
    yield LASTING
    last = device.hits()
    return replace(wholly(device, delta, stamp), last=last)


PATIENCE_S = 0.1
"""How long the others wait for a device."""


@dataclass(frozen=True, slots=True)
class Member:
    """One device's work, and who takes it over when it lasts."""

    work: Work
    hand_over: Callable[[Work], None]


def advance(
    members: Iterable[Member], meanwhile: Callable[[], None] = lambda: None, *, patience_s: float = PATIENCE_S
) -> None:
    """Continue all work until it is done or handed over.

    `meanwhile` is called while devices are at what they were given first, and before anything else.

    Where that fails, or finding the next member does, what was begun is handed over: a device whose step nobody
    carries on would wait for it for ever.
    """
    under_way: deque[tuple[Member, Waiting]] = deque()
    try:
        for member in members:
            if (waiting := next(member.work, None)) is not None:
                under_way.append((member, waiting))
        meanwhile()
        deadline = time.monotonic() + patience_s
        while under_way:
            member, waiting = under_way[0]
            has_come = waiting.wait(max(0.0, deadline - time.monotonic()))
            under_way.popleft()
            if not has_come:
                member.hand_over(_resume(waiting, member.work))
            elif (following := next(member.work, None)) is not None:
                under_way.append((member, following))
    except BaseException:
        for member, waiting in under_way:
            member.hand_over(_resume(waiting, member.work))
        raise


def _resume(waiting: Waiting, work: Work) -> Work:
    """Work that is waiting already."""
    yield waiting
    yield from work
