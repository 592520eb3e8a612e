"""The difference between a device and its program: the loop's pure half.

A program is written with port symbols and tenants; a device knows neither. A `Place` gives the rows as one device must
hold them, and from there on rows of the program and rows that were read back compare byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.changing import FEW_ROWS, Changed
from orchestrator.enforce.driver import Observed, Stamp
from orchestrator.program.delta import Delta, between, difference
from orchestrator.program.flows import GROUPS, U64, Flow, FlowTable
from orchestrator.program.program import Program

Place = Callable[[FlowTable, tuple[str, ...]], FlowTable]
"""From rows and what their symbols stand for to the rows that one device must hold: its own port numbers, tenant 0,
and nothing for a port that it lacks."""

LONGEST_CHAIN_ROWS = 2000
"""Deltas are joined row by row up to here; beyond, comparing two whole programs by column is no slower."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How what was read back differs from what was expected."""

    missing: int
    surplus: int
    stamp_differs: bool

    @property
    def text(self) -> str:
        """In words, for a report."""
        stamp = ", and another stamp" if self.stamp_differs else ""
        return f"{self.missing} flows are missing and {self.surplus} are there that should not be{stamp}"


def stamp_of(program: Program) -> Stamp:
    """Return the stamp of a device that holds a program."""
    return Stamp(program.generation, program.digest)


def correction(observed: Observed, program: Program, place: Place) -> Delta:
    """Return the delta from what was read back to a program."""
    removed, added = difference(observed.flows, place(program.flows, program.ports))
    base = observed.stamp.digest if observed.stamp else b""
    return Delta(base, program.digest, program.generation, removed, added, ())


def step(held: Program, program: Program, trail: Sequence[Delta], place: Place) -> Delta:
    """Return the delta of a device between two programs.

    `trail` is how the second program came about, oldest delta first. If it passes by the held one, the work is as much
    as changed since; else both programs are compared.
    """
    if not _same_meaning(held.ports, program.ports):
        return _moved_ports(held, program, place)
    delta = chain_deltas(since(held.digest, program.digest, trail)) or between(held, program)
    removed = place(delta.removed, delta.removed_ports)
    added = place(delta.added, delta.ports)
    return Delta(held.digest, program.digest, program.generation, removed, added, ())


def small_step(held: Program | None, program: Program, trail: Sequence[Delta]) -> Delta | None:
    """Return the program's own small delta, with symbols.

    None where it is not known to be a few rows, or has groups or meters among them.
    """
    if held is None:
        return None
    delta = chain_deltas(since(held.digest, program.digest, trail))
    if delta is None or len(delta.removed) + len(delta.added) > FEW_ROWS:
        return None
    if any(row.table in (GROUPS, Table.METERS) for rows in (delta.removed, delta.added) for row in rows.rows()):
        return None
    return delta if _same_meaning(held.ports, program.ports) else None


def since(base: bytes, target: bytes, trail: Sequence[Delta]) -> Sequence[Delta]:
    """Return a trail's deltas from `base` to `target`; none if they do not connect."""
    if not trail or trail[-1].target != target:
        return ()
    return next((trail[index:] for index in reversed(range(len(trail))) if trail[index].base == base), ())


def chain_deltas(deltas: Sequence[Delta]) -> Delta | None:
    """Join successive deltas; None if there are none, or joining costs too much."""
    if len(deltas) == 1:
        return deltas[0]
    same_ports = all(each.ports == each.removed_ports == deltas[0].ports for each in deltas)
    rows = sum(len(each.removed) + len(each.added) for each in deltas)
    if not deltas or not same_ports or rows > LONGEST_CHAIN_ROWS:
        return None
    removed: dict[Flow, None] = {}
    added: dict[Flow, None] = {}
    for each in deltas:
        _move(each.removed.rows(), out_of=added, into=removed)
        _move(each.added.rows(), out_of=removed, into=added)
    first, last = deltas[0], deltas[-1]
    return Delta(
        first.base,
        last.target,
        last.generation,
        FlowTable.of(removed),
        FlowTable.of(added),
        last.ports,
        first.base_ports,
    )


def touched_cookies(delta: Delta) -> U64:
    """The cookies of all that a delta removes or adds, sorted."""
    cookies: U64 = np.union1d(delta.removed.cookie, delta.added.cookie)
    return cookies


def expected_rows(program: Program, cookies: U64, place: Place) -> FlowTable:
    """Return a program's rows of some cookies on a device."""
    return place(program.blocks.of_cookies(cookies), program.ports)


def mismatch(observed: Observed, rows: FlowTable, stamp: Stamp) -> Mismatch | None:
    """Return how rows read back differ from the expected ones, or None."""
    surplus, missing = difference(observed.flows, rows)
    if len(surplus) or len(missing) or observed.stamp != stamp:
        return Mismatch(len(missing), len(surplus), observed.stamp != stamp)
    return None


def changed_otherwise(changed: Changed, stamp: Stamp) -> Mismatch | None:
    """Return how a device differs after a small change, or None."""
    found, wanted = frozenset(changed.found), frozenset(changed.wanted)
    if found != wanted or changed.stamp != stamp:
        return Mismatch(len(wanted - found), len(found - wanted), changed.stamp != stamp)
    return None


def _move(rows: Iterable[Flow], *, out_of: dict[Flow, None], into: dict[Flow, None]) -> None:
    """Move rows between added and removed.

    A row that was added and is removed again was never there, and the other way round.
    """
    for row in rows:
        if row in out_of:
            del out_of[row]
        else:
            into[row] = None


def _same_meaning(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Whether a symbol that both programs use stands for the same port in both."""
    pairs = zip(old, new, strict=False)
    return old == new or all(before == after or not before or not after for before, after in pairs)


def _moved_ports(held: Program, program: Program, place: Place) -> Delta:
    """Return the delta where a symbol's port changed: compare the device's rows."""
    removed, added = difference(place(held.flows, held.ports), place(program.flows, program.ports))
    return Delta(held.digest, program.digest, program.generation, removed, added, ())
