"""Firewall VNFs: what they are and what they say of their load."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Literal

from orchestrator.wire.common import document


class Plane(enum.Enum):
    """The packet filter of a firewall VNF."""

    NFTABLES = "nftables"
    IPTABLES = "iptables"
    QUEUE = "queue"
    """A classifier in user space, on a processor or a GPU."""

    @property
    def tracks(self) -> bool:
        """Whether it can track connections whose both directions it sees."""
        return self is not Plane.QUEUE

    @property
    def carries_stateless(self) -> bool:
        """Whether it carries stateless rules out where it tracks connections."""
        return self is Plane.NFTABLES


PlaneWord = Literal["nftables", "iptables", "queue"]


@document(kw_only=True)
class WrittenFirewall:
    """A firewall just onboarded, and the generation that it must reach."""

    name: str
    plane: PlaneWord
    generation: int


@document()
class Load:
    """The load that a firewall VNF reports of itself.

    Rates are over its last period, `cpu_permille` is the share of its processors that is busy (thousandths),
    `connections` are those that its kernel tracks, and `trouble` is what is wrong, if anything is.
    """

    packets_pps: int
    bits_bps: int
    cpu_permille: int
    connections: int
    trouble: str | None = None


@document(kw_only=True)
class SeenLoad:
    """The latest load, and when it came."""

    packets_pps: int
    bits_bps: int
    cpu_permille: int
    connections: int
    trouble: str | None
    reported: dt.datetime


@document()
class Firewall:
    """A firewall VNF with its load.

    The domain's generations say which generation it was read back to hold.
    """

    name: str
    plane: PlaneWord
    load: SeenLoad | None
