"""Counts of rules as columns, one row a cookie.

`Counts` are increments or sums, whatever they are told to be: several are joined by adding what belongs to the same
cookie, in any order, and the result does not depend on the order. So an enforcement point adds up what its devices
counted, the service adds up what enforcement points report, minutes are sums of moments and hours sums of minutes, all
by the one function `join_counts`.

Bytes: the first cookie (u64), the latest hit (i64), and packed columns (`packing.py`): how far each cookie is from the
one before, packets, bytes, resets, and how long before the latest the last hit was, plus 1 (0: there was none). A row
takes some ten bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput
from orchestrator.program.packing import pack, unpack

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

MOST = (1 << 63) - 1
"""Where a sum stays rather than begin anew."""

_COLUMNS = ("cookie", "packets", "byte_counts", "resets", "last_hit")
_HEAD = struct.Struct("<Qq")


@dataclass(frozen=True, slots=True)
class Counts:
    """Columns of equal length, ascending by cookie, each cookie once.

    `resets` is how often a device's counter began anew without having been read just before. `last_hit` is the time of
    the last packet, in microseconds of a clock that is the maker's to say; 0: none.
    """

    cookie: U64
    packets: I64
    byte_counts: I64
    resets: I64
    last_hit: I64

    def __len__(self) -> int:
        return len(self.cookie)

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Counts:
        """Select some rows, by mask or by ascending indices."""
        return Counts(*(getattr(self, name)[rows] for name in _COLUMNS))

    def at(self, cookies: U64) -> Counts:
        """One row for each of `cookies`, in their order; zeros for what is not here."""
        found = np.searchsorted(self.cookie, cookies)
        here = np.append(self.cookie, np.uint64(0))[found] == cookies if len(self) else np.zeros(len(cookies), bool)
        columns = (np.where(here, np.append(getattr(self, name), 0)[found], 0) for name in _COLUMNS[1:])
        return Counts(cookies, *columns)

    def to_bytes(self) -> bytes:
        """Return the counts' wire form."""
        latest = self.last_hit.max(initial=0)
        ago = np.where(self.last_hit > 0, latest - self.last_hit + 1, 0)
        signed = (self.packets, self.byte_counts, self.resets, ago)
        steps = np.diff(self.cookie, prepend=self.cookie[:1])
        head = _HEAD.pack(int(self.cookie[0]) if len(self) else 0, int(latest))
        return head + pack([steps, *(column.astype(np.uint64) for column in signed)])


def counts_of(data: bytes) -> Counts:
    """Counts from their bytes. Raises BadInput for bytes that are none."""
    if len(data) < _HEAD.size:
        raise BadInput("counts are cut off", place="counts")
    first, latest = _HEAD.unpack_from(data)
    (steps, *counted), size = unpack(data[_HEAD.size :], len(_COLUMNS))
    if size + _HEAD.size != len(data):
        raise BadInput("there are bytes behind the counts", place="counts")
    cookie = np.uint64(first) + np.cumsum(steps, dtype=np.uint64)  # one that wraps around is below the one before
    if steps[:1].any() or (cookie[1:] <= cookie[:-1]).any():
        raise BadInput("cookies must ascend, each of them once", place="counts")
    if any((column > MOST).any() for column in counted) or (counted[3] > latest).any():
        raise BadInput("a count is above 2^63-1, or a time before all times", place="counts")
    packets, byte_counts, resets, ago = (column.astype(np.int64) for column in counted)
    return Counts(cookie, packets, byte_counts, resets, np.where(ago > 0, latest - ago + 1, 0))


def join_counts(parts: Iterable[Counts]) -> Counts:
    """Return the sum: equal cookies are added, the later of two last hits counts."""
    several = [part for part in parts if len(part)]
    if len(several) == 1:
        return several[0]
    if not several:
        return NO_COUNTS
    return sum_rows(
        np.concatenate([part.cookie for part in several]),
        np.concatenate([part.packets for part in several]),
        np.concatenate([part.byte_counts for part in several]),
        np.concatenate([part.resets for part in several]),
        np.concatenate([part.last_hit for part in several]),
    )


def sum_rows(cookie: U64, packets: I64, byte_counts: I64, resets: I64, last_hit: I64) -> Counts:
    """Counts from rows in any order, in which a cookie may come several times."""
    if not len(cookie):
        return NO_COUNTS
    order = np.argsort(cookie, kind="stable")
    ordered = cookie[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    added = (_add_runs(column[order], starts) for column in (packets, byte_counts, resets))
    return Counts(ordered[starts], next(added), next(added), next(added), np.maximum.reduceat(last_hit[order], starts))


def _add_runs(column: I64, starts: npt.NDArray[np.intp]) -> I64:
    """Sums of runs; one that goes over the edge stays there."""
    sums: I64 = np.add.reduceat(column, starts)
    if (sums < 0).any() or int(column.max(initial=0)) > MOST // len(column):
        exact = np.add.reduceat(column.astype(object), starts)
        sums = np.array([min(int(each), MOST) for each in exact], np.int64)
    return sums


_NOTHING: I64 = np.empty(0, np.int64)

NO_COUNTS = Counts(np.empty(0, np.uint64), _NOTHING, _NOTHING, _NOTHING, _NOTHING)


READ_EVERY_S = 5.0
"""Their counters are read so often, and what is new is told."""
