"""A security domain of two fake switches that track connections, and traces of packets through it.

The law: the switches let through a part of what the oracle permits (`policy/connections.py`); of a conversation as
real ends have it they let through all of it, and each of its packets hits the rows of the rules that permit it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiled_domain import endpoint_at

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.frames import ethernet, frame, icmp, ipv4, ipv6, pseudo_v6
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import NONE, Connections, decide_tracked, ends_of
from orchestrator.policy.model import Action, Direction, Endpoint, Packet, Policy, ReturnTraffic, Rule
from orchestrator.policy.oracle import Step
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP
from orchestrator.program.delta import Delta
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program

UPLINK = "up0"
SYN, ACK, FIN, PSH = 0x02, 0x10, 0x01, 0x08
_NOTHING = FlowTable.of(())
_MACS = {"src_mac": GATEWAY_MAC, "dst_mac": GATEWAY_MAC}


@dataclass(frozen=True)
class Outcome:
    """Whether a packet arrived, and kind and number behind every row it hit that is not structure."""

    arrived: bool
    deciders: frozenset[tuple[int, int]]


class TrackedDomain:
    """Endpoints lie on the two switches in turn. The policy may change; what the switches remember stays."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.known: Connections = NONE
        self._cache = CompileCache()
        self._home = {endpoint.name: index % 2 for index, endpoint in enumerate(policy.endpoints)}
        ports: tuple[dict[str, int], dict[str, int]] = ({UPLINK: 1}, {UPLINK: 1})
        for index, endpoint in enumerate(policy.endpoints):
            ports[index % 2][endpoint.port] = 10 + index
        self.switches = [FakeSwitch(each, datapath_id=number) for number, each in enumerate(ports, 1)]
        self._drivers = [OpenFlowDriver(channel_to(each), uplink=UPLINK) for each in self.switches]
        for driver in self._drivers:
            driver.start(1)
        self._generation = 0
        self.load(policy)

    def load(self, policy: Policy) -> Program:
        """Give both switches the program of the next policy, by what changed."""
        self.policy = policy
        self._generation += 1
        program = self._cache.compile_program(policy, domain="d1", generation=self._generation)
        whole = Delta(b"", program.digest, program.generation, _NOTHING, program.flows, program.ports)
        for driver in self._drivers:
            driver.apply(self._cache.change or whole, Stamp(program.generation, program.digest))
        return program

    def send(self, packet: Packet, quoted: Packet | None = None) -> Outcome:
        """A packet's way from its endpoint (or from outside) to its endpoint (or out)."""
        sender, receiver = (self._at(packet.family, each) for each in (packet.source, packet.destination))
        cookies: list[int] = []
        if sender is not None:
            made = made_of(packet, quoted, sender.mac)
            out = self._forward(self._home[sender.name], made, sender.port, cookies)
            if not out or receiver is None or self._home[receiver.name] == self._home[sender.name]:
                return Outcome(_arrived(out, receiver), _deciders(cookies))
            assert _arrived(out, None), "it must leave by the uplink"
        assert receiver is not None
        made = made_of(packet, quoted, GATEWAY_MAC)
        out = self._forward(self._home[receiver.name], made, UPLINK, cookies)
        return Outcome(_arrived(out, receiver), _deciders(cookies))

    def meet(self, packet: Packet, quoted: Packet | None = None, *, fully: bool = False) -> bool:
        """Send a packet and hold what became of it to the oracle; `fully`: nothing less than that may pass."""
        verdict = decide_tracked(self.policy, packet, self.known, quoted)
        outcome = self.send(packet, quoted)
        wanted = frozenset(decider(self.policy, step) for step in verdict.decision.steps)
        told = f"{packet} ({quoted}): {outcome}, {verdict.decision}"
        assert verdict.decision.permitted or not outcome.arrived, told
        if fully:
            assert outcome.arrived == verdict.decision.permitted, told
        if outcome.arrived and fully:
            assert outcome.deciders == wanted, told
        self.known = verdict.connections
        return outcome.arrived

    def half_known(self, packet: Packet) -> bool:
        """Whether a packet answers what one end of a switch does not know (`answers_half_known`)."""
        ends = [self._at(packet.family, each) for each in (packet.source, packet.destination)]
        homes = {self._home[each.name] for each in ends if each is not None}
        return None not in ends and len(homes) == 1 and answers_half_known(packet, self.known)

    def _forward(self, side: int, made: bytes, port: str, cookies: list[int]) -> list[tuple[str, bytes]]:
        cookies += self.switches[side].trace(made, port).cookies
        return self.switches[side].forward(made, port)

    def _at(self, family: Family, address: int) -> Endpoint | None:
        return endpoint_at(self.policy, family, address)


def answers_half_known(packet: Packet, known: Connections) -> bool:
    """Whether a packet, not of TCP, answers the first of a connection that one end does not know.

    A stateless rule decided there about the first. A switch with both ends drops such answers; for the oracle, each
    opens a connection of its own at that end.
    """
    firsts = [known.get((ends_of(packet), each), ()) for each in (packet.source, packet.destination)]
    answers = all(first.source != packet.source for each in firsts for first in each)
    return packet.protocol != TCP and bool(firsts[0]) is not bool(firsts[1]) and answers


