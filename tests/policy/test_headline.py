"""What a review says first: where a change is wide, and what it takes away from somebody."""

from __future__ import annotations

import pytest

from api.schemas.inspection import ChangeBody
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.difference import difference
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.headline import Danger, Json, counts_wanted, headline
from orchestrator.policy.model import ReturnTraffic

OWN = (Prefix.parse("198.51.100.0/24"),)
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.7", "destination_ports": 443}
SSH = {"id": "ssh", "action": "permit", "protocol": "tcp", "destination_ports": 22, "source": "192.0.2.0/24"}


def changes(before: list[Json], after: list[Json], returns: ReturnTraffic = ReturnTraffic.EXPLICIT) -> list[Json]:
    lists = (acl_from_json({"rules": rules}) for rules in (before, after))
    found = difference(*lists, own=OWN, returns=returns)
    return [change.model_dump() for change in ChangeBody.all_of(found)]


def said(before: list[Json], after: list[Json], **more: object) -> list[tuple[str, Danger]]:
    kept = [rule["id"] for rule in after]
    found = headline(changes(before, after), own=OWN, kept=kept, **more)  # type: ignore[arg-type]
    return [(sentence.text, sentence.danger) for sentence in found]


@pytest.mark.parametrize("returns", list(ReturnTraffic))
def test_permit_any_any_opens_everything_to_everyone(returns: ReturnTraffic) -> None:
    found = headline(changes([], [{"id": "all", "action": "permit"}], returns), own=OWN)
    assert (found[0].text, found[0].danger) == ("opens every port of every address to everyone", Danger.HIGH)


@pytest.mark.parametrize(
    ("rule", "text", "danger"),
    [
        (WEB, "opens tcp port 443 of 198.51.100.7 to everyone", Danger.SOME),
        (SSH, "opens tcp port 22 of every address to 192.0.2.0/24", Danger.NONE),
        ({**SSH, "source": "any"}, "opens tcp port 22 of every address to everyone", Danger.SOME),
        ({**SSH, "source": "0.0.0.0/1"}, "opens tcp port 22 of every address to nearly everyone", Danger.SOME),
        ({**SSH, "source": "10.0.0.0/8"}, "opens tcp port 22 of every address to 10.0.0.0/8", Danger.SOME),
        (
            {**WEB, "destination_ports": "1-65535"},
            "opens tcp port 1-65535 of 198.51.100.7 to everyone",
            Danger.HIGH,
        ),
        ({**WEB, "destination_ports": "any"}, "opens every tcp port of 198.51.100.7 to everyone", Danger.HIGH),
        ({"id": "p", "action": "permit", "protocol": "icmp"}, "opens icmp of every address to everyone", Danger.SOME),
    ],
)
def test_what_is_opened_is_said_with_whom_it_is_opened_to(rule: Json, text: str, danger: Danger) -> None:
    assert said([], [rule]) == [(text, danger)]


@pytest.mark.parametrize("rule", [{"established": True}, {"tcp_flags": {"set": ["ack"], "clear": ["syn"]}}])
def test_what_is_opened_for_answers_opens_no_connection(rule: Json) -> None:
    answers = {"id": "answers", "action": "permit", "protocol": "tcp", **rule}
    text = "opens every tcp port of every address to everyone, but to no new connection (packets with ACK or RST only)"
    assert said([], [answers]) == [(text, Danger.SOME)]


def test_a_neighbour_that_is_denied_no_more_reaches_nothing_new_where_answers_come_back() -> None:
    deny = {"id": "scanner", "action": "deny", "source": "192.0.2.66"}
    found = headline(changes([deny], [], ReturnTraffic.ESTABLISHED), own=OWN)
    assert [sentence.danger for sentence in found] == [Danger.NONE]
    assert "to 192.0.2.66, but to no new connection" in found[0].text


def test_what_is_opened_beside_what_was_open_is_said_first_where_it_is_widest() -> None:
    found = said([WEB, SSH], [{"id": "all", "action": "permit"}])
    assert found == [("opens every port of every address to everyone", Danger.HIGH)]


def test_protocols_that_stay_closed_are_not_said_to_be_opened() -> None:
    closed = {"id": "no-tcp", "action": "deny", "protocol": "tcp"}
    found = said([closed], [closed, {"id": "all", "action": "permit"}])
    assert found == [("opens every protocol but tcp of every address to everyone", Danger.HIGH)]


def test_a_rule_that_is_taken_away_is_said_with_what_it_decided() -> None:
    assert counts_wanted(changes([WEB, SSH], [SSH])) == ("web",)
    assert said([WEB, SSH], [SSH], packets={"web": 12000}) == [
        ("closes rule 'web', which decided 12,000 packets in the last 24 hours", Danger.HIGH)
    ]
    assert said([WEB, SSH], [], packets={"web": 12000, "ssh": 0}) == [
        ("closes 2 rules (web, ssh) that decided 12,000 packets in the last 24 hours", Danger.HIGH)
    ]
    assert said([WEB], [], packets={"web": 0}) == [
        ("closes rule 'web', which decided no packet in the last 24 hours", Danger.SOME)
    ]
    assert said([WEB], []) == [("closes rule 'web'", Danger.SOME)]


def test_a_rule_that_stays_is_narrowed() -> None:
    narrow = {**WEB, "source": "192.0.2.0/24"}
    assert said([WEB], [narrow], packets={"web": 1}) == [
        ("narrows rule 'web', which decided 1 packet in the last 24 hours", Danger.HIGH)
    ]


def test_a_rule_that_becomes_stateless_is_told_where_connections_are_tracked() -> None:
    tracked, marked = ReturnTraffic.TRACKED, {**WEB, "stateless": True}
    found = headline(changes([WEB], [marked], tracked), own=OWN)
    text = "decides packets without a look at their connections, whose answers need rules of their own: web"
    assert [(sentence.text, sentence.danger) for sentence in found] == [(text, Danger.SOME)]
    found = headline(changes([marked], [WEB], tracked), own=OWN)
    assert [sentence.text for sentence in found] == ["decides packets by their connections, as it did not before: web"]
    assert said([WEB], [marked])[0][1] is Danger.NONE


def test_the_worst_comes_first_and_the_rest_is_counted() -> None:
    rules = [{**WEB, "id": f"r{port}", "destination_ports": port, "source": f"192.0.2.{port}"} for port in range(1, 8)]
    found = said([], [*rules, {**WEB, "id": "all", "destination_ports": "any"}])
    assert found[0] == ("opens every tcp port of 198.51.100.7 to everyone", Danger.HIGH)
    found = said([], rules)
    assert (len(found), found[-1]) == (5, ("and makes 3 smaller changes", Danger.NONE))


def test_lists_that_cannot_be_compared_and_those_that_do_the_same_are_told() -> None:
    assert headline(None)[0].danger is Danger.HIGH
    assert "no packet fares otherwise" in headline([])[0].text
