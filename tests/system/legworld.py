"""A VNF-ACL with two legs, and three endpoints behind one of them.

    a1, a2, a3, x ── plain bridge ── inside ┤ br-aclflow ├ outside ── o

Endpoints have 10.10.0.N/24 and fd10::N/64 and a default route by .1, which nobody has. `x` is a machine that nobody
declared. Beyond `outside` frames go from gateway to gateway.
"""

from __future__ import annotations

from system.direct import packets_by_rule
from system.fabricworld import BRIDGE, SHOP, Host
from system.servedworld import ServedWorld

from orchestrator.compile.pipelines.host import GATEWAY_IPV4, GATEWAY_IPV6, GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.lab import namespaces, network
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, format_mac
from orchestrator.policy.model import Acl, Action, Direction, Endpoint, Policy, ReturnTraffic, Rule, RuleId, Tenant
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP

INSIDE, OUTSIDE, SEGMENT, VNF = "inside", "outside", "seg", "h1"
MACHINES = {"a1": 11, "a2": 12, "a3": 13, "x": 99}
DECLARED = ("a1", "a2", "a3")
OUTER = {Family.IPV4: "192.0.2.7", Family.IPV6: "fd00:9::7"}
WEB, FEED, NEWS = 101, 102, 103
"""Numbers of rules: TCP to a1's port 80, UDP to anybody's port 5000, UDP from anybody to port 6000 outside."""


def mac_of(name: str) -> int:
    """A machine's MAC address."""
    return 0x020000000000 + MACHINES[name]


def address_of(name: str, family: Family) -> str:
    """A machine's address."""
    return f"10.10.0.{MACHINES[name]}" if family is Family.IPV4 else f"fd10::{MACHINES[name]}"


def policy_of(*names: str, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> Policy:
    """Some endpoints behind the leg, and a list that lets in pings, one web server and a feed, and out UDP to 6000."""

    def rule(
        name: str, protocol: int, port: int = 0, direction: Direction = Direction.INGRESS, *to: str,
        action: Action = Action.PERMIT,
    ) -> Rule:  # fmt: skip
        ports = (PortRange(port, port),) if port else EVERY_PORT
        receivers = Addresses(tuple(map(Prefix.parse, to))) if to else ANY
        return Rule(RuleId(name), action, direction, protocol, ANY, receivers, destination_ports=ports)

    server = [address_of("a1", family) for family in Family]
    rules = (
        rule("web", TCP, 80, Direction.INGRESS, *server),
        rule("feed", UDP, 5000),
        rule("news", UDP, 6000, Direction.EGRESS),
        rule("ping4", ICMP),
        rule("ping6", ICMPV6),
        rule("quiet", UDP, 0, Direction.EGRESS, action=Action.DENY),
    )
    numbers = {each.id: WEB + index for index, each in enumerate(rules)}
    tenant = Tenant(SHOP, 1, (Prefix.parse("10.10.0.0/16"), Prefix.parse("fd10::/64")), Acl(rules), numbers)
    endpoints = tuple(
        Endpoint(
            name, SHOP, INSIDE, mac_of(name), tuple(Prefix.parse(address_of(name, each)) for each in Family),
            shared=True,
        )
        for name in names
    )  # fmt: skip
    return Policy(tenants=(tenant,), endpoints=endpoints, return_traffic=returns)


class Vnf(Host):
    """The VNF-ACL."""

    uplink_port = OUTSIDE

    def configure(self) -> None:
        self.command("host", "configure", "pop1", self.name, "--controller", "tcp:127.0.0.1:6653", "--datapath",
                     "netdev", "--uplink", OUTSIDE, "--port", INSIDE)  # fmt: skip
        self.ovs.vsctl("set-controller", BRIDGE, f"punix:{self.ovs.run_dir}/{BRIDGE}.controller")

    def list_ports(self) -> set[str]:
        return {INSIDE, OUTSIDE}

    def count_packets(self) -> dict[int, int]:
        """Count the packets of each rule, by its number."""
        assert self.link is not None
        self.ovs.forget()
        return packets_by_rule(Switch(self.link.channel, uplink=self.uplink_port))


class LegWorld(ServedWorld):
    """All of it; used in a `with` statement. Needs root."""

    def __init__(self, layout: object) -> None:
        super().__init__(layout)
        self.names = [*MACHINES, SEGMENT, VNF, "o"]

    @property
    def vnf(self) -> Vnf:
        """The VNF-ACL."""
        found = self.hosts[VNF]
        assert isinstance(found, Vnf)
        return found

    def build(self) -> None:
        for name in self.names:
            namespaces.create(self.namespace(name))
            self.ip(name, "link", "set", "lo", "up")
        self.ip(SEGMENT, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        self.ip(SEGMENT, "link", "set", "br0", "up")
        self._join(VNF, INSIDE, SEGMENT, "to-vnf")
        self._join(VNF, OUTSIDE, "o", "eth0")
        for name in MACHINES:
            self._join(name, "eth0", SEGMENT, f"to-{name}")
        for port in ("to-vnf", *(f"to-{name}" for name in MACHINES)):
            self.ip(SEGMENT, "link", "set", port, "master", "br0")
        for name in MACHINES:
            self._settle(name)
        self._settle_outside()
        self.hosts[VNF] = Vnf(self, VNF)
        self.vnf.configure()

    def _join(self, one: str, mine: str, other: str, theirs: str) -> None:
        """Put a cable between two machines."""
        self.ip(one, "link", "add", mine, "type", "veth", "peer", "name", theirs, "netns", self.namespace(other))
        for name, interface in ((one, mine), (other, theirs)):
            namespaces.inside(self.namespace(name), lambda interface=interface: network.without_offloads(interface))
            if interface != "eth0":
                self.ip(name, "link", "set", interface, "up")

    def _settle(self, name: str) -> None:
        self._begin_quietly(name, mac_of(name))
        for family, length in ((Family.IPV4, 24), (Family.IPV6, 64)):
            self._add_address(name, f"{address_of(name, family)}/{length}")
        self.ip(name, "route", "add", "default", "via", "10.10.0.1")
        self.ip(name, "-6", "route", "add", "default", "via", "fd10::1")

    def _settle_outside(self) -> None:
        self._begin_quietly("o", GATEWAY_MAC)
        for family, length in ((Family.IPV4, 32), (Family.IPV6, 128)):
            self._add_address("o", f"{OUTER[family]}/{length}")
        for way, gateway, net in (("-4", GATEWAY_IPV4, "10.10.0.0/24"), ("-6", GATEWAY_IPV6, "fd10::/64")):
            known = ("lladdr", format_mac(GATEWAY_MAC), "dev", "eth0", "nud", "permanent")
            self.ip("o", way, "neigh", "replace", gateway, *known)
            self.ip("o", way, "route", "add", net, "via", gateway, "dev", "eth0", "onlink")

    def _begin_quietly(self, name: str, mac: int) -> None:
        """Set a machine's link up so that it sends nothing by itself."""
        quiet = {f"net/ipv6/conf/eth0/{setting}": value for setting, value in network.QUIET_IPV6.items()}
        namespaces.inside(self.namespace(name), lambda: namespaces.set_kernel(quiet))
        self.ip(name, "link", "set", "eth0", "address", format_mac(mac))
        self.ip(name, "link", "set", "eth0", "up")

    def _add_address(self, name: str, address: str) -> None:
        self.ip(name, "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
