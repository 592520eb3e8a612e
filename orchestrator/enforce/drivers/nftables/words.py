"""Rules, maps and sets of nftables in one normal form, from any writer.

The listing of nft differs from its input: it drops a test that another one implies (``meta l4proto 6 th dport 80``
comes back as ``tcp dport 80``), joins neighbouring fields into one (``@th,0,32``), writes flags and numbers in other
words and puts counters' values everywhere. A rule is a set of tests on fields, all of which must hold, then a counter,
a verdict and a comment; so here its tests are taken apart by field, implied ones are added, and all are written in one
order. A rule that does not consist of such tests only keeps its words, with numbers in decimal. Two rules that have the
same normal form match the same packets and do the same; and the normal form is nft's own language again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP

PROTOCOLS = {"tcp": TCP, "udp": UDP, "sctp": SCTP, "icmp": ICMP, "icmpv6": ICMPV6}

_TAIL = re.compile(
    r"(?P<tests>(?:[^ ]++(?: ++[^ ]++)*?)??)"  # word by word, which takes a third of the time of going by character
    r" ?(?P<counter>counter(?: packets (?P<packets>\d+) bytes (?P<bytes>\d+))? )?"
    r"(?P<verdict>accept|drop|return|(?:jump|goto) \S+|)(?: comment \"(?P<comment>[^\"]*)\")?"
    r"(?: # handle (?P<handle>\d+))?\Z"
)
_NUMBER = re.compile(r"(?<![\w.:/-])(?:0x[0-9a-f]+|\d+)(?![\w.:/-])")
_PORTS, _ICMP_FIELDS = ("sport", "dport"), ("type", "code")
_FIELDS = {**dict.fromkeys(("th", "tcp", "udp", "sctp"), _PORTS), **dict.fromkeys(("icmp", "icmpv6"), _ICMP_FIELDS)}
_RELATIONS = ("&", "==", "!=", "<", "<=", ">", ">=")
_ORDER = ("saddr", "daddr", "l4proto", "sport", "dport", "type", "code", "flags", "dscp")


@dataclass(frozen=True, slots=True)
class ListedRule:
    """A rule in normal form, without the values of its counter, which stand beside."""

    text: str
    comment: str
    packets: int
    bytes: int
    handle: str


class _Unusual(Exception):
    """The rule does not consist of tests that are understood here."""


def listed_rule(line: str) -> ListedRule:
    """A rule as nft lists it, with or without values and handle."""
    found = _TAIL.match(line)
    if found is None:
        return ListedRule(line, "", 0, 0, "")
    comment = found["comment"]
    words = [
        *([tests] if (tests := _normalize_tests(found["tests"])) else []),
        *(["counter"] if found["counter"] else []),
        *([found["verdict"]] if found["verdict"] else []),
        *([f'comment "{comment}"'] if comment is not None else []),
    ]
    counted = int(found["packets"] or 0), int(found["bytes"] or 0)
    return ListedRule(" ".join(words), comment or "", *counted, found["handle"] or "")


@lru_cache(maxsize=1 << 16)
def _normalize_tests(text: str) -> str:
    try:
        return _Tests(text).written()
    except (_Unusual, IndexError):
        return decimal(text)


def decimal(text: str) -> str:
    """Write every number that stands alone in decimal."""
    return _NUMBER.sub(lambda number: str(int(number[0], 0)), text)


class _Tests:
    """The tests of a rule by field."""

    def __init__(self, text: str) -> None:
        self._words = text.split()
        self._family = ""
        self._found: dict[str, str] = {}
        self._lookup = ""
        place = 0
        while place < len(self._words) and not self._lookup:
            place = self._vmap(place) or self._test(place)
        if place != len(self._words):
            raise _Unusual

    def written(self) -> str:
        """The tests in order, with every implied protocol said."""
        icmp = "icmpv6" if self._found.get("l4proto") == str(ICMPV6) else "icmp"
        names = {
            "saddr": f"{self._family} saddr", "daddr": f"{self._family} daddr", "l4proto": "meta l4proto",
            "sport": "th sport", "dport": "th dport", "type": f"{icmp} type", "code": f"{icmp} code",
            "flags": "tcp flags", "dscp": f"{self._family} dscp",
        }  # fmt: skip
        tests = [f"{names[field]} {self._found[field]}" for field in _ORDER if field in self._found]
        return " ".join([*tests, *([self._lookup] if self._lookup else [])])

    def _note_field(self, field: str, value: str) -> None:
        if self._found.setdefault(field, value) != value:
            raise _Unusual

    def _note_family(self, family: str) -> None:
        if self._family not in ("", family):
            raise _Unusual
        self._family = family

    def _note_protocol(self, protocol: str) -> None:
        if protocol != "th":
            self._note_field("l4proto", str(PROTOCOLS[protocol]))

    def _test(self, place: int) -> int:
        """Take the test that begins at a word; where the next one does."""
        words = self._words
        first, second, value = words[place], words[place + 1], words[place + 2] if place + 2 < len(words) else ""
        if first == "@th,0,32":
            ports = int(second, 0)
            self._note_field("sport", str(ports >> 16))
            self._note_field("dport", str(ports & 0xFFFF))
            return place + 2
        if (first, second) == ("tcp", "flags"):
            self._note_protocol("tcp")
            return self._flags(place + 2)
        if first in ("ip", "ip6") and second == "dscp":
            self._note_family(first)
            return self._dscp(place + 2)
        if not value or value in _RELATIONS:
            raise _Unusual
        if first in ("ip", "ip6") and second in ("saddr", "daddr") and value[0] not in "@{":
            self._note_family(first)
            self._note_field(second, _value(value))
        elif (first, second) == ("meta", "l4proto") and value.isdigit():
            self._note_field("l4proto", value)
        elif second in _FIELDS.get(first, ()):
            self._note_protocol(first)
            self._note_field(second, _value(value))
        else:
            raise _Unusual
        return place + 3

    def _dscp(self, place: int) -> int:
        """Read DSCP as a number, a range or a set: ``{ 0x08, 0x2e }``."""
        words = self._words
        if words[place] == "{":
            end = place + words[place:].index("}") if "}" in words[place:] else place
            values = sorted(_number(word.removesuffix(",")) for word in words[place + 1 : end])
            self._note_field("dscp", f"{{ {', '.join(f'{value:#04x}' for value in values)} }}")
            return end + 1
        ends = [f"{_number(end):#04x}" for end in words[place].split("-")]
        self._note_field("dscp", "-".join(ends))
        return place + 1

    def _flags(self, place: int) -> int:
        """Read flags under a mask: ``& M == V``, ``V / M,M,...`` or ``! M``."""
        words = self._words
        if words[place] == "&" and words[place + 2] == "==":
            mask, value, following = int(words[place + 1], 0), int(words[place + 3], 0), place + 4
        elif words[place] == "!":
            mask, value, following = _join_flags(words[place + 1]), 0, place + 2
        elif words[place + 1] == "/":
            mask, value, following = _join_flags(words[place + 2]), _join_flags(words[place]), place + 3
        else:
            raise _Unusual
        self._note_field("flags", f"& {mask:#04x} == {value:#04x}")
        return following

    def _vmap(self, place: int) -> int:
        """Read a look-up in a verdict map to the end; 0 if it is none.

        Only the test of a protocol may stand before it.
        """
        words, key = self._words, self._words[place:-2]
        is_test = key[:2] == ["meta", "l4proto"] and len(key) > 2
        if words[-2:-1] != ["vmap"] or is_test:
            return 0
        if not self._found.keys() <= {"l4proto"}:
            raise _Unusual
        fields = [_field(part.split()) for part in " ".join(key).split(" . ")]
        for _, protocol in fields:
            if protocol:
                self._note_protocol(protocol)
        self._lookup = f"{' . '.join(field for field, _ in fields)} vmap {words[-1]}"
        return len(words)


def _field(words: list[str]) -> tuple[str, str]:
    """Return a key's field, masked or not, in one form, and its implied protocol."""
    if len(words) == 4 and words[2] == "&":
        name, protocol = _field(words[:2])
        mask = f"{int(words[3], 0):#04x}" if name == "tcp flags" else _value(words[3])
        return f"{name} & {mask}", protocol
    if len(words) != 2:
        raise _Unusual
    first, second = words
    if first in ("th", "tcp", "udp", "sctp") and second in ("sport", "dport"):
        return f"th {second}", "" if first == "th" else first
    protocol = first if first in PROTOCOLS else ""
    return f"{first} {second}", protocol


