"""Changed rows beside a built search, without building anew.

    packets ──▶ built search ──▶ first row ── removed? ──▶ the next in order that is not ──┐
       │                                                                                   ├──▶ the lower order decides
       └──────▶ overlay: added and changed rows, asked in order ───────────────────────────┘

A change of a row marks it as removed in the built search and puts its new form into the overlay. Both take
microseconds, however many rows were built. A packet pays for it: it is asked about each row of the overlay, and one
whose first row is removed goes on from there row by row. So rows are built anew behind a change, and what changed
meanwhile is carried over.

A row is named by a number of the caller's. Its order says which row of two decides; rows of equal order hold no common
packet, or the lower number decides. `Overlaid` is a value: a change gives another one, and callers of the old one are
answered by the old rows. Law: an overlay answers as the same rows built anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32
from orchestrator.classify.packets import Packets
from orchestrator.classify.search import RowsInOrder, Search
from orchestrator.policy.addresses import Family
from orchestrator.policy.space import Box

NONE = -1
"""Instead of a number: no row holds the packet."""

MOST_CHANGED = 256
"""More changed rows than these are built at once: packets pay for each."""

HIGHEST_ORDER = (1 << 31) - 1


class Searching(Protocol):
    """Rows of one IP version that can be asked, from any thread."""

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet, -1 where none does."""


MakeSearch = Callable[[Family, Sequence[Box]], Searching]
"""Makes rows ready to be asked."""


class Placed(NamedTuple):
    """A row: its order, 0 to HIGHEST_ORDER, its unique number, and its packets."""

    order: int
    number: int
    box: Box


@dataclass(frozen=True, slots=True, eq=False)
class _Built:
    """Rows that were built together, ascending by order."""

    rows: tuple[Placed, ...]
    places: Mapping[int, int]
    """Where each number stands in `rows`."""
    search: Searching
    in_order: RowsInOrder
    names: _Names

    @classmethod
    def of(cls, family: Family, rows: tuple[Placed, ...], searching: MakeSearch) -> _Built:
        """Build the search over rows of one IP version."""
        boxes = [row.box for row in rows]
        search = searching(family, boxes)
        in_order = search if isinstance(search, RowsInOrder) else RowsInOrder(family, boxes)
        return cls(rows, {row.number: place for place, row in enumerate(rows)}, search, in_order, _Names.of(rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """The numbers of rows by place; the last place, reached by -1, is no row."""

    keys: npt.NDArray[np.int64]
    """Order and number in one: the lower decides."""
    numbers: I32

    @classmethod
    def of(cls, rows: Sequence[Placed]) -> _Names:
        """Return the numbers of rows, with one behind all for no row."""
        keys = [row.order << 32 | row.number for row in rows]
        return cls(np.array([*keys, _BEHIND_ALL], np.int64), np.array([*(row.number for row in rows), NONE], np.int32))


_BEHIND_ALL = np.iinfo(np.int64).max


class Overlaid:
    """Rows of one IP version, searchable from any thread; changes make new ones."""

    def __init__(self, family: Family, built: _Built, changes: Mapping[int, Placed | None]) -> None:
        """Lay changes over a built search.

        `changes`: rows that are not as they were built, by number; None where there is none any more.
        """
        self._family, self._built, self._changes = family, built, changes
        rows = sorted((row for row in changes.values() if row is not None), key=_sort_key)
        self._overlay = RowsInOrder(family, [row.box for row in rows]) if rows else None
        self._names = _Names.of(rows)
        self._removed = np.zeros(len(built.rows), np.bool_)
        self._removed[[built.places[number] for number in changes if number in built.places]] = True

    @classmethod
    def of(cls, family: Family, rows: Iterable[Placed], searching: MakeSearch = Search) -> Overlaid:
        """Rows in any order, built with `searching`."""
        return cls(family, _Built.of(family, tuple(sorted(rows, key=_sort_key)), searching), MappingProxyType({}))

    @property
    def changed_rows(self) -> int:
        """How many rows are not as they were built."""
        return len(self._changes)

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return not self._built.rows and self._overlay is None

    @property
    def search(self) -> Searching:
        """The search that was built for the rows."""
        return self._built.search

    def rows(self) -> Iterator[Placed]:
        """Every row, in any order."""
        yield from _list_rows(self._built, self._changes)

    def first(self, packets: Packets) -> I32:
        """The number of the first row that holds each packet, NONE where none does."""
        built = self._built
        found = built.search.first(packets)
        if self._changes:
            built.in_order.pass_over(packets, found, self._removed)
        if self._overlay is None:
            return built.names.numbers[found]
        over = self._overlay.first(packets)
        is_over = self._names.keys[over] < built.names.keys[found]
        return np.where(is_over, self._names.numbers[over], built.names.numbers[found])

    def exchange_rows(self, removed: Iterable[int], placed: Iterable[Placed]) -> Overlaid:
        """Return the rows without some, and with others; an equal number replaces."""
        changes = {**self._changes, **dict.fromkeys(removed), **{row.number: row for row in placed}}
        if len(changes) <= MOST_CHANGED:
            return Overlaid(self._family, self._built, MappingProxyType(changes))
        return Overlaid.of(self._family, _list_rows(self._built, changes))

    def rebuilt(self, searching: MakeSearch = Search) -> Overlaid:
        """Build the search over all rows anew, without an overlay."""
        return Overlaid.of(self._family, self.rows(), searching)

    def carried_over(self, since: Overlaid, rebuilt: Overlaid) -> Overlaid:
        """Return these rows over `rebuilt`, made of `since`, from which these were changed."""
        if self._built is not since._built:
            return self  # they were built anew themselves meanwhile
        later = {number: row for number, row in self._changes.items() if since._changes.get(number, _UNSAID) is not row}
        return Overlaid(self._family, rebuilt._built, MappingProxyType(later)) if later else rebuilt


_UNSAID = object()


def _list_rows(built: _Built, changes: Mapping[int, Placed | None]) -> Iterator[Placed]:
    yield from (row for row in built.rows if row.number not in changes)
    yield from (row for row in changes.values() if row is not None)


def _sort_key(row: Placed) -> tuple[int, int]:
    return row.order, row.number
