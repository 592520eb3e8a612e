"""Each domain's point of presence in memory, as programs are made of it.

It is keyed by generation like policies are (`policycache.py`): everything in a PoP that a program is made of moves the
domain's generation, so one serves at exactly the generation at which it was read, and a transaction that changes
nothing but access lists takes it over to the next. Beside other processes it is merely of no use for one read.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from orchestrator.store.poprecords import Pop


@dataclass(frozen=True, slots=True)
class KnownPop:
    """A domain's PoP at a generation; None where it has none."""

    generation: int
    pop: Pop | None


class PopCache:
    """The shared memory of PoPs. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, KnownPop] = {}

    def get(self, domain: str) -> KnownPop | None:
        """The newest that was read here and is committed."""
        return self._known.get(domain)

    def put(self, domain: str, known: KnownPop) -> None:
        """Keep a committed one, unless a newer one is kept."""
        with self._lock:
            before = self._known.get(domain)
            if before is None or before.generation <= known.generation:
                self._known[domain] = known
