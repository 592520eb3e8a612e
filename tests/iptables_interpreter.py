"""What the kernel does with a compiled iptables text, in plain Python. It knows iptables and nothing of the compiler.

Where a line asks for a header that a later fragment does not have, iptables over nftables may take whatever octets are
there; so such a line is an error, as is one that asks for the header of another protocol.

Beside the verdict it tells which comments the packet was counted under, and how many lines it was compared with.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from dataclasses import dataclass, field

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "sctp": 132}
FLAGS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "NONE": 0}


@dataclass
class Journey:
    """What became of a packet, the comments that it was counted under, and the lines it was compared with."""

    accepted: bool = False
    comments: list[str] = field(default_factory=list)
    lines: int = 0


class Ruleset:
    """The filter table of one text."""

    def __init__(self, text: str) -> None:
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert lines[0] == "*filter"
        assert lines[-1] == "COMMIT"
        self.policies: dict[str, str] = {}
        self.chains: dict[str, list[list[str]]] = {}
        for line in lines[1:-1]:
            if line.startswith(":"):
                name, policy, _ = line[1:].split()
                self.policies[name], self.chains[name] = policy, []
            else:
                option, name, *words = shlex.split(line)
                assert option == "-A"
                self.chains[name].append(words)

    def send(self, packet: Packet, hidden_protocol: int = 17) -> Journey:
        """A packet to be forwarded. `hidden_protocol`: what a later IPv6 fragment says it is part of."""
        journey = Journey()
        verdict = self._walk("FORWARD", packet, hidden_protocol, journey) or self.policies["FORWARD"]
        journey.accepted = verdict == "ACCEPT"
        return journey

    def _walk(self, chain: str, packet: Packet, hidden: int, journey: Journey) -> str | None:
        for words in self.chains[chain]:
            journey.lines += 1
            line = _Line(words, packet, hidden)
            if not line.holds():
                continue
            if line.comment is not None:
                journey.comments.append(line.comment)
            if not line.target:
                continue
            if line.target in ("ACCEPT", "DROP"):
                return line.target
            if line.target == "RETURN":
                return None
            found = self._walk(line.target, packet, hidden, journey)
            if found is not None or line.goto:
                return found
        return None


class _Line:
    """One line and one packet."""

    def __init__(self, words: list[str], packet: Packet, hidden: int) -> None:
        self._words = iter(words)
        self._packet = packet
        six_later = packet.family is Family.IPV6 and packet.later_fragment
        self._protocol = hidden if six_later else packet.protocol
        self.comment: str | None = None
        self.target = ""
        self.goto = False
        self._answers_so_far = True

    def holds(self) -> bool:
        """Whether every match holds; reads comment and target on the way."""
        while (word := next(self._words, None)) is not None:
            answer = self._option(word)
            if answer is False:
                self._answers_so_far = False
        return self._answers_so_far

    def _option(self, word: str) -> bool | None:
        packet = self._packet
        if word in ("-j", "-g"):
            self.target, self.goto = next(self._words), word == "-g"
            return None
        if word == "--comment":
            self.comment = next(self._words)
            return None
        if word == "-m":
            return self._module(next(self._words))
        if word in ("-s", "-d"):
            address = packet.source if word == "-s" else packet.destination
            return ipaddress.ip_address(address if packet.family is Family.IPV4 else address.to_bytes(16, "big")) in (
                ipaddress.ip_network(next(self._words))
            )
        if word == "-p":
            name = next(self._words)
            number = PROTOCOLS.get(name) or int(name)
            assert number, "iptables takes protocol 0 for every protocol"
            return self._protocol == number
        if word == "-f":
            assert packet.family is Family.IPV4
            return packet.later_fragment
        if word == "--fragfirst":
            return False  # a first fragment is a whole packet to a policy
        assert packet.family is Family.IPV4 or word != "--u32"
        if word == "--u32" and (test := next(self._words)) == "0x6&0xff=0x0":
            return packet.protocol == 0
        if not self._answers_so_far:
            return False
        assert not packet.later_fragment, "a later fragment has no header to look at"
        return self._u32(test) if word == "--u32" else self._header(word)

    def _module(self, name: str) -> bool | None:
        if name == "frag":
            return self._packet.later_fragment
        assert name in ("comment", "u32", "icmp6") or name in PROTOCOLS
        return None

    def _header(self, word: str) -> bool:
        packet = self._packet
        value = next(self._words)
        if word in ("--sport", "--dport"):
            low, colon, high = value.partition(":")
            port = packet.source_port if word == "--sport" else packet.destination_port
            return int(low) <= port <= int(high if colon else low)
        if word == "--tcp-flags":
            mask, wanted = (sum(FLAGS[name] for name in each.split(",")) for each in (value, next(self._words)))
            return packet.tcp_flags & mask == wanted
        assert word in ("--icmp-type", "--icmpv6-type")
        if value == "any":
            return True
        kind, slash, code = value.partition("/")
        assert word != "--icmp-type" or kind != "255", "iptables takes ICMP type 255 for every type"
        return packet.icmp_type == int(kind) and (not slash or packet.icmp_code == int(code))

    def _u32(self, test: str) -> bool:
        packet = self._packet
        match = re.fullmatch(r"0>>22&0x3c@(?:12>>16&(0x\w+)=(0x\w+)|0>>(24|16)=(0x\w+))", test)
        assert match, test
        if match[1]:
            return packet.tcp_flags & int(match[1], 16) == int(match[2], 16)
        word = packet.icmp_type << 24 | packet.icmp_code << 16
        return word >> int(match[3]) == int(match[4], 16)
