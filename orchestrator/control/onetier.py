"""What the tiers that hold whole policies have in common: a publisher, and what is kept of each domain."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from orchestrator.control.publisher import Publisher
from orchestrator.program.program import Program

Kept = TypeVar("Kept")


class PublishedTier(Generic[Kept]):
    """Publishes a tier's programs, and forgets domains that do not have the tier. Safe between threads."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self._lock = threading.Lock()
        self._known: dict[str, Kept] = {}

    def publish(self, domain: str, program: Program | None) -> None:
        """Make a program current. None: the domain does not have the tier (any more)."""
        if program is not None:
            self.publisher.publish(program)
        elif self.publisher.program(domain) is not None:
            self.forget(domain)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain."""
        with self._lock:
            self._known.pop(domain, None)
        self.publisher.drop(domain)
