"""Owners of the 256 buckets over which a domain's traffic is spread.

A packet's hash says its bucket, for ever; who owns the bucket is the controller's to say. So when a firewall comes or
goes, what moves is what must: the newcomer's share comes off the others, the leaver's share is dealt out, and no bucket
goes from one that stays to another that stays.

    quota    each gets the whole part of its share, and the buckets left over go to the largest fractions; among equal
             fractions to who holds most already, so that nothing moves for a tie
    keep     every bucket stays with its owner while the owner is within its quota
    deal     what is free goes, bucket by bucket, to whoever is furthest below its quota

With nobody to own them buckets are nobody's, and what is in them is dropped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from orchestrator.errors import BadInput

BUCKETS = 256

Owners = tuple[str | None, ...]
"""The owner of every bucket by its number; None: nobody, so what is in it is dropped."""

NOBODY: Owners = (None,) * BUCKETS


def assign(owners: Owners, weights: Mapping[str, float]) -> Owners:
    """Return new owners for these members, each by its weight (its capacity, in any unit).

    Raises BadInput for more members than buckets, for a weight that is not above zero, and for owners of another size.
    """
    _check_weights(owners, weights)
    if not weights:
        return NOBODY
    quotas = _quotas(weights, share(owners))
    left = dict(quotas)
    after: list[str | None] = []
    for owner in owners:
        keeps = owner is not None and left.get(owner, 0) > 0
        after.append(owner if keeps else None)
        if owner is not None and keeps:
            left[owner] -= 1
    for bucket, owner in enumerate(after):
        if owner is None:
            neediest = min(left, key=lambda name: (-left[name], name))
            after[bucket] = neediest
            left[neediest] -= 1
    return tuple(after)


def share(owners: Owners) -> Mapping[str, int]:
    """How many buckets each owner has."""
    return Counter(owner for owner in owners if owner is not None)


def count_moved(before: Owners, after: Owners) -> int:
    """How many buckets have another owner."""
    return sum(old != new for old, new in zip(before, after, strict=True))


def _quotas(weights: Mapping[str, float], held: Mapping[str, int]) -> dict[str, int]:
    """Return each member's bucket count by largest remainders: 256 in all, at least one."""
    total = math.fsum(weights.values())
    exact = {name: BUCKETS * weight / total for name, weight in weights.items()}
    quotas = {name: max(1, math.floor(part)) for name, part in exact.items()}

    def rank_claim(name: str) -> tuple[float, int, str]:
        return quotas[name] - exact[name], -min(held.get(name, 0), quotas[name] + 1), name

    while (missing := BUCKETS - sum(quotas.values())) > 0:
        for name in sorted(quotas, key=rank_claim)[:missing]:
            quotas[name] += 1
    while sum(quotas.values()) > BUCKETS:  # members too light for a bucket have one all the same: others give it
        givers = [name for name, quota in quotas.items() if quota > 1]
        quotas[max(givers, key=lambda name: (quotas[name] - exact[name], quotas[name], name))] -= 1
    return quotas


def _check_weights(owners: Owners, weights: Mapping[str, float]) -> None:
    if len(owners) != BUCKETS:
        raise BadInput(f"{len(owners)} owners, where there are {BUCKETS} buckets")
    if len(weights) > BUCKETS:
        raise BadInput(f"{len(weights)} members, where there are {BUCKETS} buckets")
    for name, weight in weights.items():
        if not 0 < weight < math.inf:
            raise BadInput(f"{weight} is no weight", place=name)
