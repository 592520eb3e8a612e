"""A box of packet space as rules: their union is the box again."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import around
from orchestrator.policy.formats.express import NO_PACKETS, matches_of, prefixes_of
from orchestrator.policy.formats.portnames import masked_addresses
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.oracle import matches
from orchestrator.policy.space import LATER, Box, boxes_of, everything
from orchestrator.policy.spans import Span, size, union
from orchestrator.policy.tcpflags import flag_matches_of


def flag_set(value: int, mask: int) -> int:
    return sum(1 << byte for byte in range(256) if byte & mask == value)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(max_rules=2), st.sampled_from(Family))
def test_rules_of_a_box_match_just_the_box(acl: Acl, family: Family) -> None:
    boxes = [box for rule in acl.rules for box in boxes_of(rule, acl.groups) if box.family is family]
    if len(boxes) == 2:
        boxes = list(everything(family).minus(boxes[0])) if boxes[0] == boxes[1] else list(boxes[0].minus(boxes[1]))
    for box in boxes:
        found = matches_of(box, Direction.INGRESS)
        rules = [
            Rule(
                RuleId("r"),
                Action.PERMIT,
                protocol=match.protocol,
                source=match.source,
                destination=match.destination,
                source_ports=match.source_ports,
                destination_ports=match.destination_ports,
                icmp_type=match.icmp_type,
                icmp_code=match.icmp_code,
                established=match.established,
                tcp_flags=match.tcp_flags,
                fragments=match.fragments,
                dscp=match.dscp,
            )
            for match in found
        ]
        for packet in around(box):
            if packet.protocol in NO_PACKETS[family]:
                continue
            caught = any(match.catches_fragments for match in found) and packet.later_fragment
            assert any(matches(rule, packet, {}) for rule in rules) == box.holds(packet) or caught, packet


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, (1 << 256) - 2))
def test_flag_matches_make_up_the_set(flags: int) -> None:
    found = flag_matches_of(flags)
    sets = [flag_set(match.value, match.mask) for match in found]
    assert sum(sets) == flags  # disjoint, and nothing is missing


def test_one_match_of_flags_stays_one() -> None:
    for value, mask in ((0x02, 0x17), (0x10, 0x10), (0x00, 0x02), (0x12, 0xFF)):
        assert [(found.value, found.mask) for found in flag_matches_of(flag_set(value, mask))] == [(value, mask)]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=4))
def test_prefixes_make_up_the_spans(ends: list[tuple[int, int]]) -> None:
    spans = union(Span(min(pair), max(pair)) for pair in ends)
    prefixes = prefixes_of(spans, Family.IPV4)
    assert union(Span(prefix.network, prefix.last) for prefix in prefixes) == spans
    assert sum(prefix.last - prefix.network + 1 for prefix in prefixes) == size(spans)
    assert all(not one.overlaps(other) for one in prefixes for other in prefixes if one is not other)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sets(st.integers(0, 31), max_size=8), st.integers(0, 2**32 - 1))
def test_masks_with_gaps(address: int, wild: set[int], other: int) -> None:
    mask = 0xFFFFFFFF & ~sum(1 << bit for bit in wild)
    spans = masked_addresses(address, mask)
    for candidate in (other, address, address ^ 1, address & mask, address | ~mask & 0xFFFFFFFF):
        inside = any(span.low <= candidate <= span.high for span in spans)
        assert inside == (candidate & mask == address & mask)


def test_whole_packets_of_anything_catch_fragments_and_say_so() -> None:
    box = Box(Family.IPV4, fragments=1)
    assert [match.catches_fragments for match in matches_of(box, Direction.INGRESS)] == [True]
    assert not matches_of(Box(Family.IPV4, fragments=LATER), Direction.INGRESS)[0].catches_fragments
