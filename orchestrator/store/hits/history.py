"""Counts over time: sums of ever longer stretches, bounded in age and size.

    reports ──▶ MOMENTS ──every minute──▶ MINUTES ──every hour──▶ HOURS
                   └──────every minute──▶ totals

A stretch is one row that holds the counts of every cookie that moved in it, as columns (`program/counts.py`): what did
not move costs nothing, what did some ten bytes, and a report is one insertion however many rules it is about. Totals
are kept in chunks of neighbouring cookies and brought up to date once a minute; whoever asks adds the moments since.

Times are taken from the transaction and grow with every report. Where the clock was set back by more than a minute the
history goes on from the new time, and stretches that are there already are added to.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Row, delete, insert, select, update

from orchestrator.program.counts import NO_COUNTS, U64, Counts, counts_of, join_counts
from orchestrator.store.schema.hits import hit_history, hit_marks, hit_totals
from orchestrator.store.transaction import Transaction

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND

CHUNK_BITS = 16
_LOWER = (1 << 56) - 1


class Resolution(enum.IntEnum):
    """How long a stretch is."""

    MOMENTS = 0
    """One report."""
    MINUTES = 1
    HOURS = 2


_LENGTH = {Resolution.MINUTES: MINUTE, Resolution.HOURS: HOUR}


@dataclass(frozen=True, slots=True)
class Stretch:
    """The counts from a time on, in microseconds, for one resolution."""

    start: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Window:
    """The counts between two times, in microseconds."""

    since: int
    until: int
    counts: Counts


class HitHistory:
    """The history of a domain's counts."""

    def __init__(self, tx: Transaction, domain: str) -> None:
        self._tx = tx
        self._domain = domain

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, counts: Counts) -> None:
        """Keep what was reported in this transaction."""
        marks = self._read_marks() or self._begin_history()
        now = self._tx.micros
        if now < marks.latest - MINUTE:
            marks = self._set_back(marks, now)
        start = max(now, marks.latest + 1)
        if start >= marks.minutes_until + MINUTE:
            self._fold(marks, start // MINUTE * MINUTE)
            self._prune(start)
        self._put_counts(Resolution.MOMENTS, start, counts)
        self._move_marks(latest=start)

    def forget(self, cookies: U64) -> None:
        """Take cookies out of the totals, and what was not added to them yet."""
        marks = self._read_marks()
        if marks is None:
            return
        self._fold(marks, marks.latest + 1)
        for chunk, rows in _chunks(cookies).items():
            kept = self._read_total(chunk)
            rest = kept.take(~np.isin(kept.cookie, rows))
            if len(rest) < len(kept):
                self._put_total(chunk, rest)

    def _set_back(self, marks: Row[Any], now: int) -> Row[Any]:
        """Go on from an earlier time.

        A later stretch is closed as a whole, so that nothing of it is added again.
        """
        self._fold(marks, marks.latest // HOUR * HOUR + HOUR)
        minutes, hours = now // MINUTE * MINUTE, now // HOUR * HOUR
        for resolution, start in ((Resolution.MOMENTS, minutes), (Resolution.MINUTES, hours)):
            self._tx.write(delete(hit_history).where(*self._match_resolution(resolution), hit_history.c.start >= start))
        return self._move_marks(latest=now, minutes_until=minutes, hours_until=hours)

    def _fold(self, marks: Row[Any], until: int) -> None:
        """Add moments before a time to minutes and totals, and finished hours' minutes to hours."""
        moments = self._read_stretches(Resolution.MOMENTS, marks.minutes_until, until)
        self._coarsen_stretches(Resolution.MINUTES, moments)
        self._add(join_counts(stretch.counts for stretch in moments))
        hours = until // HOUR * HOUR
        if hours > marks.hours_until:
            self._coarsen_stretches(
                Resolution.HOURS, self._read_stretches(Resolution.MINUTES, marks.hours_until, hours)
            )
        self._move_marks(minutes_until=until, hours_until=max(hours, marks.hours_until))

    def _coarsen_stretches(self, into: Resolution, stretches: Iterable[Stretch]) -> None:
        by_start: defaultdict[int, list[Counts]] = defaultdict(list)
        for stretch in stretches:
            by_start[stretch.start // _LENGTH[into] * _LENGTH[into]].append(stretch.counts)
        for start, parts in by_start.items():
            there = self._read_stretches(into, start, start + 1)
            self._put_counts(into, start, join_counts([*parts, *(stretch.counts for stretch in there)]))

    def _put_counts(self, resolution: Resolution, start: int, counts: Counts) -> None:
        data = counts.to_bytes()
        new = self._tx.upsert(hit_history).values(
            domain=self._domain, resolution=resolution, start=start, size=len(data), counts=data
        )
        self._tx.write(
            new.on_conflict_do_update(
                index_elements=["domain", "resolution", "start"],
                set_={"size": new.excluded.size, "counts": new.excluded.counts},
            )
        )

    def _add(self, counts: Counts) -> None:
        """Add counts to the totals."""
        for chunk, rows in _chunks(counts.cookie).items():
            self._put_total(chunk, join_counts((self._read_total(chunk), counts.take(np.isin(counts.cookie, rows)))))

    def _read_total(self, chunk: int) -> Counts:
        table = hit_totals.c
        query = select(table.counts).where(table.domain == self._domain, table.chunk == chunk)
        data = self._tx.read(query).scalar_one_or_none()
        return NO_COUNTS if data is None else counts_of(data)

    def _put_total(self, chunk: int, counts: Counts) -> None:
        new = self._tx.upsert(hit_totals).values(domain=self._domain, chunk=chunk, counts=counts.to_bytes())
        self._tx.write(
            new.on_conflict_do_update(index_elements=["domain", "chunk"], set_={"counts": new.excluded.counts})
        )

    def _prune(self, now: int) -> None:
        """Forget counts that are too old, then the oldest of the finest beyond the size."""
        kept = self._tx.settings.history
        for resolution, seconds in zip(Resolution, (kept.moments_s, kept.minutes_s, kept.hours_s), strict=True):
            self._forget_before(resolution, now - int(seconds * SECOND))
        table = hit_history.c
        sizes = select(table.resolution, table.start, table.size).where(table.domain == self._domain)
        rows = self._tx.read(sizes.order_by(table.resolution, table.start)).all()
        over = sum(row.size for row in rows) - kept.limit_bytes
        last: dict[int, int] = {}
        for row in rows:
            if over <= 0:
                break
            over -= row.size
            last[row.resolution] = row.start
        for number, start in last.items():
            self._forget_before(Resolution(number), start + 1)

    def _forget_before(self, resolution: Resolution, start: int) -> None:
        marks = self._read_marks()
        assert marks is not None
        closed = (marks.minutes_until, marks.hours_until, start)[resolution]
        start = min(start, closed)  # what is not yet part of something longer stays
        old = delete(hit_history).where(*self._match_resolution(resolution), hit_history.c.start < start)
        if self._tx.write(old).rowcount:
            self._move_marks(**{_SINCE[resolution]: start})

    def _read_marks(self) -> Row[Any] | None:
        return self._tx.read(select(hit_marks).where(hit_marks.c.domain == self._domain)).one_or_none()

    def _begin_history(self) -> Row[Any]:
        now = self._tx.micros
        marks = {"latest": now, "minutes_until": now // MINUTE * MINUTE, "hours_until": now // HOUR * HOUR}
        since = dict.fromkeys(_SINCE.values(), now)
        return self._tx.write(
            insert(hit_marks).values(domain=self._domain, **marks, **since).returning(hit_marks)
        ).one()

    def _move_marks(self, **marks: int) -> Row[Any]:
        moved = update(hit_marks).where(hit_marks.c.domain == self._domain).values(**marks).returning(hit_marks)
        return self._tx.write(moved).one()

    # ------------------------------------------------------------------------------------------------ reading

    def totals(self, cookies: U64 | None = None) -> Counts:
        """Return the sums ever counted, of some cookies in order, or of all."""
        marks = self._read_marks()
        if marks is None:
            return NO_COUNTS if cookies is None else NO_COUNTS.at(cookies)
        table = hit_totals.c
        rows = select(table.counts).where(table.domain == self._domain)
        if cookies is not None:
            rows = rows.where(table.chunk.in_(_chunks(cookies)))
        folded = map(counts_of, self._tx.read(rows).scalars())
        fresh = self._read_stretches(Resolution.MOMENTS, marks.minutes_until, None)
        found = join_counts([*folded, *(stretch.counts for stretch in fresh)])
        return found if cookies is None else found.at(cookies)

    def window(self, since: int) -> Window:
        """Return the counts since a time, or somewhat earlier.

        In the finest resolution that reaches so far back.
        """
        now, marks = self._tx.micros, self._read_marks()
        if marks is None:
            return Window(now, now, NO_COUNTS)
        finest = next((each for each in Resolution if getattr(marks, _SINCE[each]) <= since), None)
        if finest is None:
            finest = min(Resolution, key=lambda each: int(getattr(marks, _SINCE[each])))
        length = _LENGTH.get(finest, 1)
        start = max(since // length * length, getattr(marks, _SINCE[finest]) // length * length)
        return Window(start, now, join_counts(stretch.counts for stretch in self._from(finest, start, marks)))

    def stretches(self, resolution: Resolution, since: int) -> list[Stretch]:
        """Return the counts of each stretch since a time, at a resolution.

        The first is the stretch that the time is in, the last is the one under way.
        """
        marks = self._read_marks()
        if marks is None:
            return []
        if resolution is Resolution.MOMENTS:
            return self._read_stretches(resolution, since, None)
        length = _LENGTH[resolution]
        by_start: defaultdict[int, list[Counts]] = defaultdict(list)
        for stretch in self._from(resolution, since // length * length, marks):
            by_start[stretch.start // length * length].append(stretch.counts)
        return [Stretch(start, join_counts(parts)) for start, parts in sorted(by_start.items())]

    def _from(self, finest: Resolution, start: int, marks: Row[Any]) -> list[Stretch]:
        """Return stretches of a resolution, then the finer ones not yet merged into it."""
        found = []
        for resolution in reversed(Resolution):
            if resolution > finest:
                continue
            until = (None, marks.minutes_until, marks.hours_until)[resolution]
            found += self._read_stretches(resolution, start, until)
            start = max(start, until or 0)
        return found

    def _read_stretches(self, resolution: Resolution, start: int, until: int | None) -> list[Stretch]:
        table = hit_history.c
        rows = select(table.start, table.counts).where(*self._match_resolution(resolution), table.start >= start)
        if until is not None:
            rows = rows.where(table.start < until)
        return [Stretch(row.start, counts_of(row.counts)) for row in self._tx.read(rows.order_by(table.start))]

    def _match_resolution(self, resolution: Resolution) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return hit_history.c.domain == self._domain, hit_history.c.resolution == resolution


_SINCE: Mapping[Resolution, str] = {
    Resolution.MOMENTS: "moments_since",
    Resolution.MINUTES: "minutes_since",
    Resolution.HOURS: "hours_since",
}
"""The mark that says since when a resolution is complete."""


def _chunks(cookies: U64) -> dict[int, U64]:
    """Cookies by the chunk of the totals that they are in."""
    chunk = (cookies & np.uint64(_LOWER)) >> np.uint64(CHUNK_BITS)
    return {int(each): cookies[chunk == each] for each in np.unique(chunk).tolist()}
