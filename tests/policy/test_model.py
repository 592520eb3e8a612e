"""A rule or a list that exists is right; every wrong one is refused with its place."""

from __future__ import annotations

import datetime as dt

import pytest

from orchestrator.errors import BadInput, BadPolicy
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, GroupName, Rule, RuleId
from orchestrator.policy.ownership import check_ownership
from orchestrator.policy.ports import PortRange
from orchestrator.policy.tcpflags import FlagMatch


def rule(name: str = "r1", **fields: object) -> Rule:
    return Rule(RuleId(name), Action.PERMIT, **fields)  # type: ignore[arg-type]


def at(*texts: str) -> Addresses:
    return Addresses(tuple(map(Prefix.parse, texts)))


PORTS = (PortRange(80, 80),)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"protocol": 256}, "protocol"),
        ({"destination_ports": PORTS}, "destination_ports"),
        ({"protocol": 47, "source_ports": PORTS}, "source_ports"),
        ({"protocol": 6, "source_ports": ()}, "source_ports"),
        ({"protocol": 6, "icmp_type": 8}, "icmp_type"),
        ({"protocol": 1, "icmp_type": 256}, "icmp_type"),
        ({"protocol": 1, "icmp_code": 0}, "icmp_code"),
        ({"protocol": 17, "established": True}, "established"),
        ({"protocol": 6, "established": True, "tcp_flags": FlagMatch(2, 2)}, "tcp_flags"),
        ({"protocol": 6, "destination_ports": PORTS, "fragments": True}, "fragments"),
        ({"expires": dt.datetime(2030, 1, 1)}, "expires"),
        ({"description": "x" * 1025}, "description"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_field(fields: dict[str, object], place: str) -> None:
    with pytest.raises((BadInput, BadPolicy)) as refusal:
        rule(**fields)
    assert refusal.value.place == place


@pytest.mark.parametrize(
    ("written", "end"),
    [
        ("2030-01-31T12:00:00+05:30", "2030-01-31T06:30:00+00:00"),
        ("2030-01-31T12:00:00-14:00", "2030-02-01T02:00:00+00:00"),
        ("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999+00:00"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+00:00"),
    ],
)
def test_an_end_is_kept_in_utc(written: str, end: str) -> None:
    """Texts say UTC of it; a time beyond those that can be written is the last or the first one."""
    ending = rule(expires=dt.datetime.fromisoformat(written))
    assert ending.expires is not None
    assert ending.expires.isoformat() == end


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 65, "a\n", "ä"])
def test_a_name_fits_into_urls_files_and_shells(name: str) -> None:
    with pytest.raises(BadInput):
        rule(name)


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        ([rule("a"), rule("b"), rule("a")], "rules[2].id"),
        ([rule("_return")], "rules[0].id"),
        ([rule("a", source=Addresses(groups=("nobody",)))], "rules[0].source"),
        ([rule("a", source=at("10.0.0.0/8"), destination=at("2001:db8::/32"))], "rules[0].destination"),
        ([rule("a", protocol=58, source=at("10.0.0.0/8"))], "rules[0].protocol"),
    ],
)
def test_a_wrong_list_is_refused_with_the_rule(rules: list[Rule], place: str) -> None:
    with pytest.raises(BadPolicy) as refusal:
        Acl(tuple(rules))
    assert refusal.value.place == place


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"destination": at("198.51.100.0/25")}, None),
        ({"destination": at("198.51.100.7")}, None),
        ({"destination": at("198.51.100.0/24")}, "rules[0].destination"),
        ({"destination": at("2001:db8::1")}, "rules[0].destination"),
        ({"destination": Addresses(groups=("outside",))}, "rules[0].destination"),
        ({"source": at("0.0.0.0/0")}, None),
        ({"direction": Direction.EGRESS, "source": at("203.0.113.1")}, "rules[0].source"),
    ],
)
def test_on_its_own_side_a_tenant_names_what_it_owns(fields: dict[str, object], place: str | None) -> None:
    outside = AddressGroup(GroupName("outside"), (Prefix.parse("203.0.113.0/24"),))
    acl = Acl((rule(**fields),), {"outside": outside})
    own = (Prefix.parse("198.51.100.0/25"),)
    if place is None:
        check_ownership(acl, own)
        return
    with pytest.raises(BadPolicy) as refusal:
        check_ownership(acl, own)
    assert refusal.value.place == place
