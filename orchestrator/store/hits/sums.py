"""Counts of all rules of a domain together, by tier and by decider.

There are as many sums for any number of rules.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.program.program import Tier
from orchestrator.store.hits.history import HitHistory
from orchestrator.store.transaction import Transaction

_KIND_SHIFT = np.uint64(48)
_TIERS = (Tier.HOST, Tier.SERVER, Tier.EDGE)


class Decider(enum.Enum):
    """The decider of a packet."""

    RULE = "rule"
    OPERATOR = "operator"
    DEFAULT = "default"
    RETURN = "return"
    NO_ROOM = "no-room"
    """Not a list's word: the switch had no room for the connection that the packet would have opened."""


_KINDS = {
    Decider.RULE: (Kind.RULE,),
    Decider.OPERATOR: (Kind.OPERATOR_RULE,),
    Decider.DEFAULT: (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT),
    Decider.RETURN: (Kind.INGRESS_RETURN, Kind.EGRESS_RETURN),
    Decider.NO_ROOM: (Kind.STRUCTURE,),
}


@dataclass(frozen=True, slots=True)
class HitSum:
    """Counts of all lines of a domain with one decider, on a tier.

    `resets`: how often a counter began anew unread.
    """

    tier: Tier
    decider: Decider
    packets: int
    octets: int
    resets: int


def sums_of(tx: Transaction, domain: str) -> tuple[HitSum, ...]:
    """Return the sums of every tier of a domain.

    They are of all time. Tiers are never added up, for a packet passes through several.
    """
    return tuple(_read_sums(tx, domain))


def _read_sums(tx: Transaction, domain: str) -> Iterator[HitSum]:
    counts = HitHistory(tx, domain).totals()
    kinds = counts.cookie >> _KIND_SHIFT
    for tier, (decider, of) in product(_TIERS, _KINDS.items()):
        wanted = np.array([Cookie(tier, kind).pack() for kind in of], np.uint64) >> _KIND_SHIFT
        mine = counts.take(np.isin(kinds, wanted))
        columns = (mine.packets, mine.byte_counts, mine.resets)
        yield HitSum(tier, decider, *(int(column.sum()) for column in columns))
