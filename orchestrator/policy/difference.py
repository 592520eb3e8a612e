"""The packets that a change of a list permits or denies, as a short list.

    before, after ──▶ one order of all rows ──▶ which pairs of rows decide a packet differently ──▶ boxes ──▶ merge

Two lists are first laid side by side: a common subsequence of rows with the same packets and the same answer is *kept*,
all other rows are *changed*. If a packet is decided by kept rows in both lists, they are the same row (each comes
before the other in a list where both match), so its fate is the same. The rest are the packets that a changed row
decides in its own list and that get the other answer in the other one. Any common subsequence is right; a longer one is
faster. And rules that share no packet with a changed one have no say, so they are left out first where few were changed
(`nearby`): a small change to a long list costs what it touches. Nor has a row a say whose packets an earlier one of its
list has, all and no others; without these every row is there once, and can be kept.

For every changed row `cover` finds the rows of the other list that decide some of its packets with the other answer.
Such a pair says what changes and who is responsible: the packets that both rows match, less what rows before them take,
in either list. Where that is a few boxes it is cut into these, and boxes of all pairs that differ on one axis only are
merged. Where it is not, because hundreds of earlier rules take parts, the pair itself is the shortest true answer: one
box, and the rules whose packets are to be left out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.alignment import common
from orchestrator.policy.cover import DEFAULT_LIMITS, Bytes, Cover, Limits, Switch
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic, RuleId
from orchestrator.policy.neighbours import nearby
from orchestrator.policy.rulelist import Row, RuleList, rule_rows
from orchestrator.policy.space import Box, StandIns, merge_boxes, remaining

MOST_CHANGES = 20_000
"""Pairs of rows that a difference may be made of: more is no list that anybody reads."""

MOST_PIECES, MOST_CUTS = 32, 64_000
"""Boxes that the packets of one pair are cut into, and work done for all pairs: the spans on all axes of boxes that are
cut, and of what they are cut by, 8 for plain ones. Beyond, the pair is told as it is."""

MOVED_LIMITS = Limits(question=400_000, total=20_000_000)
"""A hundredth of what people who wait for a difference are given: some 0.1 s."""

MOST_MOVED = 1_024
"""Pairs of rows of `find_moved`."""

_BEFORE, _AFTER = 1, 2


Fate = Literal["permit", "deny", "stateless", "tracked"]
"""The fates of packets; the last two with the same action, decided by their connections before or after alone."""


@dataclass(frozen=True, slots=True)
class Change:
    """Packets whose verdict changes, with the deciding rules before and after.

    Rules are in list order.

    They are those of `box`, without what the rules `less_before` of the list before and `less_after` of the list after
    match; both are empty where the box says all. `witness` is one of them. The ids may be `_return` (the domain's
    return-traffic rule) and `_default`.
    """

    direction: Direction
    box: Box
    before: tuple[RuleId, ...]
    after: tuple[RuleId, ...]
    witness: Packet
    less_before: tuple[RuleId, ...] = ()
    less_after: tuple[RuleId, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """All packets that a change permits, and all that it denies.

    Where connections are tracked: also those of the same action that stateless rules decide after the change alone
    (`stateless`), or before it alone (`tracked`). No packet is in two changes.
    """

    permitted: tuple[Change, ...]
    denied: tuple[Change, ...]
    stateless: tuple[Change, ...] = ()
    tracked: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return any(changes for _, changes in self.by_fate)

    @property
    def by_fate(self) -> tuple[tuple[Fate, tuple[Change, ...]], ...]:
        """The changes by what becomes of their packets."""
        return (
            ("permit", self.permitted),
            ("deny", self.denied),
            ("stateless", self.stateless),
            ("tracked", self.tracked),
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """Boxes with all packets that a change permits or denies in one direction.

    They may hold some more packets.
    """

    permitted: tuple[Box, ...]
    denied: tuple[Box, ...]


def find_moved(before: Acl, after: Acl, direction: Direction, own: Sequence[Prefix]) -> Moved:
    """Return which packets one direction of two lists decides differently, in bounded time.

    Raises TooLarge where that takes more work than a writer may do while others wait.
    """
    permitted: list[Box] = []
    denied: list[Box] = []
    olds, news = (rule_rows(acl, direction, own=own) for acl in (before, after))
    for family in olds.keys() & news.keys():
        both = _Both(_once(olds[family]), _once(news[family]), MOVED_LIMITS)
        for opens, box in both.moved_boxes() if both.changed else ():
            (permitted if opens else denied).append(box)
    return Moved(merge_boxes(permitted), merge_boxes(denied))


def difference(
    before: Acl,
    after: Acl,
    *,
    own: Sequence[Prefix] = (),
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT,
    limits: Limits = DEFAULT_LIMITS,
) -> Difference:
    """Compare what two lists decide. `own` and `returns` as in `rulelist.rule_rows`.

    Raises TooLarge where the answer would be a book, or was not found within the limits of work.
    """
    return _compare(before, after, lambda _: True, own=own, returns=returns, limits=limits)


def _compare(
    before: Acl,
    after: Acl,
    is_told: Callable[[_Region], bool],
    *,
    own: Sequence[Prefix] = (),
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT,
    limits: Limits = DEFAULT_LIMITS,
) -> Difference:
    """Compare two lists, and tell some of the regions that differ."""
    found: dict[Fate, list[Change]] = {fate: [] for fate in get_args(Fate)}
    before, after = nearby(before, after)
    for direction in Direction:
        olds = rule_rows(before, direction, own=own, returns=returns)
        news = rule_rows(after, direction, own=own, returns=returns)
        for family in Family:
            if family in olds and family in news:
                both = _Both(_once(olds[family]), _once(news[family]), limits)
                regions = [region for region in both.regions() if is_told(region)] if both.changed else []
                for fate in found:
                    found[fate] += _describe_regions((each for each in regions if each.fate == fate), direction)
    return Difference(*(tuple(changes) for changes in found.values()))


@dataclass(frozen=True, slots=True)
class OperatorDifference:
    """Packets that operator rules decide otherwise, whatever the lists of tenants say.

    `decided`: the operator permits or denies them from then on, or decides them as before and another way in regard to
    their connections (`stateless`, `tracked`). `left`: what it permitted before (`denied`), or denied (`permitted`),
    and then leaves to the lists, or decides the other way.
    """

    decided: Difference
    left: Difference


def operator_difference(before: Acl, after: Acl, returns: ReturnTraffic = ReturnTraffic.EXPLICIT) -> OperatorDifference:
    """Compare operator rules with both defaults: all else denied, all else permitted.

    The marks of rules count where the domain's `returns` is TRACKED. Raises TooLarge.
    """
    marks = returns if returns is ReturnTraffic.TRACKED else ReturnTraffic.EXPLICIT
    closed, opened = (
        tuple(Acl(acl.rules, ingress_default=default, egress_default=default) for acl in (before, after))
        for default in (Action.DENY, Action.PERMIT)
    )
    permits, denies = (_compare(old, new, _is_decided_by_rules, returns=marks) for old, new in (closed, opened))
    decided = Difference(permits.permitted, denies.denied, permits.stateless, permits.tracked)
    return OperatorDifference(decided, Difference(denies.permitted, permits.denied))


def _is_decided_by_rules(region: _Region) -> bool:
    """Return whether a region's verdict changes, or rules decide it in both lists.

    A default is no operator's rule.
    """
    return region.before.permit is not region.after.permit or None not in (region.before.rule, region.after.rule)


def _once(rows: Iterable[Row]) -> list[Row]:
    """Keep of rows with the same packets only the first, which decides them."""
    standins, first = StandIns(), dict[object, Row]()
    for row in rows:
        first.setdefault(standins.of_box(row.box), row)
    return [*first.values()]


@dataclass(frozen=True, slots=True)
class _Region:
    """The packets that one pair of rows decides differently.

    A box less some rows of either list. `pieces`: the same as disjoint boxes; None if there are too many.
    """

    before: Row
    after: Row
    box: Box
    less_before: tuple[Row, ...]
    less_after: tuple[Row, ...]
    pieces: tuple[Box, ...] | None
    witness: Packet

    @property
    def fate(self) -> Fate:
        """Return what becomes of the packets."""
        if self.after.permit is not self.before.permit:
            return "permit" if self.after.permit else "deny"
        return "stateless" if self.after.stateless else "tracked"


class _Both:
    """The rows of two lists in one common order; common rows occur once."""

    def __init__(self, old: Sequence[Row], new: Sequence[Row], limits: Limits) -> None:
        self._rows: list[tuple[Row | None, Row | None]] = [*_one_order(old, new)]
        self.changed = [number for number, (before, after) in enumerate(self._rows) if not (before and after)]
        if self.changed:
            self._of: Bytes = np.array(
                [bool(one) * _BEFORE + bool(other) * _AFTER for one, other in self._rows], np.uint8
            )
            self._answers: Bytes = np.array([_take_either(row).answer for row in self._rows], np.uint8)
            self._cover = Cover([_take_either(row).box for row in self._rows], limits)
            self._cuts = MOST_CUTS

    def regions(self) -> list[_Region]:
        """Return the changed regions, by pairs of rows.

        Raises TooLarge.
        """
        return [self._make_region(switch) for switch in self._switches(MOST_CHANGES)]

    def moved_boxes(self) -> Iterator[tuple[bool, Box]]:
        """Yield boxes that hold all packets decided differently, and whether they are permitted now.

        Raises TooLarge.
        """
        for switch in self._switches(MOST_MOVED):
            _, after, box = self._pair(switch)
            pieces = None
            if self._cuts > 0:
                first = self._cover.before(self._of, switch.row, switch.other)
                pieces = self._cut(box, [_take_either(self._rows[row]) for row in first])
            yield from ((after.permit, piece) for piece in ((box,) if pieces is None else pieces))

    def _switches(self, most: int) -> list[Switch]:
        """Return the pairs of rows that decide a packet differently. Raises TooLarge beyond `most`."""
        switches: list[Switch] = []
        for number in self.changed:
            found = self._cover.changes(self._answers, self._of, number)
            if found is None or len(switches) + len(found) > most:
                raise TooLarge(
                    "the two lists differ in too many separate regions of packet space: compare smaller changes"
                )
            switches += found
        return switches

    def _pair(self, switch: Switch) -> tuple[Row, Row, Box]:
        """Return the row before, the row after, and what they share."""
        one, other = self._rows[switch.row], self._rows[switch.other]
        before, after = (one[0], other[1]) if self._of[switch.row] == _BEFORE else (other[0], one[1])
        if before is None or after is None:
            raise AssertionError("a switch is between a row of either list")
        box = before.box.intersect(after.box)
        if box is None:
            raise AssertionError("two rows that decide a packet have it in common")
        return before, after, box

    def _make_region(self, switch: Switch) -> _Region:
        before, after, box = self._pair(switch)
        first = [self._rows[row] for row in self._cover.before(self._of, switch.row, switch.other)]
        return _Region(
            before,
            after,
            box,
            tuple(row for row, _ in first if row is not None and row.position < before.position),
            tuple(row for _, row in first if row is not None and row.position < after.position),
            self._cut(box, [_take_either(pair) for pair in first]),
            switch.packet,
        )

    def _cut(self, box: Box, less: Sequence[Row]) -> tuple[Box, ...] | None:
        """Return a box without some rows, as disjoint boxes; None if that is too much."""
        pieces: tuple[Box, ...] = (box,)
        for row in less:
            self._cuts -= len(pieces) * count_spans(row.box) + sum(map(count_spans, pieces))
            if self._cuts < 0 or len(pieces) > MOST_PIECES:
                return None
            pieces = remaining(pieces, (row.box,))
        return pieces


def count_spans(box: Box) -> int:
    """Return how many spans a box's axes have: the cost of cutting by it."""
    return len(box.source) + len(box.destination) + len(box.source_ports) + len(box.destination_ports)


