"""The floods, with the theoretical result of each packet. Pure."""

from __future__ import annotations

import enum
import random

import numpy as np

from orchestrator.bench.pop.world import World
from orchestrator.policy.prefilter import Misdirect

_TENANTS_ADDRESSES = 4_096


class Attack(enum.Enum):
    """Whom a flood is for."""

    NONE = "no attack"
    SWEEP = "sweep"
    TARGET = "one target"
    TENANT = "one tenant"


def targets(world: World, attack: Attack, seed: int) -> list[int]:
    """Return the addresses to send to in turn.

    The first tenant is the victim where there is one.
    """
    draw = random.Random(seed)  # noqa: S311  (no secret: the same flood every time)
    grid = world.grid
    owned = np.array([grid.chunking.key(prefix.network) for prefix in world.tenants[0].prefixes], np.uint64)
    if attack is Attack.SWEEP:
        keys = grid.routable.copy()
        order = list(range(len(keys)))
        draw.shuffle(order)
        return grid.addresses(keys[order], [draw.randrange(grid.hosts) for _ in order])
    if attack is Attack.TENANT:
        keys = owned[[draw.randrange(len(owned)) for _ in range(_TENANTS_ADDRESSES)]]
        return grid.addresses(keys, [draw.randrange(grid.hosts) for _ in keys])
    return grid.addresses(owned[:1])


def expected_share(world: World, destinations: list[int], misdirect: Misdirect) -> float:
    """The share of a flood's packets that reach the WAN: none is permitted."""
    keys = np.array([world.grid.chunking.key(address) for address in destinations], np.uint64)
    return float(world.leaks(keys, misdirect).mean())
