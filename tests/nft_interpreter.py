"""What the kernel does with a compiled nft script, in plain Python. It knows nftables and nothing of the compiler.

It reads the script, not a dump: tables, sets, verdict maps and chains as written. A rule that looks at what a packet
does not have is broken off, as in the kernel. Asking for ports where a packet has none is an error of the compiler:
the kernel would compare whatever octets are there.
"""

from __future__ import annotations

import bisect
import ipaddress
import itertools
import re
import shlex
from dataclasses import dataclass, field

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58}
DEEPEST = 16
FINAL = ("accept", "drop")
Verdict = tuple[str, ...]


class Break(Exception):
    """The packet does not have what a rule looks at."""


@dataclass
class Element:
    """An element of a set or map: an interval of values for each part of the key."""

    key: tuple[tuple[int, int], ...]
    comment: str | None
    verdict: Verdict


@dataclass
class Table:
    family: Family
    sets: dict[str, list[Element]] = field(default_factory=dict)
    exact: dict[str, dict[tuple[int, ...], Element]] = field(default_factory=dict)
    chains: dict[str, list[list[str]]] = field(default_factory=dict)
    hooks: list[tuple[int, str, str]] = field(default_factory=list)
    """Priority, chain and policy of each base chain."""

    def close(self) -> None:
        """Check what the kernel checks: elements do not overlap, and maps of single values are looked up at once."""
        for name, elements in self.sets.items():
            if all(low == high for element in elements for low, high in element.key):
                self.exact[name] = {tuple(low for low, _ in element.key): element for element in elements}
                assert len(self.exact[name]) == len(elements), f"{name}: two elements with one key"
            else:
                assert all(len(element.key) == 1 for element in elements), f"{name}: intervals in a concatenation"
                elements.sort(key=lambda element: element.key)
                for one, other in itertools.pairwise(elements):
                    assert one.key[0][1] < other.key[0][0], f"{name}: overlapping elements"

    def find(self, name: str, values: tuple[int, ...]) -> Element | None:
        if name in self.exact:
            return self.exact[name].get(values)
        place = bisect.bisect_right(self.sets[name], values[0], key=lambda element: element.key[0][0])
        found = self.sets[name][place - 1] if place else None
        return found if found and values[0] <= found.key[0][1] else None


@dataclass
class Journey:
    """What became of a packet, the comments that it was counted under, and what it cost."""

    accepted: bool = False
    comments: list[str] = field(default_factory=list)
    lookups: int = 0
    rules: int = 0


class Ruleset:
    """The tables of a script."""

    def __init__(self, script: str) -> None:
        self.tables: dict[Family, Table] = {}
        lines = [line.strip() for line in script.splitlines() if line.strip() and not line.startswith("#")]
        place = 0
        while place < len(lines):
            words = lines[place].split()
            if lines[place].endswith("{"):
                table = self.tables[_family(words[1])]
                place = _read_table(table, lines, place + 1)
                table.close()
            elif words[0] == "table":
                self.tables[_family(words[1])] = Table(_family(words[1]))
            else:
                assert words[:2] == ["delete", "table"], lines[place]
            place += 1

    def send(self, packet: Packet, hidden_protocol: int = 17) -> Journey:
        """A packet through the forward hook. `hidden_protocol`: what a later IPv6 fragment says it is part of."""
        table = self.tables[packet.family]
        journey = Journey()
        for _, chain, policy in sorted(table.hooks):
            walk = _Walk(table, packet, hidden_protocol, journey)
            if (walk.chain(chain, 0) or policy) == "drop":
                return journey
        journey.accepted = True
        return journey


