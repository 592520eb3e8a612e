"""iptables texts to draw, and the packets at their edges."""

from __future__ import annotations

import ipaddress
import random

from hypothesis import strategies as st
from strategies import corner_packets_of

from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import corner_packets
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.formats.results import Imported
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask
from orchestrator.policy.protocols import TCP
from orchestrator.policy.space import possible
from orchestrator.policy.tcpflags import TcpFlag

CHAINS = ("FORWARD", "A", "B", "C")
ADDRESSES = {
    Family.IPV4: ("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.0/255.255.255.0", "192.0.2.0/24", "0.0.0.0/0"),
    Family.IPV6: ("2001:db8::/32", "2001:db8:1::/48", "2001:db8:1::5", "::/0", "fe80::/10"),
}
RANGES = {Family.IPV4: "10.0.0.200-10.1.2.3", Family.IPV6: "2001:db8::f-2001:db8:1::5"}
PROTOCOLS = {Family.IPV4: ("tcp", "udp", "icmp", "gre", "sctp", "all"), Family.IPV6: ("tcp", "udp", "ipv6-icmp", "esp")}
PORTS = ("22", "80", "1024:65535", ":1023", "0", "65535", "20:25")
LISTS = ("22,80", "22,80:90,443", "0:10,65535")
FLAGS = ("FIN,SYN,RST,ACK SYN", "SYN,ACK ACK", "ALL NONE", "RST RST", "SYN,RST SYN,RST")
ICMP = {Family.IPV4: ("8", "3/4", "0/0", "any"), Family.IPV6: ("128", "1/4", "135")}
UNSEEN = ("-i eth0", "-o eth1", "-m limit --limit 3/min", "-m mac --mac-source 00:11:22:33:44:55", "-m weird --odd 1 2")
STATES = ("NEW", "ESTABLISHED", "RELATED,ESTABLISHED", "INVALID", "NEW,ESTABLISHED", "RELATED", "NEW,RELATED")

MOST_STEPS = 8000
"""Packets times rules that one example may take: long lists are asked about fewer packets."""

LONGEST_TEXT = 100_000
"""Negated protocols times negated prefixes make long texts; reading those would take all the time there is."""


@st.composite
def matches(draw, family: Family, unseen: bool, states: bool) -> str:
    """Up to two things that a line asks for: few enough for lines to overlap, whatever they are about."""
    kinds = ["address", "address", "protocol", "transport", "transport", "fragment", "service"]
    kinds += ["unseen", "unseen"] * unseen + ["state", "state"] * states
    chosen = draw(st.lists(st.sampled_from(kinds), max_size=2, unique=True))
    words = [draw(_OF_KIND[kind](family)) for kind in chosen if not (kind == "protocol" and "transport" in chosen)]
    return " ".join(sorted(words, key=lambda text: not text.lstrip("! ").startswith("-p")))


def _maybe_not(often: int = 2) -> st.SearchStrategy[str]:
    return st.sampled_from(["", *[""] * (often - 1), "! "])


@st.composite
def _address(draw, family: Family) -> str:
    if draw(st.integers(0, 4)) == 0:
        return f"-m iprange {draw(_maybe_not())}--src-range {RANGES[family]}"
    return f"{draw(_maybe_not(4))}{draw(st.sampled_from(('-s', '-d')))} {draw(st.sampled_from(ADDRESSES[family]))}"


@st.composite
def _protocol(draw, family: Family) -> str:
    return f"{draw(_maybe_not(6))}-p {draw(st.sampled_from(PROTOCOLS[family][:4]))}"


@st.composite
def _transport(draw, family: Family) -> str:
    no = draw(_maybe_not())
    kind = draw(st.sampled_from(ICMP[family]))
    icmp = "-p icmp -m icmp" if family is Family.IPV4 else "-p ipv6-icmp -m icmp6"
    option = "--icmp-type" if family is Family.IPV4 else "--icmpv6-type"
    name = draw(st.sampled_from(("tcp", "udp", "sctp")))
    start = f"-p {name}"
    return draw(
        st.sampled_from(
            (
                f"{icmp} {'' if kind == 'any' else no}{option} {kind}",
                f"{start} -m {name}",
                f"{start} -m {name} {no}--dport {draw(st.sampled_from(PORTS))}",
                f"{start} -m {name} --sport {draw(st.sampled_from(PORTS))} {no}--dport {draw(st.sampled_from(PORTS))}",
                f"{start} -m multiport {no}--dports {draw(st.sampled_from(LISTS))}",
                f"{start} -m multiport {no}--ports {draw(st.sampled_from(LISTS))}",
                f"-p tcp -m tcp {no}--tcp-flags {draw(st.sampled_from(FLAGS))}",
                f"-p tcp -m tcp {no}--syn",
            )
        )
    )


