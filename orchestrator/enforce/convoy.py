"""Several devices brought forward together, by one thread: every one is written before any is waited for.

A change of a few rows takes a switch less time than it takes this process to switch between threads. So whoever learns
of a new goal carries the steps of all devices that can take it at once, in turns; a device that keeps the others
waiting goes on in its own thread.
"""

from __future__ import annotations

import time
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
    """Carry everybody's work on until it is done or has been handed over. `meanwhile` is done while devices are at what
    they were given first, and before anything else."""
    waits = [(member, waiting) for member in members if (waiting := next(member.work, None)) is not None]
    meanwhile()
    deadline = time.monotonic() + patience_s
    while waits:
        going_on = []
        for member, waiting in waits:
            if not waiting.wait(max(0.0, deadline - time.monotonic())):
                member.hand_over(_resumed(waiting, member.work))
            elif (following := next(member.work, None)) is not None:
                going_on.append((member, following))
        waits = going_on


def _resumed(waiting: Waiting, work: Work) -> Work:
    """Work that is waiting already."""
    yield waiting
    yield from work
