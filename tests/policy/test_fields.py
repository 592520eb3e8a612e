"""The declaration of match fields agrees with packets, rules and boxes, and with itself."""

from __future__ import annotations

import dataclasses

import pytest

from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import (
    BITS_AXES,
    CARRIED,
    DOCUMENT_ORDER,
    FIELDS,
    OWN_ICMP,
    SLOTS,
    SPAN_AXES,
    Kind,
    MatchField,
    slot_values,
)
from orchestrator.policy.model import Action, Packet, Rule, RuleId
from orchestrator.policy.protocols import TCP
from orchestrator.policy.space import Box, everything, full_set

NOT_MATCHED = {"id", "action", "direction", "established", "description", "owner", "expires", "log", "stateless"}
"""Attributes of a rule that are no match; `established` is another word for TCP flags."""


def test_every_field_of_a_packet_a_rule_and_a_box_is_declared_once() -> None:
    assert sorted(field.name for field in FIELDS) == sorted(
        field.name for field in dataclasses.fields(Packet) if field.name != "family"
    )
    asked = {field.name for field in dataclasses.fields(Rule)} - NOT_MATCHED - {"tcp_flags"} | {"flag_matches"}
    assert sorted(field.attribute for field in FIELDS) == sorted(asked)
    assert tuple(field.axis for field in FIELDS) == Box._fields[1:]
    assert (*BITS_AXES, *SPAN_AXES) == FIELDS


def test_documents_name_every_field() -> None:
    assert sorted(DOCUMENT_ORDER, key=FIELDS.index) == list(FIELDS)


def test_a_rule_that_asks_for_nothing_asks_for_every_value() -> None:
    rule = Rule(RuleId("all"), Action.PERMIT)
    assert all(getattr(rule, field.attribute) is field.every for field in FIELDS)


@pytest.mark.parametrize("family", Family)
def test_the_full_set_of_every_field_makes_up_everything(family: Family) -> None:
    whole = everything(family)
    assert [getattr(whole, field.axis) for field in FIELDS] == [full_set(field, family) for field in FIELDS]


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("slot", SLOTS)
def test_no_packet_has_two_fields_of_one_slot(family: Family, slot: tuple[MatchField, ...]) -> None:
    for protocol in range(256):
        assert sum(field.is_carried(family, protocol) for field in slot) <= 1


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field_is_wide_enough_for_what_is_shown_of_it(field: MatchField) -> None:
    for family in Family:
        assert all(value < 1 << field.bits[family] for value in field.shown[family])
        assert field.shown[family] or not field.is_spans


@pytest.mark.parametrize("field", CARRIED, ids=lambda field: field.name)
def test_later_fragments_have_no_field_of_an_upper_layer_header(field: MatchField) -> None:
    assert field.only
    assert field.kind is not Kind.LATER
    for family in Family:
        assert not any(field.is_carried(family, protocol, later=True) for protocol in range(256))


@pytest.mark.parametrize("family", Family)
def test_the_slots_of_a_packet_are_what_its_header_has_there(family: Family) -> None:
    packet = Packet(family, 1, 2, TCP, source_port=7, destination_port=9)
    kind = Packet(family, 1, 2, OWN_ICMP[family], icmp_type=3, icmp_code=4)
    assert [slot_values(each) for each in (packet, kind)] == [(7, 9), (3, 4)]
    assert slot_values(Packet(family, 1, 2, 47)) == (0, 0)
    assert slot_values(Packet(Family.IPV4, 1, 2, TCP, later_fragment=True)) == (0, 0)
