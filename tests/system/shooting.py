"""A shooting range for "default off": a policy with few rules, and frames right and wrong to try it with.

Tenant `bank` has no rules at all. Tenant `shop` permits a little, so that every way around a rule is tried right beside
the rule. What can be said as a policy's packet is also held against the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.compile.pipelines.host import GATEWAY_IPV6, GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab import specfile
from orchestrator.lab.expect import landing
from orchestrator.lab.pop import Lab
from orchestrator.lab.wire import Shot, Wire, shot
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, Policy, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMPV6, TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

F4, F6 = Family.IPV4, Family.IPV6
SYN, ACK, RST, FIN, PSH, URG = TcpFlag.SYN, TcpFlag.ACK, TcpFlag.RST, TcpFlag.FIN, TcpFlag.PSH, TcpFlag.URG
EVERYBODY_MAC = 0xFFFFFFFFFFFF
MANY_MAC = 0x333300000001
BRIDGES_MAC = 0x0180C200000E
ALL_NODES = Prefix.parse("ff02::1").network
GATEWAY = Prefix.parse(GATEWAY_IPV6).network
EVERYBODY = ("alice", "mallory", "web1", "db1", "bank1", "bank2")
POP = specfile.load().with_uplinks(routed=False)
"""With private links, into which a test can put any frame."""
MAC = {node.name: node.mac for node in POP.nodes}
ADDRESS = {(node.name, prefix.family): prefix.network for node in POP.nodes for prefix in node.addresses}


def both(name: str) -> Addresses:
    """A node's two addresses as one side of a rule."""
    return Addresses(POP.node(name).addresses)


def port(number: int) -> tuple[PortRange, ...]:
    return (PortRange(number, number),)


SHOP = Acl(
    (
        Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination=both("web1"), destination_ports=port(80)),
        Rule(RuleId("dns"), Action.PERMIT, protocol=UDP, destination=both("web1"), destination_ports=port(53)),
        Rule(RuleId("all"), Action.PERMIT, source=both("alice"), destination=both("db1")),
        Rule(RuleId("late"), Action.PERMIT, source=both("mallory"), destination=both("db1"), fragments=True),
        Rule(
            RuleId("bank"),
            Action.PERMIT,
            protocol=TCP,
            source=both("bank2"),
            destination=both("db1"),
            destination_ports=port(5432),
        ),
        Rule(RuleId("low"), Action.PERMIT, protocol=UDP, source=both("bank1"), destination_ports=(PortRange(0, 514),)),
        Rule(
            RuleId("mail"),
            Action.DENY,
            Direction.EGRESS,
            protocol=TCP,
            source=ANY,
            destination_ports=port(25),
        ),
    )
)


def packet(source: str, destination: str, family: Family, protocol: int, *more: int, **fields: int) -> Packet:
    """A packet between two nodes; `more` are source and destination port."""
    fields = {**dict(zip(("source_port", "destination_port"), more, strict=False)), **fields}
    return Packet(family, ADDRESS[source, family], ADDRESS[destination, family], protocol, **fields)  # type: ignore[arg-type]


class Range:
    """A shooting range: the lab, its wires, and what the policy says."""

    def __init__(self, lab: Lab, wire: Wire, policy: Policy) -> None:
        self.lab = lab
        self.wire = wire
        self.policy = policy

    def fire(self, shots: Sequence[Shot]) -> list[tuple[str, ...]]:
        return [landed.nodes for landed in self.wire.fire(shots)]

    def send(self, *packets: tuple[str, Packet]) -> list[tuple[str, ...]]:
        """Send packets, each from a node, hold all against the oracle, and give back who saw them."""
        seen = self.fire([shot(self.lab, sender, each) for sender, each in packets])
        assert seen == [landing(POP, self.policy, each) for _, each in packets]
        return seen


def layer3(sender: str, kind: int, make: Callable[[bytes], bytes]) -> Shot:
    """An Ethernet frame from a node to the gateway, around what `make` makes of the marker."""
    return Shot(sender, lambda marker: frames.ethernet(MAC[sender], GATEWAY_MAC, kind, make(marker)))


