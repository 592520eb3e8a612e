"""A chaos run's point of presence: nodes, kinds of packets, and lists from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from orchestrator.lab import specfile
from orchestrator.lab.expect import policy_of
from orchestrator.lab.spec import PopSpec
from orchestrator.policy.addresses import ANY, Addresses, Family
from orchestrator.policy.model import Acl, Action, Direction, Packet, Policy, Rule, RuleId, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

POP = specfile.parse(
    """
    hosts: [{name: host1}, {name: host2}]
    clients: [{name: alice, silent: true, addresses: [192.0.2.10, "2001:db8:ffff::10"]}]
    tenants:
      - {id: shop, prefixes: [198.51.100.0/25, "2001:db8:100::/48"]}
      - {id: bank, prefixes: [203.0.113.0/25, "2001:db8:200::/48"]}
    endpoints:
      - {name: web1, tenant: shop, host: host1, silent: true, addresses: [198.51.100.10, "2001:db8:100::10"]}
      - {name: db1, tenant: shop, host: host2, silent: true, addresses: [198.51.100.20, "2001:db8:100::20"]}
      - {name: bank1, tenant: bank, host: host1, silent: true, addresses: [203.0.113.10, "2001:db8:200::10"]}
      - {name: bank2, tenant: bank, host: host2, silent: true, addresses: [203.0.113.20, "2001:db8:200::20"]}
    firewalls: [{name: fw1}]
    """
)
TENANTS = tuple(tenant.id for tenant in POP.tenants)
ALWAYS = 9
"""The UDP port that every list permits: by what arrives there, the prober knows that a batch has passed."""
PORTS = (80, 443, 5432)
_FILLERS = 400
_MOST_RULES = 12


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of packets: what it is, from which node to which one.

    A forged one bears the source of another node and is never permitted.
    """

    number: int
    sender: str
    receiver: str
    packet: Packet
    is_forged: bool = False

    @property
    def is_always(self) -> bool:
        """Whether every list permits it."""
        return self.packet.destination_port == ALWAYS and not self.is_forged


class World:
    """Kinds of packets, and lists drawn from a seed."""

    def __init__(self, seed: int, spec: PopSpec = POP) -> None:
        self.spec = spec
        self.draw = random.Random(seed)  # noqa: S311  (no secret: the same story every time)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Every kind of packets, numbered from 0."""
        found: list[Kind] = []

        def add_kind(sender: str, receiver: str, packet: Packet, *, is_forged: bool = False) -> None:
            found.append(Kind(len(found), sender, receiver, packet, is_forged))

        for sender, receiver in permutations([node.name for node in self.spec.nodes], 2):
            for family in Family:
                shapes = [(UDP, ALWAYS), *((TCP, port) for port in PORTS), (UDP, PORTS[0])]
                for protocol, port in shapes if family is Family.IPV4 else shapes[:3]:
                    add_kind(sender, receiver, self._make_packet(sender, receiver, family, protocol, port))
        for liar, name, receiver in (("alice", "db1", "web1"), ("web1", "db1", "bank2"), ("bank2", "web1", "db1")):
            forged = self._make_packet(name, receiver, Family.IPV4, UDP, ALWAYS)
            add_kind(liar, receiver, forged, is_forged=True)
        return tuple(found)

    def _make_packet(self, sender: str, receiver: str, family: Family, protocol: int, port: int) -> Packet:
        flags = TcpFlag.SYN if protocol == TCP else 0
        source, destination = (self._find_address(name, family) for name in (sender, receiver))
        return Packet(family, source, destination, protocol, 40000, port, tcp_flags=flags)

    def _find_address(self, name: str, family: Family) -> int:
        return next(each.network for each in self.spec.node(name).addresses if each.family is family)

    def policy(self, lists: Mapping[TenantId, Acl]) -> Policy:
        """Return the whole policy with these lists."""
        return policy_of(self.spec, lists)

    def permits(self, lists: Mapping[TenantId, Acl]) -> int:
        """Return the kinds that these lists permit, as the bits of a number."""
        policy = self.policy(lists)
        verdicts = (not kind.is_forged and decide(policy, kind.packet).permitted for kind in self.kinds)
        return sum(1 << number for number, permitted in enumerate(verdicts) if permitted)

    # -------------------------------------------------------------------------------------------------------- lists

    def acl(self, before: Acl) -> Acl:
        """Draw a list's successor: rules moved to the other direction, edited, or all new."""
        draw = self.draw.random()
        rules = [rule for rule in before.rules if rule.id.startswith("r")]
        if rules and draw < 0.35:
            rules = [_other_direction(rule) if self.draw.random() < 0.5 else rule for rule in rules]
        elif rules and draw < 0.6:
            rules[self.draw.randrange(len(rules))] = self._draw_rule(self.draw.randrange(1000, 10**6))
        else:
            rules = [self._draw_rule(number) for number in range(self.draw.randint(1, _MOST_RULES))]
        fillers = self._make_fillers() if self.draw.random() < 0.15 else ()
        return Acl((*_ALWAYS_RULES, *rules, *fillers))

    def _draw_rule(self, number: int) -> Rule:
        direction = self.draw.choice(list(Direction))
        action = Action.PERMIT if self.draw.random() < (0.7 if direction is Direction.INGRESS else 0.3) else Action.DENY
        port = self.draw.choice((*PORTS, None))
        return Rule(
            RuleId(f"r{number}"),
            action,
            direction,
            protocol=self.draw.choice((TCP, UDP)),
            source=self._side(direction is Direction.EGRESS),
            destination=self._side(direction is Direction.INGRESS),
            destination_ports=(PortRange(port, port),) if port else (PortRange(0, 65535),),
        )

    def _side(self, is_ours: bool) -> Addresses:
        """Draw one side of a rule: anybody.

        For the other side also single nodes of any tenant.
        """
        if is_ours or self.draw.random() < 0.4:
            return ANY
        return Addresses(self.spec.node(self.draw.choice([node.name for node in self.spec.nodes])).addresses)

    def _make_fillers(self) -> Sequence[Rule]:
        return [
            Rule(
                RuleId(f"f{number}"),
                Action.DENY,
                protocol=UDP,
                destination_ports=(PortRange(20000 + number, 20000 + number),),
            )
            for number in range(self.draw.randint(1, _FILLERS))
        ]


def _other_direction(rule: Rule) -> Rule:
    """The same rule in the other direction, where it denies at the packet's other end."""
    directions = list(Direction)
    other = directions[1 - directions.index(rule.direction)]
    return Rule(
        rule.id,
        rule.action,
        other,
        protocol=rule.protocol,
        source=rule.source if other is Direction.INGRESS else ANY,
        destination=rule.destination if other is Direction.EGRESS else ANY,
        destination_ports=rule.destination_ports,
    )


_ALWAYS_RULES = tuple(
    Rule(
        RuleId(f"always-{direction.value}"),
        Action.PERMIT,
        direction,
        protocol=UDP,
        destination_ports=(PortRange(ALWAYS, ALWAYS),),
    )
    for direction in Direction
)
FIRST = Acl(_ALWAYS_RULES)
"""The list that every tenant begins with."""
