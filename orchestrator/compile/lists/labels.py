"""Labels that order a list's rules; inserting a rule renumbers none.

Labels ascend along the list with wide gaps. A new rule gets one from the gap where it is put; the others keep theirs.
The labels of a list are kept in chunks, and a change copies only the chunks it is in (and the tuple of them).

After some forty rules in the same gap it is used up. Then the rules around are given new labels too, spread over the
wider gap that they are in together: `edit_labels` tells which (order maintenance by relabelling, Dietz and Sleator
1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.lists.edits import Hunk, widen_hunks

LabelColumn = npt.NDArray[np.uint64]

_STEP = 1 << 40
"""The gap between two labels at first: 2^23 rules take half of the labels there are."""

_MIDDLE, _END = 1 << 63, 1 << 64
_CHUNK = 512

_WIDER = 32
"""How many rules on each side get new labels where there was no room; four times as many where that did not do."""


class _NoRoomError(Exception):
    """Between the two labels there are not enough others."""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The labels of a list's rules, ascending, in chunks; `ends[i]` counts up to i."""

    chunks: tuple[LabelColumn, ...]
    ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, count: int) -> Labels:
        """Labels for a new list."""
        first = np.uint64(_MIDDLE - count // 2 * _STEP)
        whole = first + np.arange(count, dtype=np.uint64) * np.uint64(_STEP)
        return cls._join_chunks([whole[start : start + _CHUNK] for start in range(0, count, _CHUNK)])

    @classmethod
    def _join_chunks(cls, chunks: Sequence[LabelColumn]) -> Labels:
        return cls(tuple(chunks), np.cumsum([0, *map(len, chunks)])[1:])

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def at(self, position: int) -> int:
        """The label of the rule at a position."""
        chunk = int(np.searchsorted(self.ends, position, "right"))
        return int(self.chunks[chunk][position - int(self.ends[chunk])])  # counted from the chunk's end

    def between(self, start: int, stop: int) -> LabelColumn:
        """The labels of the rules at positions `start` up to, not including, `stop`."""
        first, last = np.searchsorted(self.ends, (start, stop - 1), "right").tolist() if stop > start else (0, -1)
        begin = int(self.ends[first - 1]) if first else 0
        return np.concatenate((_NONE, *self.chunks[first : last + 1]))[start - begin : stop - begin]

    def edit_labels(self, edit: Sequence[Hunk]) -> Relabelled:
        """The labels after an edit."""
        hunks, wider = list(edit), _WIDER
        while True:
            labels, fresh, hunk = self, [], -1
            try:
                for hunk in reversed(range(len(hunks))):
                    labels, new = labels._splice_hunk(hunks[hunk])
                    fresh.append(new)
            except _NoRoomError:
                hunks = widen_hunks(hunks, hunk, wider, len(self))
                wider *= 4
            else:
                return Relabelled(labels, tuple(hunks), tuple(reversed(fresh)))

    def _splice_hunk(self, hunk: Hunk) -> tuple[Labels, LabelColumn]:
        """The labels after one hunk, and those among them that are new. Raises _NoRoomError."""
        stop = hunk.first + hunk.gone
        below = self.at(hunk.first - 1) if hunk.first else None
        above = self.at(stop) if stop < len(self) else None
        fresh = _spread(below, above, hunk.come)
        first, last = np.searchsorted(self.ends, (hunk.first, stop), "right").tolist()
        first = max(0, min(first, len(self.chunks) - 1))
        begin = int(self.ends[first - 1]) if first else 0
        there = np.concatenate((_NONE, *self.chunks[first : last + 1]))
        merged = np.concatenate((there[: hunk.first - begin], fresh, there[stop - begin :]))
        chunks = [merged] if 0 < len(merged) <= 2 * _CHUNK else np.split(merged, range(_CHUNK, len(merged), _CHUNK))
        return Labels._join_chunks([*self.chunks[:first], *chunks, *self.chunks[last + 1 :]]), fresh


class Relabelled(NamedTuple):
    """Labels after an edit, its hunks, perhaps widened, and each hunk's new labels."""

    labels: Labels
    edit: tuple[Hunk, ...]
    fresh: tuple[LabelColumn, ...]


_NONE = np.empty(0, np.uint64)


def _spread(below: int | None, above: int | None, count: int) -> LabelColumn:
    """Return `count` labels between two others, spread evenly.

    Raises _NoRoomError.
    """
    if below is None and above is None:
        return Labels.of(count).between(0, count)
    low = below if below is not None else max(-1, (above or 0) - (count + 1) * _STEP)
    high = above if above is not None else min(_END, low + (count + 1) * _STEP)
    gap = (high - low) // (count + 1)
    if gap == 0:
        raise _NoRoomError
    return np.array([low + gap * place for place in range(1, count + 1)], np.uint64)
