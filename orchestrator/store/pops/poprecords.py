"""Records of points of presence."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.edge.settings import EdgeSettings
from orchestrator.errors import BadInput
from orchestrator.placement.heavy import HeavySettings
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import check_name
from orchestrator.policy.prefilter import Misdirect
from orchestrator.store.records import HostRecord, check_interface

MOST_OUTSIDE = 64
MOST_WINDOW_MS = 60_000
_HIGHEST_MAC = (1 << 48) - 1
_MULTICAST_BIT = 1 << 40


class ServerState(enum.Enum):
    """A server's state: it serves; it gets no more tenants; it has none."""

    SERVING = "serving"
    DRAINING = "draining"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class NewServer:
    """A new firewall server.

    The firewall's name, the edge switch's port towards it, and the MAC address behind that. Raises BadInput.
    """

    name: str
    port: str
    mac: int

    def __post_init__(self) -> None:
        check_name(self.name, "a firewall server's name", place="name")
        check_interface(self.port, place="port")
        if not 0 < self.mac <= _HIGHEST_MAC or self.mac & _MULTICAST_BIT:
            raise BadInput("is not the MAC address of one interface", place="mac")


@dataclass(frozen=True, slots=True)
class PopServer:
    """A firewall server behind an edge. Its number is never another's in the same PoP."""

    number: int
    name: str
    port: str
    mac: int
    state: ServerState = ServerState.SERVING


@dataclass(frozen=True, slots=True)
class PopSettings:
    """A PoP's settings.

    The edge switches' ports towards the outside, chunks, lines and budgets, how heavy hitters are chosen, and what a
    server does with a packet whose tenant it does not serve. Raises BadInput.
    """

    outside: tuple[str, ...]
    edge: EdgeSettings = field(default_factory=EdgeSettings)
    heavy: HeavySettings = field(default_factory=HeavySettings)
    misdirect: Misdirect = Misdirect.REHOME
    classify: bool = False
    """Whether servers get rows for a classifier, too."""
    window_ms: float = 50.0
    """The longest that a change waits for a server that is still at the one before."""
    tenant_updates_s: float = 0.0
    """How often a second a tenant's list may change; 0: as often as it likes."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.outside) <= MOST_OUTSIDE:
            raise BadInput(f"an edge has 1 to {MOST_OUTSIDE} ports towards the outside", place="outside")
        for index, port in enumerate(self.outside):
            check_interface(port, place=f"outside[{index}]")
        if not 0 <= self.window_ms <= MOST_WINDOW_MS:
            raise BadInput(f"a window lasts 0 to {MOST_WINDOW_MS:,} milliseconds", place="window_ms")
        if not 0 <= self.tenant_updates_s < float("inf"):
            raise BadInput(f"{self.tenant_updates_s} is not a rate", place="tenant_updates_s")
        if len(set(self.outside)) < len(self.outside):
            raise BadInput("a port is named twice", place="outside")


@dataclass(frozen=True, slots=True)
class HeavyRecord:
    """A heavy hitter: since when, its packets when chosen, and why."""

    rule: LiftedRule
    since: dt.datetime
    packets: int
    because: str


@dataclass(frozen=True, slots=True)
class LinesRecord:
    """One IP version's lines (bytes), their start, and why they were built."""

    body: bytes
    because: str
    built: dt.datetime


@dataclass(frozen=True, slots=True)
class Pop:
    """A domain's point of presence.

    `places` are servers' numbers by tenants'; `lines` the digests of the present lines; `chosen` is when heavy hitters
    were chosen last.
    """

    name: str
    domain: str
    version: int
    settings: PopSettings
    edges: tuple[HostRecord, ...]
    servers: tuple[PopServer, ...]
    places: Mapping[int, int]
    lines: Mapping[Family, bytes]
    heavy: tuple[HeavyRecord, ...]
    chosen: dt.datetime

    @property
    def serving(self) -> tuple[PopServer, ...]:
        """The servers that may get tenants."""
        return tuple(each for each in self.servers if each.state is ServerState.SERVING)


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets and bytes."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.packets + other.packets, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class EdgeCounts:
    """The counts of an edge's parts so far.

    Heavy hitters by rule number, exceptions and lines by the number of the server, packets to nobody, and those from
    outside with a tenant's address.
    """

    heavy: Mapping[int, Counted]
    exceptions: Mapping[int, Counted]
    lines: Mapping[int, Counted]
    nobody: Counted
    spoofed: Counted
