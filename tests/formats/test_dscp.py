"""DSCP in foreign formats: read, written, and refused by name where a format has no word for it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from orchestrator.policy.dscp import EVERY_CODE_POINT, of_precedence
from orchestrator.policy.formats.registry import read, write
from orchestrator.policy.model import Acl, Action, Rule, RuleId

EF, PERMIT, DENY = 1 << 46, Action.PERMIT, Action.DENY


def sets_of(text: str, form: str) -> list[tuple[str, int | None]]:
    found = read(text.encode(), form)
    assert found.losses == ()
    return [(rule.action.value, rule.dscp) for rule in found.acl.rules]


@pytest.mark.parametrize(
    ("words", "members"),
    [
        ("dscp ef", EF),
        ("dscp 46", EF),
        ("dscp cs1 log", 1 << 8),
        ("dscp default", 1),
        ("precedence critical", of_precedence(5)),
        ("precedence 5", of_precedence(5)),
        ("dscp range af11 af13", 0b11111 << 10),
        ("dscp neq ef", EVERY_CODE_POINT & ~EF),
        ("dscp lt 8", 0xFF),
        ("dscp gt 55", of_precedence(7)),
    ],
)
def test_cisco_words_are_read(words: str, members: int) -> None:
    assert sets_of(f"ip access-list extended a\n permit ip any any {words}\n", "cisco") == [("permit", members)]


def test_cisco_words_stand_with_others() -> None:
    text = """ip access-list extended a
 permit tcp any any eq 80 established dscp ef
 permit tcp any any dscp af11 established
 permit icmp any any echo precedence network
 deny ip any any dscp cs1 fragments
 deny ip any any fragments dscp cs2
"""
    sets = [members for _, members in sets_of(text, "cisco")]
    assert sets == [EF, 1 << 10, of_precedence(7), 1 << 8, 1 << 16]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("tos 4", "ECN"),
        ("precedence 8", "the precedence '8' is not known here"),
        ("dscp 64", "the DSCP '64' is not known here"),
    ],
)
def test_what_cisco_asks_besides_is_a_loss(words: str, reason: str) -> None:
    (loss,) = read(f"ip access-list extended a\n permit ip any any {words}\n".encode(), "cisco").losses
    assert reason in loss.reason


def test_a_line_that_no_packet_meets_is_no_rule() -> None:
    assert sets_of("ip access-list extended a\n permit ip any any dscp ef precedence 1\n", "cisco") == []


LISTS: Sequence[Rule] = (
    Rule(RuleId("voice"), PERMIT, protocol=17, dscp=EF),
    Rule(RuleId("scavenger"), DENY, dscp=1 << 8 | of_precedence(3)),
    Rule(RuleId("late"), PERMIT, fragments=True, dscp=1),
    Rule(RuleId("rest"), PERMIT, protocol=6, established=True, dscp=0xFFFF << 20),
)


@pytest.mark.parametrize("form", ["cisco", "iptables", "nftables"])
def test_what_is_written_is_read_again(form: str) -> None:
    written = write(Acl(tuple(LISTS)), form)
    assert written.losses == ()
    back = read(written.text.encode(), form)
    assert back.losses == ()
    found = {rule.id: rule.dscp for rule in back.acl.rules if rule.id in {each.id for each in LISTS}}
    assert found == {rule.id: rule.dscp for rule in LISTS}


def test_the_words_that_are_written() -> None:
    cisco, iptables = (write(Acl(LISTS[:2]), form).text for form in ("cisco", "iptables"))
    assert " permit udp any any dscp 46\n" in cisco
    assert " deny ip any any dscp 8\n" in cisco
    assert " deny ip any any precedence 3\n" in cisco
    assert "-p udp -m dscp --dscp 0x2e " in iptables
    assert "-m tos --tos 0x60/0xe0 " in iptables


@pytest.mark.parametrize(
    "form",
    ["asa", "aws-sg", "aws-nacl", "azure-nsg", "kubernetes", "openstack-sg", "openstack-fwaas", "aerleon"],
)
def test_a_format_without_a_word_for_it_says_so(form: str) -> None:
    losses = write(Acl((Rule(RuleId("voice"), PERMIT, protocol=17, dscp=EF),)), form).losses
    assert [(loss.line, loss.reason) for loss in losses] == [(1, "DSCP is not looked at")]
    denied = write(Acl((Rule(RuleId("voice"), DENY, protocol=17, dscp=EF), Rule(RuleId("all"), PERMIT))), form)
    assert "DSCP is not looked at" in {loss.reason for loss in denied.losses}


@pytest.mark.parametrize(
    ("words", "members"),
    [
        ("-m dscp --dscp 0x2e", EF),
        ("-m dscp ! --dscp 46", EVERY_CODE_POINT & ~EF),
        ("-m dscp --dscp-class AF11", 1 << 10),
        ("-m tos --tos 0xa0/0xe0", of_precedence(5)),
    ],
)
def test_iptables_words_are_read(words: str, members: int) -> None:
    text = f"*filter\n:FORWARD DROP [0:0]\n:OUTPUT DROP [0:0]\n-A FORWARD {words} -j ACCEPT\nCOMMIT\n"
    assert sets_of(text, "iptables") == [("permit", members)]


@pytest.mark.parametrize("words", ["-m tos --tos 0xb8", "-m dscp --dscp 64", "-m dscp --dscp-class SHINY"])
def test_iptables_words_that_need_more_are_a_loss(words: str) -> None:
    text = f"*filter\n:FORWARD DROP [0:0]\n:OUTPUT DROP [0:0]\n-A FORWARD {words} -j ACCEPT\nCOMMIT\n"
    assert len(read(text.encode(), "iptables").losses) == 1


CHAIN = {"family": "inet", "table": "t", "name": "f", "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}
FIELD = {"payload": {"protocol": "ip", "field": "dscp"}}


def ruleset(*rules: list[object]) -> str:
    found: list[object] = [{"table": {"family": "inet", "name": "t"}}, {"chain": CHAIN}]
    found += [{"rule": {"family": "inet", "table": "t", "chain": "f", "expr": rule}} for rule in rules]
    return json.dumps({"nftables": found})


@pytest.mark.parametrize(
    ("left", "op", "right", "members"),
    [
        (FIELD, "==", "ef", EF),
        (FIELD, "==", {"set": [46, "cs1", {"range": [10, 12]}]}, EF | 1 << 8 | 7 << 10),
        (FIELD, "==", {"set": ["df", "lephb"]}, 0b11),
        (FIELD, "!=", 46, EVERY_CODE_POINT & ~EF),
        (FIELD, ">=", 56, of_precedence(7)),
        ({"&": [FIELD, 0x38]}, "==", 40, of_precedence(5)),
    ],
)
def test_nftables_matches_are_read(left: object, op: str, right: object, members: int) -> None:
    rule = [{"match": {"op": op, "left": left, "right": right}}, {"accept": None}]
    assert sets_of(ruleset(rule), "nftables") == [("permit", members)]


def test_a_ruleset_that_changes_it_does_not_say_what_it_was() -> None:
    change = [{"mangle": {"key": FIELD, "value": 8}}]
    asks = [{"match": {"op": "==", "left": FIELD, "right": 8}}, {"accept": None}]
    (loss,) = read(ruleset(change, asks).encode(), "nftables").losses
    assert "a rule of the file changes DSCP" in loss.reason
    assert read(ruleset(change, [{"accept": None}]).encode(), "nftables").losses == ()
