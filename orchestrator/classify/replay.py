"""Replay captures through one list or two: permits, denies, deciders, changes.

    piece 1 ──▶ read, group, decide, count ──┐
    piece 2 ──▶ read, group, decide, count ──┼──▶ added up in order
    piece 3 ──▶ ...                          ┘

A piece of a capture is a thread's work from beginning to end; all of it that takes long runs beside the others. Packets
that no rule can tell apart are decided once a piece (`Kinds`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _frames
from orchestrator.classify.flowrecords import FlowRecords
from orchestrator.classify.flows import Count, FlowCounts, Flows, add_values, flows_of
from orchestrator.classify.frames import Frames
from orchestrator.classify.grouping import I32, I64, groups
from orchestrator.classify.listdecider import NOBODY, Deciding, Verdicts
from orchestrator.classify.packets import PACKET, REASON, SEEN, Packets, Unread
from orchestrator.classify.records import Piece
from orchestrator.classify.timeline import Fate, Timeline


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """The kinds of a piece, in the order of their first frames."""

    packets: Packets
    count: I64
    byte_counts: I64
    first: I64
    group: I32
    """The kind of each frame, while no kind was left out."""

    def take(self, which: npt.NDArray[np.bool_]) -> Kinds:
        """Select some of the kinds."""
        some = np.flatnonzero(which)
        return Kinds(self.packets.take(some), self.count[some], self.byte_counts[some], self.first[some], self.group)

    def total(self, which: npt.NDArray[np.bool_]) -> Count:
        """Packets and bytes of some of the kinds."""
        return Count(int(self.count[which].sum()), int(self.byte_counts[which].sum()))


def kinds_of(piece: Piece) -> Kinds:
    """Return the packets of frames or of flow records, each kind once.

    Other threads run meanwhile.
    """
    return _sort_records(piece) if isinstance(piece, FlowRecords) else _sort_frames(piece)


def _sort_records(records: FlowRecords) -> Kinds:
    """Group flow records that are decided alike, and add up their counts."""
    first, group = groups(records.packets, SEEN)
    count, byte_counts = (add_values(group, each, len(first)) for each in (records.count, records.byte_counts))
    return Kinds(records.packets.take(first), count, byte_counts, first, group)


def _sort_frames(frames: Frames) -> Kinds:
    records, *sums, group = _frames.kinds(frames.data, frames.starts, frames.captured, frames.wire, frames.links)
    count, byte_counts, first = (np.frombuffer(each, np.int64) for each in sums)
    return Kinds(np.frombuffer(records, PACKET), count, byte_counts, first, np.frombuffer(group, np.int32))


_Bools = npt.NDArray[np.bool_]

_AHEAD, _MOST_AHEAD = 2, 24
"""So many pieces for each thread are read ahead of what was added up, and so many altogether: they are in memory."""


@dataclass(slots=True)
class Listed:
    """One list's result: packets permitted and denied, and each line's decisions.

    A packet between two of the tenant's own addresses is decided twice where its egress list lets it out.
    """

    permitted: Count
    denied: Count
    packets: I64
    """By the numbers of `Deciding.deciders`."""
    byte_counts: I64

    def count_of(self, number: int) -> Count:
        return Count(int(self.packets[number]), int(self.byte_counts[number]))


@dataclass(slots=True)
class Changed:
    """The packets that a list newly permits or denies."""

    permitted: Count = field(default_factory=Count)
    denied: Count = field(default_factory=Count)
    permitted_flows: Flows = field(default_factory=Flows)
    denied_flows: Flows = field(default_factory=Flows)

    def __bool__(self) -> bool:
        return bool(self.permitted.packets or self.denied.packets)


@dataclass(slots=True)
class Sums:
    """The counts of a replay, or of a share of one.

    Lines of lists have the numbers of `Deciding.deciders`.
    """

    of_list: Listed
    of_other: Listed | None
    captures: list[str] = field(default_factory=list)
    """Those that were read, by their names."""
    all: Count = field(default_factory=Count)
    nobodys: Count = field(default_factory=Count)
    """Neither from the tenant nor to it."""
    unread: dict[Unread, Count] = field(default_factory=dict)
    denied_flows: Flows = field(default_factory=Flows)
    changed: Changed = field(default_factory=Changed)
    timeline: Timeline = field(default_factory=Timeline.none)
    remarks: list[str] = field(default_factory=list)

    def absorb(self, other: Sums) -> None:
        """Add the next share's sums of the same replay.

        `other` must not be used any more.
        """
        self.captures += [each for each in other.captures if [each] != self.captures[-1:]]
        self.all += other.all
        self.nobodys += other.nobodys
        self.timeline += other.timeline
        self.remarks += other.remarks
        _add_counts(self.unread, other.unread)
        _add_listed(self.of_list, other.of_list)
        if self.of_other is not None and other.of_other is not None:
            _add_listed(self.of_other, other.of_other)
        self.changed.permitted += other.changed.permitted
        self.changed.denied += other.changed.denied
        self.denied_flows.absorb(other.denied_flows)
        self.changed.permitted_flows.absorb(other.changed.permitted_flows)
        self.changed.denied_flows.absorb(other.changed.denied_flows)


@dataclass(slots=True)
class Replay(Sums):
    """Everything that came of a replay."""

    deciding: Deciding = field(kw_only=True)
    against: Deciding | None = field(kw_only=True)

    @classmethod
    def of(cls, deciding: Deciding, against: Deciding | None = None) -> Replay:
        """A replay that has not begun."""
        other = None if against is None else _count_nothing(against)
        return cls(_count_nothing(deciding), other, deciding=deciding, against=against)

    def sums(self) -> Sums:
        """The counts without the lists, to send to another process."""
        return Sums(**{each.name: getattr(self, each.name) for each in fields(Sums)})


class Recorded(Protocol):
    """Frames or flow records, piece by piece, of a capture or a network interface."""

    name: str
    remarks: list[str]
    frames_before: int
    """Of a share of a capture, the packets before it."""

    def pieces(self) -> Iterator[Piece]:
        """One piece after the other."""
        ...


def replay(
    captures: Iterable[Recorded], deciding: Deciding, against: Deciding | None = None, *, threads: int | None = None
) -> Replay:
    """Replay captures in turn through a list, and compare with the list `against`.

    Both lists are asked about the same tenant. Raises what `Capture.pieces` raises.
    """
    found = Replay.of(deciding, against)
    lists = [deciding] if against is None else [deciding, against]
    workers = threads or len(os.sched_getaffinity(0))
    ahead = min(workers * _AHEAD, _MOST_AHEAD)
    with ThreadPoolExecutor(workers, "replay") as pool:
        for capture in captures:
            found.captures.append(capture.name)
            before = capture.frames_before
            for part in _in_turn(pool, capture, lambda piece: _count_piece(piece, lists), ahead):
                _add(found, part, capture.name, before)
                before += part.length
            found.remarks += capture.remarks
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """The result of one piece of a capture."""

    length: int
    """Frames or records."""
    all: Count
    nobodys: Count
    unread: dict[Unread, Count]
    lists: tuple[Listed, ...]
    denied: FlowCounts
    opened: FlowCounts | None
    closed: FlowCounts | None
    timeline: Timeline


def _in_turn(
    pool: ThreadPoolExecutor, capture: Recorded, work: Callable[[Piece], _Part], ahead: int
) -> Iterator[_Part]:
    """Yield the results of a capture's pieces in order, several in work at once."""
    waiting: deque[Future[_Part]] = deque()
    for piece in capture.pieces():
        waiting.append(pool.submit(work, piece))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _count_piece(piece: Piece, lists: Sequence[Deciding]) -> _Part:
    found = kinds_of(piece)
    why = _reasons(found, lists)
    unread = {each: found.total(why == each.value) for each in Unread if each.value in why}
    unread.pop(Unread.READ, None)
    is_read = why == Unread.READ.value
    kinds = found if is_read.all() else found.take(is_read)
    verdicts = [each.verdicts(kinds.packets) for each in lists]
    tallies = tuple(_count_list(each, found, kinds) for each, found in zip(lists, verdicts, strict=True))
    asked = verdicts[0].decider != NOBODY
    permitted = [asked & each.permits[found.decider] for each, found in zip(lists, verdicts, strict=True)]
    now, before = permitted[0], permitted[-1]
    alone = np.full(len(asked), NOBODY, np.int32)
    past = verdicts[-1].decider if len(lists) > 1 else alone
    fates = np.zeros(len(why), np.uint8)
    fates[is_read] = _fates(asked, now, before)
    return _Part(
        length=len(piece),
        all=found.total(np.ones(len(why), np.bool_)),
        nobodys=kinds.total(~asked),
        unread=unread,
        lists=tallies,
        denied=_count_flows(kinds, asked & ~now, verdicts[0].decider, alone),
        opened=_count_flows(kinds, now & ~before, verdicts[0].decider, past) if len(lists) > 1 else None,
        closed=_count_flows(kinds, before & ~now, verdicts[0].decider, past) if len(lists) > 1 else None,
        timeline=_make_timeline(piece, found, fates),
    )


