"""A long sequence in pieces, most of which edited versions share.

    ┌─────────┬─────────┬─────────┬─────────┐
    │ 256     │ 255     │ 300     │ 256     │      each piece a tuple of at most 512 items
    └─────────┴─────────┴─────────┴─────────┘
         │         │         + one       │
    ┌─────────┬─────────┬─────────┬─────────┐
    │ the same│ the same│ 301     │ the same│
    └─────────┴─────────┴─────────┴─────────┘

Copying a tuple of 100,000 rules touches every one of them, for each is counted who holds it: that takes longer than all
else that one changed rule costs. And where two sequences differ is found piece by piece, and what is asked of every
item is remembered by piece. A `Listed` never changes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, compress, groupby
from operator import is_not
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")
R = TypeVar("R")

_PIECE: Final = 256
_LONGEST: Final = 2 * _PIECE
_UNKNOWN: Final = object()
"""Of a piece of which a fact was not asked for yet."""


class Stretch(NamedTuple, Generic[T]):
    """A difference of two sequences: items `gone` at `start`, items `come` at `place`."""

    start: int
    gone: tuple[T, ...]
    place: int
    come: tuple[T, ...]


class Listed(Sequence[T]):
    """A sequence of items; it never changes. Equal only to itself: compare what it holds."""

    __slots__ = ("_ends", "_facts", "_pieces")

    def __init__(self, pieces: Sequence[tuple[T, ...]]) -> None:
        self._pieces = pieces
        self._ends = list(accumulate(map(len, pieces)))
        self._facts: Mapping[Callable[[tuple[T, ...]], Any], list[Any]] = {}

    @classmethod
    def of(cls, items: Iterable[T]) -> Listed[T]:
        """Make a list of items, in pieces."""
        whole = tuple(items)
        return cls([whole[start : start + _PIECE] for start in range(0, len(whole), _PIECE)])

    def __reduce__(self) -> tuple[type, tuple[Sequence[tuple[T, ...]]]]:
        return Listed, (self._pieces,)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._pieces)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return self._take_slice(index)
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"{index} is not in a sequence of {len(self)}")
        which, within = self._find_piece(place)
        return self._pieces[which][within]

    @property
    def pieces(self) -> Sequence[tuple[T, ...]]:
        """The items in pieces, of which versions share those that are the same."""
        return self._pieces

    def facts(self, of: Callable[[tuple[T, ...]], R]) -> Sequence[R]:
        """Return what a function says of each piece; versions share it as they share pieces.

        The function depends on the piece alone, and is the same object each time.
        """
        found = self._facts.get(of)
        if found is None:
            found = list(map(of, self._pieces))
        elif _UNKNOWN in found:
            found = [
                of(piece) if known is _UNKNOWN else known for known, piece in zip(found, self._pieces, strict=True)
            ]
        else:
            return found
        self._facts = {**self._facts, of: found}
        return found

    def without(self, place: int) -> Listed[T]:
        """Return the list without the item at a place, which must be there."""
        which, within = self._find_piece(place)
        piece = self._pieces[which]
        left = piece[:within] + piece[within + 1 :]
        return self._with_pieces(which, [left] if left else [])

    def with_one(self, place: int, item: T) -> Listed[T]:
        """Return the list with one more item, before the one at a place."""
        if not self._pieces:
            return Listed([(item,)])
        which, within = self._find_piece(place) if place < len(self) else (len(self._pieces) - 1, len(self._pieces[-1]))
        items = list(self._pieces[which])
        items.insert(within, item)
        grown, half = tuple(items), len(items) // 2
        return self._with_pieces(which, [grown] if len(grown) <= _LONGEST else [grown[:half], grown[half:]])

    def _with_pieces(self, which: int, new: list[tuple[T, ...]]) -> Listed[T]:
        """The list with other pieces in place of one; facts of the rest stay."""
        made = Listed([*self._pieces[:which], *new, *self._pieces[which + 1 :]])
        made._facts = {
            of: [*known[:which], *[_UNKNOWN] * len(new), *known[which + 1 :]] for of, known in self._facts.items()
        }
        return made

    def apart(self, other: Listed[T]) -> list[Stretch[T]]:
        """Return the differences to another sequence, ascending; the rest is shared."""
        mine, theirs = self._pieces, other._pieces
        if len(mine) == len(theirs):
            unlike = compress(range(len(mine)), map(is_not, mine, theirs))
            runs = [list(run) for _, run in groupby(enumerate(unlike), lambda each: each[1] - each[0])]
            return [self._stretch(other, run[0][1], run[-1][1] + 1, run[-1][1] + 1) for run in runs]
        most = min(len(mine), len(theirs))
        head = next((n for n in range(most) if mine[n] is not theirs[n]), most)
        tail = next((n for n in range(most - head) if mine[-1 - n] is not theirs[-1 - n]), most - head)
        return [self._stretch(other, head, len(mine) - tail, len(theirs) - tail)]

    def _stretch(self, other: Listed[T], head: int, end: int, other_end: int) -> Stretch[T]:
        """Return the stretch from piece `head` up to, not including, a piece of each."""
        start, place = (each._ends[head - 1] if head else 0 for each in (self, other))
        return Stretch(start, _join_pieces(self._pieces[head:end]), place, _join_pieces(other._pieces[head:other_end]))

    def _take_slice(self, index: slice) -> tuple[T, ...]:
        start, stop, step = index.indices(len(self))
        if step != 1:
            return tuple(self)[index]
        if start >= stop:
            return ()
        first, within = self._find_piece(start)
        last, _ = self._find_piece(stop - 1)
        found = _join_pieces(self._pieces[first : last + 1])
        return found[within : within + stop - start]

    def _find_piece(self, place: int) -> tuple[int, int]:
        """The piece that an item is in, and its place there."""
        which = bisect.bisect_right(self._ends, place)
        return which, place - (self._ends[which - 1] if which else 0)


def _join_pieces(pieces: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """The items of pieces; of one piece, itself: a copy would touch every item."""
    return pieces[0] if len(pieces) == 1 else tuple(chain.from_iterable(pieces))


def find_replaced(old: Sequence[T], new: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Return the objects that only `old` holds and those only `new` holds, by identity.

    Neither changes. Both may be a domain's ten thousand tenants: what they begin and end with alike is passed over in
    C, and of one step, which several ask about, the answer is remembered.
    """
    if old is new:
        return (), ()
    return _find_replaced(_Same(old), _Same(new))


class _Same:
    """A value that equals itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: Sequence[Any]) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=4)
def _find_replaced(one: _Same, other: _Same) -> tuple[Sequence[Any], Sequence[Any]]:
    old, new = one.value, other.value
    start = _alike(old, new)
    backwards = slice(None, start - 1 if start else None, -1)
    end = _alike(old[backwards], new[backwards])
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    mine, theirs = set(map(id, after)), set(map(id, before))
    return tuple(each for each in before if id(each) not in mine), tuple(
        each for each in after if id(each) not in theirs
    )


def _alike(one: Sequence[object], other: Sequence[object]) -> int:
    """Count the objects that two sequences begin with alike."""
    try:
        return list(map(is_not, one, other)).index(True)
    except ValueError:
        return min(len(one), len(other))
