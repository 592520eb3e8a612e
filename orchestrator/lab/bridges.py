"""A lab's bridges: the edge's, two beside it with a controller each, and the hosts'.

The edge bridge is the routers around the others: the Internet on one side, the WAN with the hosts on the other.

The *spread switch* has firewall VNFs attached. Packets from clients to tenants, and from hosts, meet it before they go
on. The service says who owns which part of the traffic; its controller is `aclflow controller --spreads`.

    edge bridge ─ spread-out ═ sp-out ─┐            ┌─ fl-fw-0 ══ left ─ firewall ─ right ══ fr-fw-0
                                       spread bridge├─ fl-fw-1 ══ ...
    edge bridge ─ spread-in ══ sp-in ──┘            └─ ...

The *edge switch* has firewall servers behind it. Packets of clients meet it, and it sends them straight to the WAN, to
the server that knows their tenant, or nowhere; what servers permit goes to the WAN by itself. Its controller is
`aclflow controller --tier edge`.

    clients ── edge bridge ─ out-pop ═ pop-out ─┐           ┌─ fl-fs1 ══ left ─ server ─ right ══ fr-fs1 ── edge bridge
                                                pop bridge ─┤
    hosts ──── edge bridge ─ wan-pop ═ pop-wan ─┘           └─ fl-fs2 ══ ...

Servers hand packets that are another one's to it over a segment of their own, the bridge `rehome`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyroute2 import IPRoute

from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.hosts.ovs import join_commands
from orchestrator.hosts.switch import prefix_tracking
from orchestrator.lab import namespaces, network, vnf
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import OpenVSwitch, bridge_commands, control_commands
from orchestrator.lab.spec import FirewallSpec, PopSpec

EDGE_BRIDGE = "edge"
_EDGE_DATAPATH = "0000ac1f00000001"
EDGE_NAME = "edge1"
"""The edge switch's name at the service."""
REHOME_BRIDGE = "rehome"
REHOME_INTERFACE = "rehome"
"""The name of a server's interface on that segment, inside the server."""


@dataclass(frozen=True, slots=True)
class SideBridge:
    """A side bridge: name, datapath id, controller port, and patch ports to the edge bridge.

    `joints` maps its own ports to the edge bridge's.
    """

    name: str
    datapath: str
    controller_port: int
    joints: Mapping[str, str]

    def commands(self, controller: str) -> Iterator[Sequence[str]]:
        """Yield `ovs-vsctl` commands for the bridge, its controller's address and its joints."""
        yield from bridge_commands(self.name, self.datapath)
        yield from control_commands(self.name, self._targets(controller, "tcp")[0])
        for inner, outer in self.joints.items():
            yield from _make_patch_commands(self.name, inner, outer)
            yield from _make_patch_commands(EDGE_BRIDGE, outer, inner)

    def redial(self, ovs: OpenVSwitch, controller: str, scheme: str) -> None:
        """Make the bridge connect to its controller at once, over ``tcp`` or ``ssl``; flows stay.

        A target that is written otherwise makes it begin anew. It is never without one: Open vSwitch takes all flows
        away from a bridge that loses its last controller, however it fails.
        """
        plain, bracketed = self._targets(controller, scheme)
        now = ovs.vsctl("get-controller", self.name).strip()
        ovs.vsctl("--no-wait", *join_commands(control_commands(self.name, bracketed if now == plain else plain)))

    def _targets(self, controller: str, scheme: str) -> tuple[str, str]:
        """Return two ways to write where the controller is."""
        return f"{scheme}:{controller}:{self.controller_port}", f"{scheme}:[{controller}]:{self.controller_port}"


def _make_patch_commands(bridge: str, port: str, peer: str) -> list[Sequence[str]]:
    return [("add-port", bridge, port), ("set", "interface", port, "type=patch", f"options:peer={peer}")]


SPREAD_SWITCH = SideBridge("spread", "0000ac1f00000300", 6654, {OUTSIDE_PORT: "spread-out", INSIDE_PORT: "spread-in"})
CLIENTS_TO_SPREAD, HOSTS_TO_SPREAD = SPREAD_SWITCH.joints[OUTSIDE_PORT], SPREAD_SWITCH.joints[INSIDE_PORT]
"""The edge bridge's ports that lead to it."""

