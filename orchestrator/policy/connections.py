"""The oracle for tracked connections: plain Python over a trace of packets.

    connections = NONE
    for packet in trace:
        verdict = decide_tracked(policy, packet, connections)
        connections = verdict.connections

Each end of a connection has it tracked beside its own lists, and knows it by the packet that opened it. The lists are
asked about that packet, for each packet of either direction and as they are now; so a change of a list holds for
connections that were there before, and every packet belongs to the rule that permits its connection at present. Packets
that belong to no connection and open none are denied: TCP opens with SYN without ACK, ICMP with a request, any other
protocol with whatever comes. TCP and UDP know no port 0.

A rule may be `stateless`. If the first rule that matches the packet itself at an end is, that rule alone decides at
this end, and nothing is remembered there; the other end decides as its own lists say. A stateless rule permits no more
than the packets that match it: a connection whose first packet meets one belongs to no rule, and its answers need a
rule of their own.

An ICMP error belongs to the connection of the packet that it quotes. Datagrams are whole here: a data plane puts
fragments together before it looks. Data planes permit a subset: they know time-outs, windows and ICMP identifiers, and
of TCP they expect segments in the order of its states (docs/return-traffic.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OWN_ICMP, slot_values
from orchestrator.policy.model import Acl, Action, Direction, Packet, Policy, Rule
from orchestrator.policy.oracle import Decision, Step, first_match, matches, owner
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import SCTP, TCP, UDP

SYN, RST, ACK, FIN = 0x02, 0x04, 0x10, 0x01
_REPLY_TO = {Family.IPV4: {8: 0, 13: 14, 15: 16}, Family.IPV6: {128: 129}}
"""ICMP types that ask for something, and those of their answers."""

Ends = tuple[Family, int, int, frozenset[tuple[int, int]]]
"""IP version, protocol, kind of ICMP request, and both ends with their ports: the same for both directions."""

Connections = Mapping[tuple[Ends, int], tuple[Packet, ...]]
"""Connections by their ends, and by the address of the end that knows them: the packets that opened them.

These are two where each end has opened one, also if a packet passed as an answer that may open one by itself.
"""

NONE: Connections = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Verdict:
    """A packet's verdict, and the connections that are known after it."""

    decision: Decision
    connections: Connections


def decide_tracked(policy: Policy, packet: Packet, known: Connections, quoted: Packet | None = None) -> Verdict:
    """Decide one packet of a trace.

    `quoted` is the packet that an ICMP error speaks of.
    """
    steps: dict[Step, None] = {}
    after = dict(known)
    for address, direction in ((packet.source, Direction.EGRESS), (packet.destination, Direction.INGRESS)):
        if owner(policy, packet.family, address) is None:
            continue
        alone = _decide_alone(policy, packet, address, direction)
        if alone is not None:
            steps[alone] = None
            if alone.action is Action.DENY:
                return Verdict(Decision(Action.DENY, tuple(steps)), after)
            continue
        asked = list(_asked_about(packet, known, address, direction, quoted))
        if policy.holds_replies:
            asked = [(first, way) for first, way in asked if way is direction and _goes_on(packet, first, quoted)]
        found = [(first, _asked_of(policy, first, address, way)) for first, way in asked]
        permitting = [each for each in found if each[1].action is Action.PERMIT]
        if found:
            steps[(permitting or found)[0][1]] = None
        if not permitting:
            return Verdict(Decision(Action.DENY, tuple(steps)), after)
        if quoted is None:
            name = ends_of(packet), address
            after[name] = tuple(dict.fromkeys((*after.get(name, ()), *(first for first, _ in permitting))))
    return Verdict(Decision(Action.PERMIT if steps else Action.DENY, tuple(steps)), after)


def _goes_on(packet: Packet, first: Packet, quoted: Packet | None) -> bool:
    """Return whether a whole packet has the direction of its connection's first packet."""
    return quoted is None and not packet.later_fragment and packet.source == first.source


