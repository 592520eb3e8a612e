"""Lists and packets for classifiers: ClassBench's sets, or similar ones from a seed.

    acl    access lists of providers: hosts on both sides, one port of the destination
    fw     firewalls: wildcards on one side or the other, ranges of ports on both, TCP flags
    ipc    chains of a Linux router: nested networks on both sides

Packets are drawn as ClassBench's trace generator does it: a rule at random, of each of its fields the lowest or the
highest value. That one is repeated a few times now and then, as packets of a flow are.
"""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, Packet, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import WHOLE, Box, possible
from orchestrator.policy.spans import Spans

FOLDER = Path(os.environ.get("ACLFLOW_DATA", Path(__file__).parents[4] / "shared" / "data")) / "classbench"
"""Where ClassBench's sets are looked for."""

KINDS = ("acl", "fw", "ipc")


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of IPv4 rules, and where it comes from."""

    acl: Acl
    source: str

    def boxes(self) -> tuple[Box, ...]:
        """Return the list's ingress rows as boxes, the default last."""
        return tuple(row.box for row in rule_rows(self.acl, Direction.INGRESS)[Family.IPV4])


def load_list(kind: str, rules: int) -> Listed:
    """Return ClassBench's set of this kind and size, or a similar one from a seed."""
    name = f"{kind}1_{rules // 1000}k"
    text = _read_text(name, "rules")
    if text is None:
        return Listed(generate_list(kind, rules), "generated")
    return Listed(
        read(text, "classbench", name=name, options=Options(classbench_action=None)).acl, f"ClassBench {name}"
    )


def trace(kind: str, rules: int, boxes: Sequence[Box], packets: int) -> Packets:
    """Return `packets` packets for a list: ClassBench's trace, or drawn from the boxes.

    Where there are fewer, the same ones come again.
    """
    text = _read_text(f"{kind}1_{rules // 1000}k", "trace")
    found = (
        drawn(boxes, packets) if text is None else _make_records([each.packet for each in read_trace(text.decode())])
    )
    return np.ascontiguousarray(np.resize(found, packets))


def _read_text(name: str, ending: str) -> bytes | None:
    plain, packed = FOLDER / f"{name}.{ending}", FOLDER / f"{name}.{ending}.gz"
    if plain.exists():
        return plain.read_bytes()
    return gzip.decompress(packed.read_bytes()) if packed.exists() else None


def _make_records(packets: Sequence[Packet]) -> Packets:
    return np.array([record(packet) for packet in packets], PACKET)


def drawn(boxes: Sequence[Box], packets: int, seed: int = 1) -> Packets:
    """Packets at the corners of boxes; see the module's text.

    Of the default, the last box, none is drawn.
    """
    draw = random.Random(seed)  # noqa: S311  (no secret: the same packets every time)
    found: list[Packet] = []
    while len(found) < packets:
        one = _draw_corner(boxes[draw.randrange(max(1, len(boxes) - 1))], draw)
        found += [one] * min(int(draw.paretovariate(1.0)), 8)
    return _make_records(found[:packets])


def _draw_corner(box: Box, draw: random.Random) -> Packet:
    protocols = [number for number in (TCP, UDP, ICMP) if box.protocols >> number & 1] or _list_members(box.protocols)
    protocol = draw.choice(protocols)
    with_ports = protocol in (TCP, UDP)
    return possible(
        Packet(
            box.family,
            source=_draw_end(box.source, draw),
            destination=_draw_end(box.destination, draw),
            protocol=protocol,
            source_port=_draw_end(box.source_ports, draw) if with_ports else 0,
            destination_port=_draw_end(box.destination_ports, draw) if with_ports else 0,
            icmp_type=_list_members(box.icmp_types)[0] if protocol == ICMP else 0,
            icmp_code=_list_members(box.icmp_codes)[0] if protocol == ICMP else 0,
            tcp_flags=_list_members(box.tcp_flags)[0] if protocol == TCP else 0,
            later_fragment=not box.fragments & WHOLE,
        )
    )


def _list_members(bits: int) -> list[int]:
    return [number for number in range(256) if bits >> number & 1]


def _draw_end(spans: Spans, draw: random.Random) -> int:
    span = draw.choice(spans)
    return draw.choice((span.low, span.high))


# ---- lists from a seed ----

