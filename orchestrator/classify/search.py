"""Find the first row of each packet by trees in C (`_native/forest/`).

docs/classifiers.md says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _forest
from orchestrator.classify.columns import I32, Columns, columns
from orchestrator.classify.packets import Packets
from orchestrator.policy.addresses import Family
from orchestrator.policy.space import Box

WAYS = tuple(_forest.ways())
"""The instruction sets that this processor can search trees with, the fastest first; the last is `portable`."""

IN_ORDER = "in_order"
"""A way without trees: row by row, for whoever wants to know what trees are worth."""


MOST_ENTRIES, LEAST_SHARE = 1 << 21, 32
"""Entries that rows may become together: an equal share each, but so many at least. A row that would be more, as one
of large groups on both sides, has neighbouring intervals joined, and what lies in such a one is asked of its sets."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of built rows: counts and memory."""

    entries: int
    """Products of one interval an axis; a row is one or several."""
    blocks: int
    nodes: int
    trees: int
    bytes: int
    """Without the columns."""


class RowsInOrder:
    """Rows without trees, asked one after the other.

    They are ready in microseconds; trees of one row take a part of a millisecond.
    """

    def __init__(self, family: Family, boxes: Sequence[Box]) -> None:
        """Boxes in the order in which they are asked; there may be none."""
        self._forest = _build_forest(columns(family, boxes), _NO_TREES)

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet, -1 where none does."""
        return _find_first(self._forest, packets, IN_ORDER)

    def pass_over(self, packets: Packets, found: I32, removed: npt.NDArray[np.bool_]) -> None:
        """Replace removed rows among those found by the next one that matches."""
        self._forest.pass_over(np.ascontiguousarray(packets).view(np.uint8), found, removed.view(np.uint8))


_NO_TREES = 0
"""The share of a forest that has none."""


class Search(RowsInOrder):
    """Rows of one IP version that are ready to be asked, from any thread."""

    def __init__(self, family: Family, boxes: Sequence[Box]) -> None:
        """Build a search of boxes in order of evaluation; there may be none.

        Other threads run meanwhile.
        """
        self._forest = _build_forest(columns(family, boxes), share_of(len(boxes)))

    @classmethod
    def of(cls, made: Columns, share: int) -> Search:
        """A search of columns, where each row becomes `share` entries at most."""
        search = cls.__new__(cls)
        search._forest = _build_forest(made, share)
        return search

    def first(self, packets: Packets, way: str = WAYS[0]) -> I32:
        """Return the first row that holds each packet, -1 where none does.

        Packets are of the rows' IP version.

        `way` is one of WAYS, or IN_ORDER; they find the same. Other threads run meanwhile.
        """
        return _find_first(self._forest, packets, way)

    @property
    def shape(self) -> Shape:
        """The shape of the built rows."""
        entries, blocks, nodes, trees = self._forest.shape()
        return Shape(entries, blocks, nodes, len(trees), self._forest.bytes())


def share_of(rows: int) -> int:
    """How many entries each of some rows may become."""
    return max(LEAST_SHARE, MOST_ENTRIES // max(1, rows))


def _find_first(forest: _forest.Forest, packets: Packets, way: str) -> I32:
    found = np.empty(len(packets), np.int32)
    forest.first(np.ascontiguousarray(packets).view(np.uint8), found, way)
    return found


def _build_forest(made: Columns, share: int) -> _forest.Forest:
    return _forest.Forest(
        made.family is Family.IPV6,
        share,
        made.rows,
        made.address_starts,
        made.addresses,
        made.port_starts,
        made.ports,
        made.sets,
    )
