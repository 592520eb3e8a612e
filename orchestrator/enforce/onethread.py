"""Change several devices in one thread: all are written before any is awaited.

A change of a few rows takes a switch less time than it takes this process to switch between threads. So whoever learns
of a new goal carries the steps of all devices that can take it at once, in turns; a device that keeps the others
waiting goes on in its own thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.enforce.changing import Waiting, Work

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
