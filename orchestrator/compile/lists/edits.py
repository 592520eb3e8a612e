"""The shortest edit between two lists, at the cost of the change.

Myers' greedy algorithm (1986): with d elements gone or come it looks at d^2 places, and runs along what both lists
share in C. Elements that stayed are mostly the same objects, which is all that has to be compared then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.compile._index import alike
from orchestrator.policy.listed import Listed

_MOST_STEPS = 128
"""So many gone or come are told apart; if there are more, all between the first and the last count as such."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One change: from `first` of the old list, `gone` became `come` at `place`."""

    first: int
    gone: int
    place: int
    come: int


def hunks(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Hunk, ...]:
    """Return the hunks that turn `old` into `new`, ascending and apart."""
    most = min(len(old), len(new))
    start = alike(old, 0, new, 0, 1, most)
    end = alike(old, len(old) - 1, new, len(new) - 1, -1, most - start)
    whole = Hunk(start, len(old) - start - end, start, len(new) - start - end)
    if not whole.gone and not whole.come:
        return ()
    if not whole.gone or not whole.come:
        return (whole,)
    trace = _furthest(old, new, whole)
    return (whole,) if trace is None else tuple(_join_steps(_steps(trace, whole)))


def hunks_of(old: Listed[Any], new: Listed[Any]) -> tuple[Hunk, ...]:
    """Return the hunks between lists in pieces, at the cost of unshared pieces."""
    return tuple(
        Hunk(each.first + part.start, each.gone, each.place + part.place, each.come)
        for part in old.apart(new)
        for each in hunks(part.gone, part.come)
    )


def _furthest(old: tuple[Any, ...], new: tuple[Any, ...], whole: Hunk) -> list[dict[int, int]] | None:
    """Return each diagonal's furthest place after 0, 1, 2, ... steps; None beyond the limit."""
    reached: dict[int, int] = {1: 0}
    trace = []
    for steps in range(_MOST_STEPS + 1):
        trace.append(reached.copy())
        for diagonal in range(-steps, steps + 1, 2):
            x = reached[diagonal + 1] if _down(reached, diagonal, steps) else reached[diagonal - 1] + 1
            y = x - diagonal
            if x <= whole.gone and y <= whole.come:
                x += alike(old, whole.first + x, new, whole.place + y, 1, min(whole.gone - x, whole.come - y))
            reached[diagonal] = x
            if x == whole.gone and x - diagonal == whole.come:
                return trace
    return None


def _down(reached: dict[int, int], diagonal: int, steps: int) -> bool:
    """Whether a diagonal is best come to from above: an element came. Else one went."""
    return diagonal == -steps or (diagonal != steps and reached[diagonal - 1] < reached[diagonal + 1])


def _steps(trace: Sequence[dict[int, int]], whole: Hunk) -> Iterator[Hunk]:
    """The single steps, last first."""
    x, y = whole.gone, whole.come
    for steps in range(len(trace) - 1, 0, -1):
        reached, diagonal = trace[steps], x - y
        down = _down(reached, diagonal, steps)
        before = diagonal + 1 if down else diagonal - 1
        x = reached[before]
        y = x - before
        yield Hunk(whole.first + x, int(not down), whole.place + y, int(down))


def _join_steps(steps: Iterator[Hunk]) -> list[Hunk]:
    """Steps that follow each other directly as one hunk; in ascending order."""
    found: list[Hunk] = []
    for step in reversed(list(steps)):
        last = found[-1] if found else None
        if last is not None and last.first + last.gone == step.first and last.place + last.come == step.place:
            found[-1] = Hunk(last.first, last.gone + step.gone, last.place, last.come + step.come)
        else:
            found.append(step)
    return found


def widen_hunks(edit: Sequence[Hunk], which: int, by: int, length: int) -> list[Hunk]:
    """Widen each hunk of an edit by up to `by` elements on each side."""
    hunk = edit[which]
    first, end = max(0, hunk.first - by), min(length, hunk.first + hunk.gone + by)
    met = [each for each in edit if each.first <= end and each.first + each.gone >= first]
    first, end = min(first, met[0].first), max(end, met[-1].first + met[-1].gone)
    begin = met[0].place - (met[0].first - first)
    stop = met[-1].place + met[-1].come + (end - met[-1].first - met[-1].gone)
    before = [each for each in edit if each.first + each.gone < first]
    after = [each for each in edit if each.first > end]
    return [*before, Hunk(first, end - first, begin, stop - begin), *after]
