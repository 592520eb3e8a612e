"""The newest value of every domain in memory, by the generation it was read at.

So it is never wrong and never needs to be told of a change: a value serves at exactly its generation. Beside other
processes it is merely of no use for one read.
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar


class OfGeneration(Protocol):
    """A value that knows the generation at which it was read."""

    @property
    def generation(self) -> int:
        """The domain's."""
        ...


T = TypeVar("T", bound=OfGeneration)


class Newest(Generic[T]):
    """The shared memory. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, T] = {}

    def get(self, domain: str) -> T | None:
        """The newest that was read here and is committed."""
        return self._known.get(domain)

    def put(self, domain: str, value: T) -> None:
        """Keep a committed one, unless a newer one is kept."""
        with self._lock:
            before = self._known.get(domain)
            if before is None or before.generation <= value.generation:
                self._known[domain] = value

    def drop(self, domain: str) -> None:
        """Forget a domain that is no more."""
        with self._lock:
            self._known.pop(domain, None)
