"""The domains that this service keeps compiled: owned ones, and those followed here.

On SQLite, and where a `Control` is wired without members, that is every domain. Where several services share a
PostgreSQL, each domain has one owner among them (`store/sql/livingservices.py`), and enforcement points connect to any:

    followed here    its newest program is published here as soon as its commit is heard of (`sealedsteps.py`)
    owned, at rest   it is kept up now and then, so that a first watcher or a first write finds little to do
    neither          nothing is done here; the first watcher or question has it compiled then
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.control.sealedsteps import SealedSteps
from orchestrator.store.sql.livingservices import Members

FOLLOWED_S = 60.0
"""For so long a domain counts as followed after the last watcher has left: points that watch by polls come again."""


class Duties:
    """Which domains this service keeps compiled. Safe between threads.

    `sealed` is how services pass each other the steps of programs; None: each compiles what others commit.
    """

    def __init__(
        self,
        members: Members | None = None,
        *,
        sealed: SealedSteps | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sealed = sealed
        self._members = members
        self._ticks = ticks
        self._lock = threading.Lock()
        self._following: Counter[str] = Counter()
        self._left_at: dict[str, float] = {}

    def join(self, changed: Callable[[], None]) -> None:
        """Begin to own domains; `changed` is called when they may have other owners."""
        if self._members is not None:
            self._members.join(changed)

    def leave(self) -> None:
        """Let other services own the domains."""
        if self._members is not None:
            self._members.leave()

    def owns(self, domain: str) -> bool:
        """Return whether this service is the one that owns a domain."""
        return self._members is None or self._members.now.owns(domain)

    def is_followed(self, domain: str) -> bool:
        """Return whether a domain's programs are published here as soon as there are newer ones."""
        if self._members is None or domain in self._following:
            return True
        left_at = self._left_at.get(domain)
        return left_at is not None and self._ticks() - left_at < FOLLOWED_S

    def keeps(self, domain: str) -> bool:
        """Return whether this service keeps a domain compiled."""
        return self.owns(domain) or self.is_followed(domain)

    @contextmanager
    def following(self, domain: str) -> Iterator[None]:
        """Count somebody who follows a domain's programs here during the block."""
        if self._members is None:
            yield
            return
        with self._lock:
            self._following[domain] += 1
        try:
            yield
        finally:
            with self._lock:
                self._left_at[domain] = self._ticks()
                self._following[domain] -= 1
                if not self._following[domain]:
                    del self._following[domain]

    def forget(self, domain: str) -> None:
        """Forget a domain that was deleted."""
        with self._lock:
            self._left_at.pop(domain, None)
