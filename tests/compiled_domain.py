"""A security domain of two switches that hold one compiled program, and the law it must obey.

The law: whatever the oracle decides for a packet, the switches do; and the rows that the packet hits are, one by one,
those of the rules, defaults and return-traffic rules that the oracle names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flow_interpreter import Journey, Switch, fields_of

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import RETURN_RULE_ID, Direction, Endpoint, Packet, Policy
from orchestrator.policy.oracle import Step, decide
from orchestrator.policy.protocols import ICMPV6, SCTP, TCP, UDP

UPLINK_PORT = 1
_MARK = 0xAC1 << 52


@dataclass(frozen=True)
class Outcome:
    """What became of a packet, and the numbers behind the rows it hit: (kind, number); and behind those that had it
    reported, with the numbers of the meters' tenants."""

    arrived: bool
    deciders: tuple[tuple[int, int], ...]
    reporters: frozenset[tuple[tuple[int, int], int]]


class Domain:
    """Ports lie on the two switches in turn."""

    def __init__(self, policy: Policy, lifted: Sequence[LiftedRule] = ()) -> None:
        self.policy = policy
        program = compile_host(policy, domain="d1", generation=1, lifted=lifted)
        names = dict.fromkeys(endpoint.port for endpoint in policy.endpoints)
        self.home = {port: index % 2 for index, port in enumerate(names)}
        self.number = {port: 10 + index for index, port in enumerate(names)}
        self.switches: list[Switch] = []
        for side in (0, 1):
            ports = {port: self.number[port] for port in names if self.home[port] == side}
            rows = resolve(program.flows, program.ports, {"up0": UPLINK_PORT} | ports, "up0")
            self.switches.append(Switch(rows))

    def send(self, packet: Packet, *, first: bool = False) -> Outcome:
        """A packet's way from its endpoint (or from outside) to its endpoint (or out)."""
        sender, receiver = self._at(packet.family, packet.source), self._at(packet.family, packet.destination)
        assert sender is not None or receiver is not None
        journeys: list[Journey] = []
        if sender is not None:
            fields = fields_of(packet, self.number[sender.port], sender.mac, GATEWAY_MAC, first=first)
            journey = self.switches[self.home[sender.port]].send(fields)
            journeys.append(journey)
            if not journey.out or receiver is None or self.home[receiver.port] == self.home[sender.port]:
                return _outcome(self._arrived(journey, receiver), journeys)
            assert self._arrived(journey, None), "it must leave by the uplink"
        assert receiver is not None
        fields = fields_of(packet, UPLINK_PORT, GATEWAY_MAC, GATEWAY_MAC, first=first)
        journey = self.switches[self.home[receiver.port]].send(fields)
        return _outcome(self._arrived(journey, receiver), [*journeys, journey])

    def _at(self, family: Family, address: int) -> Endpoint | None:
        return endpoint_at(self.policy, family, address)

    def _arrived(self, journey: Journey, receiver: Endpoint | None) -> bool:
        """Whether one copy left by the right port with the right addresses. Any other copy is an error."""
        if not journey.out:
            return False
        ((port, fields),) = journey.out
        wanted = (UPLINK_PORT, GATEWAY_MAC) if receiver is None else (self.number[receiver.port], receiver.mac)
        assert (port, fields["eth_dst"]) == wanted, f"left by port {port} to {fields['eth_dst']:012x}"
        assert fields["eth_src"] == GATEWAY_MAC
        return True


def _outcome(arrived: bool, journeys: Sequence[Journey]) -> Outcome:
    cookies = [cookie for journey in journeys for cookie in journey.cookies]
    reported = [each for journey in journeys for each in journey.reported]
    reporters = frozenset((_deciders([cookie])[0], meter - 1) for cookie, meter in reported)
    return Outcome(arrived, _deciders(cookies), reporters)


def _deciders(cookies: list[int]) -> tuple[tuple[int, int], ...]:
    """Kind and number of every row that is not structure; an operator rule hit on both switches counts once."""
    found = []
    for cookie in cookies:
        assert cookie >> 52 << 52 == _MARK
        decider = (cookie >> 48 & 0xF, cookie & (1 << 40) - 1)
        if decider[0] and decider not in found:
            found.append(decider)
    return tuple(found)


