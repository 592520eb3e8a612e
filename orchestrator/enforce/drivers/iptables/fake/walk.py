"""A packet through the FORWARD chain of a filter table.

Where a line asks for a header that a later fragment does not have, iptables over nftables may take whatever bytes are
there; so such a line is an error, as is one that asks for the header of another protocol.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from orchestrator.enforce.drivers.filters.fakeconnections import NOTHING_SEEN, Seen, State
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP

PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58, "ipv6-icmp": 58, "sctp": 132}
FLAGS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "NONE": 0}
MODULES = ("comment", "u32", "icmp6", "hashlimit", "conntrack", "dscp", "tos", *PROTOCOLS)
_OF_FIRST = {
    "--ctproto": "protocol", "--ctorigsrcport": "original proto-src", "--ctorigdstport": "original proto-dst",
}  # fmt: skip
"""Options about the packet that opened the connection, by how nftables calls what they ask for."""
LIMITS = ("--hashlimit-upto", "--hashlimit-burst", "--hashlimit-name")
"""Options that say how often a line holds: always, or never while the table's limits are spent."""
REPORTS = ("--nflog-prefix", "--nflog-group", "--nflog-size")
QUEUES = ("--queue-num", "--queue-balance", "--queue-bypass")
"""Options of the target NFQUEUE; the last has no value."""
ZERO_PROTOCOL = "6&255=0"
"""The u32 test of IPv4's protocol field, numbers in decimal: it needs no header behind."""


@dataclass(slots=True)
class Rule:
    """A rule as it was written, and what it has counted."""

    text: str
    packets: int = 0
    bytes: int = 0
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.words = shlex.split(self.text)


@dataclass(slots=True)
class Journey:
    """A packet's verdict, its counting and reporting comments, and the lines compared."""

    accepted: bool = False
    came_by: str = ""
    comments: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    lines: int = 0
    queues: Queues | None = None
    """Where it waits for a verdict, if it does."""
    seen: Seen = NOTHING_SEEN
    spent: bool = False


class Queues(NamedTuple):
    """The target NFQUEUE: first and last queue, and whether unheard packets pass."""

    first: int
    last: int
    bypass: bool


@dataclass(slots=True)
class Table:
    """A filter table: the base chains' policies, and the rules of every chain.

    While its limits are `spent` they let nothing through.
    """

    policies: dict[str, str]
    chains: dict[str, list[Rule]]
    spent: bool = False

    @classmethod
    def fresh(cls) -> Table:
        """Return a fresh machine's table: everything is accepted."""
        own = ("INPUT", "FORWARD", "OUTPUT")
        return cls(dict.fromkeys(own, "ACCEPT"), {name: [] for name in own})

    def send(
        self,
        packet: Packet,
        hidden_protocol: int = UDP,
        size: int = 0,
        *,
        came_by: str = "",
        seen: Seen = NOTHING_SEEN,
    ) -> Journey:
        """Forward a packet that came by an interface.

        `hidden_protocol`: the protocol that a later IPv6 fragment names. `seen`: its connection, where these are
        tracked.
        """
        journey = Journey(came_by=came_by, seen=seen, spent=self.spent)
        verdict = self._walk_chain("FORWARD", packet, hidden_protocol, journey, size) or self.policies["FORWARD"]
        journey.accepted = verdict == "ACCEPT"
        return journey

    def _walk_chain(self, chain: str, packet: Packet, hidden: int, journey: Journey, size: int) -> str | None:
        for rule in self.chains[chain]:
            journey.lines += 1
            line = _Line(rule.words, packet, hidden, journey)
            if not line.holds():
                continue
            rule.packets, rule.bytes = rule.packets + 1, rule.bytes + size
            if line.comment is not None:
                journey.comments.append(line.comment)
            if line.target == "NFLOG":
                journey.reported.append(line.prefix)
            if line.target in ("", "NFLOG"):
                continue
            if line.target in ("ACCEPT", "DROP"):
                return line.target
            if line.target == "NFQUEUE":
                journey.queues = _queues(rule.words)
                return line.target
            if line.target == "RETURN":
                return None
            found = self._walk_chain(line.target, packet, hidden, journey, size)
            if found is not None or line.goto:
                return found
        return None