POP_SWITCH = SideBridge("pop", "0000ac1f00000400", 6655, {"pop-out": "out-pop", "pop-wan": "wan-pop"})
POP_OUTSIDE_PORT, POP_UPLINK_PORT = POP_SWITCH.joints
CLIENTS_TO_POP = POP_SWITCH.joints[POP_OUTSIDE_PORT]
"""The edge bridge's port that leads to it."""


def make_bridges(spec: PopSpec, controller: tuple[str, int]) -> Iterator[Sequence[str]]:
    """Yield `ovs-vsctl` commands for the edge, bridges beside it, and hosts' bridges, with their ports."""
    yield from bridge_commands(EDGE_BRIDGE, _EDGE_DATAPATH)
    firewalls = (port for firewall in spec.firewalls for port, _, _ in firewall.ports)
    for port in (*spec.inner_ports, *(client.port for client in spec.clients), *firewalls):
        yield "add-port", EDGE_BRIDGE, port
    for host in () if spec.routed else spec.hosts:
        yield from bridge_commands(host.name, host.datapath_id)
        yield from control_commands(host.name, "tcp:{}:{}".format(*controller))
        ports = (endpoint.port for endpoint in spec.endpoints if endpoint.host == host.name)
        for port in (host.uplink, *ports):
            yield "add-port", host.name, port
        yield from prefix_tracking(host.name, {})
    if spec.servers:
        yield from _make_pop_switch(spec, controller[0])
    if spec.spread:
        yield from SPREAD_SWITCH.commands(controller[0])


def _make_pop_switch(spec: PopSpec, controller: str) -> Iterator[Sequence[str]]:
    """Yield commands for the edge switch with its servers, and the segment between servers."""
    yield from POP_SWITCH.commands(controller)
    yield "add-br", REHOME_BRIDGE
    yield "set", "bridge", REHOME_BRIDGE, "datapath_type=netdev"
    for server in spec.servers:
        (left, _, _), (right, _, _) = server.ports
        for bridge, port in ((POP_SWITCH.name, left), (EDGE_BRIDGE, right), (REHOME_BRIDGE, server.rehome_port)):
            yield "add-port", bridge, port


def attach_firewall(ovs: OpenVSwitch, ports: tuple[str, ...]) -> None:
    """Give the spread switch a firewall's interfaces."""
    ovs.vsctl(*join_commands(("--may-exist", "add-port", SPREAD_SWITCH.name, port) for port in ports))


def detach_firewall(ovs: OpenVSwitch, ports: tuple[str, ...]) -> None:
    """Take a firewall's interfaces from the spread switch; they may be gone already."""
    ovs.vsctl(*join_commands(("--if-exists", "del-port", SPREAD_SWITCH.name, port) for port in ports))


def join_segment(layout: Layout, server: FirewallSpec) -> None:
    """Give a server, whose namespace there is, its interface on the segment of servers."""
    name = layout.namespace(server.name)
    namespaces.inside(layout.ovs_namespace, partial(_create_port, name, server.rehome_port))
    namespaces.inside(name, partial(_set_addresses, server.number))


def _create_port(namespace: str, port: str) -> None:
    """The link to the segment's bridge. Called inside the switches' namespace."""
    with IPRoute() as switches, network.descriptor(namespace) as descriptor:
        peer = {"ifname": REHOME_INTERFACE, "net_ns_fd": descriptor}
        switches.link("add", ifname=port, kind="veth", peer=peer)
        switches.link("set", index=switches.link_lookup(ifname=port)[0], state="up")
    network.without_offloads(port)


def _set_addresses(number: int) -> None:
    """Set a server's addresses and its route back. Called inside its namespace."""
    network.without_offloads(REHOME_INTERFACE)
    with IPRoute() as inner:
        place = inner.link_lookup(ifname=REHOME_INTERFACE)[0]
        inner.link("set", index=place, state="up")
        for address, length in rehome_addresses(number):
            inner.addr("add", index=place, address=address, prefixlen=length)
        vnf.route_what_enters(inner, REHOME_INTERFACE)


def rehome_addresses(number: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return a server's IPv4 and IPv6 address on the segment, each with its prefix length."""
    return (f"169.254.66.{number}", 24), (f"fd66::{number:x}", 64)