def _take_either(row: tuple[Row | None, Row | None]) -> Row:
    found = row[0] or row[1]
    if found is None:
        raise AssertionError("each row is in one of the lists")
    return found


def _one_order(old: Sequence[Row], new: Sequence[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield all rows of two lists in order, common ones side by side."""
    done_old = done_new = 0
    standins = StandIns()
    kept = common(*([(standins.of_box(row.box), row.answer) for row in rows] for rows in (old, new)))
    for in_old, in_new in (*kept, (len(old), len(new))):
        yield from ((row, None) for row in old[done_old:in_old])
        yield from ((None, row) for row in new[done_new:in_new])
        if in_old < len(old):
            yield old[in_old], new[in_new]
        done_old, done_new = in_old + 1, in_new + 1


def _describe_regions(regions: Iterable[_Region], direction: Direction) -> Iterator[Change]:
    """Turn regions of one IP version into changes.

    Those that were cut become merged boxes, the others stay.
    """
    listed = [*regions]
    cut = [(piece, region) for region in listed for piece in region.pieces or ()]
    boxes = merge_boxes(piece for piece, _ in cut)
    of: dict[int, list[_Region]] = {}
    whole = RuleList([Row(box, True, None, 0) for box in boxes]).finder(range(len(boxes))) if boxes else None
    for piece, region in cut:
        place = whole.first(piece.witness()) if whole else None
        if place is None:
            raise AssertionError("a merged box holds what was merged")
        of.setdefault(place, []).append(region)
    for place, box in enumerate(boxes):
        before, after = (_ids(getattr(region, side) for region in of[place]) for side in ("before", "after"))
        yield Change(direction, box, before, after, box.witness())
    for region in listed:
        if region.pieces is None:
            ends, less = ((region.before.id,), (region.after.id,)), (_ids(region.less_before), _ids(region.less_after))
            yield Change(direction, region.box, *ends, region.witness, *less)


def _ids(rows: Iterable[Row]) -> tuple[RuleId, ...]:
    """The ids of rows, each once, in the order of the list."""
    return tuple(dict.fromkeys(row.id for row in sorted(rows, key=lambda row: row.position)))


def count_parts(acl: Acl) -> int:
    """Return a list's count of rules, prefixes and port ranges.

    A group's prefixes count for each rule that names it.
    """
    sizes = {name: len(group.prefixes) for name, group in acl.groups.items()}
    return sum(
        1
        + len(rule.source_ports)
        + len(rule.destination_ports)
        + sum(len(side.prefixes) + sum(sizes[name] for name in side.groups) for side in (rule.source, rule.destination))
        for rule in acl.rules
    )


def only_closes(before: Acl, after: Acl, direction: Direction) -> bool:
    """Return whether two lists' actions prove that the change permits nothing new.

    Without a deny, a list permits what any of its rules matches; with a default that denies, no more than that.
    """
    denies = any(rule.action is Action.DENY for rule in before.rules)
    if not denies and before.default(direction) is Action.PERMIT:
        return True
    if after.default(direction) is Action.PERMIT:
        return False
    permits = {rule for rule in after.rules if rule.action is Action.PERMIT}
    return not permits or (not denies and before.groups == after.groups and permits <= {*before.rules})
