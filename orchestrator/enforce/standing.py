"""The known state of one device and its goal, and the next step. Pure.

    ┌──────── a new goal, a new device, new ports, a lost mastership, the time ────────┐
    ▼                                                                                  │
  Standing ── next_step ──▶ CLAIM    become the one that writes                        │
                            OBSERVE  read all, close the gap, read back ───────────────┤
                            ADVANCE  apply what changed, read back what it touched ────┤
                            COUNT    read the counters ────────────────────────────────┤
                            ABSENT   say that there is no device                       │
                            Rest     until something happens or a time has come ───────┘

What a device holds is remembered only as far as it was read back (`Standing.held`): after any error nothing is known,
and the next step observes. Nothing is written before a claim has succeeded on the same connection.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.enforce.changing import Changing
from orchestrator.enforce.driver import Driver, Stamp
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.counts import READ_EVERY_S
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, FlowTable
from orchestrator.program.program import Program
from orchestrator.wire.points import PointState

NEVER = float("inf")

LONGEST_TRAIL = 64
"""How many deltas are kept for a device that lags; behind that, whole programs are compared."""


class Device(Driver, Protocol):
    """A driver of one device that has to be won before it is written."""

    def claim(self, epoch: int) -> bool:
        """Become the writer.

        False when somebody with a later epoch is. Raises Unreachable, DeviceError.
        """
        ...

    def counter_keys(self, flows: FlowTable) -> U64 | None:
        """Return resolved rows' counter keys, as `hits` gives them; None where they have none."""
        ...

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:
        """Return a program's rows for this device: port numbers for symbols, tenant 0."""
        ...

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Write a few rows of a program as `apply` does, and read back their keys."""
        ...


@dataclass(frozen=True, slots=True)
class Point:
    """The report about one device.

    `generation`, `digest` and `flows` are of the program it last held for certain.
    """

    host: str
    state: PointState
    generation: int = 0
    digest: bytes = bytes(DIGEST_BYTES)
    flows: int = 0
    error: str | None = None
    took: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Seconds of the stages that led here, from the program's arrival on; see `Loop`."""
    ports: frozenset[str] | None = None
    """The interfaces that a whole observation found. None: those that were told last, or rows name none."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Periods and patience, in seconds."""

    observe_every_s: float = 30.0
    count_every_s: float = READ_EVERY_S
    retry_s: float = 0.5
    """After a failure; doubled with each further one, up to `longest_retry_s`."""
    longest_retry_s: float = 10.0
    absent_after_s: float = 10.0
    """A device that never connected is reported after this time; it may be on its way."""

    def delay_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        return min(self.retry_s * 2.0 ** (failures - 1), self.longest_retry_s)


class Role(enum.Enum):
    """Our role for the device on this connection."""

    UNCLAIMED = "unclaimed"
    MASTER = "master"
    STANDBY = "standby"


class Act(enum.Enum):
    """Something to do now."""

    CLAIM = enum.auto()
    OBSERVE = enum.auto()
    ADVANCE = enum.auto()
    COUNT = enum.auto()
    ABSENT = enum.auto()


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do before a time, unless something happens."""

    until: float = NEVER


@dataclass(frozen=True, slots=True)
class Goal:
    """The program to reach.

    `trail` is how it came about, oldest delta first, as far as that is known.
    """

    program: Program
    trail: tuple[Delta, ...] = ()
    remembered: bool = False
    """From our own disk: it may be older than what a device got from us or from others since."""
    arrived_at: float = NEVER
    """When the answer that led here had come, on the clock of `time.monotonic`; NEVER: not known."""

    def followed_by(self, program: Program, change: Delta, arrived_at: float = NEVER) -> Goal:
        """The goal after one more delta."""
        return Goal(program, (*self.trail, change)[-LONGEST_TRAIL:], arrived_at=arrived_at)


@dataclass(frozen=True, slots=True)
class Standing:
    """All that decides what to do next."""

    device: Device | None = None
    role: Role = Role.UNCLAIMED
    goal: Goal | None = None
    held: Program | None = None
    """The program that the device was read back to hold; None: not known."""
    observe_at: float = 0.0
    count_at: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    """How many attempts at this goal failed in a row."""
    absent_at: float = NEVER
    """When to report that there is no device."""
    events: int = 0
    """Grows with whatever happens to the device: what a step found out before is worth nothing after."""

    @property
    def is_reached(self) -> bool:
        """Whether the device is known to hold the goal."""
        return self.goal is not None and self.held is not None and same(self.held, self.goal.program)


def same(one: Program, other: Program) -> bool:
    """Whether two programs are one: the same content, published as the same generation."""
    return one.digest == other.digest and one.generation == other.generation


def next_step(standing: Standing, now: float) -> Act | Rest:
    """Return the next action.

    Times are seconds of one monotonic clock.
    """
    if standing.device is None:
        return Act.ABSENT if now >= standing.absent_at else Rest(standing.absent_at)
    if now < standing.retry_at:
        return Rest(standing.retry_at)
    if standing.role is Role.UNCLAIMED:
        return Act.CLAIM
    if standing.role is Role.STANDBY or standing.goal is None:
        return Rest()
    return _next_as_master(standing, now)


def _next_as_master(standing: Standing, now: float) -> Act | Rest:
    if standing.held is None or now >= standing.observe_at:
        return Act.OBSERVE
    if not standing.is_reached:
        return Act.ADVANCE
    return Act.COUNT if now >= standing.count_at else Rest(min(standing.observe_at, standing.count_at))
