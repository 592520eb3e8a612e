"""Order a device's counters by key, and add up their growth by cookie.

A switch lists thousands of entries, in the same order as long as none comes or goes. So the order that one poll was
brought into serves the next (`Arrangement`), and a poll of entries that are still the same sorts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import LEAVES, MARK, NO_ROOM, PART_BITS, Kind
from orchestrator.enforce.bookmark import Marks
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Hits
from orchestrator.program.counts import I64, Counts
from orchestrator.program.flows import U64

HIGHEST_COUNT = 1 << 62
"""A counter above this is no count: devices give all ones for what they do not know."""

_OF_LISTS = (
    Kind.RULE,
    Kind.INGRESS_DEFAULT,
    Kind.EGRESS_DEFAULT,
    Kind.OPERATOR_RULE,
    Kind.INGRESS_RETURN,
    Kind.EGRESS_RETURN,
)
_OF_EDGES = (Kind.EXCEPTION, Kind.LINE, Kind.NOBODY, Kind.SPOOFED)
_COUNTED = np.array([*_OF_LISTS, *_OF_EDGES], np.uint64)
_OF_RULES = np.array([Kind.RULE, Kind.OPERATOR_RULE], np.uint64)
_NO_ROOM = np.array([*NO_ROOM.values()], np.uint64)

Rows = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The order of a listing's rows, for listings of the same keys and cookies.

    `rows` are those that `are_counted`, ascending by key; where a key
    comes several times, they are one counter that begins at `starts`. `by_cookie` are the counters in the order of
    their cookies, of which each begins at one of `cookie_starts`.
    """

    listed_key: U64
    listed_cookie: U64
    rows: Places
    starts: Places
    key: U64
    cookie: U64
    by_cookie: Places
    cookie_starts: Places

    @classmethod
    def of(cls, hits: Hits) -> Arrangement:
        """The order of a listing."""
        rows = np.flatnonzero(are_counted(hits.cookie))
        rows = rows[np.argsort(hits.key[rows], kind="stable")]
        starts = _beginnings(hits.key[rows])
        cookie = hits.cookie[rows[starts]] & ~np.uint64(PART_BITS)
        by_cookie = np.argsort(cookie, kind="stable")
        cookie_starts = _beginnings(cookie[by_cookie])
        return cls(hits.key, hits.cookie, rows, starts, hits.key[rows[starts]], cookie, by_cookie, cookie_starts)

    def fits(self, hits: Hits) -> bool:
        """Whether a listing is of the same entries in the same order."""
        return np.array_equal(self.listed_key, hits.key) and np.array_equal(self.listed_cookie, hits.cookie)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters ascending by unique key, with seconds since each one's last count."""

    marks: Marks
    idle_s: I64
    arrangement: Arrangement

    @classmethod
    def of(cls, hits: Hits, like: Arrangement | None = None) -> Reading:
        """A listing brought into order: that of an earlier one, if it fits."""
        order = like if like is not None and like.fits(hits) else Arrangement.of(hits)
        packets, byte_counts = hits.packets[order.rows], hits.bytes[order.rows]
        age_ms = np.nan_to_num(np.maximum(hits.age_s * 1000, 1)).astype(np.uint64)[order.rows]
        idle_s = np.where(hits.idle_s == UNKNOWN_IDLE_S, 0, hits.idle_s).astype(np.int64)[order.rows]
        if len(order.starts) < len(order.rows):  # two counters of one name are one to us
            packets, byte_counts = (np.add.reduceat(column, order.starts) for column in (packets, byte_counts))
            age_ms, idle_s = (np.minimum.reduceat(column, order.starts) for column in (age_ms, idle_s))
        return cls(Marks(order.key, order.cookie, packets, byte_counts, age_ms), idle_s, order)

    def fill_in(self, before: U64, before_bytes: U64) -> Reading:
        """Fill in earlier values where the device does not know its counts."""
        unknown = (self.marks.packets >= HIGHEST_COUNT) | (self.marks.bytes >= HIGHEST_COUNT)
        if not unknown.any():
            return self
        packets = np.where(unknown, before, self.marks.packets)
        byte_counts = np.where(unknown, before_bytes, self.marks.bytes)
        return replace(self, marks=replace(self.marks, packets=packets, bytes=byte_counts))

    def sum_growth(self, packets: I64, byte_counts: I64, resets: I64, last_hit: I64) -> Counts:
        """Add up the counters' growth by cookie; those that did not move are left out."""
        order, starts = self.arrangement.by_cookie, self.arrangement.cookie_starts
        if not len(starts):
            return Counts(self.marks.cookie, packets, byte_counts, resets, last_hit)
        cookie = self.arrangement.cookie[order[starts]]
        sums = [np.add.reduceat(column[order], starts) for column in (packets, byte_counts, resets)]
        whole = Counts(cookie, sums[0], sums[1], sums[2], np.maximum.reduceat(last_hit[order], starts))
        return whole.take((whole.packets > 0) | (whole.byte_counts > 0) | (whole.resets > 0))


def are_counted(cookie: U64) -> Rows:
    """Return which flow entries have counters that are reported.

    They are those of a rule, a list's end, an edge's part, or connections without room.
    """
    kind, part = cookie >> np.uint64(48) & np.uint64(0xF), cookie & np.uint64(PART_BITS)
    leaves = (part == LEAVES) & np.isin(kind, _OF_RULES)
    found: Rows = (cookie >> np.uint64(56) == MARK) & np.isin(kind, _COUNTED) & ~leaves | np.isin(cookie, _NO_ROOM)
    return found


def _beginnings(ordered: U64) -> Places:
    """Where each value of an ordered column comes first."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.empty(0, np.intp)
