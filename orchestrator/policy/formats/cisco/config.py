"""The access lists and object groups of an IOS configuration, line by line.

A whole router configuration is taken: outside of access lists every line is passed over, inside of them none. Lists
that look like ours but are another system's or another layer's (ASA's `access-list NAME extended`, NX-OS' and EOS' `ip
access-list NAME`, MAC and ARP lists) are kept by name only, so that asking for one says why it cannot be read.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import BadInput
from orchestrator.policy.formats.assemble import plain, shown


class Kind(enum.Enum):
    """Which syntax the lines of a list have."""

    STANDARD = "standard"
    EXTENDED = "extended"
    IPV6 = "ipv6"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a list, without its sequence number. `remark`: what the remarks before it say."""

    line: int
    text: str
    words: tuple[str, ...]
    remark: str = ""


@dataclass(slots=True)
class AccessList:
    """A list by name, or by number as a name; its lines by sequence number."""

    name: str
    kind: Kind
    line: int
    entries: dict[int, Entry] = field(default_factory=dict)
    _remarks: list[str] = field(default_factory=list)
    _remarks_open: bool = False
    _highest: int = 0

    def in_order(self) -> list[Entry]:
        """The lines as they are asked."""
        return [self.entries[sequence] for sequence in sorted(self.entries)]

    def add(self, words: list[str], text: str, number: int) -> None:
        """Take one line: a rule at its sequence number or ten after the last, a remark, or ``no 20``."""
        words = words[1:] if words[0] == "sequence" and len(words) > 2 else words
        sequence = None
        if words[0].isdigit():
            sequence, words = _sequence(words[0]), words[1:]
        if words[0] == "no":
            self._remove(words[1:])
        elif words[0] == "remark":
            self._remark(plain(" ".join(words[1:])))
        else:
            if self.kind is Kind.IPV6 and len(words) > 2 and words[-2] == "sequence":
                sequence, words = _sequence(words[-1]), words[:-2]
            self._append(sequence, Entry(number, text, tuple(words), " ".join(filter(None, self._remarks))))

    def _append(self, sequence: int | None, entry: Entry) -> None:
        place = self._highest + 10 if sequence is None else sequence
        if place in self.entries:
            raise BadInput(f"there is already a line with the sequence number {place}")
        self.entries[place] = entry
        self._highest = max(self._highest, place)
        self._remarks_open = False

    def _remark(self, text: str) -> None:
        """Remarks in a row belong together; they speak of all lines up to the next remark."""
        if not self._remarks_open:
            self._remarks.clear()
        self._remarks.append(text)
        self._remarks_open = True

    def _remove(self, words: list[str]) -> None:
        if len(words) == 1 and words[0].isdigit():
            self.entries.pop(_sequence(words[0]), None)
        elif words[:1] != ["remark"]:
            raise BadInput("only `no` with a sequence number is read inside a list")


@dataclass(slots=True)
class Group:
    """An object group: a name, its kind (`network`, `service`, or another one) and its lines."""

    name: str
    kind: str
    line: int
    lines: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Config:
    """What a configuration holds for us."""

    lists: Mapping[str, AccessList]
    groups: Mapping[str, Group]


_STANDARD_NUMBERS = (range(1, 100), range(1300, 2000))
_EXTENDED_NUMBERS = (range(100, 200), range(2000, 2700))
_NO_LISTS = frozenset({"log-update", "logging", "resequence", "persistent", "helper", "match-local-traffic"})
_IN_A_LIST = frozenset({"permit", "deny", "remark", "evaluate", "dynamic", "no", "sequence"})
_HEADERS = re.compile(r"(no\s+)?(access-list|ip|ipv4|ipv6|mac|arp|ethernet-services|object-group)\s")


def parse(text: str) -> Config:
    """Read a configuration. Raises BadInput, with its line as the place, for what is no rule inside a list."""
    return _Parser().parse(text)


