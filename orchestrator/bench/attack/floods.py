"""The floods, and what theory says of each: a value for every packet, for all that decides is known. Pure."""

from __future__ import annotations

import enum
import random

import numpy as np

from orchestrator.bench.pop.world import LENGTH, ROUTABLE, World, addresses
from orchestrator.policy.prefilter import Misdirect

_HOSTS = 1 << (32 - LENGTH)
_TENANTS_ADDRESSES = 4_096


class Attack(enum.Enum):
    """Whom a flood is for."""

    NONE = "no attack"
    SWEEP = "sweep"
    TARGET = "one target"
    TENANT = "one tenant"


def targets(world: World, attack: Attack, seed: int) -> list[int]:
    """The addresses that are sent to in turn: the first tenant is the victim where there is one."""
    draw = random.Random(seed)  # noqa: S311  (no secret: the same flood every time)
    owned = np.array([prefix.network >> (32 - LENGTH) for prefix in world.tenants[0].prefixes], np.uint64)
    if attack is Attack.SWEEP:
        keys = ROUTABLE.copy()
        order = list(range(len(keys)))
        draw.shuffle(order)
        return addresses(keys[order], [draw.randrange(_HOSTS) for _ in order])
    if attack is Attack.TENANT:
        keys = owned[[draw.randrange(len(owned)) for _ in range(_TENANTS_ADDRESSES)]]
        return addresses(keys, [draw.randrange(_HOSTS) for _ in keys])
    return addresses(owned[:1])


def expected_share(world: World, destinations: list[int], misdirect: Misdirect) -> float:
    """The share of a flood's packets that reach the WAN: none is permitted."""
    keys = np.array([address >> (32 - LENGTH) for address in destinations], np.uint64)
    return float(world.leaks(keys, misdirect).mean())
