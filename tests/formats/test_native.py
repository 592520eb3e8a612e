"""The native JSON form, both ways."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.errors import AclflowError, BadInput, BadPolicy
from orchestrator.policy.formats.native import acl_from_json, acl_to_json, rule_from_json, rule_to_json
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.model import Acl, Action, Direction
from orchestrator.policy.tcpflags import FlagMatch

MINIMAL = {"id": "a", "action": "permit"}


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


@settings(max_examples=examples(150), deadline=None)
@given(acls())
def test_a_list_comes_back_equal(acl: Acl) -> None:
    assert acl_from_json(json.loads(json.dumps(acl_to_json(acl)))) == acl
    assert read(write(acl, "native").text, "native").acl == acl


def test_everything_a_rule_can_say() -> None:
    document = {
        "id": "all",
        "direction": "egress",
        "action": "deny",
        "protocol": "tcp",
        "source": ["10.0.0.0/8", "@web", "192.0.2.1/32"],
        "destination": "2001:db8::/32",
        "source_ports": [80, "90", "1024-65535"],
        "destination_ports": 443,
        "tcp_flags": {"set": ["syn"], "clear": ["ack", "rst"]},
        "description": "näive ☃",
        "owner": "net@example.org",
        "expires": "2030-01-31T12:00:00Z",
        "log": True,
    }
    rule = rule_from_json(document)
    assert (rule.direction, rule.action, rule.protocol) == (Direction.EGRESS, Action.DENY, 6)
    assert rule.tcp_flags == FlagMatch(0x02, 0x16)
    assert str(rule.source) == "10.0.0.0/8,192.0.2.1/32,@web"
    assert rule.expires is not None
    assert rule.expires.isoformat() == "2030-01-31T12:00:00+00:00"
    assert rule_from_json(rule_to_json(rule)) == rule


def test_what_is_left_out_has_its_default() -> None:
    rule = rule_from_json(MINIMAL)
    assert rule_to_json(rule) == {"id": "a", "direction": "ingress", "action": "permit"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("destination", "10.0.0.0/33", "rules[1].destination: '10.0.0.0/33' is not a prefix: its length must be 0..32"),
        (
            "source",
            "10.0.0.1/24",
            "rules[1].source: 10.0.0.1/24 has bits set below its length; did you mean 10.0.0.0/24?",
        ),
        ("source", [], "rules[1].source: an empty list matches nothing"),
        ("source", ["10.0.0.0/8", "any"], "rules[1].source[1]: `any` stands alone, not in a list"),
        ("source", None, "rules[1].source: null is not any, a prefix, @group, or a list"),
        ("source", nested(100_000), "rules[1].source[0]: a list is not a string"),
        ("source", "@nobody", "rules[1].source: no address group is called 'nobody'"),
        ("source", "9" * 5000, "rules[1].source: '999"),
        ("protocol", True, "rules[1].protocol: True is not a whole number"),
        ("protocol", float("inf"), "rules[1].protocol: inf is not a whole number"),
        ("protocol", float("nan"), "rules[1].protocol: nan is not a whole number"),
        ("protocol", 256, "rules[1].protocol: protocol 256 is not in 0..255"),
        ("protocol", "tcpp", "rules[1].protocol: 'tcpp' is not a protocol"),
        ("destination_ports", 80, "rules[1].destination_ports: only tcp, udp and sctp have ports"),
        ("icmp_type", 1.0, "rules[1].icmp_type: 1.0 is not a whole number"),
        ("tcp_flags", {"set": ["syn"], "clear": ["syn"]}, "rules[1].tcp_flags: syn cannot be both set and clear"),
        ("tcp_flags", {}, "rules[1].tcp_flags: it names no flag"),
        ("expires", "2030-01-01", "rules[1].expires: a time needs its zone"),
        ("expires", "tomorrow", "rules[1].expires: 'tomorrow' is not a time"),
        ("description", "a\nb", "rules[1].description: the character U+000A cannot be kept"),
        ("description", "\ud800", "rules[1].description: the character U+D800 cannot be kept"),
        ("description", "x" * 2000, "rules[1].description: longer than 1024 characters"),
        ("log", 1, "rules[1].log: 1 is not true or false"),
        ("idd", 3, "rules[1]: 'idd' is no key of a rule"),
        ("action", "drop", "rules[1].action: 'drop' is not an action"),
        ("direction", [], "rules[1].direction: a list is not a direction"),
        ("id", "_x", "rules[1].id: ids that start with _ are reserved"),
        ("id", "first", "rules[1].id: 'first' is already the id of rules[0]"),
        ("id", None, "rules[1].id: null is not a string"),
    ],
)
def test_errors_name_the_place(key: str, value: object, message: str) -> None:
    with pytest.raises((BadInput, BadPolicy)) as caught:
        acl_from_json({"rules": [MINIMAL | {"id": "first"}, MINIMAL | {key: value}]})
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "null cannot be an access list"),
        ([], "a list cannot be an access list"),
        ({}, "rules: an access list needs its `rules`"),
        ({"rules": None}, "rules: null is not a list"),
        ({"rules": [3]}, "rules[0]: 3 cannot be a rule"),
        ({"rules": [{}]}, "rules[0].id: a rule needs its `id`"),
        ({"rules": [], "version": 2}, "version: 2 is not a version"),
        ({"rules": [], "version": True}, "version: True is not a version"),
        ({"rules": [], "more": 1}, "'more' is no key of an access list"),
        ({"rules": [], "groups": {"g": {"prefixes": ["10.0.0.0/8", "x"]}}}, "groups.g.prefixes[1]: 'x' is not"),
        ({"rules": [], "groups": {"a b": {"prefixes": []}}}, "groups.a b.name: 'a b' cannot be a group name"),
        ({"rules": [], "groups": {"g": {}}}, "groups.g: an address group needs its `prefixes`"),
        ({"rules": [], "ingress_default": None}, "ingress_default: null is not an action"),
    ],
)
def test_errors_of_the_list_itself(document: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        acl_from_json(document)
    assert str(caught.value).startswith(message)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
_KEYS = st.sampled_from(
    [
        "id",
        "action",
        "source",
        "destination",
        "protocol",
        "source_ports",
        "tcp_flags",
        "expires",
        "log",
        "rules",
        "groups",
    ]
)
_WORDS = st.sampled_from(["any", "tcp", "10.0.0.0/8", "@g", "80", "1-2", "permit", "ingress", "2030-01-01T00:00:00Z"])
_VALUES = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(400), deadline=None)
@given(_VALUES, st.booleans())
def test_any_json_is_a_list_or_an_error_of_ours(value: object, as_rule: bool) -> None:
    document = {"rules": [MINIMAL | value if isinstance(value, dict) else value]} if as_rule else value
    with contextlib.suppress(AclflowError):
        acl = acl_from_json(document)
        assert acl_from_json(acl_to_json(acl)) == acl


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rules": [', "list.json, line 1: it is not JSON"),
        ("", "list.json: it is empty"),
        (" \n", "list.json: it is empty"),
        ('{"rules": [], "rules": []}', "list.json: the key 'rules' stands twice"),
        ('{"rules": [NaN]}', "list.json: NaN is not JSON"),
        ('{"rules": [' + "[" * 200_000, "list.json: it is nested too deep"),
        ('{"rules": [' + "9" * 10_000 + "]}", "list.json: it holds a number that is too long"),
    ],
)
def test_text_that_is_not_json(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(text, "native", name="list.json")
    assert str(caught.value).startswith(message)


def test_twenty_thousand_rules_are_quick() -> None:
    """250 ms to read and 120 ms to write on an idle machine; the test only notices a collapse."""
    rules = [
        MINIMAL
        | {"id": f"r{n}", "protocol": "tcp", "source": f"10.{n >> 8 & 255}.{n & 255}.0/24", "destination_ports": n}
        for n in range(20_000)
    ]
    document = {"rules": rules}
    spent = []
    for _ in range(3):
        start = time.process_time()
        acl = acl_from_json(document)
        between = time.process_time()
        acl_to_json(acl)
        spent.append((between - start, time.process_time() - between))
    assert min(read_s for read_s, _ in spent) < 1.5
    assert min(write_s for _, write_s in spent) < 0.8
