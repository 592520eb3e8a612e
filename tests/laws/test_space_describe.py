"""Packets and boxes in words and as JSON: exact where programs read them, and the same here and at the service."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from law_examples import examples
from strategies import acls, packets, rules

from api.schemas.inspection import FindingBody, PacketBody
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.describe import box_json, box_text, finding_json, packet_json, packet_text
from orchestrator.policy.findings import check
from orchestrator.policy.model import Acl, Packet, Rule
from orchestrator.policy.protocols import ICMP, TCP, parse_protocol
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, Box, boxes_of, everything
from orchestrator.policy.spans import Span, Spans, union
from orchestrator.policy.tcpflags import TcpFlag


@given(packets())
def test_a_packet_is_written_as_the_service_writes_it(packet: Packet) -> None:
    assert packet_json(packet) == PacketBody.of(packet).model_dump()
    assert PacketBody.model_validate(packet_json(packet)).packet() == packet


@settings(max_examples=examples(40), deadline=None)
@given(acls(5, min_rules=2))
def test_a_finding_is_written_as_the_service_writes_it(acl: Acl) -> None:
    for finding in check(acl):
        assert finding_json(finding) == FindingBody.of(finding).model_dump(exclude={"waiver"})


def spans_of(texts: list[str] | None, everything_else: Spans) -> Spans:
    if texts is None:
        return everything_else
    return union(Span(int(low), int(high or low)) for low, _, high in (text.partition("-") for text in texts))


def addresses_of(texts: list[str] | None, family: Family) -> Spans:
    if texts is None:
        return ALL_ADDRESSES[family]
    found = []
    for text in texts:
        low, dash, high = text.partition("-")
        if dash:
            found.append(Span(parse_address(low)[1], parse_address(high)[1]))
        else:
            prefix = Prefix.parse(text)
            found.append(Span(prefix.network, prefix.last))
    return union(found)


def bits_of(spans: Spans) -> int:
    return sum(1 << number for span in spans for number in range(span.low, span.high + 1))


def flags_of(texts: list[str] | None) -> int:
    """The flag bytes for which one of the texts holds: `syn+ack set, rst clear`."""
    if texts is None:
        return ALL_BYTES

    def holds(text: str, byte: int) -> bool:
        for part in filter(None, text.split(", ")):
            names, state = part.split(" ")
            wanted = [bool(byte & TcpFlag[name.upper()]) for name in names.split("+")]
            if any(bit is not (state == "set") for bit in wanted):
                return False
        return True

    return sum(1 << byte for byte in range(256) if any(holds(text, byte) for text in texts))


def read_back(document: dict[str, object]) -> Box:
    """The box of a JSON document, read as its documentation says."""
    fields: dict[str, list[str] | None] = document  # type: ignore[assignment]
    family = Family(document["ip_version"])
    protocols = fields["protocols"]
    return Box(
        family,
        {"first": 1, "later": 2, "any": 3}[str(document["fragments"])],
        ALL_BYTES if protocols is None else sum(1 << parse_protocol(name) for name in protocols),
        *(bits_of(spans_of(fields[name], (Span(0, 255),))) for name in ("icmp_types", "icmp_codes")),
        flags_of(fields["tcp_flags"]),
        bits_of(spans_of(fields["dscp"], (Span(0, 63),))),
        *(addresses_of(fields[name], family) for name in ("source", "destination")),
        *(spans_of(fields[name], ALL_PORTS) for name in ("source_ports", "destination_ports")),
    )


@settings(max_examples=examples(80), deadline=None)
@given(rules())
def test_a_box_as_json_says_all_of_it(rule: Rule) -> None:
    for box in boxes_of(rule, {}):
        for each in (box, *everything(box.family).minus(box)):
            assert read_back(json.loads(json.dumps(box_json(each)))) == each
            assert box_text(each)


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (Packet(Family.IPV4, 1, 2, TCP, 3, 4, tcp_flags=0x12), "tcp 0.0.0.1:3 > 0.0.0.2:4 syn+ack"),
        (Packet(Family.IPV4, 1, 2, TCP, 3, 4), "tcp 0.0.0.1:3 > 0.0.0.2:4 no flags"),
        (Packet(Family.IPV6, 1, 2, TCP, 3, 4, tcp_flags=2), "tcp [::1]:3 > [::2]:4 syn"),
        (Packet(Family.IPV4, 1, 2, ICMP, icmp_type=8), "icmp 0.0.0.1 > 0.0.0.2 type 8 code 0"),
        (Packet(Family.IPV6, 1, 2, ICMP), "icmp ::1 > ::2"),
        (Packet(Family.IPV4, 1, 2, 47), "gre 0.0.0.1 > 0.0.0.2"),
        (Packet(Family.IPV4, 1, 2, TCP, later_fragment=True), "later fragment, tcp 0.0.0.1 > 0.0.0.2"),
        (Packet(Family.IPV4, 1, 2, 47, dscp=46), "gre 0.0.0.1 > 0.0.0.2 dscp 46"),
    ],
)
def test_a_packet_in_words(packet: Packet, text: str) -> None:
    assert packet_text(packet) == text
