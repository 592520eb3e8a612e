"""IOS access lists: golden files, notes and losses, which list is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.registry import guess, read, read_all, write
from orchestrator.policy.formats.results import Effect, Imported, Options
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ownership import check_ownership

FIXTURES = Path(__file__).parent / "fixtures"
POLICIES = Path(__file__).parents[2] / "orchestrator" / "lab" / "policies"
SHOP = Options(lists=("shop-in", "shop-in6", "shop-out=egress"))


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def one(line: str, before: str = "") -> Imported:
    return read(f"{before}ip access-list extended web\n {line}\n", "cisco", name="r1")


def rule(line: str, before: str = "") -> Rule:
    imported = one(line, before)
    assert imported.exact, imported.losses
    return imported.acl.rules[0]


def test_the_example_is_read_and_written_as_the_golden_files_say() -> None:
    imported = read(fixture("web.cisco"), name="web.cisco", options=SHOP)
    assert imported.losses == ()
    assert write(imported.acl, "native").text == fixture("web.cisco.json")
    assert write(imported.acl, "iptables").text == fixture("web.as.iptables")
    assert write(imported.acl, "ip6tables").text == fixture("web.as.ip6tables")
    check_ownership(imported.acl, (Prefix.parse("198.51.100.0/25"), Prefix.parse("2001:db8:100::/48")))


def test_the_shipped_lists_are_read_exactly() -> None:
    options = Options(lists=("SHOP-IN", "SHOP-IN-6"))
    imported = read((POLICIES / "shop.cisco").read_bytes(), name="shop.cisco", options=options)
    assert imported.exact
    assert len(imported.acl.rules) > 15


def test_which_list_is_meant_must_be_clear() -> None:
    with pytest.raises(BadInput, match=r"name those to read .* among shop-in, shop-in6, shop-out"):
        read(fixture("web.cisco"), "cisco")
    with pytest.raises(BadInput, match=r"shop is not an access list .* there are shop-in, shop-in6, shop-out"):
        read(fixture("web.cisco"), "cisco", options=Options(lists=("shop",)))
    with pytest.raises(BadInput, match="there is not an access list for IP packets in it"):
        read("hostname r1\n", "cisco")
    with pytest.raises(BadInput, match="shop-in and shop-out are both lists of IPv4 for ingress"):
        read(fixture("web.cisco"), "cisco", options=Options(lists=("shop-in", "shop-out")))
    egress = read("access-list 7 permit any\n", "cisco", options=Options(direction=Direction.EGRESS)).acl
    assert (egress.rules[0].direction, egress.egress_default) == (Direction.EGRESS, Action.DENY)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("access-list 700 permit 0000.0000.0000 ffff.ffff.ffff\n", "700"),
        ("mac access-list M\n 10 permit any 0100.0ccc.cccc 0000.0000.0000\n", "M"),
        ("arp access-list A\n permit ip any mac any\n", "A"),
        ("ethernet-services access-list E\n 10 deny any any\n", "E"),
        ("access-list T standard permit host 192.0.2.1\n", "T"),
    ],
)
def test_lists_about_something_else_are_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(BadInput, match=rf"there is not an access list for IP packets in it, but {name} \(line 1\): "):
        read(text, "cisco")
    with pytest.raises(BadInput, match=f"{name} is not an access list for IP packets"):
        read(text, "cisco", options=Options(lists=(name,)))
    assert [loss.effect for loss in read_all(text, "cisco")[name].losses] == [Effect.REFUSED]


@pytest.mark.parametrize(
    "text",
    [
        "ip access-list WEB\n statistics per-entry\n 10 permit tcp any 192.0.2.0/24 eq 80\n",
        "ip access-list WEB\n counters per-entry\n 20 permit tcp any 192.0.2.0 0.0.0.255 eq www\n no 10\n",
        "ipv4 access-list WEB\n 10 permit tcp any 192.0.2.0/24 eq www capture\n",
        "ipv4 access-list WEB permit tcp any 192.0.2.0/24 eq 80\n",
        "ip access-list WEB\n 10 permit tcp any 192.0.2.0/24 eq 80 ! the shop\n",
        "object-group ip address N\n 10 192.0.2.0 0.0.0.255\nip access-list WEB\n permit tcp any addrgroup N eq 80\n",
        "object-group network ipv4 N\n 192.0.2.0/24\nobject-group port P\n eq 80\n"
        "ipv4 access-list WEB\n permit tcp any net-group N port-group P\n",
        "object-group ip port P\n eq 80\nip access-list WEB\n permit tcp any 192.0.2.0/24 portgroup P\n",
    ],
)
def test_switches_and_ios_xr_say_the_same_in_their_ways(text: str) -> None:
    imported = read(text, options=Options(lists=("WEB",)))
    assert imported.exact, imported.losses
    (found,) = imported.acl.rules
    assert (str(found.destination), str(found.destination_ports[0])) == ("192.0.2.0/24", "80")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("permit vlan 123 0x000 udp any any", "the protocol 'vlan' is not known here"),
        ("permit ip any any tracked", "connections are not tracked here"),
        ("permit tcp any any eq 80 ttl eq 255", "the TTL is not looked at here"),
        ("permit tcp any any syn ack", "depends on the release"),
        ("permit tcp any any portgroup NONE", "there is no object-group port"),
    ],
)
def test_what_switches_ask_besides_is_a_loss(line: str, reason: str) -> None:
    imported = read(f"ip access-list WEB\n 10 {line}\n 20 permit udp any any\n", "cisco")
    assert reason in imported.losses[0].reason
    assert [found.protocol for found in imported.acl.rules] == [17]


def test_millions_of_blank_lines_are_passed_over_once() -> None:
    """Not once for each of them, which would take hours."""
    with pytest.raises(BadInput, match="the format cannot be told"):
        guess("\n" * 2_000_000 + "x", "notes")


def test_a_router_is_read_for_its_lists_only() -> None:
    text = """hostname r1
