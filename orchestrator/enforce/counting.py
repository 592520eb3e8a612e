"""Turn a device's counters into sums of rules, which never fall or overstate.

A switch counts each flow entry from the moment it is put in. An entry goes when its rule is edited, lifted or taken
down, when the switch restarts, when somebody meddles; another one may come under the same name and count from zero. A
`Tally` follows the entries of one device, each by its key (`program/flows.py`), and adds up by how much they grew:

    ┌─ entry ─────────────┬─ what its counter has grown by ───────────────────────────────────────────────┐
    │ as it was           │ its count less what it was                                                    │
    │ new                 │ its count                                                                     │
    │ renewed             │ its count; what the old one had counted since the last poll is lost           │
    │ removed by us       │ as it was read just before, less what it was; not read: lost since the poll   │
    │ put in and removed  │ as it was read just before; not read: all of it is lost                       │
    │ vanished            │ nothing; what it had counted since the last poll is lost                      │
    └─────────────────────┴───────────────────────────────────────────────────────────────────────────────┘

An entry was renewed if its counter is lower, or if it is younger than it must be: all entries of a device grow old
alike, so one that has aged less than another one since the last poll was not there all the time. Only the device's own
clock is asked, so no clock that is set, stands still or runs otherwise makes anything count twice. Entries that cannot
be told apart count as one that went on: too little rather than too much. Entries are read one after the other, so their
ages may differ by as long as both readings took.

Losses are noted: how many entries, and the longest time whose packets may be missing.

Counts go to the service as letters, one at a time and each exactly once (`countreport.py`), with the bookmark that says
how far it got. Nothing is counted before the service has said how far the one before came (`claim`); what is changed
until then is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.enforce.bookmark import NO_MARKS, Marks, encode_chunk
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.reading import Arrangement, Places, Reading, Rows, are_counted
from orchestrator.program.countframes import Loss, Note
from orchestrator.program.counts import I64, Counts, join_counts, sum_rows
from orchestrator.program.flows import U64

AGE_SLACK_S = 0.1
"""By how much ages may differ beyond the time that reading them takes."""

SMALLEST_JOURNAL = 1024
"""How many rows a bookmark's later chunks may have before it is written anew; more where there are more counters."""

MOST_PARTS = 16
MOST_ENTRIES = (1 << 32) - 1

_NO_KEYS: U64 = np.empty(0, np.uint64)

Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Letter:
    """The counts since the last letter.

    `chunk` is appended to the checkpoint, or replaces it.
    """

    counts: Counts
    notes: tuple[Note, ...]
    chunk: bytes
    whole: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A change's effect on counters: those read before it, removed keys, new rows.

    `gone` is None where the device does not know which: then `last` are all its counters.
    """

    last: Hits | None
    gone: U64 | None
    fresh: Marks = NO_MARKS


class Counting(Protocol):
    """Receives the events of devices' counters.

    Returns at once.
    """

    def note_poll(self, host: str, hits: Hits, took_s: float) -> None:
        """All counters of a device were read just now, within so many seconds."""
        ...

    def note_change(self, host: str, change: Callable[[], Change]) -> None:
        """Record a device's change, just read back; its counters are evaluated later."""
        ...

    def forget(self, host: str) -> None:
        """Stop counting a device that somebody else counts now."""
        ...