def _number(word: str) -> int:
    """Read a number, decimal or hexadecimal. Raises _Unusual."""
    try:
        return int(word, 0)
    except ValueError:
        raise _Unusual from None


def _join_flags(flags: str) -> int:
    return sum(int(flag, 0) for flag in flags.split(","))


@lru_cache(maxsize=1 << 14)
def _value(text: str) -> str:
    """A value, prefix or interval in one form."""
    if ":" not in text:
        return str(int(text, 0)) if text.startswith("0x") else text
    try:
        return "-".join(str(Prefix.parse(end)).removesuffix("/128") for end in text.split("-"))
    except AclflowError:
        return text


# ---------------------------------------------------------------------------------------------------- maps and sets


@dataclass(frozen=True, slots=True)
class ListedElement:
    """An element in normal form, and what stands beside it."""

    text: str
    comment: str
    packets: int
    bytes: int


_ELEMENT = re.compile(
    r"(?P<key>(?:[^ \"]++(?: ++[^ \"]++)*?)??)"
    r"(?: counter packets (?P<packets>\d+) bytes (?P<bytes>\d+))?(?: comment \"(?P<comment>[^\"]*)\")?"
    r"(?: : (?P<verdict>(?:accept|drop|return|(?:jump|goto) \S+)))?\Z"
)
_ONE_ELEMENT = re.compile(r"(?:[^,\"]|\"[^\"]*\")+")


def listed_element(text: str) -> ListedElement:
    """An element as nft lists it, with or without values."""
    found = _ELEMENT.match(text)
    if found is None:
        return ListedElement(text, "", 0, 0)
    key, comment = " . ".join(_normalize_part(part) for part in found["key"].split(" . ")), found["comment"]
    words = [key, *([f'comment "{comment}"'] if comment is not None else [])]
    if found["verdict"]:
        words.append(f": {found['verdict']}")
    return ListedElement(" ".join(words), comment or "", int(found["packets"] or 0), int(found["bytes"] or 0))


def _normalize_part(value: str) -> str:
    return str(PROTOCOLS[value]) if value in PROTOCOLS else _value(value)


def elements(text: str) -> Iterator[str]:
    """The elements between the braces."""
    return (each.strip() for each in _ONE_ELEMENT.findall(text) if each.strip())


def declaration(line: str) -> str:
    """A statement of a map's or set's declaration in normal form."""
    if not line.startswith("typeof "):
        return line
    key, colon, value = line.removeprefix("typeof ").partition(" : ")
    fields = " . ".join(re.sub(r"\A(?:tcp|udp|sctp) (sport|dport)\Z", r"th \1", each) for each in key.split(" . "))
    return f"typeof {fields}{colon}{value}"
