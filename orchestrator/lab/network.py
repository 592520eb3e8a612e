"""A lab's namespaces, links, addresses and routes, made with pyroute2.

    root ── mgmt ──┐                           169.254.77.x/30: switches reach their controller
                   ovs namespace
    node namespace ─ eth0 ══ port on a bridge  one veth pair a client or endpoint
                   to-host1 ══ up-host1        one veth pair a host, both ends in the ovs namespace; or, where uplinks
                                               are routed, a namespace a host, with its endpoints' ports (`fabric.py`)

A node holds single addresses (/32, /128) and a default route by a link-local gateway that does not exist: the bridge
in front of it answers ARP and neighbour solicitations. Checksum and segmentation offloads are off, for the switch's
datapath runs in user space and would pass on half-made packets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

from pyroute2 import IPRoute, netns
from pyroute2.ethtool.ioctl import IoctlEthtool

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6
from orchestrator.errors import Busy
from orchestrator.lab import namespaces
from orchestrator.lab.layout import Layout
from orchestrator.lab.spec import ROUTER, ClientSpec, EndpointSpec, PopSpec
from orchestrator.policy.addresses import Family, format_address, format_mac

INTERFACE = "eth0"
"""The name of a node's interface inside its namespace."""

_MANAGEMENT = "mgmt"
"""The management link's end inside the switches' namespace."""
_MANAGEMENT_BASE = 0xA9FE4D00  # 169.254.77.0/24, in blocks of four addresses
_OFFLOADS = ("tx-checksumming", "tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload")
_IFA_F_NODAD = 0x02

QUIET_IPV6 = {"accept_ra": "0", "router_solicitations": "0", "dad_transmits": "0"}
"""Kernel settings that keep a node from sending frames that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Management:
    """The link between the root namespace (where the controller listens) and the switches."""

    controller: str
    switches: str

    @classmethod
    def nth_link(cls, block: int) -> Management:
        """The block-th of the 64 links that fit beside each other on one machine."""
        first = _MANAGEMENT_BASE + 4 * block
        return cls(format_address(Family.IPV4, first + 1), format_address(Family.IPV4, first + 2))


def create_namespaces(layout: Layout, spec: PopSpec) -> None:
    """One for the switches, one for each client and endpoint.

    Where uplinks are routed, router and hosts have one, too.
    """
    routed = (ROUTER, *(host.name for host in spec.hosts)) if spec.routed else ()
    for name in (layout.ovs_namespace, *map(layout.namespace, (*(node.name for node in spec.nodes), *routed))):
        namespaces.create(name)
    namespaces.inside(
        layout.ovs_namespace,
        lambda: namespaces.set_kernel({f"net/ipv6/conf/{which}/disable_ipv6": "1" for which in ("all", "default")}),
    )


def create_management(name: str, link: str) -> Management:
    """Join a namespace with the root namespace by the first free pair of addresses.

    `link` is the root's end.
    """
    with IPRoute() as root, descriptor(name) as namespace:
        management = _find_free_block(root)
        root.link("add", ifname=link, kind="veth", peer={"ifname": _MANAGEMENT, "net_ns_fd": namespace})
        _set_up(root, link, management.controller)

    def set_up_other_end() -> None:
        with IPRoute() as inner:
            _set_up(inner, _MANAGEMENT, management.switches)

    namespaces.inside(name, set_up_other_end)
    return management


def _set_up(handle: IPRoute, name: str, address: str) -> None:
    index = _find_index(handle, name)
    handle.addr("add", index=index, address=address, prefixlen=30)
    handle.link("set", index=index, state="up")


def remove_management(layout: Layout) -> None:
    """Remove the root namespace's ends at once.

    Otherwise they would go a moment after the other ends' namespaces.
    """
    with IPRoute() as root:
        for index in _find_management_links(root, layout):
            root.link("del", index=index)


def has_management(layout: Layout) -> bool:
    """Whether the root namespace holds this lab's end of a management link."""
    with IPRoute() as root:
        return bool(_find_management_links(root, layout))


def _find_management_links(root: IPRoute, layout: Layout) -> list[int]:
    names = {link["index"]: str(link.get_attr("IFLA_IFNAME")) for link in root.get_links()}
    first = (layout.firewall_link(), layout.host_link())
    return [index for index, name in names.items() if name == layout.management_link or name.startswith(first)]


