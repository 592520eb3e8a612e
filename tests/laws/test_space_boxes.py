"""Boxes are exactly what the oracle says a rule matches, and their arithmetic is set arithmetic."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import FLAG_POOL, acls, packet_kinds, packets, rules

from orchestrator.policy import oracle, spans
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.corners import around, corner_packets, corners
from orchestrator.policy.model import Acl, Action, Packet, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP
from orchestrator.policy.space import (
    LATER,
    WHOLE,
    Box,
    boxes_of,
    everything,
    find_uncovered,
    merge_boxes,
    possible,
)
from orchestrator.policy.spans import Span
from orchestrator.policy.tcpflags import FlagMatch

MOST_KINDS = 12_000


def held(box: Box, kinds: list[Packet]) -> frozenset[int]:
    return frozenset(index for index, packet in enumerate(kinds) if box.holds(packet))


def cut_out(acl: Acl) -> tuple[list[Box], list[Packet]]:
    """The boxes of a list's rules, and one packet of every kind they tell apart."""
    kinds = packet_kinds(acl)
    assume(len(kinds) <= MOST_KINDS)
    return [box for rule in acl.rules for box in boxes_of(rule, acl.groups)], kinds


@settings(max_examples=examples(60), deadline=None)
@given(acls(8))
def test_a_rules_boxes_hold_exactly_the_packets_it_matches(acl: Acl) -> None:
    aimed = corner_packets(acl.rules, acl.groups)
    for rule in acl.rules:
        boxes = boxes_of(rule, acl.groups)
        for packet in aimed:
            assert any(box.holds(packet) for box in boxes) == oracle.matches(rule, packet, acl.groups)


@settings(max_examples=examples(60), deadline=None)
@given(acls(3, min_rules=1))
def test_boxes_agree_with_the_oracle_on_every_kind_of_packet(acl: Acl) -> None:
    _, kinds = cut_out(acl)
    for rule in acl.rules:
        boxes = boxes_of(rule, acl.groups)
        assert [any(box.holds(packet) for box in boxes) for packet in kinds] == [
            oracle.matches(rule, packet, acl.groups) for packet in kinds
        ]


@settings(max_examples=examples(60), deadline=None)
@given(acls(2, min_rules=2, with_groups=False))
def test_intersection_difference_and_containment_are_those_of_sets(acl: Acl) -> None:
    boxes, kinds = cut_out(acl)
    for left in boxes:
        for right in boxes:
            in_left, in_right = held(left, kinds), held(right, kinds)
            common = left.intersect(right)
            assert (held(common, kinds) if common else frozenset()) == in_left & in_right
            assert left.overlaps(right) == bool(in_left & in_right)
            assert left.contains(right) == (in_left >= in_right)
            assert (left == right) == (in_left == in_right)
            pieces = left.minus(right)
            shares = [held(piece, kinds) for piece in pieces]
            assert frozenset().union(*shares) == in_left - in_right
            assert sum(map(len, shares)) == len(in_left - in_right), "the pieces overlap"
            assert all(shares), "an empty piece"


@settings(max_examples=examples(60), deadline=None)
@given(acls(4, min_rules=2, with_groups=False))
def test_cover_is_found_exactly(acl: Acl) -> None:
    boxes, kinds = cut_out(acl)
    assume(len(boxes) > 1)
    for box in boxes:
        covers = [other for other in boxes if other is not box]
        left_over = held(box, kinds).difference(*(held(cover, kinds) for cover in covers))
        packet = find_uncovered(box, covers)
        assert (packet is not None) == bool(left_over)
        if packet is not None:
            assert box.holds(packet)
            assert not any(cover.holds(packet) for cover in covers)


@settings(max_examples=examples(60), deadline=None)
@given(acls(3, min_rules=1, with_groups=False))
def test_merging_keeps_the_set_and_never_makes_more_boxes(acl: Acl) -> None:
    boxes, kinds = cut_out(acl)
    pieces = [everything(family) for family in Family]
    for box in boxes:
        pieces = [part for piece in pieces for part in piece.minus(box)]
    together = merge_boxes(pieces)
    assert len(together) <= len(pieces)
    for packet in kinds:
        assert sum(piece.holds(packet) for piece in pieces) == sum(box.holds(packet) for box in together)


def test_what_was_cut_by_every_axis_merges_back_to_one_box() -> None:
    for family in Family:
        whole = everything(family)
        for rule in (
            Rule(RuleId("r"), Action.PERMIT, protocol=TCP, tcp_flags=FlagMatch(2, 18)),
            Rule(RuleId("r"), Action.PERMIT, fragments=True),
        ):
            inner = next(box for box in boxes_of(rule, {}) if box.family is family)
            assert merge_boxes([*whole.minus(inner), inner]) == (whole,)


