"""What lies between machines of a domain: clients outside, tenants' endpoints inside, and a switch that steers.

    alice ─────┐                             ┌── fw1 ──┐                 ┌── host1 ══ web1 (shop)
               ├─ fabric: `outside` of edge1 ┤         ├ `right`: fabric ┤
    mallory ───┘                             └── fw2 ──┘                 └── host2 ══ db1 (shop)

The edge switch says which firewall a packet goes through. The fabric knows no policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from deployment.image import run
from deployment.machines import Machines

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_MAC
from orchestrator.lab import namespaces, network
from orchestrator.lab.ovs import OpenVSwitch
from orchestrator.lab.processes import Process, stop
from orchestrator.policy.addresses import format_mac

GATEWAY = format_mac(GATEWAY_MAC)
BRIDGE = "fabric"
SHOP = "198.51.100.0/24"


@dataclass(frozen=True)
class Node:
    """A client or an endpoint, in a namespace of its own."""

    name: str
    address: str
    mac: str
    through: str
    """The edge switch of a client, the host of an endpoint."""


ALICE = Node("alice", "192.0.2.10", "0a:00:00:00:01:01", "edge1")
MALLORY = Node("mallory", "192.0.2.66", "0a:00:00:00:01:02", "edge1")
WEB1 = Node("web1", "198.51.100.10", "0a:00:00:00:02:01", "host1")
DB1 = Node("db1", "198.51.100.20", "0a:00:00:00:02:02", "host2")
DB3 = Node("db3", "198.51.100.30", "0a:00:00:00:02:03", "host3")
"""On the host that is onboarded over REST."""
CLIENTS, ENDPOINTS = (ALICE, MALLORY), (WEB1, DB1)
LEFT_MACS = {"fw1": "0a:00:00:00:03:01", "fw2": "0a:00:00:00:03:02"}
RIGHT_MACS = {"fw1": "0a:00:00:00:04:01", "fw2": "0a:00:00:00:04:02"}


class Fabric:
    """The switch in the namespace `net`, and everything on its ports but the machines themselves."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._prefix = machines.prefix
        self._net = f"{machines.prefix}net"
        directory = machines.directory / "fabric"
        directory.mkdir()
        self._ovs = OpenVSwitch(directory / "ovs", self._net, mark=directory, logs=directory)
        self._ovs.create()
        self._processes: list[Process] = [self._ovs.start_database(), self._ovs.start_switch()]
        words = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        self._ovs.vsctl(*words, "protocols=OpenFlow15")
        for client in CLIENTS:
            self._make_node(client)
            self._plug(f"c-{client.name}", self.namespace(client), "eth0", client.mac)
            self._address(client)

    def close(self) -> None:
        """End the switch."""
        stop(self._processes)

    def namespace(self, node: Node) -> str:
        return f"{self._prefix}{node.name}"

    def connect_firewall(self, name: str) -> None:
        """Give a machine its two legs, and routes through it."""
        inside = self._machines[name].namespace
        self._plug(f"l-{name}", inside, "left", LEFT_MACS[name])
        self._plug(f"r-{name}", inside, "right", RIGHT_MACS[name])
        for leg, target in (("left", "192.0.2.0/24"), ("right", SHOP)):
            ip = ("ip", "-n", inside)
            run(*ip, "neigh", "replace", GATEWAY_IPV4, "lladdr", GATEWAY, "dev", leg, "nud", "permanent")
            run(*ip, "route", "replace", target, "via", GATEWAY_IPV4, "dev", leg, "onlink")
        off = {f"net/ipv4/conf/{which}/rp_filter": "0" for which in ("all", "left", "right")}
        namespaces.inside(inside, lambda: namespaces.set_kernel(off))

    def connect_host(self, name: str) -> None:
        """Give a machine its uplink."""
        self._plug(f"u-{name}", self._machines[name].namespace, "uplink", None)

    def connect_edge(self, name: str) -> None:
        """Give a machine ports towards the outside, the WAN, and each firewall's left leg."""
        inside = self._machines[name].namespace
        self._plug(f"o-{name}", inside, "outside", None)
        self._plug(f"w-{name}", inside, "wan", None)
        for firewall in LEFT_MACS:
            self._plug(f"e-{firewall}", inside, f"to-{firewall}", None)

    def plug_endpoint(self, node: Node) -> None:
        """Put an endpoint's port on its host's bridge, as a cloud does."""
        host = self._machines[node.through]
        with suppress(AssertionError):
            run("ip", "netns", "del", self.namespace(node))
        self._make_node(node)
        peer = ("peer", "name", "eth0", "address", node.mac, "netns", self.namespace(node))
        run("ip", "-n", host.namespace, "link", "add", node.name, "type", "veth", *peer)
        run("ip", "-n", host.namespace, "link", "set", node.name, "up")
        namespaces.inside(host.namespace, lambda: network.without_offloads(node.name))
        self._address(node)
        host.run("ovs-vsctl", "--may-exist", "add-port", "br-aclflow", node.name)

    def steer(self, endpoints: Sequence[Node] = ENDPOINTS) -> None:
        """Say which way packets go; the hosts of these endpoints are connected."""
        lines = "\n".join(_flows(endpoints)) + "\n"
        self._ovs.ofctl("replace-flows", BRIDGE, "-", text=lines, options=["--bundle"])

    def _make_node(self, node: Node) -> None:
        run("ip", "netns", "add", self.namespace(node))

    def _address(self, node: Node) -> None:
        ip = ("ip", "-n", self.namespace(node))
        run(*ip, "link", "set", "lo", "up")
        run(*ip, "link", "set", "eth0", "up")
        run(*ip, "address", "add", f"{node.address}/32", "dev", "eth0")
        run(*ip, "neigh", "replace", GATEWAY_IPV4, "lladdr", GATEWAY, "dev", "eth0", "nud", "permanent")
        run(*ip, "route", "replace", "default", "via", GATEWAY_IPV4, "dev", "eth0", "onlink")
        namespaces.inside(self.namespace(node), lambda: network.without_offloads("eth0"))

    def _plug(self, port: str, namespace: str, name: str, mac: str | None) -> None:
        """A cable from the fabric into a namespace; one that was there before is replaced."""
        self._ovs.vsctl("--if-exists", "del-port", BRIDGE, port)
        with suppress(AssertionError):
            run("ip", "-n", self._net, "link", "del", port)
        peer = ["peer", "name", name, *(["address", mac] if mac else []), "netns", namespace]
        run("ip", "-n", self._net, "link", "add", port, "type", "veth", *peer)
        run("ip", "-n", self._net, "link", "set", port, "up")
        run("ip", "-n", namespace, "link", "set", name, "up")
        namespaces.inside(self._net, lambda: network.without_offloads(port))
        namespaces.inside(namespace, lambda: network.without_offloads(name))
        self._ovs.vsctl("add-port", BRIDGE, port)


def _flows(endpoints: Sequence[Node]) -> list[str]:
    lines = ["priority=0,actions=drop"]
    cables = {f"c-{client.name}": f"o-{client.through}" for client in CLIENTS}
    cables |= {f"e-{firewall}": f"l-{firewall}" for firewall in LEFT_MACS}
    lines += [f'priority=10,in_port="{one}",ip,actions=output:"{other}"' for one, other in cables.items()]
    ways_in = [f"r-{firewall}" for firewall in LEFT_MACS] + [f"w-{client.through}" for client in CLIENTS]
    for endpoint in endpoints:
        to_host = f'set_field:{GATEWAY}->eth_src,set_field:{GATEWAY}->eth_dst,output:"u-{endpoint.through}"'
        others = [f"u-{other.through}" for other in endpoints if other is not endpoint]
        lines += [
            f'priority=10,in_port="{port}",ip,nw_dst={endpoint.address},actions={to_host}'
            for port in dict.fromkeys(ways_in + others)
        ]
    return lines
