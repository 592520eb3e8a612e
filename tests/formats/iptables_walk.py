"""A second, independent reading of iptables: it walks the chains of a text with one packet, as the kernel does.

It shares nothing with the reader under test, and answers in one *world*: a world says what cannot be seen in a packet
(which lines' unseen matches hold, the state of its connection, the protocol a later IPv6 fragment hides).
"""

from __future__ import annotations

import ipaddress
import shlex
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


def evaluate(  # noqa: C901 - plainest as one walk over the words
    words: list[str], packet: Packet, world: World, number: int
) -> tuple[bool, str, bool]:
    """Whether a line matches, its target, and whether it is a goto."""
    answers: list[bool] = []
    target, goto, negated, unseen = "", False, False, False
    place = 0
    protocol = packet.protocol
    if packet.family is Family.IPV6 and packet.later_fragment:
        protocol = world.hidden_protocol

    def take() -> str:
        nonlocal place, negated
        if words[place] == "!":
            negated = not negated
            place += 1
        place += 1
        return words[place - 1]

    while place < len(words):
        word = words[place]
        place += 1
        if word == "!":
            negated = True
            continue
        answer: bool | None = None
        if word == "-s":
            answer = inside(take(), packet.source)
        elif word == "-d":
            answer = inside(take(), packet.destination)
        elif word == "-p":
            name = take()
            if name not in ("all", "0"):
                answer = protocol == (NUMBERS[name] if name in NUMBERS else int(name))
        elif word == "-f":
            answer = packet.later_fragment
        elif word in ("--dport", "--sport", "--dports", "--sports", "--ports"):
            text = take()
            sides = {"d": [packet.destination_port], "s": [packet.source_port]}
            ports = sides.get(word[2], [packet.source_port, packet.destination_port])
            answer = (any(in_ports(text, port) for port in ports) != negated) and not packet.later_fragment
            negated = False
        elif word in ("--tcp-flags", "--syn"):
            mask, value = ("FIN,SYN,RST,ACK", "SYN") if word == "--syn" else (take(), take())
            answer = packet.tcp_flags & bits(mask) == bits(value)
            answer = (answer != negated) and not packet.later_fragment
            negated = False
        elif word in ("--icmp-type", "--icmpv6-type"):
            kind, _, code = take().partition("/")
            same = kind == "any" or (packet.icmp_type == int(kind) and (not code or packet.icmp_code == int(code)))
            answer = (same != negated) and not packet.later_fragment
            negated = False
        elif word in ("--src-range", "--dst-range"):
            low, high = (int(ipaddress.ip_address(end)) for end in take().split("-"))
            answer = low <= (packet.source if word == "--src-range" else packet.destination) <= high
        elif word in ("--state", "--ctstate"):
            answer = world.state in take().split(",")
        elif word == "--u32":
            assert take() == "0x6&0xff=0x0"
            answer = packet.protocol == 0
        elif word == "-m":
            name = take()
            if name in HEADERS:
                answer = not packet.later_fragment
            elif name == "frag" and not words[place].startswith("--frag"):
                answer = packet.later_fragment or packet.protocol == IPV6_FRAGMENT
            elif name not in ("multiport", "iprange", "comment", "state", "conntrack", "u32"):
                unseen = True
                while place < len(words) and words[place] not in ("-j", "-g", "-m", "-s", "-d", "-p", "-i", "-o"):
                    place += 1
        elif word in ("-i", "-o"):
            take()
            unseen = True
        elif word == "--comment":
            take()
        elif word in ("-j", "-g"):
            target, goto = take(), word == "-g"
            break
        else:
            unseen = True
        if answer is not None:
            answers.append(answer != negated)
        negated = False
    return all(answers) and (not unseen or number in world.holds), target, goto


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