def _fragment(family: Family) -> st.SearchStrategy[str]:
    return st.sampled_from(("-f", "! -f")) if family is Family.IPV4 else st.just("")


@st.composite
def _service(draw, family: Family) -> str:
    option = draw(st.sampled_from(("dscp {}--dscp 0x2e", "dscp {}--dscp-class EF", "tos {}--tos 0xa0/0xe0")))
    return f"-m {option.format(draw(_maybe_not()))}"


@st.composite
def _state(draw, family: Family) -> str:
    return f"-m state {draw(_maybe_not(4))}--state {draw(st.sampled_from(STATES))}"


_OF_KIND = {
    "address": _address,
    "protocol": _protocol,
    "transport": _transport,
    "fragment": _fragment,
    "service": _service,
    "unseen": lambda family: st.sampled_from(UNSEEN),
    "state": _state,
}


@st.composite
def rulesets(draw, family: Family = Family.IPV4, unseen: bool = False, states: bool = False) -> str:
    """A filter table of one built-in chain and up to three others; jumps go to later chains only."""
    lines = ["*filter", f":FORWARD {draw(st.sampled_from(('ACCEPT', 'DROP')))} [0:0]"]
    lines += [":OUTPUT ACCEPT [0:0]", *(f":{name} - [0:0]" for name in CHAINS[1:])]
    for place, name in enumerate(CHAINS):
        for _ in range(draw(st.integers(1 if place == 0 else 0, 5))):
            targets = ["-j ACCEPT", "-j DROP", "-j REJECT", "-j RETURN", "-j LOG", ""]
            targets += [f"-j {later}" for later in CHAINS[place + 1 :]] * 2 + [
                f"-g {later}" for later in CHAINS[place + 1 :]
            ]
            match = draw(matches(family, unseen, states))
            lines.append(f"-A {name} {match} {draw(st.sampled_from(targets))}")
    return "\n".join([*lines, "COMMIT", ""])


def packets_at(imported: Imported, family: Family, seed: int, least: int = 40) -> list[Packet]:
    """Corners of the rules that were read, and packets at the edges of what the texts are made of."""
    acl = imported.acl
    found = [packet for packet in corner_packets(acl.rules, acl.groups, overlaps=False) if packet.family is family]
    most = max(least, MOST_STEPS // (len(acl.rules) + 1))
    found = found[:: len(found) // most + 1]
    dice = random.Random(seed)
    ends = [int(ipaddress.ip_interface(text).ip) for text in ADDRESSES[family]]
    ends += [int(ipaddress.ip_network(text, strict=False).broadcast_address) for text in ADDRESSES[family]]
    ends += [int(ipaddress.ip_address(end)) + 1 for end in RANGES[family].split("-")]
    for _ in range(most):
        kind, code = dice.choice(((8, 0), (3, 4), (3, 1), (0, 0), (0, 1), (128, 0), (1, 4), (1, 0), (135, 0)))
        packet = Packet(
            family,
            dice.choice(ends),
            dice.choice(ends),
            dice.choice((6, 6, 6, 17, 17, 1, 1, 58, 58, 132, 47, 50)),
            dice.choice((0, 22, 80, 1024, 65535)),
            dice.choice((0, 19, 20, 22, 23, 25, 26, 80, 85, 90, 91, 1023, 1024, 32767, 32768, 65535, 53)),
            kind,
            code,
            dice.choice((0x02, 0x10, 0x12, 0x14, 0x04, 0x00, 0x06, 0x3F)),
            dice.random() < 0.3,
        )
        found.append(possible(packet))
    return [packet for packet in dict.fromkeys(found) if packet.protocol not in NO_PACKETS[family]]


def some_corners(acl: Acl) -> tuple[Packet, ...]:
    """Corner packets of a list, spread over all of them where there are many."""
    found = [packet for packet in corner_packets_of(acl) if packet.protocol not in NO_PACKETS[packet.family]]
    return tuple(found[:: len(found) // 300 + 1])


def permits(imported: Imported, packet: Packet) -> bool:
    return ask(imported.acl, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).action is Action.PERMIT


def is_established(packet: Packet) -> bool:
    return packet.protocol == TCP and not packet.later_fragment and bool(packet.tcp_flags & (TcpFlag.ACK | TcpFlag.RST))


seeds = st.integers(0, 1 << 32)
"""For `packets_at`."""
