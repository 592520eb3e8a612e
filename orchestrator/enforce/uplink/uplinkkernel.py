"""The kernel's side of a routed uplink, in this network namespace: port, settings, neighbours, routes.

Endpoints of a host are ranked: just arrived, settled, or not heard yet.

    port plugged ──▶ UNHEARD ── first frame ──▶ ARRIVED ── some seconds later ──▶ SETTLED

A live migration plugs an instance's port on its next host long before the instance runs there, so for a while two hosts
deliver to one address. Nobody tells them which is right, but a guest that begins to run on a host speaks there at
once (its hypervisor does so for it), and one that is still being copied cannot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.enforce.kernelobjects import explain_errors
from orchestrator.enforce.uplink.kernelport import ONLINK, KernelPort, read_port, repair_port
from orchestrator.enforce.uplink.routeduplink import NEXT_HOPS, ROUTE_PROTOCOL
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import Family, Prefix, format_address

_MAIN_TABLE = 254
_GONE = (3, 19)
"""ESRCH, ENODEV: a route or port that went meanwhile."""
_REFUSED = "the kernel refuses to route to the port"
_STRICT = 1
"""Of `rp_filter`: a packet leaves the switch only by an address that leads back into it."""

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


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """A route of ours: to what, through which interface, by which gateway, before which others."""

    prefix: Prefix
    index: int
    gateway: str
    metric: int


@dataclass(frozen=True, slots=True)
class KernelState:
    """The kernel's state of an uplink."""

    port: KernelPort
    routes: frozenset[KernelRoute]
    """Of our protocol number, wherever they lead."""

    @property
    def prefixes(self) -> frozenset[Prefix]:
        """The prefixes routed to the port, and so announced."""
        right = {_make_route(route.prefix, self.port.index, rank) for route in self.routes for rank in Rank}
        return _list_prefixes(self.routes & right)


@dataclass(frozen=True, slots=True)
class KernelChange:
    """Repairs of the kernel: routes added and removed, and port settings set right.

    `repaired` says in words what of the port was not as it must be.
    """

    added: frozenset[Prefix] = frozenset()
    removed: frozenset[Prefix] = frozenset()
    repaired: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.repaired)


@dataclass(frozen=True, slots=True)
class UplinkKernel:
    """The kernel's objects of one port."""

    port: str
    system: Path = Path("/proc/sys")

    def look(self) -> KernelState:
        """Read everything back. Raises Refused where the kernel does not let us."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            return _read_state(kernel, self.port)

    def follow(self, ranked: Mapping[Prefix, Rank]) -> KernelChange:
        """Make the kernel route to exactly these prefixes; return the repairs.

        The port and neighbours that routes need are repaired too. Routes that must not be go first; one that gets
        another rank goes last, so that its prefix is routed all the time. Raises Unreachable where the port is not
        there (yet) or has another MAC address than the gateway's: then nothing is routed to it.
        """
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            seen = _read_state(kernel, self.port)
            trouble = _describe_trouble(seen.port)
            wanted = frozenset(
                () if trouble else (_make_route(prefix, seen.port.index, ranked[prefix]) for prefix in ranked)
            )
            removed = seen.routes - wanted
            replaced = frozenset(route for route in removed if route.prefix in ranked and not trouble)
            for route in removed - replaced:
                _forget(kernel, route)
            if trouble:
                raise Unreachable(trouble)
            repaired = tuple(repair_port(kernel, seen.port, _STRICT, self.system))
            held = _read_state(kernel, self.port).routes if repaired else seen.routes - removed
            added = wanted - held
            for route in added:
                _add_route(kernel, route)
            for route in replaced:
                _forget(kernel, route)
            return KernelChange(_list_prefixes(added), _list_prefixes(removed), repaired)

    def close(self) -> None:
        """Take routes and neighbours away; settings stay."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            seen = _read_state(kernel, self.port)
            for route in seen.routes:
                _forget(kernel, route)
            for family in seen.port.neighbours:
                kernel.neigh("del", dst=NEXT_HOPS[family], ifindex=seen.port.index, family=family.socket_family)


def _describe_trouble(port: KernelPort) -> str:
    if port.trouble and port.index is not None:
        return f"{port.trouble}: `aclflow host configure` sets it"
    return port.trouble


def _read_state(kernel: IPRoute, port: str) -> KernelState:
    return KernelState(read_port(kernel, port), frozenset(_read_routes(kernel)))


def _read_routes(kernel: IPRoute) -> Iterator[KernelRoute]:
    for family in Family:
        for route in kernel.get_routes(family=family.socket_family, table=_MAIN_TABLE, proto=ROUTE_PROTOCOL):
            address = route.get_attr("RTA_DST") or format_address(family, 0)
            yield KernelRoute(
                Prefix.parse(f"{address}/{route['dst_len']}"),
                route.get_attr("RTA_OIF") or 0,
                route.get_attr("RTA_GATEWAY") or "",
                route.get_attr("RTA_PRIORITY") or 0,
            )


def _make_route(prefix: Prefix, index: int | None, rank: Rank) -> KernelRoute:
    return KernelRoute(prefix, index or 0, NEXT_HOPS[prefix.family], rank)


def _list_prefixes(routes: Iterable[KernelRoute]) -> frozenset[Prefix]:
    return frozenset(route.prefix for route in routes)


def _add_route(kernel: IPRoute, route: KernelRoute) -> None:
    kernel.route(
        "replace",
        family=route.prefix.family.socket_family,
        dst=str(route.prefix),
        gateway=route.gateway,
        oif=route.index,
        priority=route.metric,
        proto=ROUTE_PROTOCOL,
        table=_MAIN_TABLE,
        flags=ONLINK,
    )


def _forget(kernel: IPRoute, route: KernelRoute) -> None:
    """Delete a route; one that is gone already is none."""
    way = {"gateway": route.gateway} if route.gateway else {}
    try:
        kernel.route(
            "del",
            family=route.prefix.family.socket_family,
            dst=str(route.prefix),
            priority=route.metric,
            proto=ROUTE_PROTOCOL,
            table=_MAIN_TABLE,
            **({"oif": route.index} if route.index else {}),
            **way,
        )
    except NetlinkError as error:
        if error.code not in _GONE:
            raise
