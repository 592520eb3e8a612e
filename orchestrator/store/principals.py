"""Bearers of tokens, in memory: checking a token is what every request begins with.

It is for a process that is the only one to take tokens away (SQLite). A commit that takes any away, or may have,
empties it, and what was read before such a commit is not kept after it. When a token expires is kept with it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from orchestrator.store.records import Principal

_MOST = 4096


@dataclass(frozen=True, slots=True)
class Bearer:
    """The bearer of a token, and until when (microseconds since 1970; None: for good)."""

    principal: Principal
    expires: int | None

    def holds(self, micros: int) -> bool:
        """Whether the token is valid at a time."""
        return self.expires is None or self.expires > micros


class PrincipalCache:
    """The shared memory of tokens, by digest. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bearers: dict[bytes, Bearer] = {}
        self._cleared = 0

    @property
    def cleared(self) -> int:
        """Grows whenever it is emptied: note it before reading the database."""
        return self._cleared

    def get(self, digest: bytes) -> Bearer | None:
        """Return the bearer of the token with this digest, if known.

        The caller must check that it is still valid.
        """
        return self._bearers.get(digest)

    def put(self, digest: bytes, bearer: Bearer, cleared: int) -> None:
        """Keep a bearer, unless the cache was emptied since it was read.

        `cleared` says how often the cache had been emptied when it was read.
        """
        with self._lock:
            if cleared == self._cleared:
                if len(self._bearers) >= _MOST:
                    self._bearers.clear()
                self._bearers[digest] = bearer

    def clear(self) -> None:
        """Tokens were taken away."""
        with self._lock:
            self._cleared += 1
            self._bearers.clear()