@dataclass(slots=True)
class _Parser:
    lists: dict[str, AccessList] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    current: AccessList | Group | None = None

    def parse(self, text: str) -> Config:
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if not line or line.startswith("!"):
                continue
            try:
                if not self._inside(line, number, indented=raw[0] in " \t"):
                    self.current = None
                    if _HEADERS.match(line):
                        self._header(line, line.split(), number)
            except BadInput as error:
                raise error.within(f"line {number}") from None
        return Config(self.lists, self.groups)

    def _inside(self, line: str, number: int, *, indented: bool) -> bool:
        """Take a line as part of the current list or group; False if it is not one."""
        words = line.split()
        if self.current is None or words[0] == "exit":
            return False
        if isinstance(self.current, Group):
            if indented:
                self.current.lines.append((number, line, tuple(words)))
            return indented
        said = words[1] if words[0] == "no" and len(words) > 1 else words[0]
        if said in _IN_A_LIST or said.isdigit():
            if self.current.kind is not Kind.FOREIGN:
                self.current.add(words, line, number)
            return True
        if indented and self.current.kind is not Kind.FOREIGN:
            raise BadInput(f"'{shown(line)}' is no line of an access list")
        return indented

    def _header(self, line: str, words: list[str], number: int) -> None:
        gone = words[0] == "no"
        words = words[1:] if gone else words
        if words[0] == "access-list" and len(words) > 1:
            self._numbered(words[1:], line, number, gone=gone)
        elif words[0] == "object-group" and len(words) > 2:
            name = words[-1]
            self.groups.setdefault(name, Group(name, " ".join(words[1:-1]), number))
            self.current = self.groups[name]
        elif len(words) > 2 and words[1] == "access-list" and words[2] not in _NO_LISTS:
            self._named(words[0], words[2:], line, number, gone=gone)

    def _numbered(self, words: list[str], line: str, number: int, *, gone: bool) -> None:
        """``access-list 101 permit ...``"""
        if gone:
            self.lists.pop(words[0], None)
            return
        found = self._list(words[0], _kind_of_number(words[0]), number)
        if found.kind is not Kind.FOREIGN:
            if len(words) < 2 or words[1] not in _IN_A_LIST:
                raise BadInput(f"'{shown(line)}' is no line of an access list")
            found.add(words[1:], line, number)

    def _named(self, family: str, words: list[str], line: str, number: int, *, gone: bool) -> None:
        """``ip access-list extended NAME``, ``ipv6 access-list NAME [permit ...]``, or another system's."""
        kind, name, rest = Kind.FOREIGN, words[0], words[1:]
        if family == "ip" and len(words) == 2 and words[0] in ("standard", "extended"):
            kind, name, rest = Kind(words[0]), words[1], []
        elif family == "ipv6" and (not rest or rest[0] in _IN_A_LIST or rest[0].isdigit()):
            kind = Kind.IPV6
        if gone:
            self.lists.pop(name, None)
            return
        self.current = self._list(name, kind, number)
        if rest and kind is Kind.IPV6:
            self.current.add(rest, line, number)

    def _list(self, name: str, kind: Kind, number: int) -> AccessList:
        found = self.lists.setdefault(name, AccessList(name, kind, number))
        if found.kind is not kind:
            raise BadInput(f"the access list {shown(name)} is {found.kind.value} on line {found.line}")
        return found


def _kind_of_number(name: str) -> Kind:
    number = int(name) if name.isascii() and name.isdigit() and len(name) <= 4 else 0
    if any(number in numbers for numbers in _STANDARD_NUMBERS):
        return Kind.STANDARD
    return Kind.EXTENDED if any(number in numbers for numbers in _EXTENDED_NUMBERS) else Kind.FOREIGN


def _sequence(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 0 < len(word) <= 10):
        raise BadInput(f"'{shown(word)}' is not a sequence number")
    return int(word)
