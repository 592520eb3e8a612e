"""Plan how a packet finds its rule among thousands, before chains and maps are written.

The problem
    nftables has no tuple-space search of its own: a list is asked rule by rule (about 10 ns each), or the compiler says
    which maps to look into. One masked, concatenated verdict map for each level and shape (a shape: which bits are
    looked at) is right but slow, for real lists have hundreds of shapes, most of them with few rules, and every packet
    would look into all of them.

The plan
    `Rules`     a few rows, asked one after the other
    `Table`     many rows of one shape: one look-up in a hash map, whatever their number
    `Cut`       one axis is divided where rows begin and end; a look-up leads to the rows that are left there
    `Sequence`  parts that are asked one after the other

         list ─ Cut protocol ─ tcp ─ Sequence ─┬─ Table (host, host, port)         8,000 rows
                                               ├─ Cut destination ─┬─ Rules        rows narrow in the destination
                                               │                   └─ Cut source ─ Rules
                                               └─ Cut source ─ ...                 rows wide in the destination

    A cut copies a row into every part that it reaches into, so an axis is cut only when few rows are wide on it;
    otherwise the narrow rows and the wide ones become parts of a sequence (`waves` says in what order), and the wide
    ones are cut elsewhere. A part that would still need more than `MOST_COPIES` copies a row is asked row by row.

Invariants: along any way through a plan, of two rows that share a packet the earlier is asked first; a way that
misses a row differs from it on an axis that was cut. So the first row that matches is the first of the list, and every
hit is counted for it.

Order rows that are sorted into classes, in as few turns as their order allows.

Rows of one class can be asked together (by one map, or one tree). Of two rows that share a packet the earlier must be
asked first, or together with the later: that is all the order there is. Classes take turns, 0 1 .. k-1, 0 1 .. k-1, and
each row goes into the earliest turn of its class that is not before any earlier row it meets:

    rows 0a 1b 2a, where 2 meets 1:     a first  turn 0: 0     turn 1: 1     turn 2: 2
                                        b first  turn 0: 1     turn 1: 0 2

Turns that nobody takes are left out. Law: of two rows that share a packet, the later is never in an earlier turn.

"The latest turn among the earlier rows that it meets" is the search that levels are found with (`levels.py`), in C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from orchestrator.compile.lists.levels import turns
from orchestrator.compile.nftables.space import AXES, Axis, Bits, Rows, Shape, Space
from orchestrator.policy.maskedword import FLAG_BITS


class Wave(NamedTuple):
    """Rows that are asked together, in list order, and their class."""

    kind: int
    rows: Rows


def waves(space: Space, rows: Rows, kinds: Rows) -> list[Wave]:
    """Return the turns of some rows of a list; `kinds` are their classes.

    The first turn is the first class's or the last one's, whichever makes fewer turns.
    """
    classes = int(kinds.max()) + 1
    first, last = (row_turns(space, rows, (kinds + shift) % classes, classes) for shift in (0, 1))
    shift, turn = (1, last) if len(np.unique(last)) < len(np.unique(first)) else (0, first)
    return [Wave((int(number) - shift) % classes, rows[turn == number]) for number in np.unique(turn)]


def row_turns(space: Space, rows: Rows, kinds: Rows, classes: int) -> Rows:
    """Return every row's turn.

    Class i has the turns i, i + classes, i + 2 classes, and so on.
    """
    boxes = np.zeros((len(rows), 2, 8), np.int32)
    boxes[:, 0, : len(Axis)], boxes[:, 1, : len(Axis)] = space.low[:, rows].T, space.high[:, rows].T
    source, destination = (space.low[axis, rows] for axis in (Axis.SOURCE, Axis.DESTINATION))
    wide = [space.unbounded[axis, rows] for axis in (Axis.SOURCE, Axis.DESTINATION)]
    order = np.lexsort((source, destination, *wide))  # neighbours in space, those open to every address apart
    return turns(boxes, space.words[rows], order, kinds, classes).astype(np.int64)


FEW_ROWS = 8
"""So many rows are asked one after the other rather than divided."""
TABLE_ROWS = 512
"""A shape gets a map of its own from so many rows on."""
MOST_TABLES = 4
"""Each costs every packet a look-up."""
LOOKUP = 10
"""The cost of a look-up, in rows that could be asked in the same time."""
SPLIT_ROWS = 64
"""Fewer rows are not split into narrow and wide ones."""
MOST_COPIES = 40
"""How many rows and elements a list may become for each of its rows, beside the first `FREE_COPIES`."""
FREE_COPIES = 20_000
_NARROW = 1 / 50
"""A row is narrow on an axis if it takes at most this share of the ranges there."""
_WORTH = 0.9
"""A cut that leaves more than this share of the rows in one part is not worth a look-up."""
_REPLICATION = 2.0
"""Copies a row that a cut makes before splitting is tried instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Rows in order; axes in `cut` need no further matching."""

    rows: tuple[int, ...]
    cut: frozenset[Axis]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of one shape, no two alike."""

    shape: Shape
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of values on a cut axis and what is asked there."""

    low: int
    high: int
    then: Plan


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """An axis divided; values of no span match no row."""

    axis: Axis
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """Parts to be asked in order."""

    parts: tuple[Plan, ...]


Plan: TypeAlias = Rules | Table | Cut | Sequence


def plan(space: Space) -> Plan:
    """Return the plan of a list.

    Equal parts of it are the same object, to be written once.

    The last rows of a list that look at nothing but protocol and flags (return traffic, most of all) are asked last by
    everybody, rather than copied into every part.
    """
    rows = np.arange(len(space.lines))
    narrow = np.flatnonzero(~space.unbounded[Axis.SOURCE :].all(axis=0))
    end = max(int(narrow[-1]) + 1 if len(narrow) else 0, len(rows) - FEW_ROWS)
    found = Planner(space).plan(rows[:end], frozenset())
    return Sequence((found, Rules(tuple(rows[end:].tolist()), frozenset()))) if end < len(rows) else found


def plan_by_address(space: Space) -> Plan:
    """Return a plan that looks up protocol and addresses only.

    nft has no maps over the ports of the packet that opened a connection.

    The first rows that deny and look at one address alone are asked first by everybody, rather than copied into every
    part: so shutting an address out makes no other part anew.
    """
    rows, planner = np.arange(len(space.lines)), Planner(space, _ADDRESSES)
    parts = (each for each in np.split(rows, [_count_shut_out(space)]) if len(each))
    plans = tuple(planner.plan(each, frozenset()) for each in parts)
    return plans[0] if len(plans) == 1 else Sequence(plans)


def _count_shut_out(space: Space) -> int:
    """Count the first rows that deny and look at one address alone."""
    is_open = space.unbounded[Axis.SOURCE] != space.unbounded[Axis.DESTINATION]
    denies = np.array([not line.permit for line in space.lines], np.bool_)
    others = np.flatnonzero(~(denies & is_open))
    return int(others[0]) if len(others) else len(space.lines)


def row_by_row(space: Space) -> Plan:
    """The plan that looks nothing up: what others are measured against."""
    return Rules(tuple(range(len(space.lines))), frozenset())


class _Division(NamedTuple):
    """An axis divided at rows' ends: each part's first rank, and each row's parts.

    The end is not included.

    `sizes` says how many rows each part has.
    """

    axis: Axis
    ranks: Rows
    begin: Rows
    end: Rows
    sizes: Rows

    def parts(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Every part that some rows are in, with these, in their order."""
        counts = self.end - self.begin
        starts = np.cumsum(counts) - counts
        part = np.repeat(self.begin - starts, counts) + np.arange(counts.sum())
        order = np.argsort(part, kind="stable")
        inside = np.repeat(rows, counts)[order]
        ends = np.cumsum(self.sizes)
        for each in np.flatnonzero(self.sizes).tolist():
            yield each, inside[ends[each] - self.sizes[each] : ends[each]]

    @property
    def largest(self) -> int:
        return int(self.sizes.max())

    @property
    def copies(self) -> int:
        return int(self.sizes.sum())


