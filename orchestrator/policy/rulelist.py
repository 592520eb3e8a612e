"""One direction of an access list as rows of packet space, ready for exact questions.

A `RuleList` holds the rules of one direction in one IP version, each as a box and an answer, and ends with the two
lines that nobody writes: the domain's return-traffic rule, if it has one, and the default, which holds every packet. So
every packet meets a row, and questions need no special case for "no rule".

    row    box                          permit   rule
    0      tcp any -> .../24 port 80    yes      web
    1      any -> .../16                no       no-lab
    2      tcp established              yes      _return
    3      everything                   no       _default

Searching thousands of rows starts with columns: NumPy arrays with the bounds of every box (first and last member on
each axis; the upper 64 bits of IPv6 addresses). Bounds may claim an overlap that is none, never the reverse; what they
let through is checked exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, Rule, RuleId, spans_of
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.space import ALL_ADDRESSES, Box, StandIn, StandIns, boxes_of, everything, search
from orchestrator.policy.spans import Spans, intersect

DEFAULT_ID = RuleId("_default")
"""Names a direction's default among rules; ids that start with _ are kept for such things."""

RowNumbers: TypeAlias = npt.NDArray[np.intp]
_Bounds: TypeAlias = npt.NDArray[np.uint64]

_FEW = 24
"""Below this many rows a plain loop is faster than columns."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line: which packets, and whether they may pass. `rule` is None for the default.

    `position` orders the rules of a direction, the same in both IP versions. `stateless`: where connections are
    tracked, it decides beside them.
    """

    box: Box
    permit: bool
    rule: Rule | None
    position: int
    stateless: bool = False

    @property
    def answer(self) -> int:
        """Its answer to packets: bit 0 of a permit, bit 1 of a stateless rule."""
        return self.permit | self.stateless << 1

    @property
    def id(self) -> RuleId:
        return DEFAULT_ID if self.rule is None else self.rule.id


