"""nft's own words and ours come to one form where they mean the same, and to different ones where they do not."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.enforce.drivers.iptables.listing import normal_rule
from orchestrator.enforce.drivers.nftables.words import listed_element, listed_rule

SAME = [
    ("meta l4proto 6 th dport 80 counter accept", "tcp dport 80 counter packets 3 bytes 180 accept # handle 7"),
    ("meta l4proto 6 tcp flags & 0x14 == 0x04 accept", "tcp flags 0x4 / 0x4,0x10 accept"),
    ("meta l4proto 6 tcp flags & 0x03 == 0x00 drop", "tcp flags ! 0x1,0x2 drop"),
    ("meta l4proto 6 tcp flags & 0x10 == 0x10 accept", "tcp flags & 0x10 == 0x10 accept"),
    ("meta l4proto 1 icmp type 8 icmp code 0 accept", "icmp type 8 icmp code 0 accept"),
    ("ip daddr 10.0.0.1 th sport 5 th dport 65535 drop", "ip daddr 10.0.0.1 @th,0,32 0x5ffff drop"),
    ("ip6 saddr 2001:db8::/32 accept", "ip6 saddr 2001:DB8::/32 accept"),
    ("ip frag-off & 0x1fff != 0 goto late", "ip frag-off & 8191 != 0 goto late"),
    ("meta l4proto 6 th dport 80 ip dscp 0x2e accept", "ip dscp 0x2e tcp dport 80 accept"),
    ("ip6 dscp { 0x08, 0x2e } accept", "ip6 dscp { 0x08, 0x2e } accept"),
    ("ip dscp 0x28-0x2f drop", "ip dscp 0x28-0x2f drop # handle 4"),
    ("@th,152,8 >= 0 return", "@th,152,8 >= 0x0 return # handle 3"),
    ('counter drop comment "rule 7"', 'counter packets 9 bytes 99 drop comment "rule 7" # handle 12'),
    ("ip saddr & 255.255.255.0 . th sport . tcp flags & 0x12 vmap @m",
     "ip saddr & 255.255.255.0 . tcp sport . tcp flags & 0x12 vmap @m"),
]  # fmt: skip
DIFFERENT = [
    "accept", "drop", "return", "counter accept", 'accept comment "rule 1"', 'accept comment "rule 2"', "jump a",
    "goto a", "meta l4proto 6 ip saddr vmap @m", "ip daddr 10.0.0.1 ip saddr vmap @m",
    "tcp dport 80 accept", "udp dport 80 accept", "th dport 80 accept", "tcp sport 80 accept", "tcp dport 80-81 accept",
    "tcp dport != 80 accept", "tcp dport { 80, 443 } accept", "tcp dport >= 80 accept", "meta l4proto 6 accept",
    "meta l4proto != 6 accept", "ip saddr 10.0.0.0/8 accept", "ip daddr 10.0.0.0/8 accept",
    "ip saddr != 10.0.0.0/8 accept",
    "ip saddr @ours accept", "ip saddr @ours ip daddr 10.0.0.0/8 accept", "tcp flags & 0x02 == 0x02 accept",
    "tcp flags & 0x03 == 0x02 accept", "tcp flags 0x2 accept", "icmp type 8 accept", "icmp code 8 accept",
    "icmpv6 type 128 accept", "ip saddr vmap @m", "ip daddr vmap @m", "ip saddr vmap @n",
    "tcp dport vmap @m", "th dport vmap @m", "meta l4proto vmap @m",
    "counter ip saddr 10.0.0.0/8 accept", "limit rate 5/second accept", "ct state established accept", "",
    "ip saddr 10.0.0.0/8 counter accept", "counter ip saddr 10.0.0.0/8 counter accept", "meta mark 0x1 accept",
]  # fmt: skip


@pytest.mark.parametrize(("ours", "listed"), SAME)
def test_what_means_the_same_has_one_form(ours: str, listed: str) -> None:
    assert listed_rule(ours).text == listed_rule(listed).text


@pytest.mark.parametrize("line", [*DIFFERENT, *(ours for ours, _ in SAME)])
def test_the_normal_form_is_normal(line: str) -> None:
    assert listed_rule(listed_rule(line).text).text == listed_rule(line).text


def test_what_means_something_else_has_another_form() -> None:
    for one, other in itertools.combinations(DIFFERENT, 2):
        assert listed_rule(one).text != listed_rule(other).text


def test_values_stand_beside_the_text() -> None:
    rule = listed_rule('ip saddr 10.0.0.1 counter packets 4 bytes 336 drop comment "rule 3" # handle 9')
    assert (rule.packets, rule.bytes, rule.comment, rule.handle) == (4, 336, "rule 3", "9")
    element = listed_element('10.0.0.1 . 80 counter packets 2 bytes 80 comment "rule 4" : accept')
    assert (element.text, element.packets, element.bytes) == ('10.0.0.1 . 80 comment "rule 4" : accept', 2, 80)
    assert listed_element("tcp : jump a").text == listed_element("6 : jump a").text
    assert listed_element("6 : jump a").text != listed_element("6 : goto a").text


IPTABLES = [
    "-p tcp -m tcp --dport 80 -j ACCEPT", "-p udp -m udp --dport 80 -j ACCEPT", "-p tcp -m tcp --sport 80 -j ACCEPT",
    "-p gre -j ACCEPT", "! -p gre -j ACCEPT", "-s 10.0.0.0/8 -j DROP",
    "! -s 10.0.0.0/8 -j DROP", "-d 10.0.0.0/8 -j DROP",
    '-m comment --comment "rule 1" -j DROP', '-m comment --comment "rule 2" -j DROP', "-j later", "-g later",
    '-m u32 --u32 "0x6&0xff=0x0" -j DROP', '-m u32 --u32 "0x6&0xff=0x1" -j DROP', "-f -g later", "-g whole",
]  # fmt: skip


def test_iptables_words_are_told_apart_and_names_of_protocols_are_numbers() -> None:
    for one, other in itertools.combinations(IPTABLES, 2):
        assert normal_rule(one)[0] != normal_rule(other)[0]
    assert normal_rule("-p gre -j DROP") == normal_rule("-p 47 -j DROP")
    assert normal_rule("-p icmpv6 -j DROP") == normal_rule("-p ipv6-icmp -j DROP")
    assert normal_rule('--u32 "0>>22&0x3c@0=1"') == normal_rule('--u32 "0x0>>0x16&0x3c@0x0=0x1"')
    for rule in IPTABLES:
        assert normal_rule(normal_rule(rule)[0]) == normal_rule(rule)