def _asked_about(
    packet: Packet, known: Connections, address: int, direction: Direction, quoted: Packet | None
) -> Iterator[tuple[Packet, Direction]]:
    """Yield packets, with a direction, of which one end's list must permit one.

    If that list permits any of them, this packet may pass.
    """
    if quoted is not None:
        yield from _asked_about_error(packet, known, address, direction, quoted)
        return
    opens = opening(packet)
    syn = opens is not None and packet.protocol == TCP
    if not syn and not packet.later_fragment:
        yield from ((first, _find_direction(first, address)) for first in known.get((ends_of(packet), address), ()))
    if opens is not None:
        yield opens, direction


def _asked_about_error(
    error: Packet, known: Connections, address: int, direction: Direction, quoted: Packet
) -> Iterator[tuple[Packet, Direction]]:
    """Yield what lists are asked about an ICMP error to the quoted packet's sender.

    Its sender may be a router between the ends: then the list of that address is asked about the connection.
    """
    if error.destination != quoted.source:
        return
    receives, sent = direction is Direction.INGRESS, opening(quoted) or quoted
    is_end = address in (quoted.source, quoted.destination)
    for end in (address,) if is_end else (quoted.source, quoted.destination):
        for first in known.get((ends_of(quoted), end), ()):
            by_opener = (sent.source, sent.source_port) == (first.source, first.source_port)
            yield first, Direction.EGRESS if receives is by_opener else Direction.INGRESS


def _decide_alone(policy: Policy, packet: Packet, address: int, direction: Direction) -> Step | None:
    """Return what a stateless rule decides at an end; None where its connections decide."""
    rule, step = _first_rule(policy, packet, address, direction)
    return step if rule is not None and rule.stateless else None


def _asked_of(policy: Policy, first: Packet, address: int, direction: Direction) -> Step:
    """Ask the operator, or one list of the tenant, about an opening packet.

    A packet that meets a stateless rule first opens no connection.
    """
    rule, step = _first_rule(policy, first, address, direction)
    return replace(step, action=Action.DENY) if rule is not None and rule.stateless else step


def _first_rule(policy: Policy, packet: Packet, address: int, direction: Direction) -> tuple[Rule | None, Step]:
    """Return the first rule that matches a packet, and the step that it decides.

    The operator's rules go first, then one list of the tenant with the address. None: the list's default decides.
    """
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    if operator is not None:
        return operator, Step(None, None, operator.action, operator.id)
    tenant = owner(policy, packet.family, address)
    assert tenant is not None, "only owned addresses are asked for"
    rule = first_match(tenant.acl.rules, packet, direction, tenant.acl.groups)
    action = rule.action if rule is not None else tenant.acl.default(direction)
    return rule, Step(tenant.id, direction, action, rule.id if rule is not None else None)


def opening(packet: Packet) -> Packet | None:
    """Return the packet as lists are asked about it; None if it opens no connection."""
    if packet.later_fragment or (packet.protocol in (TCP, UDP) and 0 in (packet.source_port, packet.destination_port)):
        return None
    if packet.protocol == TCP:
        opens = packet.tcp_flags & (SYN | RST | ACK | FIN) == SYN
        return replace(packet, tcp_flags=SYN) if opens else None
    if packet.protocol in OWN_ICMP.values():
        kind, code = slot_values(packet)
        asks = packet.protocol == OWN_ICMP[packet.family] and kind in _REPLY_TO[packet.family]
        return packet if asks and code == 0 else None
    return packet if packet.protocol == UDP else replace(packet, source_port=0, destination_port=0)


def ends_of(packet: Packet) -> Ends:
    """The ends of a packet's connection.

    Of what is neither TCP nor UDP they have no ports.
    """
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
    found: dict[tuple[Ends, int], tuple[Packet, ...]] = {}
    for (ends, address), firsts in known.items():
        if owner(policy, ends[0], address) is not None:
            permitted = [each for each in firsts if _is_permitted(policy, each, address)]
            found |= {(ends, address): tuple(permitted)} if permitted else {}
    return found


def _is_permitted(policy: Policy, first: Packet, address: int) -> bool:
    return _asked_of(policy, first, address, _find_direction(first, address)).action is Action.PERMIT


def _find_direction(first: Packet, address: int) -> Direction:
    return Direction.EGRESS if first.source == address else Direction.INGRESS