def _reasons(kinds: Kinds, lists: Sequence[Deciding]) -> npt.NDArray[np.uint8]:
    """Why each kind is not decided, as `Unread` numbers."""
    said: npt.NDArray[np.uint8] = kinds.packets["unread"]
    why: npt.NDArray[np.uint8] = said & np.uint8(REASON)
    asked = np.flatnonzero(said > REASON)
    if len(asked):
        for each in lists:
            why[asked[~each.knows(kinds.packets[asked])]] = Unread.UNSAID.value
    return why


def _make_timeline(piece: Piece, kinds: Kinds, fates: npt.NDArray[np.uint8]) -> Timeline:
    if piece.times is None:
        return Timeline.none()
    return Timeline.of(piece.times, kinds.group, fates, piece.count if isinstance(piece, FlowRecords) else None)


def _fates(asked: _Bools, now: _Bools, before: _Bools) -> npt.NDArray[np.uint8]:
    """Return each kind's fate under the list, and whether the other list differs."""
    fates = np.where(now, Fate.PERMITTED.value, Fate.DENIED.value).astype(np.uint8)
    fates[now & ~before] = Fate.NEWLY_PERMITTED.value
    fates[before & ~now] = Fate.NEWLY_DENIED.value
    fates[~asked] = Fate.UNDECIDED.value
    return fates


