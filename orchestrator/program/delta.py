"""The difference between two programs, and how to get from one to the other.

A flow entry's cookie cannot be changed in place, and adding over the same match keeps the old entry's counters, so a
row whose value changed is removed and added again; there is no third kind of change. Rows are compared whole (key and
value) as bytes, which makes the difference of two tables the difference of two sets. Programs are compared block by
block first (`blocks.py`), so what costs is the blocks that differ.

Row order carries no meaning: programs with the same rows have the same digest whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orchestrator.errors import Stale
from orchestrator.program.canonical import canonical
from orchestrator.program.flows import FewFlows, FlowTable
from orchestrator.program.program import Program


@dataclass(frozen=True, slots=True)
class Delta:
    """The change from the program with digest `base` to the one with digest `target`.

    `removed` holds whole rows of the base, `added` whole rows of the target; a row whose value changed is in both.
    Symbols in `added` stand for `ports` (the target's), symbols in `removed` for `base_ports` (None: the same tuple).
    """

    base: bytes
    target: bytes
    generation: int
    removed: FlowTable
    added: FlowTable
    ports: tuple[str, ...]
    base_ports: tuple[str, ...] | None = None
    wire: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """The form in which it came (`wire.decode_delta`), for who keeps it or passes it on. A copy with other rows has
    none."""

    @property
    def removed_ports(self) -> tuple[str, ...]:
        """The port names of the symbols in `removed`."""
        return self.ports if self.base_ports is None else self.base_ports

    @property
    def is_empty(self) -> bool:
        """Whether only the generation moves on."""
        return not len(self.removed) and not len(self.added) and self.removed_ports == self.ports


def difference(old: FlowTable, new: FlowTable) -> tuple[FlowTable, FlowTable]:
    """Return the rows only in `old` and only in `new`, in each table's order."""
    old_rows, new_rows = canonical(old).tolist(), canonical(new).tolist()
    common = set(old_rows).intersection(new_rows)
    removed, added = old.take(_find_absent(old_rows, common)), new.take(_find_absent(new_rows, common))
    return removed.compact_sets(), added.compact_sets()


def between(old: Program, new: Program) -> Delta:
    """The delta that turns one program of a tier into another."""
    return delta_of(old, new, *difference(*old.blocks.apart(new.blocks)))


def delta_of(old: Program, new: Program, removed: FlowTable, added: FlowTable) -> Delta:
    """Return the delta between two programs from known removed and added rows."""
    base_ports = None if old.ports == new.ports else old.ports
    return Delta(old.digest, new.digest, new.generation, removed, added, new.ports, base_ports)


def between_targets(first: Delta, second: Delta) -> Delta | None:
    """Return the delta between the targets of two deltas from one base, or None.

    Costs what the two say, whatever the programs are. None where they alone do not tell.
    """
    if first.base != second.base or not first.ports == first.removed_ports == second.ports == second.removed_ports:
        return None
    gone = dict.fromkeys((*first.added.rows(), *second.removed.rows()))
    come = dict.fromkeys((*second.added.rows(), *first.removed.rows()))
    removed, added = (
        FewFlows.of([row for row in rows if row not in others]) for rows, others in ((gone, come), (come, gone))
    )
    return Delta(first.target, second.target, second.generation, removed, added, second.ports)


def follow_on(first: Delta, second: Delta) -> Delta | None:
    """Return one delta for two that follow each other; None as of `between_targets`."""
    back = Delta(first.target, first.base, first.generation, first.added, first.removed, first.ports, first.base_ports)
    return between_targets(back, second)


def apply(program: Program, delta: Delta) -> Program:
    """Return the delta's target.

    Raises Stale if the program is not the delta's base, or lacks a row to be removed.

    The target's digest is what the delta says it is: who must know computes it (`Blocks.digest`).
    """
    if program.digest != delta.base:
        raise Stale(f"this delta starts from {delta.base.hex()}, but the program is {program.digest.hex()}")
    blocks = program.blocks.replace_rows(delta.removed, delta.added)
    return Program(program.domain, program.tier, delta.generation, delta.target, blocks, delta.ports)


def _find_absent(rows: list[bytes], common: set[bytes]) -> npt.NDArray[np.bool_]:
    return np.fromiter((row not in common for row in rows), np.bool_, len(rows))
