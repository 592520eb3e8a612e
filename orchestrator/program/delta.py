"""The difference between two programs, and how to get from one to the other.

A flow entry's cookie cannot be changed in place, and adding over the same match keeps the old entry's counters, so a
row whose value changed is removed and added again; there is no third kind of change. Rows are compared whole (key and
value) as bytes, which makes the difference of two tables the difference of two sets.

Row order carries no meaning: programs with the same rows have the same digest whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.errors import Stale
from orchestrator.program.flows import U32, FlowTable
from orchestrator.program.program import Program


@dataclass(frozen=True, slots=True)
class Delta:
    """What turns the program with digest `base` into the one with digest `target`.

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

    @property
    def removed_ports(self) -> tuple[str, ...]:
        """What the symbols in `removed` stand for."""
        return self.ports if self.base_ports is None else self.base_ports

    @property
    def is_empty(self) -> bool:
        """Whether only the generation moves on."""
        return not len(self.removed) and not len(self.added) and self.removed_ports == self.ports


def difference(old: FlowTable, new: FlowTable) -> tuple[FlowTable, FlowTable]:
    """The rows only in `old` and the rows only in `new`: (removed, added), each in its own table's order.

    What both tables begin with and end with is passed over by columns; only what is between costs a set.
    """
    start, end = _common_ends(old, new)
    old_middle, new_middle = old.part(start, len(old) - end), new.part(start, len(new) - end)
    old_rows, new_rows = _comparable(old_middle, new_middle)
    common = set(old_rows).intersection(new_rows)
    removed, added = old_middle.take(_absent(old_rows, common)), new_middle.take(_absent(new_rows, common))
    return removed.compacted(), added.compacted()


def between(old: Program, new: Program) -> Delta:
    """The delta that turns one program of a tier into another."""
    removed, added = difference(old.flows, new.flows)
    base_ports = None if old.ports == new.ports else old.ports
    return Delta(old.digest, new.digest, new.generation, removed, added, new.ports, base_ports)


def apply(program: Program, delta: Delta) -> Program:
    """The delta's target. Raises Stale if the program is not the delta's base, or lacks a row to be removed."""
    if program.digest != delta.base:
        raise Stale(f"this delta starts from {delta.base.hex()}, but the program is {program.digest.hex()}")
    kept = without(program.flows, delta.removed)
    flows = FlowTable.joined((kept, delta.added)) if len(delta.added) else kept
    return Program(program.domain, program.tier, delta.generation, delta.target, flows, delta.ports)


def without(flows: FlowTable, removed: FlowTable) -> FlowTable:
    """The rows of `flows` that are not in `removed`. Raises Stale if a row of `removed` is not there.

    Rows are first narrowed by cookie, so that the costly comparison sees only those that may be meant.
    """
    if not len(removed):
        return flows
    candidates = np.flatnonzero(np.isin(flows.cookie, removed.cookie))
    candidate_rows, removed_rows = _comparable(flows.take(candidates), removed)
    wanted = set(removed_rows)
    hit = np.fromiter((row in wanted for row in candidate_rows), np.bool_, len(candidate_rows))
    if int(hit.sum()) != len(wanted):
        raise Stale(f"{len(wanted) - int(hit.sum())} of the rows to be removed are not in the program")
    keep = np.ones(len(flows), np.bool_)
    keep[candidates[hit]] = False
    return flows.take(keep)


def _common_ends(old: FlowTable, new: FlowTable) -> tuple[int, int]:
    """How many rows are the same at the start of both tables, and behind those at the end of both."""
    most = min(len(old), len(new))
    numbers = _shared_numbers(old, new)
    start = 0
    while start < most:
        stop = min(start + _STRIDE, most)
        same = _same_rows(old.part(start, stop), new.part(start, stop), numbers)
        if not same.all():
            start += int(same.argmin())
            break
        start = stop
    end, most = 0, most - start
    while end < most:
        step = min(_STRIDE, most - end)
        old_part = old.part(len(old) - end - step, len(old) - end)
        new_part = new.part(len(new) - end - step, len(new) - end)
        same = _same_rows(old_part, new_part, numbers)[::-1]
        if not same.all():
            end += int(same.argmin())
            break
        end += step
    return start, end


_STRIDE = 4096
"""Rows compared at a time."""


class _Numbers(NamedTuple):
    """Shared numbers for the instruction lists of two tables."""

    old: U32
    new: U32


def _shared_numbers(old: FlowTable, new: FlowTable) -> _Numbers:
    known: dict[bytes, int] = {}
    return _Numbers(
        *(
            np.array([known.setdefault(each, len(known)) for each in table.instruction_set] or [0], np.uint32)
            for table in (old, new)
        )
    )


def _same_rows(old: FlowTable, new: FlowTable, numbers: _Numbers) -> npt.NDArray[np.bool_]:
    """Which rows of two tables of equal length are the same."""
    same: npt.NDArray[np.bool_] = (
        (old.table == new.table)
        & (old.priority == new.priority)
        & (old.cookie == new.cookie)
        & (old.tenant == new.tenant)
        & (old.match_length == new.match_length)
        & (numbers.old[old.instructions] == numbers.new[new.instructions])
    )
    width = min(old.match.shape[1], new.match.shape[1])  # behind it there is padding, or the lengths differ
    same &= (old.match[:, :width] == new.match[:, :width]).all(axis=1)
    return same


def _absent(rows: list[bytes], common: set[bytes]) -> npt.NDArray[np.bool_]:
    return np.fromiter((row not in common for row in rows), np.bool_, len(rows))


def _comparable(left: FlowTable, right: FlowTable) -> tuple[list[bytes], list[bytes]]:
    """Every row of two tables as bytes that are equal exactly when the rows are."""
    known: dict[bytes, int] = {}
    width = max(left.match.shape[1], right.match.shape[1])
    return _packed(left, width, known), _packed(right, width, known)


def _packed(flows: FlowTable, width: int, known: dict[bytes, int]) -> list[bytes]:
    layout = np.dtype(
        [
            ("table", np.uint8),
            ("priority", np.uint16),
            ("cookie", np.uint64),
            ("tenant", np.uint32),
            ("instructions", np.uint32),
            ("match_length", np.uint8),
            ("match", np.uint8, (width,)),
        ]
    )
    rows = np.zeros(len(flows), layout)
    shared = np.array([known.setdefault(each, len(known)) for each in flows.instruction_set] or [0], np.uint32)
    for name in ("table", "priority", "cookie", "tenant", "match_length"):
        rows[name] = getattr(flows, name)
    rows["instructions"] = shared[flows.instructions]
    rows["match"][:, : flows.match.shape[1]] = flows.match
    whole = rows.tobytes()
    return [whole[start : start + layout.itemsize] for start in range(0, len(whole), layout.itemsize)]
