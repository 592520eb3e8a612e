"""Columns say of every packet what the boxes say that they were made of."""

from __future__ import annotations

from hypothesis import given, settings
from law_examples import examples
from strategies import acls, corner_packets_of

from orchestrator.classify.columns import PARTS, Columns, columns
from orchestrator.classify.packets import join_halves
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Acl, Direction, Packet
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import LATER, WHOLE


def holds(made: Columns, row: int, packet: Packet) -> bool:
    """Whether a row holds a packet, read from the arrays alone."""
    numbers = dict(zip((*PARTS, "fragments"), made.rows[row].tolist(), strict=True))

    def in_span(axis: str, number: int) -> bool:
        begin, end = made.address_starts[numbers[axis]], made.address_starts[numbers[axis] + 1]
        spans = (tuple(map(int, span)) for span in made.addresses[begin:end])
        family = packet.family
        return any(join_halves(family, *span[:2]) <= number <= join_halves(family, *span[2:]) for span in spans)

    def in_ports(axis: str, number: int) -> bool:
        begin, end = made.port_starts[numbers[axis]], made.port_starts[numbers[axis] + 1]
        return any(low <= number <= high for low, high in made.ports[begin:end].tolist())

    def in_set(axis: str, number: int) -> bool:
        return bool(int(made.sets[numbers[axis], number // 64]) >> number % 64 & 1)

    return (
        bool(numbers["fragments"] & (LATER if packet.later_fragment else WHOLE))
        and in_span("source", packet.source)
        and in_span("destination", packet.destination)
        and in_ports("source_ports", packet.source_port)
        and in_ports("destination_ports", packet.destination_port)
        and in_set("protocols", packet.protocol)
        and in_set("icmp_types", packet.icmp_type)
        and in_set("icmp_codes", packet.icmp_code)
        and in_set("tcp_flags", packet.tcp_flags)
        and in_set("dscp", packet.dscp)
    )


@settings(deadline=None, max_examples=examples(50))
@given(acl=acls())
def test_columns_hold_what_boxes_hold(acl: Acl) -> None:
    packets = corner_packets_of(acl)[:60]
    for family, rows in rule_rows(acl, Direction.INGRESS).items():
        made = columns(family, [row.box for row in rows])
        assert len(made) == len(rows)
        for packet in packets:
            if packet.family is family:
                for number, row in enumerate(rows):
                    assert holds(made, number, packet) == row.box.holds(packet), (number, packet)


def test_a_set_is_kept_once() -> None:
    (box, *_) = (row.box for row in rule_rows(Acl(), Direction.INGRESS)[Family.IPV6])
    made = columns(Family.IPV6, [box] * 3)
    assert (len(made.addresses), len(made.ports), len(made.sets)) == (1, 1, 1)
    assert columns(Family.IPV6, []).rows.shape == (0, len(PARTS) + 1)
