"""The right to decide what is published, of one domain or of all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Busy

WRITER_S = 0.05
"""How long a domain's writer at work here is waited for: what it does may take seconds, and others have their turn."""


class Turns:
    """The part that decides what is published: of one domain, or of all of them.

    Somebody who waits for all of them is let in before those who come later, and gives up after `patience_s`, for they
    wait meanwhile. Safe between threads.
    """

    def __init__(self, patience_s: float | None = None) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._taken: set[str] = set()
        self._all_taken = False
        self._waiting_for_all = 0

    @contextmanager
    def of(self, domain: str | None, wait_s: float | None = None) -> Iterator[bool]:
        """Hold a domain, or all of them (None), and yield whether it is held.

        It is not where somebody else holds a domain for `wait_s`. Raises Busy where others hold one of all.
        """
        with self._changed:
            if domain is None:
                self._wait_for_all()
                is_held = self._all_taken = True
            else:
                is_held = self._changed.wait_for(lambda: self._may_take(domain), wait_s)
                self._taken |= {domain} if is_held else set()
        try:
            yield is_held
        finally:
            with self._changed:
                if domain is None:
                    self._all_taken = False
                elif is_held:
                    self._taken.discard(domain)
                self._changed.notify_all()

    def _wait_for_all(self) -> None:
        self._waiting_for_all += 1
        try:
            if not self._changed.wait_for(lambda: not self._all_taken and not self._taken, self._patience_s):
                raise Busy("writers of domains hold the store: try again")
        finally:
            self._waiting_for_all -= 1
            self._changed.notify_all()

    def _may_take(self, domain: str) -> bool:
        return not self._all_taken and not self._waiting_for_all and domain not in self._taken
