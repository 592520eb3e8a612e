"""The shortest edit script between two lists (Myers 1986), by identity.

Rules that are equal but not the same object count as different: that is safe, and only more is looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.compile import _equivalence as native
from orchestrator.policy.listed import Listed


class Step(NamedTuple):
    """Insert the new list's item `new` before the old one's `old`, or remove `old`."""

    old: int
    new: int
    is_insert: bool


def edits(old: tuple[object, ...], new: tuple[object, ...], most: int) -> list[Step] | None:
    """Return the steps in order; None if there are more than `most`."""
    steps = native.edits(old, new, most)
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
