"""A compiled list in pieces of bounded size, so that a change copies few.

    list      rule  rule  rule  rule  rule  rule ...            rules have labels that ascend (`labels.py`)
    atoms     a a   a     a a a a a   a     a                   in the order of the list, then as `atoms` lays them down
    rows      rrr   r     r r r r r   rr    r                   an atom is one flow entry, or several
    pieces   [         ][           ][           ]              a piece may end inside a rule, never inside an atom

Nothing here ever changes: a change of a list makes new pieces and shares the others. All pieces one after the other are
the same columns however they were cut, and whatever the list's history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _index
from orchestrator.compile.lists.labels import LabelColumn
from orchestrator.compile.lists.levels import ATOM_WORDS, Atoms, Levels
from orchestrator.program.flows import U16, FlowTable

Counts = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]

MOST_ROWS = 512
"""How many flow entries a piece has at most, unless one atom is more."""

_ROWS = 384
"""How many a new piece has at most."""

NO_ROWS = FlowTable.of(())

NO_LEVEL = -1
"""The level of an atom whose rule has none yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Atoms in list order with the labels of their rules."""

    label: LabelColumn
    atoms: Atoms

    def __len__(self) -> int:
        return len(self.label)

    def part(self, start: int, stop: int) -> Run:
        """Return the atoms between two places."""
        return Run(self.label[start:stop], self.atoms[start:stop])

    @classmethod
    def join_runs(cls, runs: Sequence[Run]) -> Run:
        """Join several runs, one after the other."""
        label = np.concatenate([np.empty(0, np.uint64), *(run.label for run in runs)])
        return cls(label, np.concatenate([np.empty((0, ATOM_WORDS), np.uint64), *(run.atoms for run in runs)]))


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Atoms in list order with labels, levels, `count` rows each, and those rows."""

    label: LabelColumn
    atoms: Atoms
    level: Levels
    count: Counts
    flows: FlowTable

    def __len__(self) -> int:
        return len(self.label)

    @property
    def run(self) -> Run:
        return Run(self.label, self.atoms)

    def set_priorities(self, highest: int) -> Piece:
        """Set the priorities that levels give: level 0 has the highest."""
        priority: U16 = np.repeat(highest - self.level, self.count).astype(np.uint16)
        return replace(self, flows=replace(self.flows, priority=priority))

    def rows_of(self, atoms: npt.NDArray[np.bool_]) -> FlowTable:
        """The rows of some of the atoms."""
        return self.flows.take(np.repeat(atoms, self.count)) if atoms.any() else NO_ROWS

    def part(self, start: int, stop: int) -> Piece:
        """Atoms `start` up to, not including, `stop`; it shares nothing with this piece."""
        row = int(self.count[:start].sum())
        flows = self.flows.part(row, row + int(self.count[start:stop].sum()))
        width = int(flows.match_length.max(initial=0))
        own = FlowTable(
            flows.table.copy(), flows.priority.copy(), flows.cookie.copy(), flows.tenant.copy(),
            flows.match_length.copy(), flows.match[:, :width].copy(), flows.instructions.copy(), flows.instruction_set,
        )  # fmt: skip
        atoms = slice(start, stop)
        return Piece(
            self.label[atoms].copy(), self.atoms[atoms].copy(), self.level[atoms].copy(), self.count[atoms].copy(), own
        )

    def cut(self) -> list[Piece]:
        """Split into pieces of about equal, bounded size; none without atoms."""
        rows, width = len(self.flows), self.flows.match.shape[1]
        if 0 < rows <= MOST_ROWS and self.flows.match_length.max() == width:
            return [self]
        most = MOST_ROWS if rows <= MOST_ROWS else -(-rows // -(-rows // _ROWS))
        ends = np.cumsum(self.count)
        pieces, start, done = [], 0, 0
        while start < len(self):
            stop = max(start + 1, int(np.searchsorted(ends, done + most, "right")))
            pieces.append(self.part(start, stop))
            start, done = stop, int(ends[stop - 1])
        return pieces


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Non-empty pieces in list order, with columns of their first labels and levels."""

    items: tuple[Piece, ...]
    label: tuple[LabelColumn, ...]
    atoms: tuple[Atoms, ...]
    first: Run
    how_many_atoms: int
    how_many_rows: int

    @classmethod
    def of(cls, whole: Piece) -> Pieces:
        """A list in new pieces."""
        return _NO_PIECES.replace_pieces({0: whole.cut()})

    def replace_pieces(self, news: Mapping[int, Sequence[Piece]]) -> Pieces:
        """Return the pieces with others, or none, at some places."""
        items: list[Piece] = []
        first: list[Run] = []
        atoms, rows, done = self.how_many_atoms, self.how_many_rows, 0
        for place in sorted(news):
            old = self.items[place : place + 1]
            atoms += sum(map(len, news[place])) - sum(map(len, old))
            rows += sum([len(piece.flows) for piece in news[place]]) - sum([len(piece.flows) for piece in old])
            items += (*self.items[done:place], *news[place])
            first += (self.first.part(done, place), *(piece.run.part(0, 1) for piece in news[place]))
            done = place + 1
        items += self.items[done:]
        first.append(self.first.part(done, len(self.first)))
        columns = tuple([piece.label for piece in items]), tuple([piece.atoms for piece in items])
        return Pieces(tuple(items), *columns, Run.join_runs(first), atoms, rows)

    def between(self, low: int, high: int) -> Run:
        """The atoms of the rules with labels `low` to `high`."""
        first, last = _bounds(self.first.label, low, high)
        found = []
        for piece in self.items[max(0, first - 1) : last]:
            start, stop = _bounds(piece.label, low, high)
            found.append(Run(piece.label[start:stop], piece.atoms[start:stop]))
        return Run.join_runs(found)

    def levels_of(self, label: LabelColumn) -> Levels:
        """The levels of some rules; NO_LEVEL where one has no atoms."""
        found = np.full(len(label), NO_LEVEL, np.int32)
        within = np.searchsorted(self.first.label, label, "right") - 1
        for place in sorted({*within.tolist()} - {-1}):
            piece, mine = self.items[place], np.flatnonzero(within == place)
            row = np.minimum(np.searchsorted(piece.label, label[mine]), len(piece) - 1)
            found[mine] = np.where(piece.label[row] == label[mine], piece.level[row], NO_LEVEL)
        return found

    def holding(self, label: LabelColumn) -> list[int]:
        """The places of all pieces that may hold atoms of some rules."""
        first = np.maximum(np.searchsorted(self.first.label, label), 1) - 1
        last = np.searchsorted(self.first.label, label, "right")
        return sorted({place for start, stop in zip(first.tolist(), last.tolist(), strict=True)
                       for place in range(start, stop)})  # fmt: skip

    def places_of(self, run: Run) -> Places:
        """The piece that each atom is in, or belongs to."""
        behind = np.empty(len(run), np.int64)
        _index.places(self.first.label, self.first.atoms, run.label, run.atoms, behind)
        return np.maximum(behind - 1, 0)


_NO_PIECES = Pieces((), (), (), Run.join_runs(()), 0, 0)


def merge_runs(whole: Run, gone: Run, come: Run) -> Places:
    """Return a run without some atoms and with others, as rows.

    Rows of new atoms are counted behind the run's own.
    """
    order = np.empty(len(whole) - len(gone) + len(come), np.int64)
    _index.merged(whole.label, whole.atoms, gone.label, gone.atoms, come.label, come.atoms, order)
    return order


def _bounds(column: LabelColumn, low: int, high: int) -> tuple[int, int]:
    """Return where values reach `low`, and where they pass `high`."""
    wanted = np.array((low, high), np.uint64)
    return int(np.searchsorted(column, wanted[0])), int(np.searchsorted(column, wanted[1], "right"))
