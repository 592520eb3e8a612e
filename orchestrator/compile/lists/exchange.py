"""Atoms that leave a compiled list and others that come into it.

pieces ── drafted ──> the pieces concerned with the atoms that they will have, levels not known yet
index ── followed ──> the rules whose level moves
drafts, and pieces with such rules ── written ──> new pieces, and the rows that went and came
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from orchestrator.compile import _index
from orchestrator.compile.lists.labels import LabelColumn
from orchestrator.compile.lists.levels import Levels
from orchestrator.compile.lists.pieces import NO_ROWS, Piece, Pieces, Places, Run, merge_runs
from orchestrator.program.delta import difference
from orchestrator.program.flows import FlowTable

_MOVES_AT_LEAST, _MOVES_SHARE = 64, 8
"""At most 64 atoms or every 8th may move before starting from scratch is the faster way."""

_TOUCHED = np.dtype([("label", np.uint64), ("was", np.int32), ("unused", np.int32)])


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows to remove and to add between two compiled lists, disjoint."""

    removed: FlowTable
    added: FlowTable


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A list's pieces and index after an exchange, and what became of its rows."""

    pieces: Pieces
    index: _index.Index
    change: RowChange


def exchange_atoms(
    pieces: Pieces, index: _index.Index, gone: Run, come: Piece, highest: int, lowest: int
) -> Exchanged | None:
    """Replace the atoms `gone` by `come`, both in list order.

    Levels go from priority `highest` downwards.

    None where starting from scratch is the faster way, or tells better what is wrong.
    """
    if len(gone.label) + len(come.label) > max(_MOVES_AT_LEAST, pieces.how_many_atoms // _MOVES_SHARE):
        return None
    drafts = _drafts(pieces, gone, come)
    now = _Now.of(pieces, drafts)
    touched = _touched_pieces(pieces, np.array(sorted({*gone.label.tolist(), *come.label.tolist()}), np.uint64))
    limit = max(_MOVES_AT_LEAST, sum(map(len, now.label)) // _MOVES_SHARE)
    followed = index.followed(
        now.first, now.label, now.atoms, gone.label, gone.atoms, come.label, come.atoms, touched, limit
    )
    if followed is None:
        return None
    moves = _Moves.of(*followed[1])
    if moves.level.max(initial=0) > highest - lowest:
        return None
    written = {place: draft.written(moves, highest) for place, draft in drafts.items()}
    for place in pieces.holding(moves.moved):
        if place not in drafts:
            written[place] = _move_levels(pieces.items[place], moves, highest)
    return Exchanged(
        pieces.replace_pieces({place: each.pieces for place, each in written.items()}),
        followed[0],
        _row_change(written),
    )


def _touched_pieces(pieces: Pieces, label: LabelColumn) -> Any:
    rows = np.zeros(len(label), _TOUCHED)
    rows["label"], rows["was"] = label, pieces.levels_of(label)
    return rows


def _row_change(written: Mapping[int, _Written]) -> RowChange:
    """Return the difference of rows, without those that only moved."""
    in_order = [written[place] for place in sorted(written)]
    gone, come = together(each.gone for each in in_order), together(each.come for each in in_order)
    if not len(gone) or not len(come):
        return RowChange(gone.compact_sets(), come.compact_sets())
    return RowChange(*difference(gone, come))


def together(tables: Iterable[FlowTable]) -> FlowTable:
    """The rows of several tables, one after the other; shared where only one has any."""
    some = [table for table in tables if len(table)]
    if len(some) <= 1:
        return some[0] if some else NO_ROWS
    return FlowTable.join_tables(some)


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """The examined rules by ascending label, with levels; `moved` ones have new levels."""

    label: LabelColumn
    level: Levels
    moved: LabelColumn

    @classmethod
    def of(cls, label: bytes, was: bytes, level: bytes) -> _Moves:
        """Read what C says of examined rules: labels, levels before and now."""
        rules, now = np.frombuffer(label, np.uint64), np.frombuffer(level, np.int32)
        return cls(rules, now, rules[np.frombuffer(was, np.int32) != now])

    def apply_moves(self, label: LabelColumn, level: Levels) -> Levels:
        """The levels of some atoms after the moves."""
        if not len(self.label):
            return level
        found = np.minimum(np.searchsorted(self.label, label), len(self.label) - 1)
        after: Levels = np.where(self.label[found] == label, self.level[found], level)
        return after


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """A new piece: its new atoms `come`, and its rows' `order` among old and new."""

    old: Piece
    come: Piece
    order: Places
    now: Run

    @classmethod
    def of(cls, old: Piece, gone: Run, come: Piece) -> _Draft:
        """`gone` are atoms of the piece."""
        order = merge_runs(old.run, gone, come.run)
        label, atoms = np.concatenate((old.label, come.label)), np.concatenate((old.atoms, come.atoms))
        return cls(old, come, order, Run(label[order], atoms[order]))

    def written(self, moves: _Moves, highest: int) -> _Written:
        """The piece with the levels that its rules have now."""
        old, come = self.old, self.come
        before = np.concatenate((old.level, come.level))[self.order]
        level = moves.apply_moves(self.now.label, before)
        stays = np.zeros(len(old) + len(come), np.bool_)
        stays[self.order] = level == before
        count = np.concatenate((old.count, come.count))
        flows = together((old.flows, come.flows)).take(_rows(count, self.order))
        piece = Piece(self.now.label, self.now.atoms, level, count[self.order], flows).set_priorities(highest)
        return _Written(piece.cut(), old.rows_of(~stays[: len(old)]), piece.rows_of(~stays[self.order]))


def _move_levels(old: Piece, moves: _Moves, highest: int) -> _Written:
    """A piece that keeps its atoms, with the levels that its rules have now."""
    level = moves.apply_moves(old.label, old.level)
    differs = level != old.level
    if not differs.any():
        return _Written([old], NO_ROWS, NO_ROWS)
    piece = replace(old, level=level).set_priorities(highest)
    return _Written([piece], old.rows_of(differs), piece.rows_of(differs))


class _Written(NamedTuple):
    """A written piece, with the rows that it alone has now and had before."""

    pieces: list[Piece]
    gone: FlowTable
    come: FlowTable


def _rows(count: Places, order: Places) -> Places:
    """Return the rows of atoms in the order `order`; atom i has `count[i]` rows."""
    if (count == 1).all():
        return order
    start, repeats = np.cumsum(count) - count, count[order]
    within = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    found: Places = np.repeat(start[order], repeats) + within
    return found


def _drafts(pieces: Pieces, gone: Run, come: Piece) -> dict[int, _Draft]:
    """The pieces concerned, by their places. A list without pieces gets one at place 0."""
    if not pieces.items:
        return {0: _Draft.of(come.part(0, 0), gone, come)}
    leaving, coming = pieces.places_of(gone), pieces.places_of(come.run)
    drafts = {}
    for place in sorted({*leaving.tolist(), *coming.tolist()}):
        out, into = (np.searchsorted(each, (place, place + 1)).tolist() for each in (leaving, coming))
        drafts[place] = _Draft.of(pieces.items[place], gone.part(*out), come.part(*into))
    return drafts


class _Now(NamedTuple):
    """The list after the exchange for the index: each piece's column and first label."""

    first: LabelColumn
    label: tuple[LabelColumn, ...]
    atoms: tuple[Any, ...]

    @classmethod
    def of(cls, pieces: Pieces, drafts: Mapping[int, _Draft]) -> _Now:
        """Put the pieces that changed in the place of those before."""
        label, atoms, first = list(pieces.label), list(pieces.atoms), pieces.first.label.copy()
        if not pieces.items:  # then there is one draft, of a piece that is not there yet
            label, atoms, first = [_NOTHING.label], [_NOTHING.atoms], np.zeros(1, np.uint64)
        for place in sorted(drafts, reverse=True):
            now = drafts[place].now
            if len(now):
                label[place], atoms[place], first[place] = now.label, now.atoms, now.label[0]
            else:
                del label[place], atoms[place]
                first = np.delete(first, place)
        return cls(first, tuple(label), tuple(atoms))


_NOTHING = Run.join_runs(())
