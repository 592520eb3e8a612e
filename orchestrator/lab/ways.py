"""The paths of packets in a lab's PoP, shown at the end of a demo.

What was tried until now tells which rules are popular, and these become heavy hitters. Then everything is tried again,
and a few packets come that are for nobody, or say that they are from a tenant.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from orchestrator.client import Client
from orchestrator.client.records import Json
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import COUNT_EVERY_S, POP, ControlPlane
from orchestrator.lab.trials import Trial, Ways
from orchestrator.lab.wire import Landing, Shot, Wire, shot
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.protocols import UDP

STRAYS = 8
"""How many packets for nobody, and how many with a tenant's address, are sent."""

_NOBODYS = 0xC6120000
"""198.18.0.0/15, which is for measurements and no tenant's."""
_PATIENCE_S = 30.0
_PAUSE_S = 0.5
_QUIET_S = COUNT_EVERY_S + 2.0
"""Counts that were the same for so long are all there are: switches are asked that often."""


def gather(lab: Lab, plane: ControlPlane, policy: Policy, act: Callable[[Lab, Policy], tuple[Trial, ...]]) -> Ways:
    """Choose heavy hitters, try everything again with them, and read where packets went. Raises Unreachable."""
    with plane.client() as client:
        round_ = client.choose_heavy_hitters(POP)
        plane.wait_enforced(client, round_["generation"])
        again = act(lab, policy)
        with Wire(lab) as wire:
            landed = wire.fire(strays(lab, policy))
        chosen = tuple(f"{each['tenant']}/{each['rule']}" for each in round_["chosen"])
        return Ways(chosen, again, _count_arrived(landed), settled_traffic(client))


def strays(lab: Lab, policy: Policy) -> list[Shot]:
    """Return packets to unallocated addresses, and packets with a tenant's own source from outside."""
    client = lab.spec.clients[0]
    source = next(prefix.network for prefix in client.addresses if prefix.family is Family.IPV4)
    inside = next(prefix for tenant in policy.tenants for prefix in tenant.prefixes if prefix.family is Family.IPV4)
    plain = Packet(Family.IPV4, source, _NOBODYS, UDP, 4096, 53)
    nobodys = [replace(plain, destination=_NOBODYS + (number << 8)) for number in range(STRAYS)]
    pretended = [replace(plain, source=inside.network + 99, destination=inside.network + 1 + n) for n in range(STRAYS)]
    return [shot(lab, client.name, packet) for packet in (*nobodys, *pretended)]


def _count_arrived(landed: tuple[Landing, ...]) -> int:
    return sum(1 for landing in landed if landing.nodes)


def settled_traffic(client: Client) -> Json:
    """Where packets went, once the switches' counters have come in."""
    changed = time.monotonic()
    until = changed + _PATIENCE_S
    seen = client.pop_traffic(POP)
    while time.monotonic() < min(changed + _QUIET_S, until):
        time.sleep(_PAUSE_S)
        now = client.pop_traffic(POP)
        if now != seen:
            seen, changed = now, time.monotonic()
    return seen