@settings(max_examples=examples(60), deadline=None)
@given(acls(5, min_rules=1))
def test_witnesses_and_corners_are_in_their_box_and_possible(acl: Acl) -> None:
    for rule in acl.rules:
        for box in boxes_of(rule, acl.groups):
            for packet in (box.witness(), *corners(box)):
                assert box.holds(packet)
            for packet in around(box):
                assert possible(packet) == packet


@given(rules())
def test_a_rule_has_at_most_one_box_in_each_ip_version(rule: Rule) -> None:
    families = [box.family for box in boxes_of(rule, {})]
    assert len(families) == len(set(families))


@given(packets())
def test_everything_holds_every_packet_there_is(packet: Packet) -> None:
    assert sum(everything(family).holds(packet) for family in Family) == 1


def test_an_ipv6_later_fragment_shows_no_upper_protocol() -> None:
    tcp = boxes_of(Rule(RuleId("r"), Action.PERMIT, protocol=TCP), {})
    assert [(box.family, box.fragments) for box in tcp] == [(Family.IPV4, WHOLE | LATER), (Family.IPV6, WHOLE)]
    fragments_of_tcp = boxes_of(Rule(RuleId("r"), Action.PERMIT, protocol=TCP, fragments=True), {})
    assert [box.family for box in fragments_of_tcp] == [Family.IPV4]


@pytest.mark.parametrize("match", [None, *FLAG_POOL])
def test_every_flag_byte_is_judged_as_the_oracle_judges_it(match: FlagMatch | None) -> None:
    rule = Rule(RuleId("r"), Action.PERMIT, protocol=TCP, established=match is None, tcp_flags=match)
    box = boxes_of(rule, {})[0]
    for flags in range(256):
        packet = Packet(Family.IPV4, 1, 2, TCP, 3, 4, tcp_flags=flags)
        assert box.holds(packet) == oracle.matches(rule, packet, {})


def test_the_corners_of_two_rules_include_their_overlap() -> None:
    first = Rule(RuleId("a"), Action.PERMIT, protocol=TCP, source=Addresses((Prefix.parse("10.1.0.0/16"),)))
    second = Rule(RuleId("b"), Action.DENY, protocol=TCP, destination_ports=(PortRange(180, 190),))
    both = [
        p for p in corner_packets((first, second)) if oracle.matches(first, p, {}) and oracle.matches(second, p, {})
    ]
    assert {packet.destination_port for packet in both} >= {180, 190}
    assert not [
        p
        for p in corner_packets((first, second), overlaps=False)
        if oracle.matches(first, p, {}) and oracle.matches(second, p, {})
    ]


@pytest.mark.parametrize(
    ("packet", "field"),
    [
        (Packet(Family.IPV4, 1, 2, ICMP, source_port=5, icmp_type=8), "source_port"),
        (Packet(Family.IPV6, 1, 2, ICMP, icmp_type=8), "icmp_type"),
        (Packet(Family.IPV4, 1, 2, 17, tcp_flags=2), "tcp_flags"),
        (Packet(Family.IPV4, 1, 2, TCP, destination_port=80, later_fragment=True), "destination_port"),
    ],
)
def test_fields_that_a_packet_does_not_have_are_zero(packet: Packet, field: str) -> None:
    assert getattr(packet, field) != 0
    assert getattr(possible(packet), field) == 0


span_sets = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=5).map(
    lambda pairs: spans.union(Span(low, low + more) for low, more in pairs)
)


def members(found: spans.Spans) -> set[int]:
    return {value for span in found for value in range(span.low, span.high + 1)}


@given(span_sets, span_sets)
def test_spans_are_sets_of_integers(left: spans.Spans, right: spans.Spans) -> None:
    a, b = members(left), members(right)
    assert members(spans.intersect(left, right)) == a & b
    assert members(spans.minus(left, right)) == a - b
    assert members(spans.union((*left, *right))) == a | b
    assert spans.covers(left, right) == (a >= b)
    assert spans.size(left) == len(a)
    assert (left == right) == (a == b)
    assert {value for value in range(40) if spans.holds(left, value)} == a
    for result in (spans.intersect(left, right), spans.minus(left, right), spans.union((*left, *right))):
        assert all(first.high + 1 < second.low for first, second in itertools.pairwise(result))
