"""An internal port of a switch that the kernel routes to: what it must be, and the gateway's neighbours behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyroute2 import IPRoute

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.kernelobjects import set_kernel
from orchestrator.enforce.uplink.routeduplink import NEXT_HOPS
from orchestrator.policy.addresses import Family, format_mac

ONLINK = 4
"""RTNH_F_ONLINK: the gateway of a route is believed to be behind the port, though no address there says so."""
_PERMANENT, _UP = 0x80, 0x1
_GATEWAY = format_mac(GATEWAY_MAC)
_FORWARDING = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
_SETTINGS = {
    "net/ipv4/conf/{port}/send_redirects": "0", "net/ipv4/conf/{port}/arp_ignore": "8",
    "net/ipv4/conf/{port}/accept_redirects": "0", "net/ipv6/conf/{port}/accept_ra": "0",
    "net/ipv6/conf/{port}/accept_dad": "0", "net/ipv6/conf/{port}/accept_redirects": "0",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelPort:
    """The kernel's state of a port. `index` is None where there is none."""

    name: str
    index: int | None
    is_up: bool = False
    mac: str = ""
    neighbours: frozenset[Family] = frozenset()
    """The IP versions whose gateway is there to stay, with the right MAC address."""

    @property
    def trouble(self) -> str:
        """What keeps packets from being routed to it, in words; empty where nothing does."""
        if self.index is None:
            return f"there is no interface '{self.name}' here: does the switch run, and has it that port?"
        if self.mac != _GATEWAY:
            return f"the interface '{self.name}' has the MAC address {self.mac}, not the gateway's {_GATEWAY}"
        return ""


def read_port(kernel: IPRoute, name: str) -> KernelPort:
    """Read a port and its neighbours back."""
    index = next(iter(kernel.link_lookup(ifname=name)), None)
    if index is None:
        return KernelPort(name, None)
    [link] = kernel.get_links(index)
    neighbours = frozenset(
        family
        for family in Family
        for neighbour in kernel.get_neighbours(family=family.socket_family, ifindex=index)
        if neighbour["state"] == _PERMANENT
        and neighbour.get_attr("NDA_DST") == NEXT_HOPS[family]
        and neighbour.get_attr("NDA_LLADDR") == _GATEWAY
    )
    return KernelPort(name, index, bool(link["flags"] & _UP), link.get_attr("IFLA_ADDRESS"), neighbours)


def repair_port(kernel: IPRoute, port: KernelPort, rp_filter: int, system: Path) -> Iterator[str]:
    """Set what must be before a route leads to a port; yield what was otherwise.

    `rp_filter` is the kernel's: 1 (strict) or 2 (loose). `system` is where its settings are, /proc/sys.
    """
    reverse = {"net/ipv4/conf/{port}/rp_filter": str(rp_filter)}
    settings = {name.format(port=port.name): value for name, value in {**reverse, **_SETTINGS}.items()}
    for name, value in {**settings, **_FORWARDING}.items():
        if set_kernel(system / name, value, place=name):
            yield name
    if not port.is_up:
        kernel.link("set", index=port.index, state="up")
        yield f"{port.name} was down"
    for family in sorted(frozenset(Family) - port.neighbours):
        kernel.neigh(
            "replace",
            dst=NEXT_HOPS[family],
            lladdr=_GATEWAY,
            ifindex=port.index,
            state=_PERMANENT,
            family=family.socket_family,
        )
        yield f"neighbour {NEXT_HOPS[family]}"
