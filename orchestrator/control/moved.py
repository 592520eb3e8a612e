"""Which generations a piece of work has moved, told to whoever began it and does not see into it.

    with noting() as moved:         the work begins
        ...                         somewhere below, on another thread: note({"pop": 812})
    moved                           {"pop": 812}

It goes with the work from coroutine to thread and back in a context variable, as the clock of `stages` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[dict[str, int] | None] = ContextVar("moved", default=None)


@contextmanager
def noting() -> Iterator[Mapping[str, int]]:
    """Gather the domains, with the generations they came to, that commits in here have moved."""
    moved: dict[str, int] = {}
    token = _current.set(moved)
    try:
        yield moved
    finally:
        _current.reset(token)


def note(generations: Mapping[str, int]) -> None:
    """These were committed; for whoever wants to know."""
    moved = _current.get()
    if moved is not None:
        moved.update(generations)
