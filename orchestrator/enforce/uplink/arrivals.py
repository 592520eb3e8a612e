"""Rank a host's endpoints: just arrived, settled, or not heard yet.

    port plugged ──▶ UNHEARD ── first frame ──▶ ARRIVED ── some seconds later ──▶ SETTLED

A live migration plugs an instance's port on its next host long before the instance runs there, so for a while two hosts
deliver to one address. Nobody tells them which is right, but a guest that begins to run on a host speaks there at
once (its hypervisor does so for it), and one that is still being copied cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

ARRIVED_S = 60.0
"""So long an endpoint goes before the host that it came from, which takes away its port meanwhile."""
_LOOK_AGAIN_S, _SELDOM_S = 0.1, 0.5


class Rank(IntEnum):
    """The metric of a prefix's route: of several hosts the lowest goes first.

    All are before routes of the same prefix that a routing daemon learned from the fabric (BIRD 32, FRR 20).
    """

    ARRIVED = 8
    SETTLED = 10
    UNHEARD = 12


@dataclass(slots=True)
class Arrivals:
    """Ranks a switch's ports. Times are in seconds of one clock."""

    _unheard: frozenset[int] = field(default=frozenset(), init=False)
    _heard: frozenset[int] = field(default=frozenset(), init=False)
    _arrived_at: dict[int, float] = field(default_factory=dict, init=False)
    _since: float = field(default=0.0, init=False)
    _again_at: float = field(default=0.0, init=False)

    def asks(self, ports: Collection[int]) -> bool:
        """Tell whether counts of these ports would change a rank."""
        return not self._heard.issuperset(ports)

    def rank(self, ports: Collection[int], received: Mapping[int, int], now: float) -> dict[int, Rank]:
        """Rank all ports from the numbers of frames that they sent.

        A port without a number keeps its rank.
        """
        here = frozenset(ports)
        unheard = frozenset(port for port in here if not received.get(port, port not in self._unheard))
        for port in here & self._unheard - unheard:
            self._arrived_at[port] = now
        self._arrived_at = {
            port: at for port, at in self._arrived_at.items() if port in here and now - at < ARRIVED_S
        }  # fmt: skip
        if unheard != self._unheard:
            self._since = self._again_at = now
        self._unheard, self._heard = unheard, here - unheard
        return {port: self._rank_port(port) for port in here}

    def hears_one(self, received: Mapping[int, int]) -> bool:
        """Tell whether one sent its first frame."""
        return any(received.get(port) for port in self._unheard)

    def is_time(self, now: float) -> bool:
        """Tell whether to count again: less often after some seconds of silence."""
        if not self._unheard or now < self._again_at:
            return False
        self._again_at = now + min(_SELDOM_S, max(_LOOK_AGAIN_S, (now - self._since) / 100))
        return True

    def _rank_port(self, port: int) -> Rank:
        if port in self._unheard:
            return Rank.UNHEARD
        return Rank.ARRIVED if port in self._arrived_at else Rank.SETTLED
