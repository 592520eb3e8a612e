"""A device whose counters are not those of rows: what they had counted is read before anything is rewritten."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from patience import until

from orchestrator.enforce import gap
from orchestrator.enforce.changing import Changing, wholly
from orchestrator.enforce.counting import Change
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.loop import Loop
from orchestrator.enforce.standing import Goal, Point
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.wire.points import PointState


def program(generation: int, *matches: bytes) -> Program:
    rows = FlowTable.of(Flow(1, 0, match, b"accept", 7) for match in matches)
    return Program.of("d", Tier.SERVER, generation, rows, ())


class Filter:
    """Holds rows, counts packets in all, and begins at nothing when it is written."""

    def __init__(self, held: Program) -> None:
        self.held, self.stamp, self.packets = held.flows, gap.stamp_of(held), 41

    def claim(self, epoch: int) -> bool:
        return True

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:
        return flows

    def observe(self, cookies: U64 | None = None) -> Observed:
        return Observed(self.held, self.stamp)

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        gone = set(delta.removed.rows())
        rows = [row for row in self.held.rows() if row not in gone]
        self.held, self.stamp, self.packets = FlowTable.of([*rows, *delta.added.rows()]), stamp, 0

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        yield from ()
        return wholly(self, delta, stamp)

    def counter_keys(self, flows: FlowTable) -> U64 | None:
        return None

    def hits(self) -> Hits:
        one = np.array([1], np.uint64)
        packets = np.array([self.packets], np.uint64)
        return Hits(one, one, packets, packets, np.zeros(1, np.uint32), np.full(1, np.nan))


class Noted:
    """What a loop tells about counters, and of its device."""

    def __init__(self) -> None:
        self.lasts: list[int | None] = []
        self.points: list[Point] = []

    def note_poll(self, host: str, hits: Hits, took_s: float) -> None:
        """Nothing is asked of it."""

    def note_change(self, host: str, change: Callable[[], Change]) -> None:
        last = change().last
        self.lasts.append(None if last is None else int(last.packets.sum()))

    def forget(self, host: str) -> None:
        """Nobody takes the device away."""


def test_what_was_counted_before_a_start_is_read_before_it_is_rewritten() -> None:
    noted = Noted()
    loop = Loop("fw1", noted.points.append, noted)
    loop.attach(Filter(program(1, b"old")))
    loop.aim(Goal(program(2, b"new")))
    loop.start()
    try:
        until(lambda: any(point.state is PointState.ENFORCED for point in noted.points))
    finally:
        loop.stop()
    assert noted.lasts == [41]
