"""DSCP as a match field: names and sets, rules, the native form, and what asks for it elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import AclflowError, BadPolicy
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import check_rules, narrow_rules
from orchestrator.policy.describe import box_text, packet_text
from orchestrator.policy.dscp import (
    EVERY_CODE_POINT,
    code_point_masks,
    code_points_text,
    list_code_points,
    of_precedence,
    parse_code_points,
    runs_of,
)
from orchestrator.policy.formats.native import rule_from_json, rule_to_json, rules_from_json
from orchestrator.policy.headline import headline
from orchestrator.policy.model import Action, Packet, Rule, RuleId
from orchestrator.policy.oracle import matches
from orchestrator.policy.ruletext import rule_text
from orchestrator.policy.space import boxes_of

EF = 1 << 46
SETS = st.integers(1, EVERY_CODE_POINT)
VOICE = Rule(RuleId("voice"), Action.PERMIT, protocol=17, dscp=EF)


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("ef", [46]),
        ("EF", [46]),
        ("va", [44]),
        ("voice-admit", [44]),
        ("cs1", [8]),
        ("af43", [38]),
        ("default", [0]),
        ("46", [46]),
        ("0", [0]),
        ("60-63", [60, 61, 62, 63]),
        ("af11-af13", [10, 11, 12, 13, 14]),
    ],
)
def test_names_numbers_and_ranges_are_read(text: str, points: list[int]) -> None:
    assert list_code_points(parse_code_points(text)) == points


@pytest.mark.parametrize("text", ["", "64", "-1", "9-8", "shiny", "af44", "1-", "0x2e", "\u0661", "1-64"])
def test_what_is_no_code_point_is_refused(text: str) -> None:
    with pytest.raises(AclflowError):
        parse_code_points(text)


def test_a_precedence_is_eight_code_points() -> None:
    assert code_points_text(of_precedence(5)) == "40-47"
    assert code_point_masks(of_precedence(5)) == ((40, 56),)
    assert list_code_points(of_precedence(7)) == [*range(56, 64)]


@given(SETS)
def test_masks_and_runs_make_up_a_set(members: int) -> None:
    found = 0
    for value, mask in code_point_masks(members):
        block = sum(1 << point for point in range(64) if point & mask == value)
        assert not found & block
        found |= block
    assert found == members
    assert sum((1 << high + 1) - (1 << low) for low, high in runs_of(members)) == members


def test_every_code_point_is_no_match() -> None:
    assert replace(VOICE, dscp=EVERY_CODE_POINT).dscp is None
    with pytest.raises(AclflowError, match="matches nothing"):
        replace(VOICE, dscp=0)


@given(SETS)
def test_a_rule_comes_back_from_its_native_form(members: int) -> None:
    rule = replace(VOICE, dscp=members)
    assert rule_from_json(rule_to_json(rule)) == rule
    assert rules_from_json([rule_to_json(rule)]) == (rule,)


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (46, 46),
        ("ef", 46),
        (["ef", "cs5-43", 0], [0, "40-43", 46]),
        ([46], 46),
        ("any", None),
        (["0-31", "32-63"], None),
    ],
)
def test_what_people_write_is_written_as_numbers(said: object, written: object) -> None:
    assert rule_to_json(rule_from_json({"id": "a", "action": "permit", "dscp": said})).get("dscp") == written


@pytest.mark.parametrize(
    ("said", "place"),
    [(64, "dscp"), ([], "dscp"), (True, "dscp"), (None, "dscp"), ([1, "x"], "dscp[1]"), (1.5, "dscp")],
)
def test_what_cannot_be_read_is_refused_with_its_place(said: object, place: str) -> None:
    with pytest.raises(AclflowError) as caught:
        rules_from_json([{"id": "a", "action": "permit", "dscp": said}])
    assert caught.value.place == f"rules[0].{place}"


def test_later_fragments_have_it() -> None:
    late = Packet(Family.IPV6, 1, 2, 44, dscp=46, later_fragment=True)
    assert matches(Rule(RuleId("late"), Action.PERMIT, fragments=True, dscp=EF), late, {})
    assert not matches(Rule(RuleId("late"), Action.PERMIT, fragments=True, dscp=1), late, {})


def test_it_is_said_to_people() -> None:
    assert rule_text(VOICE) == "ingress permit udp any > any, dscp 46"
    assert packet_text(Packet(Family.IPV4, 1, 2, 17, 3, 4, dscp=46)) == "udp 0.0.0.1:3 > 0.0.0.2:4 dscp 46"
    box = boxes_of(replace(VOICE, dscp=of_precedence(5)), {})[0]
    assert box_text(box) == "udp any IPv4 > any IPv4, dscp 40-47"


def test_a_headline_names_it() -> None:
    packets = {
        "ip_version": 4, "fragments": "any", "source": None, "destination": None, "protocols": None,
        "source_ports": None, "destination_ports": None, "icmp_types": None, "icmp_codes": None, "tcp_flags": None,
        "dscp": ["46"],
    }  # fmt: skip
    change = {"direction": "ingress", "becomes": "permit", "packets": packets, "before": ["_default"], "after": ["a"]}
    assert headline([change])[0].text == "opens every port of every address to everyone with DSCP 46"


@pytest.mark.parametrize("stateless", [False, True])
def test_a_connection_cannot_be_asked_for_it(stateless: bool) -> None:
    rule = replace(VOICE, stateless=stateless)
    with pytest.raises(BadPolicy, match="looks at DSCP") as caught:
        check_rules((rule,), "rules", carries_stateless=True)
    assert caught.value.place == "rules[0]"
    assert narrow_rules((rule,), keep_stateless=True) == ()
    (less,) = narrow_rules((replace(rule, action=Action.DENY),), keep_stateless=True)
    assert (less.dscp, less.stateless, less.protocol) == (None, stateless, 17)
