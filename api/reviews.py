"""Findings on committed lists: looked for once, told as often as asked.

Looking at 20,000 rules takes its time, dashboards ask every time they are opened, and the answer stays the same until
the list, or what the tenant owns, changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_MOST = 256


class Reviews:
    """The newest answer to each question, of those that were asked last.

    Safe to share between threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[Hashable, threading.Lock] = {}
        self._known: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()

    @property
    def subjects(self) -> frozenset[Hashable]:
        """The subjects of which anything is kept."""
        with self._guard:
            return frozenset({*self._turns, *self._known})

    def of(self, about: Hashable, state: Hashable, look: Callable[[], T]) -> T:
        """Return the result of `look`, or the earlier one for this `state`.

        `about` is the subject of both. A second caller meanwhile waits for the first.
        """
        with self._guard:
            turn = self._turns.setdefault(about, threading.Lock())
        with turn:
            known = self._known.get(about)
            if known is not None and known[0] == state:
                answer: T = known[1]  # `about` says what kind of thing it is
                return answer
            try:
                found = look()
            except BaseException:
                self._let_go(about)
                raise
            self._keep(about, state, found)
            return found

    def _keep(self, about: Hashable, state: Hashable, found: object) -> None:
        with self._guard:
            self._known[about] = state, found
            self._known.move_to_end(about)
            while len(self._known) > _MOST:
                forgotten, _ = self._known.popitem(last=False)
                self._turns.pop(forgotten, None)

    def _let_go(self, about: Hashable) -> None:
        """Nothing came of a look: where nothing is known from before either, nothing is kept."""
        with self._guard:
            if about not in self._known:
                self._turns.pop(about, None)