def endpoint_at(policy: Policy, family: Family, address: int) -> Endpoint | None:
    """Whose address it is: the endpoint with the longest prefix around it."""
    holding = [
        (prefix.length, endpoint)
        for endpoint in policy.endpoints
        for prefix in endpoint.prefixes
        if prefix.family is family and prefix.holds(address)
    ]
    return max(holding, key=lambda each: each[0])[1] if holding else None


def populated(policy: Policy) -> Policy:
    """The policy with two endpoints a tenant, so that every address of the tenant's is an endpoint's.

    One holds all the tenant's prefixes, the other a part of each inside them. Tenant i's are on different switches.
    """
    endpoints = []
    for index, tenant in enumerate(policy.tenants):
        inner = tuple(Prefix(each.family, each.network | 1 << each.family.bits - each.length - 8, each.length + 8)
                      for each in tenant.prefixes)  # fmt: skip
        for part, prefixes in enumerate((tenant.prefixes, inner)):
            name = f"t{index}p{part}"
            endpoints.append(Endpoint(name, tenant.id, name, 0x020000000000 + 2 * index + part, prefixes))
    return replace(policy, endpoints=tuple(endpoints))


def forwarded(policy: Policy, packet: Packet) -> bool:
    """Whether a packet is ours to carry: neighbour discovery stays on its link, and one side must be ours.

    A packet to its own endpoint, or to another behind the same shared leg, never goes through the switch.
    """
    if packet.protocol == ICMPV6 and packet.family is Family.IPV6 and 133 <= packet.icmp_type <= 137:
        return False
    sender = endpoint_at(policy, packet.family, packet.source)
    receiver = endpoint_at(policy, packet.family, packet.destination)
    if sender is None or receiver is None:
        return sender is not receiver
    return sender.port != receiver.port


def check_policy(policy: Policy, lifted: Sequence[LiftedRule] = ()) -> None:
    """The law, for every corner packet of a policy and for packets between the endpoints of one tenant."""
    everywhere = populated(policy)
    domain = Domain(everywhere, lifted)
    for packet in (*policy_packets(everywhere), *_neighbours(everywhere)):
        if forwarded(everywhere, packet):
            check(domain, packet)


def _neighbours(policy: Policy) -> Iterator[Packet]:
    """Packets from endpoint to endpoint."""
    for sender, receiver in itertools.permutations(policy.endpoints, 2):
        for source, destination in zip(sender.prefixes, receiver.prefixes, strict=True):
            for protocol in (TCP, UDP):
                yield Packet(source.family, source.network, destination.last, protocol, 1024, 80, tcp_flags=0x02)


def check(domain: Domain, packet: Packet) -> None:
    """The law, for one packet, whole and as a first fragment."""
    decision = decide(domain.policy, packet)
    reporters = frozenset(_reporters(domain.policy, decision.steps))
    wanted = Outcome(decision.permitted, tuple(_decider(domain.policy, step) for step in decision.steps), reporters)
    assert domain.send(packet) == wanted, f"{packet}: {decision}"
    ports_shown = packet.protocol not in (TCP, UDP, SCTP) or (packet.source_port, packet.destination_port) != (0, 0)
    if not packet.later_fragment and ports_shown:
        assert domain.send(packet, first=True) == wanted, f"{packet} as first fragment: {decision}"


def _reporters(policy: Policy, steps: Sequence[Step]) -> Iterator[tuple[tuple[int, int], int]]:
    """The deciders whose rules log, with the number of the tenant (0: the operator) that is to be told."""
    logging = {(tenant.id, rule.id) for tenant in policy.tenants for rule in tenant.acl.rules if rule.log}
    logging |= {(None, rule.id) for rule in policy.operator if rule.log}
    numbers = {tenant.id: tenant.number for tenant in policy.tenants}
    for step in steps:
        if (step.tenant, step.rule) in logging:
            yield _decider(policy, step), numbers[step.tenant] if step.tenant is not None else 0


def _decider(policy: Policy, step: Step) -> tuple[int, int]:
    """The kind and number that a step's row must carry."""
    if step.tenant is None:
        assert step.rule is not None
        return 4, policy.operator_numbers[step.rule]
    tenant = next(each for each in policy.tenants if each.id == step.tenant)
    ingress = step.direction is Direction.INGRESS
    if step.rule is None:
        return (2 if ingress else 3), tenant.number
    if step.rule == RETURN_RULE_ID:
        return (5 if ingress else 6), tenant.number
    return 1, tenant.rule_numbers[step.rule]
