"""A firewall VNF in the lab's path: a routing namespace with an agent inside.

    edge bridge ══ left ─ firewall ─ right ══ edge bridge        what clients send to tenants enters on the left,
                          │                                      what hosts send enters on the right
    root ═══ fw0 ════ mgmt                                       the agent's way to the service

The edge steers (`edge.py`); the firewall routes by tables of its own for what enters left or right, so that nobody's
packets find the way to the service. It does not forward before its agent says so.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial

from pyroute2 import IPRoute, netns

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6, GATEWAY_MAC
from orchestrator.lab import namespaces, network
from orchestrator.lab.layout import Layout
from orchestrator.lab.network import Management
from orchestrator.lab.spec import LEFT, RIGHT, PopSpec
from orchestrator.policy.addresses import Family, Prefix, format_mac

Ports = tuple[tuple[str, str, int], ...]
"""A firewall's links: the switches' interface, the one inside, and the MAC address there; left, then right."""

_DATA_TABLE = 100
_FAMILIES = {Family.IPV4: (socket.AF_INET, GATEWAY_IPV4), Family.IPV6: (socket.AF_INET6, GATEWAY_IPV6)}
_EVERYTHING = {Family.IPV4: "0.0.0.0/0", Family.IPV6: "::/0"}
_QUIET = {
    "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv6/conf/default/accept_ra": "0", "net/ipv6/conf/default/dad_transmits": "0",
}  # fmt: skip


def create(layout: Layout, spec: PopSpec, service: Management) -> None:
    """Create every firewall's namespace, links and routes.

    The service listens on the root end of `service`.
    """
    for firewall in spec.filters:
        name = layout.namespace(firewall.name)
        create_one(layout, spec, service, name, firewall.ports, layout.firewall_link(firewall.number))


def create_one(layout: Layout, spec: PopSpec, service: Management, name: str, ports: Ports, link: str) -> Management:
    """Create one firewall's namespace, links to the switches, and routes.

    Returns the link of its agent; `link` is its root end.
    """
    namespaces.create(name)
    namespaces.inside(name, lambda: namespaces.set_kernel(_QUIET))
    namespaces.inside(layout.ovs_namespace, partial(_create_ports, name, ports))
    mine = network.create_management(name, link)
    namespaces.inside(name, partial(_configure, spec, mine, service))
    return mine


def _create_ports(namespace: str, ports: Ports) -> None:
    """The switches' ends, and with them the firewall's. Called inside the switches' namespace."""
    with IPRoute() as switches:
        descriptor = netns.getnsfd(namespace)
        try:
            for port, inner, mac in ports:
                peer = {"ifname": inner, "net_ns_fd": descriptor, "address": format_mac(mac)}
                switches.link("add", ifname=port, kind="veth", peer=peer)
                switches.link("set", index=switches.link_lookup(ifname=port)[0], state="up")
        finally:
            os.close(descriptor)
    network.without_offloads(*(port for port, _, _ in ports))


def _configure(spec: PopSpec, mine: Management, service: Management) -> None:
    """Neighbours, rules and routes. Called inside the firewall's namespace."""
    network.without_offloads(LEFT, RIGHT)
    with IPRoute() as inner:
        inner.link("set", index=inner.link_lookup(ifname="lo")[0], state="up")
        places = {name: inner.link_lookup(ifname=name)[0] for name in (LEFT, RIGHT)}
        for name, place in places.items():
            inner.link("set", index=place, state="up")
            for family, gateway in _FAMILIES.values():
                mac = format_mac(GATEWAY_MAC)
                inner.neigh("add", dst=gateway, lladdr=mac, ifindex=place, state="permanent", family=family)
            route_what_enters(inner, name)
        for version, prefix, name in _routes(spec):
            family, gateway = _FAMILIES[version]
            inner.route(
                "add", dst=prefix, gateway=gateway, oif=places[name], flags=["onlink"], table=_DATA_TABLE, family=family
            )
        if mine.controller != service.controller:
            inner.route("add", dst=f"{service.controller}/32", gateway=mine.controller)


def route_what_enters(inner: IPRoute, name: str) -> None:
    """Route packets that enter by an interface by the firewall's own tables.

    Called inside its namespace.
    """
    for family, _ in _FAMILIES.values():
        inner.rule("add", iifname=name, table=_DATA_TABLE, priority=_DATA_TABLE, family=family)


def _routes(spec: PopSpec) -> Iterator[tuple[Family, str, str]]:
    """The tenants are on the right, everybody else on the left."""
    for version, everything in _EVERYTHING.items():
        owned = [prefix for tenant in spec.tenants for prefix in tenant.prefixes if prefix.family is version]
        if not any(prefix.length == 0 for prefix in owned):
            yield version, everything, LEFT
        yield from ((version, str(prefix), RIGHT) for prefix in owned if _is_widest(prefix, owned))


def _is_widest(prefix: Prefix, among: list[Prefix]) -> bool:
    return not any(other.contains(prefix) and other != prefix for other in among)
