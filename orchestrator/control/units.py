"""Units of work, and the right to decide what is published.

Reads are in a snapshot, writes are published after their commit; tenants' domains are remembered, for a write of one
waits for the domain's writers alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from orchestrator.errors import Busy
from orchestrator.store.unit import Unit

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


T = TypeVar("T")

NO_DOMAIN = "what moves no domain"
"""Named in place of a domain by work that moves none: it waits for no domain's writers, and they not for it."""
MOST_HOMES = 16_384
"""The domains of so many tenants are remembered; that of another one takes a look-up."""


class Homes:
    """The domains of the tenants that wrote latest, as they were then. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, str] = OrderedDict()

    def find(self, tenant: str) -> str | None:
        """Return a tenant's domain, if it is remembered."""
        with self._lock:
            if tenant in self._known:
                self._known.move_to_end(tenant)
            return self._known.get(tenant)

    def keep(self, tenant: str, domain: str) -> None:
        """Remember a tenant's domain, and forget the one that has not written for longest."""
        with self._lock:
            self._known[tenant] = domain
            self._known.move_to_end(tenant)
            while len(self._known) > MOST_HOMES:
                self._known.popitem(last=False)

    def forget(self, tenant: str) -> None:
        """Forget a tenant's domain."""
        with self._lock:
            self._known.pop(tenant, None)


class Units(Protocol):
    """Where units of work come from: `Control`."""

    def read(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a snapshot."""
        ...

    def write(self, work: Callable[[Unit], T], *, domain: str | None = None) -> T:
        """Do `work` in a transaction.

        `domain` is all that it moves, or `NO_DOMAIN`; None: it may move any.
        """
        ...


class LoopUnits:
    """Units of work of the control loop, which waits for no long write."""

    def __init__(self, units: Units, deciding: Turns) -> None:
        self._units = units
        self._deciding = deciding

    def read(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a snapshot of the store."""
        return self._units.read(work)

    def write(self, work: Callable[[Unit], T], *, domain: str | None = None) -> T:
        """Do `work` in a transaction, unless a writer of the domain is at work here.

        Raises Busy where one is, and what `Control.write` raises.
        """
        if domain is not None:
            with self._deciding.of(domain, WRITER_S) as is_free:
                if not is_free:
                    raise Busy(f"a writer of '{domain}' is at work: later")
        return self._units.write(work, domain=domain)