def told_as(said: Packet, mac: int) -> Callable[[bytes], bytes]:
    """A packet in a frame from any MAC address."""
    return lambda marker: frames.frame(said, src_mac=mac, dst_mac=GATEWAY_MAC, payload=marker)


def pseudo(family: Family, source: int, destination: int) -> frames.Pseudo:
    return (frames.pseudo_v4 if family is F4 else frames.pseudo_v6)(source, destination)


def tcp_head(family: Family, sender: str, receiver: str, port_number: int, flags: int = SYN) -> bytes:
    about = pseudo(family, ADDRESS[sender, family], ADDRESS[receiver, family])
    return frames.tcp(40000, port_number, flags, b"", about)


def udp_head(family: Family, sender: str, receiver: str, port_number: int) -> bytes:
    return frames.udp(40000, port_number, bytes(16), pseudo(family, ADDRESS[sender, family], ADDRESS[receiver, family]))


def aimed(sender: str, to_mac: int, packet_sent: Packet) -> Shot:
    """A packet in a frame from its sender to any MAC address."""
    return Shot(sender, lambda m: frames.frame(packet_sent, src_mac=MAC[sender], dst_mac=to_mac, payload=m))


def arp(
    sender: str, operation: int, sender_mac: int, sender_address: int, target: int, *, mac: int | None = None
) -> Shot:
    """An ARP packet to everybody, the marker behind it."""
    body = frames.arp(operation, sender_mac, sender_address, 0, target)
    source = MAC[sender] if mac is None else mac
    return Shot(sender, lambda marker: frames.ethernet(source, EVERYBODY_MAC, frames.ARP, body + marker))


def discovery(
    sender: str,
    kind: int,
    source: int,
    destination: int,
    target: int,
    option: int,
    mac: int,
    *,
    from_mac: int | None = None,
) -> Shot:
    """A neighbour solicitation or advertisement, the marker behind the packet."""
    flags = 0xE0000000 if kind == frames.ADVERTISEMENT else 0
    message = frames.neighbour(
        kind, flags, target, frames.link_address(option, mac), frames.pseudo_v6(source, destination)
    )
    whole = frames.ipv6(source, destination, ICMPV6, message)
    origin = MAC[sender] if from_mac is None else from_mac
    return Shot(sender, lambda marker: frames.ethernet(origin, MANY_MAC, frames.IPV6, whole + marker))


def forged_discovery() -> list[Shot]:
    """Solicitations and advertisements from web1 that lie about who sends them, or speak for others."""
    mine, mac = ADDRESS["web1", F6], MAC["web1"]
    option = frames.SOURCE_LINK_ADDRESS
    forged = []
    for victim in ("db1", "bank1", "bank2", "alice"):
        theirs, their_mac = ADDRESS[victim, F6], MAC[victim]
        for to in (ALL_NODES, ADDRESS["bank1", F6]):
            forged += [
                discovery("web1", frames.ADVERTISEMENT, mine, to, theirs, frames.TARGET_LINK_ADDRESS, mac),
                discovery("web1", frames.ADVERTISEMENT, theirs, to, theirs, frames.TARGET_LINK_ADDRESS, mac),
                discovery("web1", frames.ADVERTISEMENT, mine, to, GATEWAY, frames.TARGET_LINK_ADDRESS, mac),
                discovery("web1", frames.SOLICITATION, theirs, to, GATEWAY, option, mac),
                discovery("web1", frames.SOLICITATION, mine, to, GATEWAY, option, their_mac),
                discovery("web1", frames.SOLICITATION, mine, to, theirs, option, mac, from_mac=their_mac),
            ]
    forged.append(discovery("web1", frames.SOLICITATION, 0, ALL_NODES, mine, option, mac))  # looks for a duplicate
    return forged


def true_question(asker: str, target: int = GATEWAY) -> Shot:
    """An endpoint asks for the MAC address of its gateway, or of another, in its own name."""
    return discovery(
        asker, frames.SOLICITATION, ADDRESS[asker, F6], GATEWAY, target, frames.SOURCE_LINK_ADDRESS, MAC[asker]
    )