_LENGTHS = {
    "acl": ((32, 32, 30), (31, 32, 13), (32, 31, 13), (31, 31, 5), (32, 30, 4), (23, 32, 4), (32, 22, 4),
            (32, 24, 3), (24, 31, 3), (24, 24, 2), (0, 32, 1)),
    "fw": ((0, 31, 19), (0, 32, 15), (1, 32, 11), (1, 31, 7), (0, 30, 6), (31, 0, 5), (32, 0, 4), (32, 1, 3),
           (2, 32, 3), (30, 0, 2), (32, 32, 2), (24, 28, 2)),
    "ipc": ((32, 32, 7), (31, 32, 4), (23, 32, 4), (24, 32, 3), (23, 24, 3), (32, 31, 3), (25, 32, 2), (24, 24, 2),
            (0, 31, 2), (0, 32, 2), (24, 23, 2), (16, 24, 1)),
}  # fmt: skip
"""Lengths of source and destination, and how often they occur."""

_POOLS = {"acl": (0.4, 0.07), "fw": (0.36, 0.7), "ipc": (0.16, 0.3)}
"""Networks on each side, in rules."""

_PROTOCOLS = {"acl": ((TCP, 88), (None, 8), (ICMP, 3), (UDP, 1)), "fw": ((TCP, 57), (UDP, 34), (ICMP, 4), (None, 5)),
              "ipc": ((UDP, 38), (None, 33), (TCP, 28), (ICMP, 1))}  # fmt: skip

_PORTS = {
    "acl": ((EVERY_PORT, EVERY_PORT, 28), (EVERY_PORT, None, 72)),
    "fw": ((EVERY_PORT, EVERY_PORT, 20), (EVERY_PORT, None, 55), (None, EVERY_PORT, 15),
           ((PortRange(1024, HIGHEST_PORT),), (PortRange(1024, HIGHEST_PORT),), 6), (None, None, 4)),
    "ipc": ((EVERY_PORT, EVERY_PORT, 40), (EVERY_PORT, None, 45), (None, EVERY_PORT, 9),
            (EVERY_PORT, (PortRange(1024, HIGHEST_PORT),), 6)),
}  # fmt: skip
"""Ports of source and destination; None stands for one of a hundred ports."""


def generate_list(kind: str, rules: int, seed: int = 1) -> Acl:
    """An ingress list of about `rules` different IPv4 rules, like ClassBench's of a kind."""
    draw = random.Random(f"{kind} {rules} {seed}")  # noqa: S311  (no secret: the same rules every time)
    pools = [_pool(draw, max(16, int(rules * share))) for share in _POOLS[kind]]
    ports = [(PortRange(port, port),) for port in sorted(draw.sample(range(1, 1 << 15), 100))]
    found: dict[tuple[object, ...], Rule] = {}
    for _ in range(rules):
        rule = _draw_rule(kind, len(found), pools, ports, draw)
        key = (rule.source, rule.destination, rule.source_ports, rule.destination_ports, rule.protocol)
        found.setdefault(key, rule)
    return Acl(tuple(found.values()))


def _pool(draw: random.Random, count: int) -> list[int]:
    """Draw addresses in clusters: a few /16 networks, in each some /24, with hosts."""
    wide = [draw.getrandbits(16) << 16 for _ in range(max(4, int(count**0.4)))]
    narrow = [draw.choice(wide) | int(256 * draw.random() ** 2) << 8 for _ in range(max(8, count // 6))]
    return [draw.choice(narrow) | draw.getrandbits(8) for _ in range(count)]


def _draw_rule(
    kind: str, number: int, pools: Sequence[Sequence[int]], ports: Sequence[tuple[PortRange, ...]], draw: random.Random
) -> Rule:
    lengths = draw.choices(_LENGTHS[kind], [weight for *_, weight in _LENGTHS[kind]])[0][:2]
    protocol = draw.choices(_PROTOCOLS[kind], [weight for _, weight in _PROTOCOLS[kind]])[0][0]
    sides = [
        Addresses((Prefix(Family.IPV4, draw.choice(pool) >> (32 - length) << (32 - length), length),))
        for pool, length in zip(pools, lengths, strict=True)
    ]
    both: tuple[tuple[PortRange, ...], tuple[PortRange, ...]] = (EVERY_PORT, EVERY_PORT)
    if protocol in (TCP, UDP):
        first, second, _ = draw.choices(_PORTS[kind], [weight for *_, weight in _PORTS[kind]])[0]
        both = (_draw_ports(first, ports, draw), _draw_ports(second, ports, draw))
    action = Action.DENY if number % 2 else Action.PERMIT
    return Rule(
        RuleId(f"r{number}"), action, protocol=protocol, source=sides[0], destination=sides[1], source_ports=both[0],
        destination_ports=both[1],
    )  # fmt: skip


def _draw_ports(
    wanted: tuple[PortRange, ...] | None, ports: Sequence[tuple[PortRange, ...]], draw: random.Random
) -> tuple[PortRange, ...]:
    return ports[int(len(ports) * draw.random() ** 2)] if wanted is None else wanted
