"""How a suite tells how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Told what is about to be done. A suite that knows its length says how many steps are done, and of how many."""

    def __call__(self, text: str, *, done: int = 0, total: int = 0) -> None: ...


@dataclass(slots=True)
class Steps:
    """Counts the steps of a suite that knows how many there are."""

    progress: Progress
    total: int
    _done: int = 0

    def next(self, text: str) -> None:
        """A step begins."""
        self.progress(text, done=self._done, total=self.total)
        self._done += 1
