"""Aerleon policies: names, includes and targets, what is doubtful, and what the library would pass over in silence."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from formats.iptables_texts import some_corners
from hypothesis import HealthCheck, given, settings
from law_examples import examples
from strategies import acls

from orchestrator.errors import AclflowError, BadInput, Missing
from orchestrator.policy.formats.registry import guess, read, read_all, write
from orchestrator.policy.formats.results import Effect, Imported, Options
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, Rule, RuleId
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import EVERY_PORT

FIXTURE = (Path(__file__).parent / "fixtures" / "web.aerleon").read_text()
NETWORKS = """RFC1918 = 10.0.0.0/8      # private
          172.16.0.0/12
          192.168.0.0/16
WEB_SERVERS = 198.51.100.16/28
              2001:db8:100:10::/64
JUMP = 198.51.100.5/32
ALL = RFC1918
      WEB_SERVERS
"""
SERVICES = "WEB = 80/tcp 443/tcp\nDNS = 53/tcp 53/udp\nHIGH = 1024-65535/tcp 1024-65535/udp\nBOTH = WEB DNS\n"
KNOWN = Options(definitions={"sample.net": NETWORKS, "sample.svc": SERVICES})


def pol(*terms: str, target: str = "cisco edge mixed", options: Options = KNOWN) -> Imported:
    body = "\n".join(f"term t{number} {{\n  {term}\n}}" for number, term in enumerate(terms, 1))
    return read(f"header {{\n  target:: {target}\n}}\n{body}\n", "aerleon", name="p.pol", options=options)


def said(imported: Imported) -> list[str]:
    return [
        f"{rule.id}: {rule.action.value} {rule.protocol} {rule.source} > {rule.destination} "
        f"{','.join(map(str, rule.destination_ports))}"
        for rule in imported.acl.rules
    ]


def test_a_policy_with_its_own_definitions() -> None:
    assert guess(FIXTURE, "-").name == "aerleon"
    imported = read(FIXTURE, options=Options(lists=("juniper:edge-in",)))
    assert imported.exact, imported.losses
    assert said(imported)[:3] == [
        "no-abuse: deny None 192.0.2.128/25 > any 0-65535",
        "web: permit 6 any > 198.51.100.16/28 80,443",
        "web.2: permit 6 any > 2001:db8:100:10::/64 80,443",
    ]
    assert list(read_all(FIXTURE)) == ["juniper:edge-in", "cisco:edge-in"]
    with pytest.raises(BadInput, match=r"name those to read .* juniper:edge-in, cisco:edge-in"):
        read(FIXTURE)


def test_names_come_from_definition_files() -> None:
    imported = pol(
        "source-address:: RFC1918\n destination-address:: WEB_SERVERS\n protocol:: tcp\n"
        " destination-port:: WEB\n action:: accept"
    )
    assert imported.exact
    assert said(imported) == ["t1: permit 6 10.0.0.0/8,172.16.0.0/12,192.168.0.0/16 > 198.51.100.16/28 80,443"]


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("destination-address:: ALL\n destination-exclude:: RFC1918\n action:: deny",
         ["t1: deny None any > 198.51.100.16/28 0-65535", "t1.2: deny None any > 2001:db8:100:10::/64 0-65535"]),
        ("address:: JUMP\n action:: accept",
         ["t1: permit None 198.51.100.5/32 > any 0-65535", "t1.2: permit None any > 198.51.100.5/32 0-65535"]),
        ("protocol:: tcp udp\n destination-port:: DNS\n source-address:: JUMP\n action:: accept",
         ["t1: permit 6 198.51.100.5/32 > any 53", "t1.2: permit 17 198.51.100.5/32 > any 53"]),
        ("protocol:: 50\n source-address:: JUMP\n action:: reject", ["t1: deny 50 198.51.100.5/32 > any 0-65535"]),
        ("restrict-address-family:: inet6\n action:: accept", ["t1: permit None ::/0 > any 0-65535"]),
        ("source-address:: JUMP\n action:: accept\n platform:: juniper", []),
        ("source-address:: JUMP\n action:: accept\n platform-exclude:: cisco", []),
        ("source-address:: JUMP\n action:: next", []),
        ("verbatim:: juniper \"any\"", []),
    ],
)  # fmt: skip
def test_terms_are_read_exactly(term: str, expected: list[str]) -> None:
    imported = pol(term)
    assert imported.exact, imported.losses
    assert said(imported) == expected


def test_established_depends_on_the_platform() -> None:
    term = "protocol:: tcp\n option:: tcp-established\n source-address:: JUMP\n action:: accept"
    assert pol(term).acl.rules[0].established
    (loss,) = pol(term, target="srx from-zone a to-zone b mixed").losses
    assert "connections, which srx tracks, are not tracked here" in loss.reason
    assert pol(term, target="speedway INPUT", options=replace(KNOWN, stateless=True)).acl.rules[0].established


def test_established_means_the_high_ports_besides() -> None:
    terms = "protocol:: tcp\n option:: established\n {}action:: accept"
    web = "destination-port:: WEB\n "
    assert {str(rule.destination_ports[0]) for rule in pol(terms.format("")).acl.rules} == {"1024-65535"}
    ports = [str(ports) for ports in pol(terms.format(web)).acl.rules[0].destination_ports]
    assert ports == ["80", "443", "1024-65535"]
    assert pol(terms.format(""), target="nokiasrl edge mixed").acl.rules[0].destination_ports == EVERY_PORT
    stateless = replace(KNOWN, stateless=True)
    tracked = pol(terms.format(""), target="iptables INPUT", options=stateless).acl.rules[0]
    untracked = pol(terms.format(""), target="iptables INPUT nostate", options=stateless).acl.rules[0]
    assert tracked.destination_ports == EVERY_PORT
    assert str(untracked.destination_ports[0]) == "1024-65535"
    replies = "protocol:: tcp udp\n option:: established\n destination-port:: DNS\n action:: deny"
    denied = pol(replies, "action:: accept").acl.rules[0]
    assert [str(ports) for ports in denied.destination_ports] == ["53", "1024-65535"]


def test_icmp_types_are_those_of_the_protocol() -> None:
    imported = pol("protocol:: icmp\n icmp-type:: echo-request unreachable\n action:: accept",
                   "protocol:: icmpv6\n icmp-type:: neighbor-solicit\n action:: accept",
                   "protocol:: icmp\n icmp-type:: neighbor-solicit\n action:: accept")  # fmt: skip
    assert [(rule.protocol, rule.icmp_type) for rule in imported.acl.rules] == [(1, 3), (1, 8), (58, 135)]
    assert "'neighbor-solicit' is not a type of this ICMP" in imported.losses[0].reason


def test_a_term_ends_with_its_day() -> None:
    (rule,) = pol("source-address:: JUMP\n action:: accept\n expiration:: 2030-01-31").acl.rules
    assert rule.expires == dt.datetime(2030, 1, 31, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        ("ttl:: 255\n action:: accept", "'ttl' is not looked at here"),
        ("source-prefix:: neighbours\n action:: accept", "'source-prefix' is not looked at here"),
        ("option:: is-fragment\n action:: accept", "the option 'is-fragment' is not looked at here"),
        ("policer:: slow\n action:: accept", "'policer' is not looked at here"),
        ("source-exclude:: JUMP\n action:: deny", "what is excluded from every address depends on the platform"),
        ("filter-term:: other", "what becomes of a packet is not known: no action"),
        ("verbatim:: cisco \"permit ip any any\"", "its lines for cisco are not read"),
    ],
)  # fmt: skip
def test_what_else_a_term_says_is_a_loss(term: str, reason: str) -> None:
    imported = pol(term, "action:: accept")
    assert reason in imported.losses[0].reason
    assert imported.losses[0].line == 4
    denied = imported.losses[0].effect is Effect.WIDER
    assert denied is ("accept" not in term)
    assert (imported.acl.rules[0].action is Action.DENY) is denied


def test_the_rest_is_denied_unless_the_target_says_accept() -> None:
    term = "source-address:: RFC1918\n action:: deny"
    assert len(pol(term, target="iptables INPUT").acl.rules) == 1
    assert said(pol(term, target="iptables INPUT ACCEPT"))[-1].endswith("permit None 0.0.0.0/0 > any 0-65535")
    assert "the target juniper:edge names no IP version: it is read for IPv4" in pol(term, target="juniper edge").notes


def test_targets_say_directions() -> None:
    acl = pol("action:: accept", target="speedway OUTPUT").acl
    assert (acl.rules[0].direction, acl.egress_default) == (Direction.EGRESS, Action.DENY)


def test_includes_are_given_by_the_caller() -> None:
    text = "header {\n  target:: cisco edge\n}\n#include 'inc/deny.inc'\nterm rest {\n  action:: accept\n}\n"
    included = {"inc/deny.inc": "term abuse {\n  source-address:: JUMP\n  action:: deny\n}\n"}
    imported = read(text, "aerleon", options=replace(KNOWN, includes=included))
    assert [rule.id for rule in imported.acl.rules] == ["abuse", "rest"]
    with pytest.raises(BadInput, match=r"line 4: the included inc/deny.inc was not given"):
        read(text, "aerleon", options=KNOWN)
    circle = {"inc/deny.inc": "#include 'inc/deny.inc'\n"}
    with pytest.raises(BadInput, match="includes stand more than 5 deep"):
        read(text, "aerleon", options=replace(KNOWN, includes=circle))
    with pytest.raises(BadInput, match="the included /etc/passwd was not given"):
        read(text.replace("inc/deny.inc", "/etc/passwd"), "aerleon", options=KNOWN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FIXTURE.replace("destination-port: WEB", "destination-prot: WEB"), "aerleon would ignore some of it"),
        (FIXTURE.replace("source-address: ABUSE", "source-address: NOBODY"), "UNDEFINED: NOBODY"),
        (FIXTURE.replace("192.0.2.128/25", "192.0.2.128/33"), "has a value that is not known: '192.0.2.128/33'"),
        (FIXTURE.replace("- address: 192.0.2.128/25", "- name: ABUSE"), "the network ABUSE is defined by itself"),
        (FIXTURE.replace("address: 192.0.2.128/25", "adress: 192.0.2.128/25"), "a value of ABUSE needs one of"),
        ("header {\n target:: cisco x\n}\nterm a {\n ? action:: accept\n}\n", "'?' means nothing here"),
        ("header {\n target:: cisco x\n}\nterm a {\n action:: perhaps\n}\n", "perhaps is not a valid action"),
        ("header {\n target:: cisco x\n}\n", "aerleon cannot read it"),
        ("filters: []\n", "it holds no filter"),
        ('header {\n comment:: "x"\n}\nterm a {\n action:: accept\n}\n', "is not a filter for a platform"),
    ],
)
def test_what_the_library_would_pass_over_is_refused(text: str, message: str) -> None:
    with pytest.raises(AclflowError) as caught:
        read(text, "aerleon", name="p", options=Options(lists=("cisco:edge-in",)))
    assert message in str(caught.value)
    assert str(caught.value).startswith("p")


def test_definition_files_are_checked_too() -> None:
    for name, text in (("a.net", "BAD = 10.0.0.0/33\n"), ("a.svc", "BAD = http/tcp\n"), ("a.txt", "x")):
        with pytest.raises(BadInput):
            pol("action:: accept", options=Options(definitions={name: text}))


def test_without_the_library_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aerleon.lib", None)
    with pytest.raises(Missing, match=r"pip install .aclflow\[aerleon\]"):
        read(FIXTURE, "aerleon")


def test_what_aerleon_cannot_say() -> None:
    noon = Rule(RuleId("noon"), Action.PERMIT, expires=dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC))
    odd = Rule(RuleId("odd"), Action.DENY, protocol=1, icmp_type=200)
    exported = write(Acl((noon, odd)), "aerleon")
    assert [(loss.text, loss.effect) for loss in exported.losses] == [("noon", Effect.NARROWER), ("odd", Effect.WIDER)]


slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@slow
@given(acls(max_rules=4))
def test_what_is_written_is_read_as_the_same_list(acl: Acl) -> None:
    """Later fragments left out of account; never more than the list where it could not be written exactly."""
    exported = write(acl, "aerleon")
    once = read(exported.text, "aerleon")
    assert once.exact, once.losses
    again = read(write(once.acl, "aerleon").text, "aerleon")
    assert again.acl == once.acl
    for packet in some_corners(acl):
        if packet.later_fragment:
            continue
        for direction in Direction:
            ours, theirs = (
                ask(one, packet, direction, ReturnTraffic.EXPLICIT).action is Action.PERMIT for one in (acl, once.acl)
            )
            assert theirs is ours if exported.exact else theirs <= ours, (packet, direction)
