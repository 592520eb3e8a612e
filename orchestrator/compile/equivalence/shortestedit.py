"""The shortest edit script between two lists (Myers 1986), by identity.

Rules that are equal but not the same object count as different: that is safe, and only more is looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.compile.equivalence.extension import NATIVE
from orchestrator.policy.listed import Listed


class Step(NamedTuple):
    """Insert the new list's item `new` before the old one's `old`, or remove `old`."""

    old: int
    new: int
    is_insert: bool


def edits(old: tuple[object, ...], new: tuple[object, ...], most: int) -> list[Step] | None:
    """Return the steps in order; None if there are more than `most`."""
    if NATIVE is None:
        return plain_edits(old, new, most)
    steps = NATIVE.edits(old, new, most)
    return None if steps is None else [Step(at, into, bool(is_insert)) for at, into, is_insert in steps]


def edits_of(old: Sequence[object], new: Sequence[object], most: int) -> list[Step] | None:
    """Return the steps; for sequences in pieces at the cost of unshared pieces."""
    if not isinstance(old, Listed) or not isinstance(new, Listed):
        return edits(tuple(old), tuple(new), most)
    found: list[Step] = []
    for part in old.apart(new):
        steps = edits(part.gone, part.come, most - len(found))
        if steps is None:
            return None
        found += [Step(at + part.start, into + part.place, comes) for at, into, comes in steps]
    return found


def plain_edits(old: Sequence[object], new: Sequence[object], most: int) -> list[Step] | None:
    """The same in Python: the furthest point on every diagonal after 0, 1, 2, ...

    steps.
    """
    rounds: list[dict[int, int]] = []
    for count in range(most + 1):
        last = rounds[-1] if rounds else {1: 0}
        furthest: dict[int, int] = {}
        for diagonal in range(-count, count + 1, 2):
            x = last[diagonal + 1] if _goes_down(last, diagonal, count) else last[diagonal - 1] + 1
            while x < len(old) and 0 <= x - diagonal < len(new) and old[x] is new[x - diagonal]:
                x += 1
            furthest[diagonal] = x
        rounds.append(furthest)
        end = len(old) - len(new)
        if furthest.get(end, -1) == len(old):
            return _write_script(rounds, len(old), len(new))
    return None


def _goes_down(last: dict[int, int], diagonal: int, count: int) -> bool:
    return diagonal == -count or (diagonal != count and last[diagonal - 1] < last[diagonal + 1])


def _write_script(rounds: list[dict[int, int]], x: int, y: int) -> list[Step]:
    found = []
    for count in range(len(rounds) - 1, 0, -1):
        last = rounds[count - 1]
        is_insert = _goes_down(last, x - y, count)
        before = x - y + 1 if is_insert else x - y - 1
        x, y = last[before], last[before] - before
        found.append(Step(x, y, is_insert))
    return found[::-1]
