"""Tables, chains, rules, maps and sets, read from nft's language."""

from __future__ import annotations

import bisect
import ipaddress
import itertools
import re
import shlex
from dataclasses import dataclass, field

from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 1, "icmpv6": 58}
FAMILIES = {"ip": Family.IPV4, "ip6": Family.IPV6}
Verdict = tuple[str, ...]
"""``("accept",)``, ``("jump", chain)``, ...; nothing for an element of a set."""

_FIRST_PORT = re.compile(r"\bct original proto-")
_PROTOCOL = re.compile(r"\bct protocol \d")
"""nft knows no ports of a connection's first packet before the rule has named the protocol (seen with 1.0.6)."""
_HOOK = re.compile(
    r"type filter hook (prerouting|forward) priority (filter - 1|filter|mangle|raw|-?\d+); policy (\w+);"
)
_PRIORITIES = {"filter": 0, "filter - 1": -1, "mangle": -150, "raw": -300}


@dataclass(slots=True)
class Counted:
    """A rule or an element, as it was written, and what it has counted."""

    text: str
    packets: int = 0
    bytes: int = 0

    def count(self, size: int) -> None:
        """One more packet."""
        self.packets += 1
        self.bytes += size


@dataclass(slots=True)
class Rule(Counted):
    """A rule: its words, and the handle by which nft knows it."""

    handle: int = 0
    words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.words = shlex.split(self.text)


@dataclass(slots=True)
class Element(Counted):
    """An element of a set or map: one interval of values per key part."""

    key: tuple[tuple[int, int], ...] = ()
    comment: str | None = None
    verdict: Verdict = ()


@dataclass(slots=True)
class Set:
    """A set, map or limit: the statements of its declaration, and its elements."""

    kind: str
    declared: list[str]
    handle: int
    elements: list[Element] = field(default_factory=list)
    _exact: dict[tuple[int, ...], Element] | None = None

    @property
    def is_counting(self) -> bool:
        return "counter" in self.declared

    def close(self, name: str) -> None:
        """Check as the kernel does: elements do not overlap.

        Maps of single values are looked up at once.
        """
        spans = any(low != high for element in self.elements for low, high in element.key)
        if spans and "flags interval" not in self.declared:
            raise Refused(f"nft: {name} holds intervals")
        if spans and any(len(element.key) != 1 for element in self.elements):
            raise Refused(f"nft: {name}: intervals in a concatenation")
        self.elements.sort(key=lambda element: element.key)
        for one, other in itertools.pairwise(self.elements):
            if one.key == other.key or (spans and one.key[0][1] >= other.key[0][0]):
                raise Refused(f"nft: {name}: File exists: two elements hold one value")
        exact = {tuple(low for low, _ in element.key): element for element in self.elements}
        self._exact = None if spans else exact

    def find(self, values: tuple[int, ...]) -> Element | None:
        """The element that holds some values."""
        if self._exact is not None:
            return self._exact.get(values)
        place = bisect.bisect_right(self.elements, values[0], key=lambda element: element.key[0][0])
        found = self.elements[place - 1] if place else None
        return found if found is not None and values[0] <= found.key[0][1] else None


@dataclass(slots=True)
class Chain:
    """A chain; `hook` is its hook's name, priority and policy, if any."""

    handle: int
    hook: tuple[str, int, str] | None = None
    rules: list[Rule] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """A table of one IP version. Handles are given out in order, and never again."""

    family: Family
    handle: int = 0
    chains: dict[str, Chain] = field(default_factory=dict)
    sets: dict[str, Set] = field(default_factory=dict)
    _handles: int = 0

    def next_handle(self) -> int:
        """Return a handle that no object of the table has."""
        self._handles += 1
        return self._handles

    def chain(self, name: str) -> Chain:
        """Return a chain by its name. Raises Refused for one that is not there."""
        if name not in self.chains:
            raise Refused(f"nft: No such file or directory: chain {name}")
        return self.chains[name]

    def set(self, name: str) -> Set:
        """Return a set by its name. Raises Refused for one that is not there."""
        if name not in self.sets:
            raise Refused(f"nft: No such file or directory: set {name}")
        return self.sets[name]

    def close(self) -> None:
        """Check as the kernel does at a transaction's end: every target exists."""
        for name, each in self.sets.items():
            each.close(name)
        verdicts = [element.verdict for each in self.sets.values() for element in each.elements]
        for chain in self.chains.values():
            for rule in chain.rules:
                words = rule.words
                verdicts += [(word, words[at + 1]) for at, word in enumerate(words) if word in ("jump", "goto")]
                for word in words:
                    if word.startswith("@") and not word.startswith("@th,"):
                        self.set(word[1:])
                if words[:2] == ["limit", "name"]:
                    self.set(words[2])
        for verdict in verdicts:
            if len(verdict) == 2:
                self.chain(verdict[1])

    def add_line(self, chain: Chain, line: str) -> None:
        """A line of a chain: its hook or a rule."""
        hook = _HOOK.fullmatch(line)
        if hook is not None:
            priority = _PRIORITIES[hook[2]] if hook[2] in _PRIORITIES else int(hook[2])
            chain.hook = (hook[1], priority, hook[3])
        else:
            if _FIRST_PORT.search(line) and not _PROTOCOL.search(line):
                raise Refused(f"nft: Can't parse symbolic invalid expressions: {line}")
            chain.rules.append(Rule(line, handle=self.next_handle()))


def element(text: str) -> Element:
    """An element as nft's language writes it."""
    words = shlex.split(text.replace("\\", "\\\\"))
    verdict: Verdict = ()
    if ":" in words:
        words, verdict = words[: words.index(":")], tuple(words[words.index(":") + 1 :])
    comment = None
    if "comment" in words:
        words, comment = words[: words.index("comment")], words[words.index("comment") + 1]
    return Element(text, key=tuple(interval(word) for word in words if word != "."), comment=comment, verdict=verdict)


def interval(word: str) -> tuple[int, int]:
    """A value, prefix or range as its ends."""
    if "/" in word:
        network = ipaddress.ip_network(word)
        return int(network.network_address), int(network.broadcast_address)
    low, dash, high = word.partition("-")
    return number(low), number(high if dash else low)


def number(word: str) -> int:
    """Return the number that a word of a script stands for."""
    if word in PROTOCOLS:
        return PROTOCOLS[word]
    if "." in word or ":" in word:
        return int(ipaddress.ip_address(word))
    return int(word, 0)
