"""Seeded access lists for measuring, the same in every run and on every machine.

The mix follows published filter sets: most rules name a host or a /24 on each side, more than half name one port, a few
an aligned block of ports or all unprivileged ones, some the source port; one in five denies. So rules overlap, port
ranges expand to a third more flows than rules, and there are as many shapes (combinations of masks) as in real lists.
"""

from __future__ import annotations

import random

from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP

SOURCE_LENGTHS = (32, 32, 32, 24, 24, 16, 8)
DESTINATION_LENGTHS = (32, 32, 32, 28, 24, 16)
_UNPRIVILEGED = 0.3
"""How many of the ranges are 1024-65535, which takes six masks."""


def synthetic(rules: int, seed: int = 1) -> Acl:
    """An ingress list of `rules` IPv4 rules for a tenant that owns everything."""
    draw = random.Random(seed)  # noqa: S311  (no secret: the same rules every time)
    return Acl(tuple(_draw_rule(index, draw) for index in range(rules)))


def _draw_rule(index: int, draw: random.Random) -> Rule:
    return Rule(
        RuleId(f"r{index}"),
        Action.DENY if draw.random() < 0.2 else Action.PERMIT,
        protocol=draw.choice((TCP, TCP, TCP, UDP)),
        source=Addresses((_draw_prefix(draw, 0x0A, SOURCE_LENGTHS),)),
        destination=Addresses((_draw_prefix(draw, 0xC6, DESTINATION_LENGTHS),)),
        source_ports=_draw_ports(draw, named=0.15, ranged=0.05),
        destination_ports=_draw_ports(draw, named=0.6, ranged=0.15),
    )


def _draw_prefix(draw: random.Random, first_octet: int, lengths: tuple[int, ...]) -> Prefix:
    length = draw.choice(lengths)
    address = first_octet << 24 | draw.getrandbits(24)
    return Prefix(Family.IPV4, address >> (32 - length) << (32 - length), length)


def _draw_ports(draw: random.Random, *, named: float, ranged: float) -> tuple[PortRange, ...]:
    kind = draw.random()
    if kind < named:
        port = draw.choice((22, 25, 53, 80, 123, 443, 3306, 8080, draw.randrange(1024, HIGHEST_PORT)))
        return (PortRange(port, port),)
    if kind < named + ranged:
        if draw.random() < _UNPRIVILEGED:
            return (PortRange(1024, HIGHEST_PORT),)
        low = draw.randrange(4, 256) * 256
        return (PortRange(low, low + 255),)
    return EVERY_PORT