banner motd ^C permit nothing ^C
access-list 101 remark [one] first words
access-list 101 remark and more
access-list 101 deny tcp any any eq 445
ip prefix-list x seq 10 permit 192.0.2.0/24
access-list 101 permit ip any any
no access-list 102
route-map RM permit 10
 match ip address 101
interface Gi0/0
 ip access-group 101 in
"""
    imported = read(text, "cisco")
    assert imported.exact
    assert [(found.id, found.description) for found in imported.acl.rules] == [
        ("one", "first words and more"),
        ("one.2", "first words and more"),
    ]


def test_sequence_numbers_give_the_order() -> None:
    text = (
        "ip access-list extended w\n 20 permit tcp any any\n 10 deny tcp any any eq 22\n permit udp any any\n no 20\n"
    )
    actions = [(found.action, found.protocol) for found in read(text, "cisco").acl.rules]
    assert actions == [(Action.DENY, 6), (Action.PERMIT, 17)]
    with pytest.raises(BadInput, match="line 3: there is already a line with the sequence number 10"):
        read("ip access-list extended w\n 10 permit ip any any\n 10 deny ip any any\n", "cisco")


def test_every_word_inside_a_list_counts() -> None:
    with pytest.raises(BadInput, match="line 3: 'evaluation off' is no line of an access list"):
        read("ip access-list extended w\n permit ip any any\n evaluation off\n", "cisco")


def test_a_list_that_lost_its_indentation_is_read_to_its_end() -> None:
    lines = "ip access-list w\n10 deny tcp any any eq 22\n{}\n20 permit ip any any\n"
    actions = [found.action for found in read(lines.format("statistics per-entry"), "cisco").acl.rules]
    assert actions == [Action.DENY, Action.PERMIT]
    with pytest.raises(BadInput, match="line 3: 'fragments deny-all' is no line of an access list"):
        read(lines.format("fragments deny-all"), "cisco")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("permit tcp any eq www 443 host 192.0.2.1 range ftp-data 22", "80,443 20-22"),
        ("permit udp any gt 1023 any lt 10", "1024-65535 0-9"),
        ("permit udp any neq ntp any", "0-122,124-65535 0-65535"),
    ],
)
def test_ports(line: str, expected: str) -> None:
    found = rule(line)
    sides = (found.source_ports, found.destination_ports)
    assert " ".join(",".join(map(str, ports)) for ports in sides) == expected


def test_standard_lists_and_wildcards() -> None:
    lines = ["permit 192.0.2.7", "deny host 192.0.2.8 log", "permit 10.0.0.1 0.0.255.0"]
    first, second, third = read("\n".join(f"access-list 1 {line}" for line in lines), "cisco").acl.rules
    assert (str(first.source), second.log, len(third.source.prefixes)) == ("192.0.2.7/32", True, 256)
    assert str(third.source.prefixes[1]) == "10.0.1.1/32"


def test_object_groups() -> None:
    groups = """object-group network servers
 description the servers
 host 192.0.2.1
 198.51.100.0 255.255.255.128
 range 203.0.113.4 203.0.113.7
 group-object more
