"""Rules read and written by the extension are those that `native.py` reads and writes one by one."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import ANY
from orchestrator.policy.formats import native
from orchestrator.policy.formats.native import rule_from_json, rule_texts, rule_to_json, rules_from_json
from orchestrator.policy.model import Rule

LAWS = settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))

TEXTS = st.one_of(
    st.text(max_size=8), st.sampled_from(("", "web", 'a "quoted" word', "back\\slash", "tab\t", "Grüße", "~", "\x7f"))
)
LATER = dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)


@st.composite
def remarked(draw: st.DrawFn) -> tuple[Rule, ...]:
    """Rules of all kinds, some with texts, a time, or a log flag."""
    rules = draw(acls(max_rules=8, with_groups=True)).rules
    return tuple(
        replace(
            rule,
            description=draw(TEXTS),
            owner=draw(TEXTS),
            expires=draw(st.sampled_from((None, None, LATER))),
            log=draw(st.booleans()),
            stateless=draw(st.booleans()),
        )
        for rule in rules
    )


def one_by_one(rule: Rule) -> str:
    return orjson.dumps(rule_to_json(rule)).decode()


def writable(rule: Rule) -> bool:
    return all(text.isprintable() for text in (rule.description, rule.owner))


@LAWS
@given(remarked())
def test_rules_are_written_as_one_by_one(rules: tuple[Rule, ...]) -> None:
    rules = tuple(rule for rule in rules if writable(rule))
    assert rule_texts(rules) == [one_by_one(rule) for rule in rules]


@LAWS
@given(remarked())
def test_rules_are_read_as_one_by_one(rules: tuple[Rule, ...]) -> None:
    documents = [rule_to_json(rule) for rule in rules if writable(rule)]
    assert rules_from_json(documents) == tuple(map(rule_from_json, documents))


VALUES: dict[str, tuple[Any, ...]] = {
    "id": ("r", "_r", "", "a b", "a" * 64, "a" * 65, ".a", "a.b:c-d", "é", 7, None),
    "action": ("permit", "deny", "PERMIT", "", None, 1, True),
    "direction": ("ingress", "egress", "both", None),
    "protocol": ("tcp", "TCP", "any", "udp", "icmp", "sctp", "6", 6, 17, 0, 255, 256, -1, True, 6.0, "x", None),
    "source": ("any", "10.0.0.0/8", "10.0.0.1", "010.0.0.1", "10.0.0.0/08", "10.0.0.1/8", "10.0.0.0/33", "1.2",
               "1.2.3.4.5", "256.0.0.0/8", "0.0.0.0/0", "255.255.255.255/32", "2001:db8::/32", "@g", "@", "",
               " 10.0.0.0/8", "10.0.0.0/8 ", "10.0.0.0/", "10.0.0.0/-1", ["10.0.0.0/8", "@g"], [],
               ["any"], 10, None, "10.0.0.0/8\0"),
    "destination": ("any", "192.0.2.0/24", "192.0.2.1/24", ["192.0.2.0/24"], "::/0", "\u0661.0.0.0/8"),
    "source_ports": ("any", 80, "80", "80-90", "90-80", "0-65535", 65536, -1, True, 80.0, [80], [], ["80-90", 1]),
    "destination_ports": (443, "443-443", "1024-65535", [1, 2, 3], "http"),
    "icmp_type": (0, 8, 256, None),
    "icmp_code": (0, 255),
    "established": (True, False, None, 1, "yes"),
    "tcp_flags": ({"set": ["syn"], "clear": ["ack"]}, {}, None),
    "fragments": (True, False, 0),
    "description": ("", "words", "Grüße", "tab\t", "x" * 1024, "x" * 1025, None),
    "owner": ("", "me", '"'),
    "expires": ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00", "soon"),
    "log": (True, False, 1),
    "strange": (1,),
}  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> list[object]:
    """What a body may say: mostly right, often not quite."""
    keys = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=6)
    found: list[object] = []
    for number in range(draw(st.integers(1, 4))):
        some: dict[str, object] = {"id": f"r{number}", "action": "permit"}
        some |= {key: draw(st.sampled_from(VALUES[key])) for key in draw(keys)}
        if draw(st.integers(0, 9)) == 0:
            del some[draw(st.sampled_from(sorted(some)))]
        found.append(draw(st.sampled_from((some, some, some, some, some, "text", None, [some]))))
    return found


@settings(max_examples=examples(800), suppress_health_check=list(HealthCheck))
@given(documents())
def test_whatever_is_said_is_read_or_refused_as_one_by_one(said: list[object]) -> None:
    assert outcome(lambda: rules_from_json(said)) == outcome(
        lambda: tuple([rule_from_json(each, f"rules[{index}]") for index, each in enumerate(said)])
    )


@pytest.mark.parametrize("key", VALUES)
def test_every_value_by_itself_is_read_or_refused_as_one_by_one(key: str) -> None:
    for value in VALUES[key]:
        for protocol in ({}, {"protocol": "tcp"}):
            said: list[object] = [{"id": "r", "action": "permit", **protocol, key: value}]
            assert outcome(lambda: rules_from_json(said)) == outcome(  # noqa: B023
                lambda: (rule_from_json(said[0], "rules[0]"),)  # noqa: B023
            ), value


def outcome(read: Any) -> object:
    try:
        return read()
    except AclflowError as error:
        return type(error), str(error), error.place


def test_values_that_are_equal_but_not_the_same_are_told_apart() -> None:
    said = [
        {"id": "a", "action": "permit", "protocol": "tcp", "destination_ports": 1},
        {"id": "b", "action": "permit", "protocol": "tcp", "destination_ports": True},
    ]
    with pytest.raises(AclflowError, match="whole number"):
        rules_from_json(list(said))


def test_many_rules_keep_no_more_references_than_they_need() -> None:
    """Reading and writing again and again leaves the objects that are shared as they were."""
    said: list[object] = [{"id": f"r{number}", "action": "permit", "source": "10.0.0.0/8"} for number in range(100)]
    said += [{"id": "x", "action": "permit", "source": "10.0.0.1/8"}]
    native._BULK.read(said)
    before = sys.getrefcount(ANY)
    for _ in range(10):
        rule_texts(tuple(rule for rule in native._BULK.read(said) if rule is not None))
    assert abs(sys.getrefcount(ANY) - before) <= 1
