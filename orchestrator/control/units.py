"""Units of work: reads in a snapshot, writes published after their commit, tenants' domains."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from orchestrator.control.turns import WRITER_S, Turns
from orchestrator.errors import Busy
from orchestrator.store.unit import Unit

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
