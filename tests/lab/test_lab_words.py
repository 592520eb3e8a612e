"""What people read: packets, rules and lines in a few words; and when a demo's report is good."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from orchestrator.lab import screen, specfile
from orchestrator.lab.expect import landing, policy_of
from orchestrator.lab.screen import Screen
from orchestrator.lab.trials import Line, Report, Trial, lines_of
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import RETURN_RULE_ID, Acl, Action, Direction, Packet, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, SCTP, TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

GRE = 47

F4 = Family.IPV4
SHOP = TenantId("shop")
WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
POLICY = policy_of(specfile.load(), {SHOP: Acl((WEB,))})
IN = Direction.INGRESS


@pytest.mark.parametrize(
    ("packet", "text"),
    [
        (Packet(F4, 1, 2, TCP, 5, 80, tcp_flags=TcpFlag.SYN | TcpFlag.ACK), "tcp 80 syn+ack"),
        (Packet(F4, 1, 2, TCP, 5, 80), "tcp 80 no flags"),
        (Packet(F4, 1, 2, UDP, 5, 53), "udp 53"),
        (Packet(F4, 1, 2, SCTP, 5, 0), "sctp 0"),
        (Packet(F4, 1, 2, ICMP, icmp_type=8), "icmp 8/0"),
        (Packet(F4, 1, 2, GRE), "gre"),
        (Packet(F4, 1, 2, UDP, later_fragment=True), "udp, later fragment"),
    ],
)
def test_packets_in_words(packet: Packet, text: str) -> None:
    assert screen.packet_words(packet) == text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (WEB, "permit tcp any -> any 80"),
        (
            Rule(
                RuleId("a"),
                Action.DENY,
                source=Addresses(tuple(Prefix.parse(f"10.0.{n}.0/24") for n in range(5)), ("g",)),
                destination=Addresses((Prefix.parse("192.0.2.1"), Prefix.parse("2001:db8::1"))),
            ),
            "deny ip 10.0.0.0/24,10.0.1.0/24,10.0.2.0/24,+3 -> 192.0.2.1,2001:db8::1",
        ),
        (Rule(RuleId("a"), Action.PERMIT, protocol=TCP, established=True), "permit tcp any -> any established"),
        (
            Rule(RuleId("a"), Action.PERMIT, protocol=TCP, tcp_flags=FlagMatch(TcpFlag.SYN, 0x12)),
            "permit tcp any -> any syn of syn+ack",
        ),
        (Rule(RuleId("a"), Action.PERMIT, protocol=ICMP, icmp_type=3, icmp_code=4), "permit icmp any -> any 3/4"),
        (Rule(RuleId("a"), Action.PERMIT, fragments=True), "permit ip any -> any later fragments"),
        (
            Rule(RuleId("a"), Action.PERMIT, protocol=UDP, source_ports=(PortRange(53, 53), PortRange(1024, 2000))),
            "permit udp any 53,1024-2000 -> any",
        ),
    ],
)
def test_rules_in_words(rule: Rule, text: str) -> None:
    assert screen.rule_words(rule) == text


def test_lines_in_words() -> None:
    assert [screen.line_words(POLICY, line) for line in lines_of(POLICY)][:5] == [
        "shop: permit tcp any -> any 80",
        "shop: ingress default, deny",
        "shop: ingress return traffic, permit",
        "shop: egress default, permit",
        "shop: egress return traffic, permit",
    ]
    assert len(lines_of(POLICY)) == 9


def test_where_a_packet_ought_to_land() -> None:
    pop = specfile.load()
    alice, web, bank = (pop.node(name).addresses[0].network for name in ("alice", "web1", "bank1"))
    syn = TcpFlag.SYN
    assert landing(pop, POLICY, Packet(F4, alice, web, TCP, 5, 80, tcp_flags=syn)) == ("web1",)
    assert landing(pop, POLICY, Packet(F4, alice, web, TCP, 5, 81, tcp_flags=syn)) == ()
    assert landing(pop, POLICY, Packet(F4, web, alice, TCP, 5, 81, tcp_flags=syn)) == ("alice",)
    assert landing(pop, POLICY, Packet(F4, web, bank, TCP, 5, 81, tcp_flags=syn)) == ()
    assert landing(pop, POLICY, Packet(F4, alice, web + 1, TCP, 5, 80, tcp_flags=syn)) == ()  # nobody has it


def report(*, seen: bool, counted: int) -> Report:
    line = Line(SHOP, IN, WEB.id)
    trial = Trial("alice", "web1", Packet(F4, 1, 2, TCP, 5, 80, tcp_flags=TcpFlag.SYN), True, seen, line)
    return Report(POLICY, (trial, trial), {line: 5}, {line: 5 + counted})


def test_a_report_is_good_when_wire_policy_and_counters_agree() -> None:
    assert report(seen=True, counted=2).good
    assert report(seen=True, counted=3).good  # a handshake has more packets than its first
    uncounted = report(seen=True, counted=1)
    assert not uncounted.good
    assert uncounted.uncounted == (Line(SHOP, IN, WEB.id),)
    leaky = report(seen=False, counted=2)
    assert not leaky.good
    assert len(leaky.wrong) == 2


def shown(result: Report, notes: tuple[str, ...] = ()) -> str:
    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    with Screen(console) as screen:
        screen.show(result, notes)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_says_who_decided_and_what_was_counted() -> None:
    text = shown(report(seen=True, counted=2), tuple(f"remark [{n}]" for n in range(20)))
    assert "shop: permit tcp any -> any 80" in text
    assert "5 -> 7" in text
    assert "2 of 2 trials went as the policy says." in text
    assert "DISAGREEMENT" not in text
    assert "note: remark [0]" in text
    assert "remark [19]" not in text


def test_a_disagreement_is_loud() -> None:
    text = shown(report(seen=False, counted=0))
    assert text.count("DISAGREEMENT") == 3
    assert "'shop: permit tcp any -> any 80' permits it, and it did not pass" in text
    assert "decided packets that it did not count" in text
    assert "0 of 2 trials" in text


def test_the_return_line_is_the_domains_and_not_a_rule_of_the_tenants() -> None:
    line = Line(SHOP, IN, RETURN_RULE_ID)
    assert screen.line_words(POLICY, line) == "shop: ingress return traffic, permit"
