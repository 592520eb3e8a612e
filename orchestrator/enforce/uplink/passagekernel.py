"""The kernel's side of a passage, in this network namespace: rules, routes, neighbours and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.enforce.kernelobjects import explain_errors
from orchestrator.enforce.uplink.kernelport import ONLINK, KernelPort, read_port, repair_port
from orchestrator.enforce.uplink.passage import TABLES, Passage
from orchestrator.enforce.uplink.routeduplink import NEXT_HOPS, ROUTE_PROTOCOL
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import Family, Prefix, format_address

_PRIORITY = 1720
"""Of our rules: before the main table's, after the local one's."""
_METRIC, _LAST_METRIC = 10, 4_000_000_000
_GONE = (2, 3, 17, 19)
"""ENOENT, ESRCH, EEXIST, ENODEV: somebody was there first."""
_REFUSED = "the kernel refuses to lead packets into the spreading switch"
_UNICAST = 1
"""RTN_UNICAST, the type of a route that leads somewhere."""
_LOOSE = 2
"""Of `rp_filter`: what left the firewalls comes in by another port than its sender is routed to."""


@dataclass(frozen=True, slots=True)
class PassageRule:
    """A rule: what came in by an interface asks a table."""

    family: Family
    came_by: str
    table: int


@dataclass(frozen=True, slots=True)
class PassageRoute:
    """A route in a table: to a port of the switch, or to nowhere (index 0)."""

    table: int
    prefix: Prefix
    index: int


@dataclass(frozen=True, slots=True)
class PassageKernel:
    """The kernel's objects of one passage."""

    passage: Passage
    system: Path = Path("/proc/sys")

    def follow(self) -> tuple[str, ...]:
        """Make the kernel lead packets as declared; return what was not so, in words.

        Rules and routes to nowhere stand whether the switch's ports are there or not. Raises Unreachable, after that,
        where a port is not there (yet) or has another MAC address than the gateway's.
        """
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            seen = [read_port(kernel, port) for port in self.passage.ports]
            repaired = [
                word for port in seen if not port.trouble for word in repair_port(kernel, port, _LOOSE, self.system)
            ]
            repaired += self._repair_ways(kernel, _index_sound(seen))
            troubles = [port.trouble for port in seen if port.trouble]
            if troubles:
                raise Unreachable("; ".join(troubles))
            return tuple(repaired)

    def shut(self) -> None:
        """Let nothing pass: what comes in on either side is led to nowhere."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            tuple(self._repair_ways(kernel, {}))

    def look(self) -> frozenset[str]:
        """Return the ports that packets are led to now."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            ports = _index_sound(read_port(kernel, port) for port in self.passage.ports)
            rules, routes = frozenset(_read_rules(kernel)), frozenset(_read_routes(kernel))
            if not frozenset(self._list_rules()) <= rules:
                return frozenset()
            wanted = {port: frozenset(self._list_routes({port: index})) for port, index in ports.items()}
            return frozenset(port for port, each in wanted.items() if each <= routes)

    def _repair_ways(self, kernel: IPRoute, ports: Mapping[str, int]) -> Iterator[str]:
        """Bring rules and routes to what is declared, for the ports that are there; yield what was otherwise.

        A way is shut before its rule leads to it, and opened last.
        """
        rules, routes = frozenset(self._list_rules()), frozenset(self._list_routes(ports))
        held_rules, held = frozenset(_read_rules(kernel)), frozenset(_read_routes(kernel))
        shut = frozenset(route for route in routes - held if not route.index)
        for route in (*shut, *(route for route in held - routes if route.index)):
            _change_route(kernel, "replace" if route in shut else "del", route)
            yield f"{'unreachable' if route in shut else 'stray'} route to {route.prefix}"
        for rule in rules - held_rules:
            _change_rule(kernel, "add", rule)
            yield f"rule for {rule.came_by}"
        for rule in held_rules - rules:
            _change_rule(kernel, "del", rule)
            yield f"stray rule for {rule.came_by}"
        for route in held - routes:
            if not route.index:
                _change_route(kernel, "del", route)
                yield f"stray route to {route.prefix}"
        for route in routes - held:
            if route.index:
                _change_route(kernel, "replace", route)
                yield f"route to {route.prefix}"

    def _list_rules(self) -> Iterator[PassageRule]:
        for way in self.passage.ways:
            for family in Family:
                for name in way.came_by:
                    yield PassageRule(family, name, way.table)

    def _list_routes(self, ports: Mapping[str, int]) -> Iterator[PassageRoute]:
        for way in self.passage.ways:
            for prefix in way.prefixes:
                yield PassageRoute(way.table, prefix, 0)
                if way.port in ports:
                    yield PassageRoute(way.table, prefix, ports[way.port])


def _index_sound(ports: Iterable[KernelPort]) -> dict[str, int]:
    """Return the numbers of the ports that packets can be routed to, by name."""
    return {port.name: port.index for port in ports if port.index is not None and not port.trouble}


def remove_passage() -> None:
    """Take the rules and routes of any passage away; settings and guard stay. Raises Refused."""
    with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
        for rule in frozenset(_read_rules(kernel)):
            _change_rule(kernel, "del", rule)
        for route in frozenset(_read_routes(kernel)):
            _change_route(kernel, "del", route)


def _read_rules(kernel: IPRoute) -> Iterator[PassageRule]:
    """Yield the rules that bear our priority and protocol number."""
    for family in Family:
        for rule in kernel.get_rules(family=family.socket_family):
            is_ours = (rule.get_attr("FRA_PRIORITY"), rule.get_attr("FRA_PROTOCOL")) == (_PRIORITY, ROUTE_PROTOCOL)
            if is_ours:
                yield PassageRule(family, rule.get_attr("FRA_IIFNAME") or "", rule.get_attr("FRA_TABLE") or 0)


def _read_routes(kernel: IPRoute) -> Iterator[PassageRoute]:
    """Yield the routes of our tables that bear our protocol number."""
    for family in Family:
        for table in TABLES:
            for route in kernel.get_routes(family=family.socket_family, table=table, proto=ROUTE_PROTOCOL):
                address = route.get_attr("RTA_DST") or format_address(family, 0)
                index = (route.get_attr("RTA_OIF") or 0) if route["type"] == _UNICAST else 0
                yield PassageRoute(table, Prefix.parse(f"{address}/{route['dst_len']}"), index)


def _change_route(kernel: IPRoute, how: str, route: PassageRoute) -> None:
    """Add or delete a route; one that is gone already is none."""
    family = route.prefix.family
    led = {"gateway": NEXT_HOPS[family], "oif": route.index, "flags": ONLINK, "priority": _METRIC}
    nowhere = {"type": "unreachable", "priority": _LAST_METRIC}
    try:
        kernel.route(
            how, family=family.socket_family, dst=str(route.prefix), table=route.table, proto=ROUTE_PROTOCOL,
            **(led if route.index else nowhere),
        )  # fmt: skip
    except NetlinkError as error:
        if error.code not in _GONE:
            raise


def _change_rule(kernel: IPRoute, how: str, rule: PassageRule) -> None:
    """Add or delete a rule; one that is gone already is none."""
    try:
        kernel.rule(
            how, family=rule.family.socket_family, iifname=rule.came_by, table=rule.table, priority=_PRIORITY,
            protocol=ROUTE_PROTOCOL,
        )  # fmt: skip
    except NetlinkError as error:
        if error.code not in _GONE:
            raise
