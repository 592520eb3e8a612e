"""What was found in the lists as they are committed: looked for once, told as often as somebody asks.

Looking at 20,000 rules takes seconds of a core, dashboards ask every time they are opened, and the answer stays the
same until the list, or what the tenant owns, changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from api.schemas.cost import CostBody
from api.schemas.inspection import FindingBody, KindWord

_MOST = 64


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What looking at a list came to: the first findings of each kind, how many there are, and what the list costs."""

    findings: tuple[FindingBody, ...]
    counts: dict[KindWord, int]
    cost: CostBody


class Reviews:
    """The newest look at each list, of the lists that were asked for last. Safe to share between threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._known: OrderedDict[str, tuple[Hashable, Reviewed]] = OrderedDict()

    def of(self, tenant: str, state: Hashable, look: Callable[[], Reviewed]) -> Reviewed:
        """What `look` gives, or gave for this `state` of the tenant's list. Who asks meanwhile waits for the first."""
        with self._guard:
            turn = self._turns.setdefault(tenant, threading.Lock())
        with turn:
            known = self._known.get(tenant)
            if known is not None and known[0] == state:
                return known[1]
            found = look()
            self._keep(tenant, state, found)
            return found

    def _keep(self, tenant: str, state: Hashable, found: Reviewed) -> None:
        with self._guard:
            self._known[tenant] = state, found
            self._known.move_to_end(tenant)
            while len(self._known) > _MOST:
                forgotten, _ = self._known.popitem(last=False)
                self._turns.pop(forgotten, None)
