"""A hoisted rule changes nothing: not one packet's verdict, nor which rule it counts for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls, corner_packets_of

from orchestrator.placement.hoist import Entry, Form, Hoisted, NotTheSame, Stays, arrange_entries, hoist, proof
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Packet, Rule
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.policy.rulelist import RuleList, rule_lists

laws = settings(max_examples=examples(120), suppress_health_check=list(HealthCheck))


def first(rows: RuleList, packet: Packet) -> int:
    """The row that decides a packet."""
    return next(number for number, row in enumerate(rows.rows) if row.box.holds(packet))


def agree(rows: RuleList, entries: Sequence[Entry], packets: Sequence[Packet]) -> bool:
    """Whether every packet that some entry holds is decided by the row that decides it without them."""
    for packet in packets:
        lifted = next((entry.row for entry in entries if entry.box.holds(packet)), None)
        if lifted is not None and lifted != first(rows, packet):
            return False
    return True


def lists(acl: Acl) -> list[tuple[RuleList, list[Packet]]]:
    packets = corner_packets_of(acl)
    return [
        (rows, [packet for packet in packets if packet.family is family])
        for direction in Direction
        for family, rows in rule_lists(acl, direction).items()
    ]


@laws
@given(acls(max_rules=6), st.integers(1, 12))
def test_every_rule_is_hoisted_without_a_change_or_stays_with_a_reason(acl: Acl, most: int) -> None:
    for rows, packets in lists(acl):
        for number in range(len(rows)):
            found = hoist(rows, number, most_entries=most)
            if isinstance(found, Stays):
                assert found.because
                continue
            assert len(found.entries) <= most
            assert proof(rows, found.entries).entries == len(found.entries)
            assert agree(rows, found.entries, packets)
            mine = [packet for packet in packets if first(rows, packet) == number]
            assert all(
                any(entry.row == number and entry.box.holds(packet) for entry in found.entries) for packet in mine
            )


@laws
@given(acls(max_rules=6), st.data())
def test_any_rules_are_hoisted_beside_each_other(acl: Acl, data: st.DataObject) -> None:
    for rows, packets in lists(acl):
        numbers = data.draw(st.sets(st.integers(0, len(rows) - 1)))
        found = [hoist(rows, number, most_entries=20) for number in numbers]
        entries = arrange_entries(each for each in found if isinstance(each, Hoisted))
        proof(rows, entries)
        assert agree(rows, entries, packets)


@laws
@given(acls(max_rules=6), st.data())
def test_the_proof_finds_what_the_packets_find(acl: Acl, data: st.DataObject) -> None:
    """Entries as a careless chooser would make them: any rows, in any order, whole."""
    for rows, packets in lists(acl):
        numbers = data.draw(st.permutations(range(len(rows))))[: data.draw(st.integers(0, 3))]
        entries = [Entry(number, rows.rows[number].box) for number in numbers]
        if not agree(rows, entries, packets):
            with pytest.raises(NotTheSame, match="would decide packets that"):
                proof(rows, entries)


def web(name: str, action: Action, source: str, port: int = 80, destination: str = "192.0.2.0/24") -> Rule:
    return Rule(name, action, protocol=TCP, source=Addresses((Prefix.parse(source),)),
                destination=Addresses((Prefix.parse(destination),)),
                destination_ports=(PortRange(port, port),))  # fmt: skip


def rows_of(*rules: Rule) -> RuleList:
    return rule_lists(Acl(rules), Direction.INGRESS)[Family.IPV4]


def test_a_rule_that_nothing_before_it_overlaps_goes_alone() -> None:
    rows = rows_of(web("lab", Action.DENY, "10.9.0.0/16", port=22), web("web", Action.PERMIT, "10.0.0.0/8"))
    found = hoist(rows, 1, most_entries=8)
    assert isinstance(found, Hoisted)
    assert (found.form, [entry.row for entry in found.entries]) == (Form.ALONE, [1])


def test_a_rule_over_one_deny_is_narrowed() -> None:
    rows = rows_of(web("lab", Action.DENY, "10.9.0.0/16"), web("web", Action.PERMIT, "10.0.0.0/8"))
    found = hoist(rows, 1, most_entries=8)
    assert isinstance(found, Hoisted)
    assert (found.form, [entry.row for entry in found.entries]) == (Form.NARROWED, [1])
    assert not any(entry.box.overlaps(rows.rows[0].box) for entry in found.entries)


def test_where_narrowing_takes_too_many_boxes_the_others_come_along_in_order() -> None:
    denies = [
        replace(web(f"d{index}", Action.DENY, f"10.{index}.0.0/16", destination=f"192.0.2.{index}/32"),
                source_ports=(PortRange(index, 60_000),))
        for index in range(1, 5)
    ]  # fmt: skip
    rows = rows_of(*denies, web("web", Action.PERMIT, "10.0.0.0/8"))
    found = hoist(rows, 4, most_entries=8)
    assert isinstance(found, Hoisted)
    assert (found.form, [entry.row for entry in found.entries]) == (Form.TOGETHER, [0, 1, 2, 3, 4])
    kept = hoist(rows, 4, most_entries=4)
    assert kept == Stays("web", "5 entries would have to stand above the list, over 4")


def test_a_shadowed_rule_stays() -> None:
    rows = rows_of(web("all", Action.DENY, "10.0.0.0/8"), web("web", Action.PERMIT, "10.1.0.0/16"))
    assert hoist(rows, 1, most_entries=8) == Stays("web", "the rules before it decide all its packets")