_ADDRESSES = (Axis.PROTOCOL, Axis.SOURCE, Axis.DESTINATION)


class Planner:
    """Plans the parts of one list; what was planned once is not planned again.

    Only some axes are looked up; where these are not all, no row becomes an element of a shape's map.
    """

    def __init__(self, space: Space, axes: tuple[Axis, ...] = AXES) -> None:
        self._space = space
        self._axes = axes
        self._known: dict[tuple[bytes, frozenset[Axis]], Plan] = {}
        self._certain: dict[frozenset[Axis], Bits] = {}
        self._left = FREE_COPIES + MOST_COPIES * len(space.lines)

    def plan(self, rows: Rows, cut: frozenset[Axis]) -> Plan:
        """Plan how to look these rows up, once for equal rows."""
        rows = self.up_to_certain(rows, cut)
        key = rows.tobytes(), cut
        if key not in self._known:
            self._known[key] = self._make_plan(rows, cut)
        return self._known[key]

    def _make_plan(self, rows: Rows, cut: frozenset[Axis]) -> Plan:
        if len(rows) > FEW_ROWS:
            if Axis.PROTOCOL not in cut and not self._space.unbounded[Axis.PROTOCOL, rows].all():
                return self._cut_rows(self._divide_axis(Axis.PROTOCOL, rows), rows, cut)
            maps = cut <= {Axis.PROTOCOL} and self._axes is AXES
            found = (self._tables(rows) if maps else None) or self._divide_rows(rows, cut)
            if found is not None:
                return found
        return Rules(tuple(rows.tolist()), cut)

    def up_to_certain(self, rows: Rows, cut: frozenset[Axis]) -> Rows:
        """Leave out what comes behind a row that every packet here matches."""
        certain = self._certain.get(cut)
        if certain is None:
            certain = self._certain[cut] = self._space.certain(cut)
        here = certain[rows]
        first = int(here.argmax()) if len(here) else 0
        return rows[: first + 1] if len(here) and here[first] else rows

    def _tables(self, rows: Rows) -> Plan | None:
        """Plan maps for shapes of many rows, with other rows in between in order."""
        shapes = [shape_of(self._space, int(row)) for row in rows]
        counts: dict[Shape, int] = {}
        for shape in shapes:
            if shape is not None:
                counts[shape] = counts.get(shape, 0) + 1
        many = sorted((shape for shape, count in counts.items() if count >= TABLE_ROWS), key=lambda s: -counts[s])
        if not many:
            return None
        kind = {shape: number for number, shape in enumerate(sorted(many[:MOST_TABLES], reverse=True))}
        kinds = np.array([len(kind) if shape is None else kind.get(shape, len(kind)) for shape in shapes])
        turns = waves(self._space, rows, kinds)
        if len(turns) * LOOKUP > len(rows):
            return None
        known = list(kind)
        parts: list[Plan] = []
        for number, members in turns:
            if number < len(known):
                parts.append(self._table(known[number], members))
            else:
                parts.append(self._divide_rows(members, frozenset({Axis.PROTOCOL})) or self._make_rules(members))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _make_rules(self, rows: Rows) -> Rules:
        return Rules(tuple(rows.tolist()), frozenset({Axis.PROTOCOL}))

    def _table(self, shape: Shape, rows: Rows) -> Table:
        """The first of the rows that match the same packets; the others never match."""
        first: dict[tuple[object, ...], int] = {}
        for row in rows.tolist():
            key = (*self._space.low[Axis.SOURCE :, row].tolist(), int(self._space.words[row, 0]))
            first.setdefault(key, row)
        return Table(shape, tuple(first.values()))

    def _divide_rows(self, rows: Rows, cut: frozenset[Axis]) -> Plan | None:
        """Plan a cut on the best axis, or a split that permits one.

        None where matching row by row is better.
        """
        if len(rows) <= FEW_ROWS:
            return None
        axes = [axis for axis in self._axes if axis not in cut and not self._space.unbounded[axis, rows].all()]
        divisions = [self._divide_axis(axis, rows) for axis in axes]
        if not divisions:
            return None
        best = min(divisions, key=lambda each: (each.largest + each.copies / len(rows), each.axis))
        if best.copies > _REPLICATION * len(rows) and len(rows) >= SPLIT_ROWS:
            found = self._split(divisions, rows, cut)
            if found is not None:
                return found
        if best.largest > _WORTH * len(rows) or best.copies > self._left:
            return None
        return self._cut_rows(best, rows, cut)

    def _divide_axis(self, axis: Axis, rows: Rows) -> _Division:
        low, high = self._space.low[axis, rows], self._space.high[axis, rows]
        ranks = np.unique(np.concatenate(([0], low, high + 1)))
        ranks = ranks[ranks < len(self._space.starts[axis]) - 1]
        begin, end = np.searchsorted(ranks, low), np.searchsorted(ranks, high, "right")
        change = np.bincount(begin, minlength=len(ranks) + 1) - np.bincount(end, minlength=len(ranks) + 1)
        return _Division(axis, ranks, begin, end, np.cumsum(change)[:-1])

    def _split(self, divisions: list[_Division], rows: Rows, cut: frozenset[Axis]) -> Plan | None:
        """Split rows into narrow and wide ones on an axis.

        None where that is no better than matching row by row.
        """
        best: list[Wave] = []
        least = len(rows)
        for division in divisions:
            wide: Bits = division.end - division.begin > max(1.0, _NARROW * len(division.ranks))
            if division.axis in (Axis.SOURCE, Axis.DESTINATION) and wide.any() and not wide.all():
                turns = waves(self._space, rows, wide.astype(np.int64))
                rough = sum(min(len(each.rows), FEW_ROWS + LOOKUP) for each in turns)
                if rough < least:
                    best, least = turns, rough
        if not best:
            return None
        return Sequence(tuple(self._divide_rows(each.rows, cut) or self.plan(each.rows, cut) for each in best))

    def _cut_rows(self, division: _Division, rows: Rows, cut: frozenset[Axis]) -> Cut:
        self._left -= division.copies
        axis = division.axis
        spans: list[Span] = []
        ends = [*division.ranks[1:].tolist(), len(self._space.starts[axis]) - 1]
        for part, inside in division.parts(rows):
            then = self.plan(inside, cut | {axis})
            low, high = self._space.values(axis, int(division.ranks[part]), ends[part] - 1)
            if spans and spans[-1].then is then and spans[-1].high + 1 == low:
                low = spans.pop().low
            spans.append(Span(low, high, then))
        return Cut(axis, tuple(spans))


def shape_of(space: Space, row: int) -> Shape | None:
    """Return a row's shape without the protocol.

    None if it matches nothing else, a range of ports, which no mask expresses, or more of its word than TCP flags.
    """
    line = space.lines[row]
    if line.word_mask & ~FLAG_BITS:
        return None
    ports = []
    for axis in (Axis.SOURCE_PORTS, Axis.DESTINATION_PORTS):
        low, high = space.values(axis, int(space.low[axis, row]), int(space.high[axis, row]))
        if low != high and not space.unbounded[axis, row]:
            return None
        ports.append(not space.unbounded[axis, row])
    shape = Shape(line.source.length, line.destination.length, ports[0], ports[1], line.word_mask)
    return shape if any(shape) else None
