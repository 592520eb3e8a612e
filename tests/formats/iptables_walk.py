"""A second, independent reading of iptables: it walks the chains of a text with one packet, as the kernel does.

It shares nothing with the reader under test, and answers in one *world*: a world says what cannot be seen in a packet
(which lines' unseen matches hold, the state of its connection, the protocol a later IPv6 fragment hides, whether others
follow it).
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

FLAG_BITS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32}
NUMBERS = {"tcp": 6, "udp": 17, "icmp": 1, "ipv6-icmp": 58, "icmpv6": 58, "sctp": 132, "gre": 47, "esp": 50, "ah": 51}
NUMBERS |= {"udplite": 136, "igmp": 2, "ospf": 89, "ipv6": 41, "vrrp": 112}
HEADERS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmp6": 58}
IPV6_FRAGMENT = 44
ONWARD = {"LOG", "NFLOG", "ULOG", "MARK", "CHECKSUM", "TCPMSS", "CT"}


@dataclass(frozen=True)
class World:
    """What a packet does not show."""

    state: str = "NEW"
    holds: frozenset[int] = frozenset()
    hidden_protocol: int = 6
    first_fragment: bool = False
    """Whether a packet that is no later fragment is the first of several."""


@dataclass
class Ruleset:
    policies: dict[str, str] = field(default_factory=dict)
    lines: dict[str, list[tuple[int, list[str]]]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Ruleset:
        found = cls()
        table = ""
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if line.startswith("*"):
                table = line[1:]
            elif table == "filter" and line.startswith(":"):
                name, policy = line[1:].split()[:2]
                found.policies[name] = policy
                found.lines[name] = []
            elif table == "filter" and line.startswith("-A"):
                words = shlex.split(line)
                found.lines[words[1]].append((number, words[2:]))
        return found

    def numbers(self) -> list[int]:
        """The numbers of all lines."""
        return [number for lines in self.lines.values() for number, _ in lines]

    def permits(self, chain: str, packet: Packet, world: World) -> bool:
        """Whether a packet that enters a chain of the kernel's own is accepted."""
        verdict = self._walk(chain, packet, world) or self.policies[chain]
        return verdict == "ACCEPT"

    def _walk(self, chain: str, packet: Packet, world: World) -> str | None:
        for number, words in self.lines[chain]:
            matched, target, goto = evaluate(words, packet, world, number)
            if not matched or not target or target in ONWARD:
                continue
            if target in ("ACCEPT", "DROP", "REJECT"):
                return target
            if target == "RETURN":
                return None
            if target in self.lines:
                verdict = self._walk(target, packet, world)
                if verdict is not None or goto:
                    return verdict
            else:
                return "ACCEPT" if number in world.holds else "DROP"
        return None


UNSEEN: frozenset[str] = frozenset({"-i", "-o"})
KNOWN_MATCHES = {"multiport", "iprange", "comment", "state", "conntrack", "u32", "dscp", "tos"}
SWALLOWED_UP_TO = {"-j", "-g", "-m", "-s", "-d", "-p", "-i", "-o"}


def evaluate(words: list[str], packet: Packet, world: World, number: int) -> tuple[bool, str, bool]:
    """Whether a line matches, its target, and whether it is a goto."""
    line = Line(words, packet, world)
    while line.left and not line.target:
        word = line.take()
        line.negated = word == "!"
        if line.negated:
            word = line.take()
        line.meet(word)
    return all(line.answers) and (not line.unseen or number in world.holds), line.target, line.goto


