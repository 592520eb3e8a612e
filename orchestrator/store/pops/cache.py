"""Each domain's point of presence in memory, as programs are made of it.

Everything in a PoP that a program is made of moves the domain's generation; a transaction that changes nothing but
access lists takes it over to the next (`Pops.of_domain`).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.store.newest import Newest
from orchestrator.store.pops.records import Pop


@dataclass(frozen=True, slots=True)
class KnownPop:
    """A domain's PoP at a generation; None where it has none."""

    generation: int
    pop: Pop | None


class PopCache(Newest[KnownPop]):
    """The shared memory of PoPs."""