def _count_list(deciding: Deciding, verdicts: Verdicts, kinds: Kinds) -> Listed:
    asked = verdicts.decider != NOBODY
    permitted = asked & deciding.permits[verdicts.decider]
    packets, byte_counts = np.zeros((2, len(deciding.deciders)), np.int64)
    for number in (verdicts.let_out, verdicts.decider):
        had = number != NOBODY
        packets += add_values(number[had], kinds.count[had], len(packets))
        byte_counts += add_values(number[had], kinds.byte_counts[had], len(packets))
    return Listed(kinds.total(permitted), kinds.total(asked & ~permitted), packets, byte_counts)


def _count_flows(kinds: Kinds, which: _Bools, decider: I32, before: I32) -> FlowCounts:
    some = kinds.take(which)
    return flows_of(some.packets, some.count, some.byte_counts, some.first, decider[which], before[which])


def _count_nothing(deciding: Deciding) -> Listed:
    packets, byte_counts = np.zeros((2, len(deciding.deciders)), np.int64)
    return Listed(Count(), Count(), packets, byte_counts)


def _add(found: Replay, part: _Part, capture: str, before: int) -> None:
    """Add a piece's result, after `before` packets of the capture."""
    found.all += part.all
    found.nobodys += part.nobodys
    found.timeline += part.timeline
    _add_counts(found.unread, part.unread)
    found.denied_flows.add(part.denied, capture, before)
    for whole, more in zip((found.of_list, found.of_other), part.lists, strict=False):
        if whole is not None:
            _add_listed(whole, more)
    changed = found.changed
    if part.opened is not None and part.closed is not None:
        changed.permitted += _sum_flows(part.opened)
        changed.denied += _sum_flows(part.closed)
        changed.permitted_flows.add(part.opened, capture, before)
        changed.denied_flows.add(part.closed, capture, before)


def _add_counts(whole: dict[Unread, Count], more: Mapping[Unread, Count]) -> None:
    for why, count in more.items():
        whole[why] = whole.get(why, Count()) + count


def _add_listed(whole: Listed, more: Listed) -> None:
    whole.permitted += more.permitted
    whole.denied += more.denied
    whole.packets += more.packets
    whole.byte_counts += more.byte_counts


def _sum_flows(flows: FlowCounts) -> Count:
    return Count(int(flows.packets.sum()), int(flows.byte_counts.sum()))
