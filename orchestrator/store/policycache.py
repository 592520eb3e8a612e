"""The last policy of every domain in memory.

It is keyed by generation, so it is never wrong and never needs to be told of a change: a policy serves at exactly the
generation at which it was read, and the transaction that moves the generation on and changes nothing but access lists
takes over the rest of it (`Domains.policy`). So beside other processes it is merely of no use for one read.
"""

from __future__ import annotations

import threading

from orchestrator.store.records import PolicySnapshot


class PolicyCache:
    """The shared memory of policies. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._policies: dict[str, PolicySnapshot] = {}

    def get(self, domain: str) -> PolicySnapshot | None:
        """The newest committed policy that was read here."""
        return self._policies.get(domain)

    def put(self, domain: str, snapshot: PolicySnapshot) -> None:
        """Keep a committed policy, unless a newer one is kept."""
        with self._lock:
            known = self._policies.get(domain)
            if known is None or known.generation <= snapshot.generation:
                self._policies[domain] = snapshot

    def drop(self, domain: str) -> None:
        """Forget a domain that is no more."""
        with self._lock:
            self._policies.pop(domain, None)
