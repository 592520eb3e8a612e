"""The kernel's side of a host's services: the port, its addresses, the way back.

It is that of this network namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from orchestrator.compile.pipelines.host import GATEWAY_MAC, SERVICES_MAC
from orchestrator.enforce.kernelobjects import explain_errors, set_kernel
from orchestrator.enforce.services.hostservices import RESOLVER
from orchestrator.enforce.uplink.routeduplink import NEXT_HOPS, ROUTE_PROTOCOL
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import Family, format_mac

TABLE = ROUTE_PROTOCOL
"""The routing table by which the resolver answers: its answers go back by the port, past the uplink."""
_RULE_AT = 172
_PERMANENT, _UP, _ONLINK, _NO_DAD = 0x80, 0x1, 4, 0x02
_GONE = (2, 3, 19, 99)
"""ENOENT, ESRCH, ENODEV, EADDRNOTAVAIL: something that went meanwhile."""
_REFUSED = "the kernel refuses what the services need"
_MAC, _GATEWAY = format_mac(SERVICES_MAC), format_mac(GATEWAY_MAC)
_SETTINGS = {
    "net/ipv4/conf/{port}/rp_filter": "1", "net/ipv4/conf/{port}/arp_ignore": "8",
    "net/ipv4/conf/{port}/send_redirects": "0", "net/ipv4/conf/{port}/accept_redirects": "0",
    "net/ipv6/conf/{port}/accept_ra": "0", "net/ipv6/conf/{port}/accept_dad": "0",
    "net/ipv6/conf/{port}/accept_redirects": "0", "net/ipv6/conf/{port}/autoconf": "0",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServicesKernel:
    """The kernel's objects of one port."""

    port: str
    system: Path = Path("/proc/sys")

    def follow(self) -> tuple[str, ...]:
        """Have all as it must be; return in words what was not so.

        Raises Unreachable where the port is not there (yet) or has another MAC address.
        """
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            index = next(iter(kernel.link_lookup(ifname=self.port)), None)
            if index is None:
                raise Unreachable(
                    f"there is no interface '{self.port}' here: does the switch run, and has it that port?"
                )
            [link] = kernel.get_links(index)
            if link.get_attr("IFLA_ADDRESS") != _MAC:
                raise Unreachable(
                    f"the interface '{self.port}' has the MAC address {link.get_attr('IFLA_ADDRESS')}, not the "
                    f"services' {_MAC}: `aclflow host configure` sets it"
                )
            return tuple(self._repair_kernel(kernel, index, is_up=bool(link["flags"] & _UP)))

    def missing(self) -> list[str]:
        """Say in words what the services lack; changes nothing."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            index = next(iter(kernel.link_lookup(ifname=self.port)), None)
            if index is None:
                return [f"there is no interface '{self.port}' here"]
            lacks = [
                f"{self.port} has no address {RESOLVER[family]}, or no way back from it"
                for family in Family
                if RESOLVER[family] not in _list_addresses(kernel, index, family)
                or not (_has_neighbour(kernel, index, family) and _has_route(kernel, index, family))
                or not _has_rule(kernel, family)
            ]
            return [f"{each}: does `aclflow host services run` run?" for each in lacks]

    def close(self) -> None:
        """Take addresses, rules and routes away; the port is the switch's."""
        with explain_errors(_REFUSED, _GONE), IPRoute(strict_check=True) as kernel:
            index = next(iter(kernel.link_lookup(ifname=self.port)), None)
            for family in Family:
                while _has_rule(kernel, family):
                    kernel.rule("del", **_make_rule(family))
                if index is not None:
                    _forget_service(kernel, index, family)

    def _repair_kernel(self, kernel: IPRoute, index: int, *, is_up: bool) -> Iterator[str]:
        for name, value in _SETTINGS.items():
            path = self.system / name.format(port=self.port)
            if set_kernel(path, value, place=str(path)):
                yield str(path.relative_to(self.system))
        if not is_up:
            kernel.link("set", index=index, state="up")
            yield f"{self.port} was down"
        for family in Family:
            socket_family, next_hop = family.socket_family, NEXT_HOPS[family]
            if RESOLVER[family] not in _list_addresses(kernel, index, family):
                flags = {"flags": _NO_DAD} if family is Family.IPV6 else {}
                kernel.addr("replace", index=index, address=RESOLVER[family], prefixlen=family.bits, **flags)
                yield f"address {RESOLVER[family]}"
            if not _has_neighbour(kernel, index, family):
                kernel.neigh(
                    "replace", dst=next_hop, lladdr=_GATEWAY, ifindex=index, state=_PERMANENT, family=socket_family
                )
                yield f"neighbour {next_hop}"
            if not _has_route(kernel, index, family):
                kernel.route("replace", **_make_route(index, family))
                yield f"route back, IPv{family.value}"
            if not _has_rule(kernel, family):
                kernel.rule("add", **_make_rule(family))
                yield f"rule of {RESOLVER[family]}"


def _list_addresses(kernel: IPRoute, index: int, family: Family) -> set[str]:
    return {each.get_attr("IFA_ADDRESS") for each in kernel.get_addr(family=family.socket_family, index=index)}


def _has_neighbour(kernel: IPRoute, index: int, family: Family) -> bool:
    return any(
        each["state"] == _PERMANENT
        and each.get_attr("NDA_DST") == NEXT_HOPS[family]
        and each.get_attr("NDA_LLADDR") == _GATEWAY
        for each in kernel.get_neighbours(family=family.socket_family, ifindex=index)
    )


def _has_route(kernel: IPRoute, index: int, family: Family) -> bool:
    return any(
        not each["dst_len"] and each.get_attr("RTA_OIF") == index and each.get_attr("RTA_GATEWAY") == NEXT_HOPS[family]
        for each in kernel.get_routes(family=family.socket_family, table=TABLE)
    )


def _has_rule(kernel: IPRoute, family: Family) -> bool:
    return any(
        each.get_attr("FRA_SRC") == RESOLVER[family] and each.get_attr("FRA_TABLE") == TABLE
        for each in kernel.get_rules(family=family.socket_family)
    )


def _make_route(index: int, family: Family) -> dict[str, object]:
    whole = "0.0.0.0/0" if family is Family.IPV4 else "::/0"
    return {
        "family": family.socket_family, "dst": whole, "gateway": NEXT_HOPS[family], "oif": index, "table": TABLE,
        "proto": ROUTE_PROTOCOL, "flags": _ONLINK,
    }  # fmt: skip


def _make_rule(family: Family) -> dict[str, object]:
    return {
        "family": family.socket_family, "src": RESOLVER[family], "src_len": family.bits, "table": TABLE,
        "priority": _RULE_AT,
    }  # fmt: skip


def _forget_service(kernel: IPRoute, index: int, family: Family) -> None:
    steps: tuple[tuple[str, dict[str, object]], ...] = (
        ("route", _make_route(index, family)),
        ("neigh", {"dst": NEXT_HOPS[family], "ifindex": index, "family": family.socket_family}),
        ("addr", {"index": index, "address": RESOLVER[family], "prefixlen": family.bits}),
    )
    for kind, words in steps:
        try:
            getattr(kernel, kind)("del", **words)
        except NetlinkError as error:
            if error.code not in _GONE:
                raise