def check_trackable(policy: Policy, *, carries_stateless: bool = False) -> None:
    """Refuse rules that a connection cannot be asked for. Raises BadPolicy with the rule's place.

    `carries_stateless`: they are for a plane that asks stateless rules about packets.
    """
    check_rules(policy.operator, "operator", carries_stateless=carries_stateless)
    for tenant in policy.tenants:
        check_list(tenant.acl, f"tenants[{tenant.id}].acl.rules", carries_stateless=carries_stateless)


def check_list(acl: Acl, place: str, *, carries_stateless: bool = False) -> None:
    """Refuse the first unfit rule of a list, by what is known of its pieces.

    Raises BadPolicy.
    """
    if any(acl.listed.facts(_are_some_unfit_beside if carries_stateless else _are_some_unfit)):
        check_rules(acl.rules, place, carries_stateless=carries_stateless)


def _are_some_unfit(rules: tuple[Rule, ...]) -> bool:
    return any(_unfit(rule) is not None for rule in rules)


def _are_some_unfit_beside(rules: tuple[Rule, ...]) -> bool:
    """The same, where stateless rules are asked alone."""
    return any(_unfit(rule, carries_stateless=True) is not None for rule in rules)


def check_rules(rules: Sequence[Rule], place: str, *, carries_stateless: bool = False) -> None:
    """Refuse the first rule of a list that a connection cannot be asked for.

    Raises BadPolicy.
    """
    for position, rule in enumerate(rules):
        what = _unfit(rule, carries_stateless=carries_stateless)
        if what is not None:
            text = f"rule '{rule.id}' {what}; the domain's return traffic is `tracked`"
            raise BadPolicy(text, place=f"{place}[{position}]")


def narrow_rules(rules: tuple[Rule, ...], *, keep_stateless: bool = False) -> tuple[Rule, ...]:
    """Rules that a connection can be asked for, which permit nothing that these do not.

    Of those that it cannot be asked for, permits go, and denies look at less. The same object where all can be.
    Stateless rules are asked for packets, and stay as they are where planes are to carry them out.
    """
    if all(_unfit(rule) is None for rule in rules):
        return rules
    kept = (_narrow_rule(rule, keep_stateless=keep_stateless) for rule in rules)
    return tuple(rule for rule in kept if rule is not None)


def _narrow_rule(rule: Rule, *, keep_stateless: bool) -> Rule | None:
    if _unfit(rule, carries_stateless=keep_stateless) is None:
        return rule
    if rule.action is Action.PERMIT:
        return None
    if keep_stateless and rule.stateless:
        return replace(rule, dscp=None)
    less = replace(rule, established=False, tcp_flags=None, fragments=False, stateless=False, dscp=None)
    if less.protocol == SCTP:
        return replace(less, source_ports=EVERY_PORT, destination_ports=EVERY_PORT)
    return replace(less, protocol=None) if less.protocol == 0 else less


def _unfit(rule: Rule, *, carries_stateless: bool = False) -> str | None:
    """Return what keeps a rule from being asked about a connection.

    With `carries_stateless` a stateless rule is asked alone.
    """
    if rule.dscp is not None:
        return "looks at DSCP, of which a connection does not remember that of its first packet"
    if rule.stateless:
        return None if carries_stateless else _NOT_CARRIED
    return _unfit_about_opening(rule)


_NOT_CARRIED = "is `stateless`, which firewalls with nftables carry out beside connections, those with iptables do not"


def _unfit_about_opening(rule: Rule) -> str | None:
    """Return what keeps a rule from being asked about the packet that opens a connection."""
    if rule.established or rule.tcp_flags is not None:
        return "looks at TCP flags, which differ from packet to packet of a connection"
    if rule.fragments:
        return "looks at fragments, which are put together before a connection is looked up"
    if rule.protocol == SCTP and (rule.source_ports, rule.destination_ports) != (EVERY_PORT, EVERY_PORT):
        return "looks at ports of SCTP, whose connections are known by their addresses alone"
    if rule.protocol == 0:
        return "looks at protocol 0, which a tracked connection cannot be asked for"
    return None