def create_links(layout: Layout, spec: PopSpec) -> None:
    """Every veth pair of the switches; nodes get their addresses and routes."""
    if not spec.routed:
        namespaces.inside(layout.ovs_namespace, partial(_create_uplinks, spec))
    behind: dict[str, list[ClientSpec | EndpointSpec]] = {layout.ovs_namespace: [*spec.clients]}
    for endpoint in spec.endpoints:
        behind.setdefault(layout.bridge_namespace(spec.host(endpoint.host)), []).append(endpoint)
    for place, nodes in behind.items():
        namespaces.inside(place, partial(_create_ports, layout, nodes))
    for node in spec.nodes:
        namespaces.inside(layout.namespace(node.name), partial(_configure, node))


def _create_uplinks(spec: PopSpec) -> None:
    """Hosts' uplinks. Called inside the switches' namespace."""
    ports = [port for host in spec.hosts for port in (host.edge_port, host.uplink)]
    with IPRoute() as switches:
        for host in spec.hosts:
            switches.link("add", ifname=host.edge_port, kind="veth", peer={"ifname": host.uplink})
    set_up_ports(*ports)


def _create_ports(layout: Layout, nodes: Sequence[ClientSpec | EndpointSpec]) -> None:
    """The switch's ends, and with them nodes' own.

    Called inside the namespace of the nodes' switch.
    """
    with IPRoute() as switches:
        for node in nodes:
            with descriptor(layout.namespace(node.name)) as namespace:
                peer = {"ifname": INTERFACE, "net_ns_fd": namespace, "address": format_mac(node.mac)}
                switches.link("add", ifname=node.port, kind="veth", peer=peer)
    set_up_ports(*(node.port for node in nodes))


def set_up_ports(*ports: str) -> None:
    """Set up ports of a switch in this namespace."""
    with IPRoute() as switches:
        for name in ports:
            switches.link("set", index=_find_index(switches, name), state="up")
    without_offloads(*ports)


def move_port(port: str, source: str, destination: str) -> None:
    """Move a switch's port to another namespace, and set it up there."""

    def move_link() -> None:
        with IPRoute() as links, descriptor(destination) as there:
            links.link("set", index=_find_index(links, port), net_ns_fd=there)

    namespaces.inside(source, move_link)
    namespaces.inside(destination, partial(set_up_ports, port))


def _configure(node: ClientSpec | EndpointSpec) -> None:
    """Set a node's loopback, addresses and default routes. Called inside its namespace."""
    namespaces.set_kernel({f"net/ipv6/conf/{INTERFACE}/{name}": value for name, value in QUIET_IPV6.items()})
    namespaces.set_kernel({"net/ipv4/ping_group_range": "0 0"})
    without_offloads(INTERFACE)
    with IPRoute() as inner:
        inner.link("set", index=_find_index(inner, "lo"), state="up")
        index = _find_index(inner, INTERFACE)
        inner.link("set", index=index, state="up")
        for prefix in node.addresses:
            if prefix.length == prefix.family.bits and not node.silent:
                address = format_address(prefix.family, prefix.network)
                inner.addr("add", index=index, address=address, prefixlen=prefix.length, flags=_IFA_F_NODAD)
        inner.route("add", dst="0.0.0.0/0", gateway=GATEWAY_IPV4, oif=index, flags=["onlink"])
        inner.route("add", dst="::/0", gateway=GATEWAY_IPV6, oif=index, family=socket.AF_INET6)


def without_offloads(*interfaces: str) -> None:
    """Switch off what a user-space datapath cannot finish. Called inside the interfaces' namespace."""
    with closing(IoctlEthtool()) as device:
        for interface in interfaces:
            device.change_ifname(interface)
            for offload in _OFFLOADS:
                device.set_offload_flag(offload, 0)


@contextmanager
def descriptor(namespace: str) -> Iterator[int]:
    """An open descriptor of a namespace, for netlink messages that name one."""
    descriptor = netns.getnsfd(namespace)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _find_free_block(root: IPRoute) -> Management:
    taken = {message.get_attr("IFA_ADDRESS") for message in root.get_addr(family=socket.AF_INET)}
    for block in range(64):
        management = Management.nth_link(block)
        if management.controller not in taken:
            return management
    raise Busy("all 64 management links of this machine are taken: remove a lab with `aclflow lab down`")


def _find_index(handle: IPRoute, name: str) -> int:
    return int(handle.link_lookup(ifname=name)[0])