class RuleList:
    """Rows of one IP version in order of evaluation; the last row matches every packet."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)

    @cached_property
    def permits(self) -> npt.NDArray[np.bool_]:
        """Whether each row permits."""
        return np.array([row.permit for row in self.rows], np.bool_)

    @cached_property
    def bounds(self) -> tuple[_Bounds, _Bounds]:
        """The first and last members, computed at first use.

        Short lists do not need them.
        """
        bounds = [_bounds_of(row.box) for row in self.rows]
        return _columns([low for low, _ in bounds]), _columns([high for _, high in bounds])

    def __len__(self) -> int:
        return len(self.rows)

    def near(self, box: Box) -> RowNumbers:
        """Return ascending numbers of rows whose bounds meet a box's.

        These are all rows that overlap it, and perhaps others.
        """
        low, high = _bounds_of(box)
        lows, highs = self.bounds
        found = np.flatnonzero(
            (lows[0] <= high[0]) & (highs[0] >= low[0]) & (lows[1] <= high[1]) & (highs[1] >= low[1])
        )
        for axis in range(2, len(low)):
            found = found[(lows[axis, found] <= high[axis]) & (highs[axis, found] >= low[axis])]
        return found

    def overlapping(self, box: Box, start: int = 0, stop: int | None = None) -> list[int]:
        """Ascending numbers of the rows in [start, stop) that share a packet with `box`."""
        end = len(self.rows) if stop is None else stop
        if end - start <= _FEW:
            return [row for row in range(start, end) if self.rows[row].box.overlaps(box)]
        near = self.near(box)
        return [row for row in near[(near >= start) & (near < end)].tolist() if self.rows[row].box.overlaps(box)]

    def answering(self, box: Box) -> list[int]:
        """Return the rows that may decide packets of a box.

        Those that overlap it, up to the first that contains it.
        """
        if len(self.rows) <= _FEW:
            return self._find_answering_of_few(box)
        near = self.near(box)
        container = self.first_container(box, near)
        reached = near if container is None else near[near <= container]
        return [row for row in reached.tolist() if self.rows[row].box.overlaps(box)]

    def _find_answering_of_few(self, box: Box) -> list[int]:
        found = []
        for number, row in enumerate(self.rows):
            if row.box.overlaps(box):
                found.append(number)
                if row.box.contains(box):
                    break
        return found

    def first_container(self, box: Box, among: RowNumbers) -> int | None:
        """Find the first of ascending row numbers whose box contains `box`."""
        low, high = (np.array(ends, np.uint64).reshape(-1, 1) for ends in _bounds_of(box))
        lows, highs = self.bounds
        around = among[((lows[:, among] <= low) & (highs[:, among] >= high)).all(axis=0)]
        return next((row for row in around.tolist() if self.rows[row].box.contains(box)), None)

    def finder(self, among: Sequence[int] | RowNumbers) -> Finder:
        """Prepare some rows, ascending, for many searches of the first match."""
        return Finder(self, np.asarray(among, np.intp))

    def deciders(self, box: Box) -> list[int]:
        """The rows that decide some packet of `box`, by first match."""
        answering = self.answering(box)
        finder = self.finder(answering)
        shares = ((row, self.rows[row].box.intersect(box)) for row in answering)
        return [
            row for row, share in shares if share is not None and finder.find_uncovered(share, stop=row) is not None
        ]


class Finder:
    """A choice of rows to look packets up in."""

    def __init__(self, rows: RuleList, among: RowNumbers) -> None:
        self._rows = rows.rows
        self._among = among
        self._few = _list_row_numbers(among) if len(among) <= _FEW else None
        if self._few is None:
            self._low, self._high = (ends[:, among] for ends in rows.bounds)

    def first(self, packet: Packet) -> int | None:
        """The first row that holds a packet."""
        return next((row for row in self._near(packet) if self._rows[row].box.holds(packet)), None)

    def _near(self, packet: Packet) -> list[int]:
        """The rows whose bounds hold a packet."""
        if self._few is not None:
            return self._few
        point = _point(packet)
        found: RowNumbers = np.flatnonzero(
            (self._low[0] <= point[0])
            & (self._high[0] >= point[0])
            & (self._low[1] <= point[1])
            & (self._high[1] >= point[1])
        )
        for axis in range(2, len(point)):
            found = found[(self._low[axis, found] <= point[axis]) & (self._high[axis, found] >= point[axis])]
        return _list_row_numbers(self._among[found])

    def find_uncovered(self, box: Box, *, stop: int) -> Packet | None:
        """Return a packet of `box` that no row before `stop` holds; None if covered."""

        def find_ruled_out(packet: Packet) -> Box | None:
            row = self.first(packet)
            return None if row is None or row >= stop else self._rows[row].box

        return search(box, find_ruled_out)


def rule_lists(
    acl: Acl,
    direction: Direction,
    *,
    own: Sequence[Prefix] = (),
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT,
) -> dict[Family, RuleList]:
    """Return one direction's rules as a searchable list for each IP version.

    Arguments as for `rule_rows`.
    """
    rows = rule_rows(acl, direction, own=own, returns=returns)
    return {family: RuleList(listed) for family, listed in rows.items()}


def rule_rows(
    acl: Acl,
    direction: Direction,
    *,
    own: Sequence[Prefix] = (),
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT,
) -> dict[Family, tuple[Row, ...]]:
    """The rules of one direction as rows, for each IP version.

    `own` are the tenant's prefixes: with them `any` on the tenant's own side means these addresses, and a version in
    which the tenant has none gets no list. Without them it means all addresses. A rule that can match nothing in a
    version has no row there. `returns`: with TRACKED, rows of stateless rules are marked.
    """
    marked = returns is ReturnTraffic.TRACKED
    rules = [rule for rule in acl.rules if rule.direction is direction]
    rules += [rule for rule in return_rules(returns) if rule.direction is direction]
    rows: dict[Family, list[Row]] = {}
    worlds = {family: world(family, direction, own) for family in Family}
    owned = {family: _Owned(whole, direction) for family, whole in worlds.items() if whole is not None}
    for position, rule in enumerate(rules):
        for box in boxes_of(rule, acl.groups):
            inside = owned[box.family].of(box) if box.family in owned else None
            if inside is not None:
                row = Row(inside, rule.action is Action.PERMIT, rule, position, marked and rule.stateless)
                rows.setdefault(box.family, []).append(row)
    permit = acl.default(direction) is Action.PERMIT
    return {
        family: (*rows.get(family, ()), Row(whole, permit, None, len(rules)))
        for family, whole in worlds.items()
        if whole is not None
    }


class _Owned:
    """The part of boxes inside a `world`, narrower than everything on one side alone."""

    def __init__(self, whole: Box, direction: Direction) -> None:
        self._ingress = direction is Direction.INGRESS
        self._ours = whole.destination if self._ingress else whole.source
        self._all = self._ours == ALL_ADDRESSES[whole.family]
        self._kept: dict[StandIn, Spans] = {}
        self._standins = StandIns()

    def of(self, box: Box) -> Box | None:
        """Return the part of a box inside; whole or empty: the box or None."""
        if self._all:
            return box
        members = box.destination if self._ingress else box.source
        kept = self._inside(members)
        if not kept:
            return None
        if kept == members:
            return box
        return box._replace(destination=kept) if self._ingress else box._replace(source=kept)

    def _inside(self, members: Spans) -> Spans:
        """The same object for the same group each time."""
        key = self._standins.of(members)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = intersect(members, self._ours)
        return kept


def world(family: Family, direction: Direction, own: Sequence[Prefix]) -> Box | None:
    """Return a list's packets: to (ingress) or from (egress) the tenant's prefixes."""
    if not own:
        return everything(family)
    ours = spans_of(own, family)
    if not ours:
        return None
    whole = everything(family)
    return whole._replace(destination=ours) if direction is Direction.INGRESS else whole._replace(source=ours)


def _bounds_of(box: Box) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a box's first and last members on the six axes of the columns."""
    shift = 64 if box.family is Family.IPV6 else 0
    low = (
        box.source[0].low >> shift,
        box.destination[0].low >> shift,
        box.source_ports[0].low,
        box.destination_ports[0].low,
        (box.protocols & -box.protocols).bit_length(),
        box.fragments & -box.fragments,
    )
    high = (
        box.source[-1].high >> shift,
        box.destination[-1].high >> shift,
        box.source_ports[-1].high,
        box.destination_ports[-1].high,
        box.protocols.bit_length(),
        box.fragments & 2 or 1,
    )
    return low, high


def _columns(rows: Sequence[tuple[int, ...]]) -> _Bounds:
    """Turn bounds of boxes into columns of the shape (6, number of boxes)."""
    return np.ascontiguousarray(np.array(rows, np.uint64).T)


def _point(packet: Packet) -> tuple[int, ...]:
    """Return a packet on the axes of the columns.

    Fields it does not have are zero, and boxes hold zero there.
    """
    shift = 64 if packet.family is Family.IPV6 else 0
    return (
        packet.source >> shift,
        packet.destination >> shift,
        packet.source_port,
        packet.destination_port,
        packet.protocol + 1,
        2 if packet.later_fragment else 1,
    )


def _list_row_numbers(rows: RowNumbers) -> list[int]:
    numbers: list[int] = rows.tolist()
    return numbers
