"""The last policy of every domain in memory.

The transaction that moves the generation on and changes nothing but access lists takes over the rest of it
(`Domains.policy`). Where other services share the store, their notices say which commits changed nothing but lists, and
of which tenants: while there is a notice of every generation since the policy in memory, it is taken over as well.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from functools import partial

from orchestrator.store.newest import Newest
from orchestrator.store.records import ListsChanged, PolicySnapshot

_MOST_NOTED = 64


class PolicyCache(Newest[PolicySnapshot]):
    """The shared memory of policies."""

    def __init__(self) -> None:
        super().__init__()
        self._noted: defaultdict[str, deque[tuple[int, ListsChanged]]] = defaultdict(partial(deque, maxlen=_MOST_NOTED))

    def note(self, domains: Mapping[str, int], lists: Mapping[str, ListsChanged]) -> None:
        """Note the generations and changed lists of another service's commit.

        `domains` has the generations that domains are at, `lists` the domains where only lists changed.
        """
        with self._lock:
            for domain in lists.keys() & domains.keys():
                self._noted[domain].append((domains[domain], lists[domain]))

    def lists_changed(self, domain: str, after: int, upto: int) -> frozenset[str] | None:
        """Return the tenants whose lists changed between two generations; None where more may have changed."""
        tenants: set[str] = set()
        with self._lock:
            noted = tuple(self._noted.get(domain, ()))
        at = upto
        for generation, changed in reversed(noted):
            if at > after and generation == at:
                tenants.update(changed.tenants)
                at = changed.before
        return frozenset(tenants) if at == after else None

    def drop(self, domain: str) -> None:
        """Forget a domain that is no more."""
        super().drop(domain)
        with self._lock:
            self._noted.pop(domain, None)
