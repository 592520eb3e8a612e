"""The newest policy and point of presence of every domain, in memory."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from orchestrator.store.pops.poprecords import Pop
from orchestrator.store.records import ListsChanged, PolicySnapshot


class OfGeneration(Protocol):
    """A value that knows the generation at which it was read."""

    @property
    def generation(self) -> int:
        """The generation of the domain that it is of."""
        ...


T = TypeVar("T", bound=OfGeneration)


class Newest(Generic[T]):
    """The newest value of every domain in memory, by its generation. Safe between threads.

    So it is never wrong and never needs to be told of a change: a value serves at exactly its generation. Beside other
    processes it is merely of no use for one read.
    """

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

    def all(self) -> dict[str, T]:
        """Return every domain's value that is in memory."""
        with self._lock:
            return dict(self._known)


_MOST_NOTED = 64


class PolicyCache(Newest[PolicySnapshot]):
    """The last policy of every domain.

    The transaction that moves the generation on and changes nothing but access lists takes over the rest of it
    (`Domains.policy`). Where other services share the store, their notices say which commits changed nothing but lists,
    and of which tenants: while there is a notice of every generation since the policy in memory, it is taken over as
    well.
    """

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


@dataclass(frozen=True, slots=True)
class KnownPop:
    """A domain's PoP at a generation; None where it has none."""

    generation: int
    pop: Pop | None


class PopCache(Newest[KnownPop]):
    """Each domain's point of presence, as programs are made of it.

    Everything in a PoP that a program is made of moves the domain's generation; a transaction that changes nothing but
    access lists takes it over to the next (`Pops.of_domain`).
    """
