"""The segment on which firewall servers hand each other packets of other servers' tenants."""

from __future__ import annotations

from functools import partial

from pyroute2 import IPRoute

from orchestrator.lab import namespaces, network, vnf
from orchestrator.lab.layout import Layout
from orchestrator.lab.popswitch import REHOME_INTERFACE, rehome_addresses
from orchestrator.lab.spec import FirewallSpec


def join(layout: Layout, server: FirewallSpec) -> None:
    """Give a server, whose namespace there is, its interface on the segment."""
    name = layout.namespace(server.name)
    namespaces.inside(layout.ovs_namespace, partial(_create_port, name, server.rehome_port))
    namespaces.inside(name, partial(_address, server.number))


def _create_port(namespace: str, port: str) -> None:
    """The link to the segment's bridge. Called inside the switches' namespace."""
    with IPRoute() as switches, network.descriptor(namespace) as descriptor:
        peer = {"ifname": REHOME_INTERFACE, "net_ns_fd": descriptor}
        switches.link("add", ifname=port, kind="veth", peer=peer)
        switches.link("set", index=switches.link_lookup(ifname=port)[0], state="up")
    network.without_offloads(port)


def _address(number: int) -> None:
    """Its addresses there, and where what comes from there goes. Called inside the server's namespace."""
    network.without_offloads(REHOME_INTERFACE)
    with IPRoute() as inner:
        place = inner.link_lookup(ifname=REHOME_INTERFACE)[0]
        inner.link("set", index=place, state="up")
        for address, length in rehome_addresses(number):
            inner.addr("add", index=place, address=address, prefixlen=length)
        vnf.route_what_enters(inner, REHOME_INTERFACE)