@dataclass(slots=True)
class Tally:
    """Counts one device.

    For one thread at a time; times are seconds of one monotonic clock.
    """

    marks: Marks = NO_MARKS
    _dirty: Rows = field(default_factory=lambda: np.zeros(0, bool))
    _gone: list[U64] = field(default_factory=list)
    grown: list[Counts] = field(default_factory=list)
    _notes: dict[Loss, Note] = field(default_factory=dict)
    _waiting: list[tuple[Change, float]] = field(default_factory=list)
    _claimed: bool = False
    _unseen: bool = False
    _fresh: Marks = NO_MARKS  # put in since the last poll
    _counted_at: float = 0.0
    _took_s: float | None = None
    _journal: int = 0
    _excused: bool = False
    _order: Arrangement | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether it is known how far the device was counted before."""
        return self._claimed

    @property
    def is_due(self) -> bool:
        """Whether there is something to be told."""
        return bool(self.grown or self._notes or any(map(len, self._gone)) or self._dirty.any())

    def claim(self, before: Marks | None, at: float, silent_s: float = 0.0) -> None:
        """Go on from a bookmark that is `silent_s` old.

        None: nobody ever counted this device, so what it has counted by itself is not ours to add.
        """
        self._claimed, self._unseen, self._counted_at = True, before is None, at - silent_s
        self.marks = NO_MARKS if before is None else before
        self._dirty = np.zeros(len(self.marks), bool)
        self._journal = 0 if before is None else SMALLEST_JOURNAL + 2 * len(before)  # the next chunk is of everything
        waiting, self._waiting = self._waiting, []
        for change, then in waiting:
            self.note_change(change, then)

    def lose(self) -> None:
        """Drop everything not yet taken: somebody else counts now."""
        self._claimed = self._unseen = False
        self.marks, self._dirty, self._fresh, self._took_s = NO_MARKS, np.zeros(0, bool), NO_MARKS, None
        for each in (self._gone, self.grown, self._notes, self._waiting):
            each.clear()

    def poll(self, hits: Hits, at: float, took_s: float) -> None:
        """Every counter of the device, as read within `took_s` seconds until a time."""
        if not self._claimed:
            return
        now = Reading.of(hits, self._order)
        self._order = now.arrangement
        if self._unseen:
            self._begin(now)
        known = _find_keys(self.marks, now.marks.key)
        now = now.fill_in(_at(self.marks.packets, known), _at(self.marks.bytes, known))
        before = self.marks.and_others(self._fresh)
        self._miss(before.take(_find_keys(now.marks, before.key) < 0), at)
        slack_s = None if self._took_s is None else self._took_s + took_s + AGE_SLACK_S
        self._dirty = self._count(now, known, at, slack_s) | _at(self._dirty, known)
        self.marks = now.marks
        self._fresh, self._counted_at, self._took_s = NO_MARKS, at, took_s

    def _miss(self, missing: Marks, at: float) -> None:
        """Note what is not there any more."""
        if len(missing):
            if not self._excused:
                self._lost(Loss.VANISHED, missing, at)
            self._gone.append(missing.key)
        self._excused = False

    def note_change(self, change: Change, at: float) -> None:
        """Take note of a change of the device that was read back."""
        if not self._claimed:
            self._waiting.append((change, at))
            return
        if change.gone is None:
            self._read_all(change.last, at)
            return
        fresh = change.fresh.take(are_counted(change.fresh.cookie))
        gone = np.union1d(change.gone, fresh.key)
        read = self._count_last(change.last, gone, at) if change.last is not None else _NO_KEYS
        lost = np.isin(self.marks.key, gone)
        unread = lost & ~np.isin(self.marks.key, read)
        short = self.marks.take(unread).and_others(self._fresh.take(np.isin(self._fresh.key, gone)).without(read))
        ours = np.isin(short.key, change.gone)
        self._lost(Loss.UNREAD, short.take(ours), at)
        self._lost(Loss.VANISHED, short.take(~ours), at)
        self._gone.append(self.marks.key[lost])
        self.marks, self._dirty = self.marks.take(~lost), self._dirty[~lost]
        self._fresh = self._fresh.without(gone).and_others(fresh)

    def _read_all(self, last: Hits | None, at: float) -> None:
        """Record counters read before a change whose removals only the next poll shows."""
        if last is not None:
            self.poll(last, at, 0.0)
        self._excused = last is not None

    def _count_last(self, last: Hits, gone: U64, at: float) -> U64:
        """Add the last counts of what was removed; the keys that were read."""
        removed = last.take(np.isin(last.key, gone))
        counted = removed if not self._unseen else removed.take(np.isin(removed.key, self._fresh.key))
        now = Reading.of(counted)
        known = _find_keys(self.marks, now.marks.key)
        now = now.fill_in(_at(self.marks.packets, known), _at(self.marks.bytes, known))
        self._count(now, known, at, None)
        return removed.key

    def take(self) -> Letter | None:
        """Return the counts to send now, or None.

        The caller makes sure that they arrive, once.
        """
        if not self.is_due:
            return None
        gone = np.concatenate([_NO_KEYS, *self._gone])
        there = (self.marks.packets > 0) | (self.marks.bytes > 0)
        moved = int(np.count_nonzero(self._dirty)) + len(gone)
        self._journal += moved
        whole = self._journal > SMALLEST_JOURNAL + 2 * int(np.count_nonzero(there))
        if whole:
            self._journal = 0
        chunk = encode_chunk(self.marks.take(there), _NO_KEYS) if whole else self._encode_dirty(gone)
        letter = Letter(join_counts(self.grown), tuple(self._notes.values()), chunk, whole)
        self._dirty = np.zeros(len(self.marks), bool)
        for each in (self._gone, self.grown, self._notes):
            each.clear()
        return letter

    def _encode_dirty(self, gone: U64) -> bytes:
        return encode_chunk(self.marks.take(self._dirty), np.setdiff1d(gone, self.marks.key[self._dirty]))

    def _begin(self, now: Reading) -> None:
        """Start from the first poll of a device that nobody counted."""
        old = ~np.isin(now.marks.key, self._fresh.key)
        self.marks = now.marks.take(old)
        self._dirty = np.ones(len(self.marks), bool)
        self._unseen = False

    def _count(self, now: Reading, known: Places, at: float, slack_s: float | None) -> Rows:
        """Add what counters grew by; return the rows that moved.

        `slack_s`: all marks are of one poll, and ages differ by no more than that; None: they are of several.
        """
        before_packets, before_bytes = _at(self.marks.packets, known), _at(self.marks.bytes, known)
        here = known >= 0
        lower = here & ((now.marks.packets < before_packets) | (now.marks.bytes < before_bytes))
        renewed = lower | _younger(now.marks.age_ms, _at(self.marks.age_ms, known), here, slack_s)
        more_packets = np.where(renewed, now.marks.packets, now.marks.packets - before_packets).astype(np.int64)
        more_bytes = np.where(renewed, now.marks.bytes, now.marks.bytes - before_bytes).astype(np.int64)
        resets = (renewed & (before_packets > 0)).astype(np.int64)
        moved: Rows = renewed | (more_packets > 0) | (more_bytes > 0)
        if moved.any():
            last_hit = np.where(more_packets > 0, _micros(at, now.idle_s), 0)
            self._add(now.sum_growth(more_packets, more_bytes, resets, last_hit))
        if renewed.any():
            self._note(Loss.RENEWED, int(np.count_nonzero(renewed)), at)
        return moved

    def _add(self, counts: Counts) -> None:
        """Keep what was counted; while nobody takes it, it does not pile up."""
        self.grown.append(counts)
        if len(self.grown) > MOST_PARTS:
            self.grown = [join_counts(self.grown)]

    def _note(self, loss: Loss, entries: int, at: float) -> None:
        """Keep a note; several of the same kind are one."""
        before = self._notes.get(loss, Note(loss, 0, 0.0))
        within_s = max(before.within_s, at - self._counted_at, 0.0)
        self._notes[loss] = Note(loss, min(before.entries + entries, MOST_ENTRIES), within_s)

    def _lost(self, loss: Loss, marks: Marks, at: float) -> None:
        """Note entries that went unread."""
        if not len(marks):
            return
        self._note(loss, len(marks), at)
        has_counted = (marks.packets > 0) | np.isin(marks.key, self._fresh.key)  # of the latter nobody knows
        counted = marks.take(has_counted & (marks.cookie > 0))
        if len(counted):
            zero = np.zeros(len(counted), np.int64)
            self._add(sum_rows(counted.cookie, zero, zero, np.ones(len(counted), np.int64), zero))


def _find_keys(marks: Marks, keys: U64) -> Places:
    """Where keys are among the marks; -1 for those that are not."""
    if marks.key is keys:
        return np.arange(len(keys))
    if not len(marks):
        return np.full(len(keys), -1, np.intp)
    place = np.minimum(np.searchsorted(marks.key, keys), len(marks) - 1)
    return np.where(marks.key[place] == keys, place, -1)


def _at(column: npt.NDArray[Value], rows: Places) -> npt.NDArray[Value]:
    """The values at rows; zero where there is none (-1)."""
    found: npt.NDArray[Value] = np.append(column, np.zeros(1, column.dtype))[rows]
    return found


def _younger(age_ms: U64, before_ms: U64, here: Rows, slack_s: float | None) -> Rows:
    """Which counters are younger than those of the same name that were there before."""
    aged = age_ms.astype(np.int64) - before_ms.astype(np.int64)
    told = here & (age_ms > 0) & (before_ms > 0)
    passed = 0 if slack_s is None else int(aged[told].max(initial=0)) - int(slack_s * 1000)
    return told & (aged < max(0, passed))


def _micros(at: float, idle_s: I64) -> I64:
    """Return the microseconds of last packets, by the clock of `at`.

    Never 0, which says that none came.
    """
    return np.maximum(int(at * 1e6) - idle_s * 1_000_000, 1)
