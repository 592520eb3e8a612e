"""ASA access lists: objects, notes and losses, lines in their places, what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.policy.formats.registry import guess, read, read_all, write
from orchestrator.policy.formats.results import Effect, Imported, Options
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.tcpflags import FlagMatch

FIXTURE = (Path(__file__).parent / "fixtures" / "web.asa").read_text()
BOTH = Options(lists=("outside_in", "inside_out=egress"))


def one(line: str, before: str = "") -> Imported:
    return read(f"{before}access-list web extended {line}\n", "asa", name="fw1")


def said(imported: Imported) -> list[str]:
    """The rules in short."""
    return [
        f"{rule.action.value} {rule.protocol} {rule.source} > {rule.destination} "
        f"{','.join(map(str, rule.destination_ports))}"
        for rule in imported.acl.rules
    ]


def test_a_firewall_is_read_with_its_objects() -> None:
    assert guess(FIXTURE, "-").name == "asa"
    imported = read(FIXTURE, options=BOTH)
    assert imported.exact, imported.losses
    ids = [rule.id for rule in imported.acl.rules if rule.direction is Direction.INGRESS]
    assert ids == ["no-abuse", "web", "web.2", "web.3", "web.4", "jump", "errors", "errors.2", "errors.3"]
    assert said(imported)[:3] == [
        "deny None 192.0.2.128/25 > any 0-65535",
        "permit 6 any > 198.51.100.16/28 80,443",
        "permit 6 any > 2001:db8:100:10::/64 80,443",
    ]
    assert "ingress is the access list outside_in (in interface outside)" in imported.notes
    assert any("inactive lines are passed over" in note for note in imported.notes)
    assert imported.acl.egress_default is Action.DENY


def test_every_list_by_itself() -> None:
    found = read_all(FIXTURE)
    assert {name: imported.exact for name, imported in found.items()} == {
        "outside_in": True,
        "inside_out": True,
        "routes": False,
    }
    assert found["routes"].losses[0].effect is Effect.REFUSED


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("permit ip any4 any4", ["permit None 0.0.0.0/0 > any 0-65535"]),
        ("permit ip any any", ["permit None 0.0.0.0/0 > any 0-65535", "permit None ::/0 > any 0-65535"]),
        ("permit icmp any any", ["permit 1 0.0.0.0/0 > any 0-65535"]),
        ("permit tcp any host 192.0.2.1 eq https", ["permit 6 any > 192.0.2.1/32 443"]),
        ("permit udp any 192.0.2.0 255.255.255.0 eq radius", ["permit 17 any > 192.0.2.0/24 1645"]),
        ("permit tcp host 2001:db8::1 any range ftp-data ssh", ["permit 6 2001:db8::1/128 > any 20-22"]),
        ("permit tcp host 2001:db8::1 host 192.0.2.1", []),
    ],
)
def test_lines_are_read_exactly(line: str, expected: list[str]) -> None:
    imported = one(line)
    assert imported.exact, imported.losses
    assert said(imported) == expected


def test_before_version_9_any_is_ipv4() -> None:
    old = "ASA Version 8.4(7)\n"
    assert said(one("permit tcp any any eq 80", old)) == ["permit 6 0.0.0.0/0 > any 80"]
    assert "before version 9.0 an ASA's `any` means IPv4 only" in one("permit ip any any", old).notes


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("permit tcp any any time-range night", "no rule comes and goes by the hour here"),
        ("permit tcp any interface outside eq 443", "the address of an interface is not known here"),
        ("permit ip user HOME\\ann any any", "who is logged in is not known here"),
        ("permit ip 10.0.0.0 0.0.0.255 any", "'0.0.0.255' is no subnet mask"),
        ("permit tcp object-group none any", "there is no object-group network none"),
        ("permit ip object name any", "the addresses of name are those of a host name"),
        ("permit ip object-group loop any", "holds itself"),
        ("permit udp any any object-group web", "holds ports of tcp"),
        ("permit ip any any eq 80", "ports are looked at under tcp, udp and sctp only"),
        ("permit tcp any any established", "'established' is not known here"),
    ],
)
def test_what_is_not_known_is_a_loss(line: str, reason: str) -> None:
    before = (
        "object network name\n fqdn shop.example\nobject-group network loop\n group-object loop\n"
        "object-group service web tcp\n port-object eq 80\n"
    )
    permitted = one(line, before)
    assert reason in permitted.losses[0].reason
    assert permitted.acl.rules == ()
    denied = one(line.replace("permit", "deny") + "\naccess-list web extended permit ip any any", before)
    assert denied.losses[0].effect is Effect.WIDER
    assert said(denied)[0].startswith("deny")


def test_line_numbers_say_where_a_line_goes() -> None:
    text = (
        "access-list web remark [last] words\naccess-list web extended permit tcp any4 any4\n"
        "access-list web line 1 extended deny tcp any4 any4 eq 22\naccess-list web line 1 remark [first]\n"
    )
    assert [(rule.id, rule.action) for rule in read(text, "asa").acl.rules] == [
        ("first", Action.DENY),
        ("last", Action.PERMIT),
    ]


def test_a_global_list_comes_after_that_of_the_interface() -> None:
    text = (
        "access-list a extended permit tcp any4 any4\naccess-list b extended permit udp any4 any4\n"
        "access-group a in interface outside\n"
    )
    both = Options(lists=("a", "b"))
    with pytest.raises(BadInput, match="a and b are both lists of IPv4 for ingress"):
        read(text, "asa", options=both)
    assert [rule.protocol for rule in read(f"{text}access-group b global\n", "asa", options=both).acl.rules] == [6, 17]


PIX = """PIX Version 6.3(5)
name 192.0.2.80 shop
access-list compiled
access-list 101 permit ip 10.0.0.0 255.0.0.0 host 192.0.2.1
access-list 101 permit ip 10.1.1.1 255.255.255.255 any
access-list inside_out deny tcp any host shop eq www
access-group 101 in interface outside
"""


def test_the_masks_of_a_pix_are_subnet_masks() -> None:
    assert guess(PIX, "-").name == "asa"
    imported = read(PIX, options=Options(lists=("101", "inside_out=egress")))
    assert imported.exact, imported.losses
    assert said(imported) == [
        "permit None 10.0.0.0/8 > 192.0.2.1/32 0-65535",
        "permit None 10.1.1.1/32 > any 0-65535",
        "deny 6 any > 192.0.2.80/32 80",
    ]


@pytest.mark.parametrize("version", ["ASA Version 8.2(1)", "PIX Version 6.3(5)", "FWSM Version 4.1(5)"])
def test_old_firewalls_have_lists_of_their_own_for_ipv6(version: str) -> None:
    text = f"{version}\naccess-list in extended permit ip any any\nipv6 access-list in6 permit tcp any any eq 22\n"
    assert said(read(text, options=Options(lists=("in", "in6")))) == [
        "permit None 0.0.0.0/0 > any 0-65535",
        "permit 6 ::/0 > any 22",
    ]


def test_a_line_that_is_taken_away_is_not_guessed_at() -> None:
    lines = "access-list in extended deny ip any host 192.0.2.1\n{}access-list in extended permit ip any any\n"
    with pytest.raises(BadInput, match="line 2: an ASA takes away one line by this"):
        read(lines.format("no access-list in extended permit tcp any any eq 23\n"))
    whole = read(lines.format("no access-list in\n"))
    assert [rule.action for rule in whole.acl.rules] == [Action.PERMIT, Action.PERMIT]


def test_text_that_is_no_line_is_refused() -> None:
    with pytest.raises(BadInput, match="line 1: 'access-list web allow ip any any' is no line of an access list"):
        read("access-list web allow ip any any\naccess-list web extended permit ip any any\n", "asa")
    with pytest.raises(BadInput, match="line 1: an ASA counts the lines of a list from 1"):
        one("permit ip any any", "access-list web line 0 extended deny ip any any\n")


def test_what_an_asa_cannot_say() -> None:
    flags = Rule(RuleId("flags"), Action.PERMIT, protocol=6, tcp_flags=FlagMatch(2, 18))
    later = Rule(RuleId("later"), Action.DENY, fragments=True)
    exported = write(Acl((flags, later)), "asa")
    assert [(loss.text, loss.effect) for loss in exported.losses] == [
        ("flags", Effect.NARROWER),
        ("later", Effect.WIDER),
    ]
    assert "access-list ingress extended deny ip any4 any4\n" in exported.text