object-group network more
 10.0.0.0 255.0.0.0
object-group service web
 tcp eq www
 tcp source gt 1023 eq 443
 udp range 5000 5010
 icmp echo
"""
    found = rule("permit ip object-group servers any", groups)
    assert str(found.source) == "10.0.0.0/8,192.0.2.1/32,198.51.100.0/25,203.0.113.4/30"
    imported = one("permit object-group web any host 192.0.2.9", groups)
    assert imported.exact
    assert [found.protocol for found in imported.acl.rules] == [6, 6, 17, 1]
    for missing in ("permit object-group none any any", "permit ip object-group web any"):
        assert one(missing, groups).losses[0].effect is Effect.NARROWER
    (loss,) = one("permit object-group web any any fragments", groups).losses
    assert "later fragments carry no ports, types or flags to match" in loss.reason
    denied = one("deny object-group web any any fragments\n permit ip any any", groups)
    assert str(denied.acl.rules[0].protocol) == "None"
    of_xr = "object-group network ipv4 a\n object-group b\nobject-group network ipv4 b\n 192.0.2.0/24\n"
    (found,) = read(f"{of_xr}ipv4 access-list w\n permit ipv4 net-group a any\n", "cisco").acl.rules
    assert str(found.source) == "192.0.2.0/24"
    circle = "object-group network a\n group-object a\n"
    assert "holds itself" in one("permit ip object-group a any", circle).losses[0].reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("permit tcp any any time-range lunch", "no rule comes and goes by the hour here"),
        ("permit ip any any tos 4", "the TOS field has a bit that is ECN's today, which is not looked at here"),
        ("permit ip any any dscp shiny", "the DSCP 'shiny' is not known here"),
        ("permit tcp any any reflect back timeout 10", "connections are not tracked here"),
        ("evaluate back", "connections are not tracked here"),
        ("permit tcp any any eq", "a port is missing at the end"),
        ("permit tcp any any eq 70000", "'70000' is not a port"),
        ("permit shiny any any", "the protocol 'shiny' is not known here"),
        ("permit ip 192.0.2.0 255.255.255.0 any", "it looks like a subnet mask: write its complement"),
        ("permit ip any any shiny", "'shiny' is not known here"),
        ("permit 0 any any", "the protocol number 0 means every protocol on some releases"),
        ("permit tcp any any eq 80 fragments", "later fragments carry no ports, types or flags to match"),
    ],
)
def test_what_cannot_be_read_is_a_loss(line: str, reason: str) -> None:
    imported = one(line)
    (loss,) = imported.losses
    assert (loss.file, loss.line, loss.text, loss.effect) == ("r1", 2, line, Effect.NARROWER)
    assert reason in loss.reason
    assert imported.acl.rules == ()


def test_a_deny_that_cannot_be_read_whole_denies_more() -> None:
    text = "ip access-list extended w\n deny tcp any any eq 80 time-range lunch\n permit ip any any\n"
    imported = read(text, "cisco")
    assert [loss.effect for loss in imported.losses] == [Effect.WIDER]
    deny = imported.acl.rules[0]
    assert (deny.action, deny.protocol, str(deny.destination_ports[0])) == (Action.DENY, 6, "80")


def test_a_list_without_lines() -> None:
    imported = read("ip access-list extended w\n!\n", "cisco")
    assert "a list without a line permits everything in IOS" in imported.losses[0].reason


def test_what_ios_does_with_later_fragments_is_said() -> None:
    notes = one("permit tcp any any eq 80").notes
    assert "line 2: IOS lets later fragments pass here by their addresses alone; these rules do not" in notes
    written = write(one("permit tcp any any eq 80").acl, "cisco").text
    assert " deny ip any any fragments\n" in written
    assert not any("fragments" in note for note in read(written, "cisco").notes)


def test_neighbour_discovery_at_the_end_of_a_list_is_said() -> None:
    text = "ipv6 access-list w\n permit tcp any any eq 80\n"
    said = "line 1: routers permit neighbour discovery at the end of an IPv6 list; these rules do not"
    assert said in read(text, "cisco").notes
    assert said not in read(f"{text} deny ipv6 any any\n", "cisco").notes


def test_fragment_lines_that_were_changed_by_hand_are_rules() -> None:
    written = write(one("permit tcp any any eq 80").acl, "cisco").text
    changed = written.replace(" deny ip any any fragments", " permit ip 10.0.0.0 0.255.255.255 any fragments", 1)
    rules = read(changed, "cisco").acl.rules
    assert (rules[0].action, rules[0].fragments, str(rules[0].source)) == (Action.PERMIT, True, "10.0.0.0/8")


def test_one_remark_over_several_lines_joins_only_what_is_one_rule() -> None:
    lines = [" remark [x] both", " permit ip host 192.0.2.1 host 192.0.2.3", " permit ip host 192.0.2.2 host 192.0.2.4"]
    text = "\n".join(["ip access-list extended w", *lines])
    assert [found.id for found in read(text, "cisco").acl.rules] == ["x", "x.2"]
    assert [str(found.source) for found in read(text.replace(".4", ".3"), "cisco").acl.rules] == [
        "192.0.2.1/32,192.0.2.2/32"
    ]


def test_long_descriptions_are_folded_and_come_back() -> None:
    words = " ".join(f"word{n}" for n in range(60))
    acl = Acl((Rule(RuleId("long"), Action.DENY, description=words),))
    written = write(acl, "cisco").text
    assert max(map(len, written.split("\n"))) <= 108
    assert read(written, "cisco").acl.rules[0].description == words


@pytest.mark.parametrize(
    "banner",
    [
        "banner motd ^C\naccess-list 101 permit ip any any\n^C",
        "banner login #\n  access-list 101 permit ip any any\nso be it#",
        "banner exec ^C access-list 101 permit ip any any ^C",
        "banner motd\naccess-list 101 permit ip any any\nEOF",
    ],
)
def test_a_banner_that_looks_like_a_list_is_none(banner: str) -> None:
    imported = read(f"{banner}\naccess-list 101 deny tcp any any eq 22\n", "cisco", name="r1")
    assert [each.action for each in imported.acl.rules] == [Action.DENY]


def test_a_banner_without_an_end_is_refused() -> None:
    """It may be that all the rest is its text, and it may be that it is not."""
    with pytest.raises(BadInput, match="a banner begins here, and its end, '#', never comes") as caught:
        read("hostname r1\nbanner motd #hello\naccess-list 101 permit ip any any\n", "cisco", name="r1")
    assert caught.value.place == "r1, line 2"


def test_a_banner_of_a_firewall_is_one_line() -> None:
    text = "ASA Version 9.8(2)\nbanner motd Welcome\naccess-list in extended deny tcp any any eq 22\n"
    assert {each.action for each in read(text, "asa", name="fw").acl.rules} == {Action.DENY}


@pytest.mark.parametrize("head", ["Extended IP access list web", "IP Access List web", "IPv6 access list web"])
def test_what_show_access_lists_prints_is_no_configuration(head: str) -> None:
    text = f"router#show access-lists\n{head}\n    10 permit tcp any host 10.0.0.1 eq www (12 matches)\n"
    for reading in (read, read_all):
        with pytest.raises(
            BadInput, match="-, line 2: this is what `show access-lists` prints; give the configuration"
        ):
            reading(text)
    counted = read("ip access-list extended web\n 10 permit tcp any any eq www (12 matches)\n")
    assert "'(12' is what `show access-lists` adds" in counted.losses[0].reason