class _Line:
    """One line and one packet."""

    def __init__(self, words: list[str], packet: Packet, hidden: int, journey: Journey) -> None:
        self._words = iter(words)
        self._came_by = journey.came_by
        self._seen = journey.seen
        self._spent = journey.spent
        self._packet = packet
        six_later = packet.family is Family.IPV6 and packet.later_fragment
        self._protocol = hidden if six_later else packet.protocol
        self.comment: str | None = None
        self.prefix = ""
        self.target = ""
        self.goto = False
        self._answers_so_far = True

    def holds(self) -> bool:
        """Whether every match holds; reads comment and target on the way."""
        while (word := next(self._words, None)) is not None:
            if self._option(word) is False:
                self._answers_so_far = False
        return self._answers_so_far

    def _option(self, word: str) -> bool | None:
        """The answer of a match; None for what is none."""
        if word in ("-j", "-g"):
            self.target, self.goto = next(self._words), word == "-g"
            return None
        if word == "--comment":
            self.comment = next(self._words)
            return None
        if word in LIMITS or word in REPORTS or word in QUEUES:
            value = "" if word == QUEUES[-1] else next(self._words)
            self.prefix = value if word == "--nflog-prefix" else self.prefix
            return False if word in LIMITS and self._spent else None
        if word in ("-m", "-f", "--fragfirst"):
            return self._fragment(word)
        if word in ("-s", "-d", "-i", "--dscp", "--tos"):
            return self._is_served(word, next(self._words)) if word.startswith("--") else self._comes_from(word)
        return self._is_protocol(next(self._words)) if word == "-p" else self._match_behind_header(word)

    def _fragment(self, word: str) -> bool | None:
        """The matches that ask for fragments; other modules answer by their options."""
        if word == "--fragfirst":
            return False  # a first fragment is a whole packet to a policy
        if word == "-m":
            return self._match_module(next(self._words))
        _insist_on(self._packet.family is Family.IPV4, "-f is IPv4's")
        return self._packet.later_fragment

    def _comes_from(self, word: str) -> bool:
        """Evaluate the matches for interfaces, and for local or routed addresses."""
        if word == "-i":
            return self._came_by == next(self._words)
        packet = self._packet
        number = packet.source if word == "-s" else packet.destination
        address = ipaddress.ip_address(number if packet.family is Family.IPV4 else number.to_bytes(16, "big"))
        return address in ipaddress.ip_network(next(self._words))

    def _is_served(self, word: str, value: str) -> bool:
        """Evaluate a match of DSCP, or of its octet, whose ECN bits are 0 here."""
        wanted, _, mask = value.partition("/")
        if word == "--dscp":
            return self._packet.dscp == int(wanted, 0)
        return self._packet.dscp << 2 & int(mask or "0xff", 0) == int(wanted, 0)

    def _is_tracked(self, word: str, value: str) -> bool:
        """Evaluate an option of the match `conntrack`."""
        if word == "--ctstate":
            return any(State[name] & self._seen.state for name in value.split(","))
        if word == "--ctdir":
            return self._seen.state is not State.INVALID and (value == "REPLY") is self._seen.is_reply
        if word in ("--ctorigsrc", "--ctorigdst"):
            first = self._seen.first
            if first is None:
                return False
            number = first.source if word == "--ctorigsrc" else first.destination
            address = ipaddress.ip_address(number if first.family is Family.IPV4 else number.to_bytes(16, "big"))
            return address in ipaddress.ip_network(value)
        low, colon, high = value.partition(":")
        return int(low) <= self._seen.load(_OF_FIRST[word]) <= int(high if colon else low)

    def _is_protocol(self, name: str) -> bool:
        number = PROTOCOLS.get(name) or int(name)
        _insist_on(number != 0, "iptables takes protocol 0 for every protocol")
        return self._protocol == number

    def _match_module(self, name: str) -> bool | None:
        if name == "frag":
            return self._packet.later_fragment
        _insist_on(name in MODULES, f"no match {name}")
        return None

    def _match_behind_header(self, word: str) -> bool:
        if word.startswith("--ct"):
            return self._is_tracked(word, next(self._words))
        packet = self._packet
        _insist_on(packet.family is Family.IPV4 or word != "--u32", "u32 is IPv4's")
        value = next(self._words)
        test = re.sub(r"0x[0-9a-f]+|\d+", lambda number: str(int(number[0], 0)), value)
        if word == "--u32" and test == ZERO_PROTOCOL:
            return packet.protocol == 0
        if not self._answers_so_far:
            if word == "--tcp-flags":
                next(self._words)
            return False
        _insist_on(not packet.later_fragment, "a later fragment has no header to look at")
        return self._match_u32(test) if word == "--u32" else self._match_header(word, value)

    def _match_header(self, word: str, value: str) -> bool:
        packet = self._packet
        if word in ("--sport", "--dport"):
            low, colon, high = value.partition(":")
            port = packet.source_port if word == "--sport" else packet.destination_port
            return int(low) <= port <= int(high if colon else low)
        if word == "--tcp-flags":
            mask, wanted = (sum(FLAGS[name] for name in each.split(",")) for each in (value, next(self._words)))
            return packet.tcp_flags & mask == wanted
        _insist_on(word in ("--icmp-type", "--icmpv6-type"), f"no option {word}")
        if value == "any":
            return True
        kind, slash, code = value.partition("/")
        _insist_on(word != "--icmp-type" or kind != "255", "iptables takes ICMP type 255 for every type")
        has_kind, has_code = slot_values(packet)
        return has_kind == int(kind) and (not slash or has_code == int(code))

    def _match_u32(self, test: str) -> bool:
        packet = self._packet
        match = re.fullmatch(r"0>>22&60@(?:12>>16&(\d+)=(\d+)|0>>(24|16)=(\d+))", test)
        _insist_on(match is not None, f"no such test: {test}")
        assert match is not None
        if match[1]:
            return packet.tcp_flags & int(match[1]) == int(match[2])
        kind, code = slot_values(packet)
        word = kind << 24 | code << 16
        return word >> int(match[3]) == int(match[4])


def _queues(words: list[str]) -> Queues:
    """The queues of a rule with the target NFQUEUE; 0 where it names none."""
    named = next((word for option, word in pairwise(words) if option in QUEUES[:2]), "0")
    first, _, last = named.partition(":")
    return Queues(int(first), int(last or first), QUEUES[-1] in words)


def _insist_on(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Refused(f"iptables: {otherwise}")