def made_of(packet: Packet, quoted: Packet | None, mac: int) -> bytes:
    """The frame of a packet; of an ICMP error, with the packet that it quotes."""
    if quoted is None:
        return frame(packet, src_mac=mac, dst_mac=GATEWAY_MAC, payload=b"payload.")
    rest = bytes(4) + frame(quoted, **_MACS, payload=b"payload.")[14:]
    if packet.family is Family.IPV4:
        body = ipv4(packet.source, packet.destination, ICMP, icmp(packet.icmp_type, packet.icmp_code, rest))
        return ethernet(mac, GATEWAY_MAC, 0x0800, body)
    pseudo = pseudo_v6(packet.source, packet.destination)
    body = icmp(packet.icmp_type, packet.icmp_code, rest, pseudo)
    return ethernet(mac, GATEWAY_MAC, 0x86DD, ipv6(packet.source, packet.destination, ICMPV6, body))


def _arrived(out: list[tuple[str, bytes]], receiver: Endpoint | None) -> bool:
    """Whether one copy left by the right port with the right addresses. Any other copy is an error."""
    if not out:
        return False
    ((port, made),) = out
    mac = GATEWAY_MAC if receiver is None else receiver.mac
    assert port == (UPLINK if receiver is None else receiver.port)
    assert made[:12] == mac.to_bytes(6, "big") + GATEWAY_MAC.to_bytes(6, "big")
    return True


def _deciders(cookies: list[int]) -> frozenset[tuple[int, int]]:
    found = [Cookie.unpack(cookie) for cookie in cookies]
    assert None not in found
    return frozenset(
        (each.kind, each.number)
        for each in found
        if each is not None and each.kind is not Kind.STRUCTURE and not each.part  # a part: it leaves the packet
    )


def decider(policy: Policy, step: Step) -> tuple[int, int]:
    """The kind and number that a step's row must carry."""
    if step.tenant is None:
        assert step.rule is not None
        return Kind.OPERATOR_RULE, policy.operator_numbers[step.rule]
    tenant = next(each for each in policy.tenants if each.id == step.tenant)
    if step.rule is not None:
        return Kind.RULE, tenant.rule_numbers[step.rule]
    ingress = step.direction is Direction.INGRESS
    return (Kind.INGRESS_DEFAULT if ingress else Kind.EGRESS_DEFAULT), tenant.number


def trackable(policy: Policy) -> Policy:
    """The policy with connections tracked, and its rules without what no connection can be asked for."""
    tenants = tuple(
        replace(each, acl=replace(each.acl, rules=tuple(map(_trackable, each.acl.rules)))) for each in policy.tenants
    )
    operator = tuple(map(_trackable, policy.operator))
    return replace(policy, tenants=tenants, operator=operator, return_traffic=ReturnTraffic.TRACKED)


def marked(policy: Policy, rng: random.Random, share: float = 0.4) -> Policy:
    """The policy with connections tracked and rules made stateless by chance, which look at whatever rules look at."""

    def mark(rule: Rule) -> Rule:
        return replace(rule, stateless=True, dscp=None) if rng.random() < share else _trackable(rule)

    tenants = tuple(
        replace(each, acl=replace(each.acl, rules=tuple(map(mark, each.acl.rules)))) for each in policy.tenants
    )
    operator = tuple(map(mark, policy.operator))
    return replace(policy, tenants=tenants, operator=operator, return_traffic=ReturnTraffic.TRACKED)


def _trackable(rule: Rule) -> Rule:
    plain = replace(rule, established=False, tcp_flags=None, dscp=None, fragments=False)
    return replace(plain, source_ports=EVERY_PORT, destination_ports=EVERY_PORT) if rule.protocol == SCTP else plain


def conversation(first: Packet) -> Iterator[Packet]:
    """What two ends say to each other, from the packet that opens their connection."""
    there, back = first, turned(first)
    if first.protocol == TCP:
        for sender, flags in (
            (there, SYN), (back, SYN | ACK), (there, ACK), (there, PSH | ACK), (back, PSH | ACK), (there, FIN | ACK),
            (back, ACK), (back, FIN | ACK), (there, ACK),
        ):  # fmt: skip
            yield replace(sender, tcp_flags=flags)
        return
    yield from (there, there, back, back, there)


ANSWERS: Mapping[int, int] = {8: 0, 13: 14, 15: 16, 128: 129}


def turned(packet: Packet) -> Packet:
    ends = {"source": packet.destination, "destination": packet.source}
    if packet.protocol in (ICMP, ICMPV6):
        return replace(packet, **ends, icmp_type=ANSWERS.get(packet.icmp_type, packet.icmp_type))
    return replace(packet, **ends, source_port=packet.destination_port, destination_port=packet.source_port)


def error_about(packet: Packet, sender: int) -> Packet:
    """An ICMP error of somebody's to the sender of a packet."""
    v4 = packet.family is Family.IPV4
    return Packet(
        packet.family, sender, packet.source, ICMP if v4 else ICMPV6, icmp_type=3 if v4 else 1, icmp_code=3 if v4 else 4
    )


def error_from_path(packet: Packet, said: Sequence[Packet], rng: random.Random) -> Packet | None:
    """An error about a packet, by its receiver or by any other one; None where that would answer itself."""
    routers = [each.destination for each in said if each.family is packet.family]
    error = error_about(packet, rng.choice((packet.destination, rng.choice(routers))))
    return error if error.source != error.destination else None


def denying(policy: Policy, *, but_first: int = 0) -> Policy:
    """The policy with its rules' actions turned round, but for those of the first tenants."""
    turned = {Action.PERMIT: Action.DENY, Action.DENY: Action.PERMIT}
    tenants = tuple(
        each
        if place < but_first
        else replace(
            each,
            acl=replace(each.acl, rules=tuple(replace(rule, action=turned[rule.action]) for rule in each.acl.rules)),
        )
        for place, each in enumerate(policy.tenants)
    )
    return replace(policy, tenants=tenants)
