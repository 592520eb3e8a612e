"""What a policy decides where connections are tracked: a page of plain Python over a trace of packets.

    connections = NONE
    for packet in trace:
        verdict = decide_tracked(policy, packet, connections)
        connections = verdict.connections

A connection is known by the packet that opened it. The lists are asked about that packet, for each packet of either
direction and as they are now; so a change of a list holds for connections that were there before, and every packet
belongs to the rule that permits the connection at present. What belongs to no connection and opens none is denied:
TCP opens with SYN without ACK, ICMP with a request, any other protocol with whatever comes first.

An ICMP error belongs to the connection of the packet that it quotes. Datagrams are whole here: a data plane puts
fragments together before it looks. Data planes permit a subset: they know time-outs, windows and ICMP identifiers, and
of TCP they expect segments in the order of its states (docs/return-traffic.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.model import Action, Packet, Policy, Rule
from orchestrator.policy.oracle import Decision, decide, decide_between, owner
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import SCTP, TCP, UDP

SYN, RST, ACK, FIN = 0x02, 0x04, 0x10, 0x01
_REPLY_TO = {Family.IPV4: {8: 0, 13: 14, 15: 16}, Family.IPV6: {128: 129}}
"""ICMP types that ask for something, and those of their answers."""

Ends = tuple[Family, int, int, frozenset[tuple[int, int]]]
"""IP version, protocol, kind of ICMP request, and both ends with their ports: the same for both directions."""

Connections = Mapping[Ends, Packet]
"""Connections by their ends; each is the packet that opened it."""

NONE: Connections = MappingProxyType({})
_DENIED = Decision(Action.DENY, ())


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a packet, and which connections are known behind it."""

    decision: Decision
    connections: Connections


def decide_tracked(policy: Policy, packet: Packet, known: Connections, quoted: Packet | None = None) -> Verdict:
    """The fate of one packet of a trace; `quoted` is the packet that an ICMP error speaks of."""
    if quoted is not None:
        first = known.get(ends_of(quoted))
        return Verdict(_DENIED if first is None else _decide_error(policy, packet, quoted, first), known)
    first = known.get(ends_of(packet))
    opens = opening(packet)
    if opens is not None and (first is None or packet.protocol == TCP):
        decision = decide(policy, opens)
        return Verdict(decision, {**known, ends_of(opens): opens} if decision.permitted else known)
    return Verdict(_DENIED if first is None or packet.later_fragment else decide(policy, first), known)


def opening(packet: Packet) -> Packet | None:
    """The packet as lists are asked about it, if it may open a connection; else None."""
    if packet.later_fragment:
        return None
    if packet.protocol == TCP:
        opens = packet.tcp_flags & (SYN | RST | ACK | FIN) == SYN
        return replace(packet, tcp_flags=SYN) if opens else None
    if packet.protocol in OWN_ICMP.values():
        asks = packet.protocol == OWN_ICMP[packet.family] and packet.icmp_type in _REPLY_TO[packet.family]
        return packet if asks else None
    return packet if packet.protocol == UDP else replace(packet, source_port=0, destination_port=0)


def ends_of(packet: Packet) -> Ends:
    """The ends of a packet's connection. Of what is neither TCP nor UDP they have no ports."""
    with_ports = packet.protocol in (TCP, UDP)
    kind = packet.icmp_type if packet.protocol in OWN_ICMP.values() else 0
    asks = {answer: request for request, answer in _REPLY_TO[packet.family].items()}
    ends = {
        (packet.source, packet.source_port if with_ports else 0),
        (packet.destination, packet.destination_port if with_ports else 0),
    }
    return packet.family, packet.protocol, asks.get(kind, kind), frozenset(ends)


def surviving(policy: Policy, known: Connections) -> Connections:
    """The connections that a policy still permits; the others are cut when it takes force."""
    return {ends: first for ends, first in known.items() if decide(policy, first).permitted}


def _decide_error(policy: Policy, error: Packet, quoted: Packet, first: Packet) -> Decision:
    """The fate of an ICMP error about a connection, which goes to the end that sent the quoted packet.

    Its sender may be a router between the ends: then the sender's own list is asked about the connection.
    """
    if error.destination != quoted.source:
        return _DENIED
    sender, receiver = (owner(policy, error.family, each) for each in (error.source, error.destination))
    backwards = (quoted.source, quoted.source_port) == (first.source, first.source_port)
    opener, answerer = (receiver, sender) if backwards else (sender, receiver)
    return decide_between(policy, first, opener, answerer)


def check_trackable(policy: Policy) -> None:
    """Refuse rules that a connection cannot be asked for. Raises BadPolicy with the rule's place."""
    for position, rule in enumerate(policy.operator):
        check_rule(rule, f"operator[{position}]")
    for tenant in policy.tenants:
        for position, rule in enumerate(tenant.acl.rules):
            check_rule(rule, f"tenants[{tenant.id}].acl.rules[{position}]")


def check_rule(rule: Rule, place: str) -> None:
    """Refuse one rule that a connection cannot be asked for. Raises BadPolicy."""
    what = None
    if rule.established or rule.tcp_flags is not None:
        what = "TCP flags, which differ from packet to packet of a connection"
    elif rule.fragments:
        what = "fragments, which are put together before a connection is looked up"
    elif rule.protocol == SCTP and (rule.source_ports, rule.destination_ports) != (EVERY_PORT, EVERY_PORT):
        what = "ports of SCTP, whose connections are known by their addresses alone"
    elif rule.protocol == 0:
        what = "protocol 0, which a tracked connection cannot be asked for"
    if what is not None:
        raise BadPolicy(f"rule '{rule.id}' looks at {what}; the domain's return traffic is `tracked`", place=place)