class Line:
    """One line on the way from word to word: what it asked so far, and what the packet said."""

    def __init__(self, words: list[str], packet: Packet, world: World) -> None:
        self.left = list(words)
        self.packet, self.world = packet, world
        self.answers: list[bool] = []
        self.target, self.goto = "", False
        self.negated, self.unseen = False, False

    def take(self) -> str:
        return self.left.pop(0)

    def value(self) -> str:
        """The word behind an option, which an older text may negate there."""
        if self.left[0] == "!":
            self.negated = not self.negated
            self.take()
        return self.take()

    def meet(self, word: str) -> None:
        """One option with what belongs to it."""
        if word in ("-j", "-g"):
            self.target, self.goto = self.value(), word == "-g"
        elif word == "-m":
            self.meet_match(self.value())
        elif word == "--comment" or word in UNSEEN:
            self.value()
            self.unseen |= word in UNSEEN
        elif word in ADDRESSED or word in HEADED:
            options, whole_only = (ADDRESSED, False) if word in ADDRESSED else (HEADED, True)
            answer = options[word](self, word)
            if answer is not None:
                seen = not (whole_only and self.packet.later_fragment)
                self.answers.append(seen and answer != self.negated)
        else:
            self.unseen = True

    def meet_match(self, name: str) -> None:
        """An extension that is loaded; some ask something by being loaded."""
        packet = self.packet
        if name in HEADERS:
            self.answers.append((not packet.later_fragment) != self.negated)
        elif name == "frag" and self.left[0] == "--fragfirst":
            self.take()
            self.answers.append(self.world.first_fragment and not packet.later_fragment)
        elif name == "frag" and not self.left[0].startswith("--frag"):
            self.answers.append(self.is_fragment() != self.negated)
        elif name == "ipv6header":
            assert [self.take() for _ in range(4)] == ["!", "--header", "ipv6-frag", "--soft"]
            self.answers.append(not self.is_fragment())
        elif name not in KNOWN_MATCHES:
            self.unseen = True
            while self.left and self.left[0] not in SWALLOWED_UP_TO:
                self.take()

    def is_fragment(self) -> bool:
        """Whether the packet has a fragment header."""
        shown = self.packet.later_fragment or self.packet.protocol == IPV6_FRAGMENT
        return shown or self.world.first_fragment

    def asks_protocol(self, _: str) -> bool | None:
        name = self.value()
        if name in ("all", "0"):
            return None
        hidden = self.packet.family is Family.IPV6 and self.packet.later_fragment
        protocol = self.world.hidden_protocol if hidden else self.packet.protocol
        return protocol == (NUMBERS[name] if name in NUMBERS else int(name))

    def asks_range(self, word: str) -> bool:
        low, high = (int(ipaddress.ip_address(end)) for end in self.value().split("-"))
        return low <= (self.packet.source if word == "--src-range" else self.packet.destination) <= high

    def asks_u32(self, _: str) -> bool:
        assert self.value() == "0x6&0xff=0x0"
        return self.packet.protocol == 0

    def asks_tos(self, _: str) -> bool:
        value, _, mask = self.value().partition("/")
        return self.packet.dscp << 2 & int(mask, 0) == int(value, 0)

    def asks_ports(self, word: str) -> bool:
        text = self.value()
        sides = {"d": [self.packet.destination_port], "s": [self.packet.source_port]}
        ports = sides.get(word[2], [self.packet.source_port, self.packet.destination_port])
        return any(in_ports(text, port) for port in ports)

    def asks_flags(self, word: str) -> bool:
        mask, value = ("FIN,SYN,RST,ACK", "SYN") if word == "--syn" else (self.value(), self.value())
        return self.packet.tcp_flags & bits(mask) == bits(value)

    def asks_icmp(self, _: str) -> bool:
        kind, _, code = self.value().partition("/")
        wanted = (int(kind), int(code or self.packet.icmp_code)) if kind != "any" else None
        return wanted is None or (self.packet.icmp_type, self.packet.icmp_code) == wanted


Asked = Callable[[Line, str], bool | None]
ADDRESSED: dict[str, Asked] = {
    "-s": lambda line, _: inside(line.value(), line.packet.source),
    "-d": lambda line, _: inside(line.value(), line.packet.destination),
    "-p": Line.asks_protocol,
    "-f": lambda line, _: line.packet.later_fragment,
    "--src-range": Line.asks_range,
    "--dst-range": Line.asks_range,
    "--state": lambda line, _: line.world.state in line.value().split(","),
    "--ctstate": lambda line, _: line.world.state in line.value().split(","),
    "--u32": Line.asks_u32,
    "--dscp": lambda line, _: line.packet.dscp == int(line.value(), 0),
    "--dscp-class": lambda line, _: line.packet.dscp == {"EF": 46, "CS1": 8}[line.value()],
    "--tos": Line.asks_tos,
}
"""What a line may ask of any packet."""

HEADED: dict[str, Asked] = {
    **dict.fromkeys(("--dport", "--sport", "--dports", "--sports", "--ports"), Line.asks_ports),
    **dict.fromkeys(("--tcp-flags", "--syn"), Line.asks_flags),
    **dict.fromkeys(("--icmp-type", "--icmpv6-type"), Line.asks_icmp),
}
"""What it may ask of the header behind IP's, which later fragments do not have."""


def inside(text: str, address: int) -> bool:
    base, _, length = text.partition("/")
    value = ipaddress.ip_address(base)
    bits_of = value.max_prefixlen
    if "." in length:
        mask = int(ipaddress.ip_address(length))
    else:
        mask = ((1 << int(length or bits_of)) - 1) << (bits_of - int(length or bits_of))
    return (address ^ int(value)) & mask == 0


def in_ports(text: str, port: int) -> bool:
    for part in text.split(","):
        low, colon, high = part.partition(":")
        first = int(low or 0)
        last = int(high or 65535) if colon else first
        if first <= port <= last:
            return True
    return False


def bits(text: str) -> int:
    if text == "NONE":
        return 0
    return 0x3F if text == "ALL" else sum(FLAG_BITS[name] for name in text.split(","))