@dataclass
class _Walk:
    table: Table
    packet: Packet
    hidden_protocol: int
    journey: Journey

    def chain(self, name: str, depth: int) -> str | None:
        """The final verdict, or None if the chain ends or returns without one."""
        assert depth <= DEEPEST, "the kernel refuses jumps so deep"
        for rule in self.table.chains[name]:
            self.journey.rules += 1
            try:
                verdict = self._rule(rule)
            except Break:
                continue
            if verdict is None:
                continue
            if verdict[0] in FINAL:
                return verdict[0]
            if verdict[0] == "return":
                return None
            found = self.chain(verdict[1], depth + 1)
            if found is not None or verdict[0] == "goto":
                return found
        return None

    def _rule(self, words: list[str]) -> Verdict | None:
        place = 0
        verdict: Verdict | None = None
        counted, comment = False, None
        while place < len(words):
            word = words[place]
            if word == "counter":
                counted = True
            elif word in ("accept", "drop", "return"):
                verdict = (word,)
            elif word in ("jump", "goto"):
                verdict = (word, words[place + 1])
                place += 1
            elif word == "comment":
                comment = words[place + 1]
                place += 1
            else:
                place, held, verdict = self._expression(words, place)
                if not held:
                    return None
                continue
            place += 1
        assert counted == (comment is not None)
        if comment is not None:
            self.journey.comments.append(comment)
        return verdict

    def _expression(self, words: list[str], place: int) -> tuple[int, bool, Verdict | None]:
        """A test, or a look-up in a verdict map: where it ends, whether it held, and the verdict."""
        values = []
        while True:
            value, place = self._operand(words, place)
            values.append(value)
            if words[place : place + 1] != ["."]:
                break
            place += 1
        word = words[place]
        if word == "vmap":
            element = self._find(words[place + 1], tuple(values))
            if element is not None and element.comment is not None:
                self.journey.comments.append(element.comment)
            return place + 2, element is not None, element.verdict if element is not None else None
        (value,) = values
        if word.startswith("@"):
            return place + 1, self._find(word, (value,)) is not None, None
        if word in ("==", "!=", ">="):
            other = _number(words[place + 1])
            return place + 2, {"==": value == other, "!=": value != other, ">=": value >= other}[word], None
        low, high = _interval(word)
        return place + 1, low <= value <= high, None

    def _find(self, name: str, values: tuple[int, ...]) -> Element | None:
        self.journey.lookups += 1
        return self.table.find(name.removeprefix("@"), values)

    def _operand(self, words: list[str], place: int) -> tuple[int, int]:
        if words[place].startswith("@th,"):
            name, place = words[place], place + 1
        else:
            name, place = " ".join(words[place : place + 2]), place + 2
        mask = -1
        if words[place : place + 1] == ["&"]:
            mask, place = _number(words[place + 1]), place + 2
        return self._load(name) & mask, place

    def _load(self, name: str) -> int:
        packet = self.packet
        six = packet.family is Family.IPV6
        protocol = self.hidden_protocol if six and packet.later_fragment else packet.protocol
        version = "ip6" if six else "ip"
        if name in (f"{version} saddr", f"{version} daddr"):
            return packet.source if name.endswith("saddr") else packet.destination
        if name == "meta l4proto":
            return protocol
        if name == "ip frag-off" and not six:
            return 185 if packet.later_fragment else 0x4000
        if name == "frag frag-off" and six:
            if not packet.later_fragment:
                raise Break
            return 185
        if packet.later_fragment:
            raise Break
        return self._transport(name, protocol)

    def _transport(self, name: str, protocol: int) -> int:
        packet = self.packet
        if name.startswith("@th,"):
            return 0
        if name in ("th sport", "th dport"):
            assert protocol in (6, 17, 132), f"{name} of a packet of protocol {protocol}"
            return packet.source_port if name.endswith("sport") else packet.destination_port
        icmp = "icmpv6" if packet.family is Family.IPV6 else "icmp"
        loads = {
            f"{icmp} type": (PROTOCOLS[icmp], packet.icmp_type),
            f"{icmp} code": (PROTOCOLS[icmp], packet.icmp_code),
            "tcp flags": (6, packet.tcp_flags),
        }
        wanted, value = loads[name]
        if protocol != wanted:
            raise Break
        return value


def _family(word: str) -> Family:
    return {"ip": Family.IPV4, "ip6": Family.IPV6}[word]


def _read_table(table: Table, lines: list[str], place: int) -> int:
    """Read declarations up to the table's closing brace; where that is."""
    while lines[place] != "}":
        kind, name = lines[place].split()[:2]
        end = _closing(lines, place)
        body = lines[place + 1 : end]
        if kind == "chain":
            table.chains[name] = []
            for line in body:
                hook = re.fullmatch(r"type filter hook forward priority filter( - 1)?; policy (\w+);", line)
                if hook:
                    table.hooks.append((-1 if hook[1] else 0, name, hook[2]))
                else:
                    table.chains[name].append(shlex.split(line))
        else:
            assert kind in ("map", "set")
            table.sets[name] = [_element(line) for line in body if line.endswith(",")]
            intervals = any(low != high for element in table.sets[name] for low, high in element.key)
            assert not intervals or "flags interval" in body, f"{name} holds intervals"
        place = end + 1
    return place


def _closing(lines: list[str], place: int) -> int:
    depth = 0
    while True:
        depth += lines[place].endswith("{") - (lines[place] == "}")
        if depth == 0:
            return place
        place += 1


def _element(line: str) -> Element:
    words = shlex.split(line.removesuffix(","))
    verdict: Verdict = ()
    if ":" in words:
        words, verdict = words[: words.index(":")], tuple(words[words.index(":") + 1 :])
    comment = None
    if "comment" in words:
        words, comment = words[: words.index("comment")], words[words.index("comment") + 1]
    return Element(tuple(_interval(word) for word in words if word != "."), comment, verdict)


def _interval(word: str) -> tuple[int, int]:
    if "/" in word:
        network = ipaddress.ip_network(word)
        return int(network.network_address), int(network.broadcast_address)
    low, dash, high = word.partition("-")
    return _number(low), _number(high if dash else low)


def _number(word: str) -> int:
    if word in PROTOCOLS:
        return PROTOCOLS[word]
    if "." in word or ":" in word:
        return int(ipaddress.ip_address(word))
    return int(word, 0)
