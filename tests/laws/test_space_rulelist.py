"""Searching rows through columns gives what a plain look at every row gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from law_examples import examples
from strategies import OWNED, acls, corner_packets_of

from orchestrator.policy import oracle, rulelist
from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import corner_packets
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic
from orchestrator.policy.rulelist import DEFAULT_ID, rule_lists


@pytest.fixture(autouse=True, scope="module")
def always_columns() -> object:
    """Short lists take the road of long ones."""
    patch = pytest.MonkeyPatch()
    patch.setattr(rulelist, "_FEW", 0)
    yield
    patch.undo()


@settings(max_examples=examples(40), deadline=None)
@given(acls(10, min_rules=3))
def test_columns_find_the_rows_that_a_plain_search_finds(acl: Acl) -> None:
    packets = corner_packets(acl.rules, acl.groups, overlaps=False)
    for direction in Direction:
        for family, rows in rule_lists(acl, direction).items():
            boxes = [row.box for row in rows.rows]
            every = list(range(len(rows)))
            finder, odd = rows.finder(every), rows.finder(every[1::2])
            for box in boxes:
                near = [number for number, other in enumerate(boxes) if other.overlaps(box)]
                assert rows.overlapping(box) == near
                assert rows.overlapping(box, 1, 3) == [number for number in near if 1 <= number < 3]
                container = next(number for number in near if boxes[number].contains(box))
                assert rows.answering(box) == [number for number in near if number <= container]
            for packet in packets:
                if packet.family is family:
                    hits = [number for number, box in enumerate(boxes) if box.holds(packet)]
                    assert finder.first(packet) == hits[0]
                    assert odd.first(packet) == next((number for number in hits if number % 2), None)


@settings(max_examples=examples(30), deadline=None)
@given(acls(8, min_rules=1))
def test_the_first_row_that_holds_a_packet_gives_the_oracles_answer(acl: Acl) -> None:
    for packet in corner_packets_of(acl):
        for direction in Direction:
            for returns in ReturnTraffic:
                rows = rule_lists(acl, direction, returns=returns)[packet.family]
                row = next(row for row in rows.rows if row.box.holds(packet))
                step = oracle.ask(acl, packet, direction, returns)
                assert row.permit == (step.action is Action.PERMIT)
                assert row.id == (step.rule or DEFAULT_ID)


def test_a_tenants_world_is_its_own_prefixes() -> None:
    only_ipv4 = OWNED[:1]
    lists = rule_lists(Acl(), Direction.INGRESS, own=only_ipv4)
    assert list(lists) == [Family.IPV4]
    (default,) = lists[Family.IPV4].rows
    assert default.box.destination == ((only_ipv4[0].network, only_ipv4[0].last),)
