"""The domains that this service keeps compiled: owned ones, and those followed here.

On SQLite, and where a `Control` is wired without members, that is every domain. Where several services share a
PostgreSQL, each domain has one owner among them (`store/sql/livingservices.py`), and enforcement points connect to any:

    followed here    its newest program is published here as soon as its commit is heard of (`sealedsteps.py`)
    owned alone      it is kept up when it rests, so that a first watcher or a first write finds little to do
    neither          nothing is done here; the first watcher or question has it compiled then

Host programs of domains that have neither hosts nor watchers are not compiled (`IdleHosts`).
Where firewall servers hold a domain's lists, and there is neither a host nor who follows the hosts' program, making and
proving that program would be half of what a change costs. It is made again when somebody could hold it, or asks:

    the first host ─────── comes with a generation of its own, so the program is compiled, proven, and if need be
                           refused in the transaction that adds the host
    who follows it ─────── is noted for good, and the control loop catches up
    quotas, lifted rules ─ are told from the program: with these it is made at every change
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.control.sealedsteps import SealedSteps
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.sql.livingservices import Members
from orchestrator.store.unit import Unit

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


class IdleHosts:
    """Which domains' hosts' programs are followed, and which are behind. Safe between threads."""

    def __init__(self) -> None:
        self._followed: set[str] = set()
        self._behind: set[str] = set()

    def follow(self, domain: str) -> bool:
        """Record a watcher of a domain's host program.

        Returns whether there was none before, so that it may be behind.
        """
        is_new = domain not in self._followed
        self._followed.add(domain)
        return is_new

    def is_idle(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> bool:
        """Return whether nobody needs a domain's host program, inside a changing transaction."""
        if domain in self._followed or snapshot.lifted:
            return False
        pop = unit.pops.of_domain(domain)
        if pop is None or not pop.servers or unit.domains.has_hosts(domain):
            return False
        quotas = [unit.tenants.quota(tenant) for tenant in unit.changed_lists]
        return all(quota.flows is quota.rules is None for quota in quotas)

    def left(self, domain: str) -> bool:
        """Note a generation without the hosts' program; return whether somebody came to follow it."""
        self._behind.add(domain)
        return domain in self._followed

    def note_published(self, domain: str) -> None:
        """The hosts' program was published."""
        self._behind.discard(domain)

    def is_behind(self, domain: str) -> bool:
        """Return whether the last published host program is older than the domain."""
        return domain in self._behind

    def forget(self, domain: str) -> None:
        """Forget a domain that was deleted."""
        self._followed.discard(domain)
        self._behind.discard(domain)
