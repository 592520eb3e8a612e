"""Routes to the other servers: by a packet's mark, over the servers' interface.

    mark 0xacf00003 ── rule 1 ──▶ table 11337731 ── default ──▶ 169.254.66.3 by `rehome`

Rules and tables of these numbers are ours alone. A program's rows of table `PEERS` are what there should be.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from orchestrator.compile.nftables.served import MISDIRECTED, REHOME
from orchestrator.compile.servers.programs import PEERS, Peer
from orchestrator.errors import Missing, Refused
from orchestrator.program.flows import Flow, FlowTable

_TABLES = 0xAD0000
_PRIORITY = 1
"""Of our rules: before all that a machine has of itself, but for the table of its own addresses."""
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_MARKS = 0xFFFFFFFF
_MOST = 0xFFFF

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Ways = Mapping[tuple[int, int], Address]
"""The address of a server, by its number and the IP version."""


class Peers:
    """The rules and routes of this network namespace."""

    def write(self, removed: FlowTable, added: FlowTable) -> None:
        """Remove some routes and add others.

        Raises Missing where there is no such interface, Refused.
        """
        gone, come = _read_ways(removed.rows()), _read_ways(added.rows())
        if not gone and not come:
            return
        with _open_kernel() as route:
            for key in gone.keys() - come.keys():
                _take_away(route, *key)
            for key, address in come.items():
                _take_away(route, *key)
                self._add_route(route, *key, address)

    def read(self) -> FlowTable:
        """The ways that there are: rule and route both."""
        found: dict[int, list[Address]] = {}
        with _open_kernel() as route:
            places = route.link_lookup(ifname=REHOME)
            for version, family in _FAMILIES.items():
                rules = {(rule.get_attr("FRA_FWMARK"), rule.get_attr("FRA_TABLE")) for rule in _ours(route, family)}
                for each in route.get_routes(family=family):
                    table, gateway = each.get_attr("RTA_TABLE") or 0, each.get_attr("RTA_GATEWAY")
                    number = table - _TABLES
                    is_ours = 0 < number <= _MOST and (MISDIRECTED | number, table) in rules
                    if is_ours and gateway is not None and each.get_attr("RTA_OIF") in places:
                        found.setdefault(number, []).append(_read_address(version, gateway))
        return FlowTable.of(row for number, addresses in found.items() for row in Peer(number, tuple(addresses)).rows())

    def _add_route(self, route: IPRoute, number: int, version: int, address: Address) -> None:
        places = route.link_lookup(ifname=REHOME)
        if not places:
            raise Missing(f"servers meet at the interface '{REHOME}', which is not here")
        table, family = _TABLES + number, _FAMILIES[version]
        everything = "0.0.0.0/0" if version == 4 else "::/0"
        route.route(
            "add", dst=everything, gateway=str(address), oif=places[0], table=table, flags=["onlink"], family=family
        )
        route.rule("add", fwmark=MISDIRECTED | number, fwmask=_MARKS, table=table, priority=_PRIORITY, family=family)


@contextmanager
def _open_kernel() -> Iterator[IPRoute]:
    try:
        with IPRoute() as route:
            yield route
    except NetlinkError as error:
        raise Refused(f"routes to other servers: {error}") from None


def _take_away(route: IPRoute, number: int, version: int) -> None:
    """Rule and route, wherever the rule leads; none there is fine."""
    family, mark = _FAMILIES[version], MISDIRECTED | number
    for rule in _ours(route, family):
        if rule.get_attr("FRA_FWMARK") == mark:
            leads_to, mask = rule.get_attr("FRA_TABLE"), rule.get_attr("FRA_FWMASK")
            route.rule("del", fwmark=mark, fwmask=mask, table=leads_to, priority=_PRIORITY, family=family)
    route.flush_routes(table=_TABLES + number, family=family)


def _ours(route: IPRoute, family: int) -> Iterator[Any]:
    """Yield the rules at our priority.

    Others, of whatever mark, do not come before a machine's own.
    """
    return (rule for rule in route.get_rules(family=family) if rule.get_attr("FRA_PRIORITY") == _PRIORITY)


def _read_ways(rows: Iterable[Flow]) -> dict[tuple[int, int], Address]:
    mine = (row for row in rows if row.table == PEERS)
    return {
        (int.from_bytes(row.match[1:], "big"), row.match[0]): ipaddress.ip_address(row.instructions) for row in mine
    }


def _read_address(version: int, words: str) -> Address:
    return ipaddress.IPv4Address(words) if version == 4 else ipaddress.IPv6Address(words)
