"""The access lists of a configuration: their lines, in order of evaluation.

IOS, IOS-XR, NX-OS and EOS number the lines of a list; ASA counts them, remarks included, and puts a new line where
`line 3` says.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

from orchestrator.errors import BadInput
from orchestrator.policy.formats.assemble import plain, shown

_T = TypeVar("_T")


class Kind(enum.Enum):
    """Which syntax the lines of a list have."""

    STANDARD = "standard"
    EXTENDED = "extended"
    NAMED = "of NX-OS or EOS"
    XR = "of IOS-XR"
    IPV6 = "ipv6"
    ASA = "of ASA"
    FOREIGN = "of another kind"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a list, without its sequence number.

    `remark` holds the remarks before it.
    """

    line: int
    text: str
    words: tuple[str, ...]
    remark: str = ""


@dataclass(slots=True)
class _Remarks:
    """Remarks in a row.

    They belong together and describe all lines up to the next remark.
    """

    _texts: list[str] = field(default_factory=list)
    _open: bool = False

    def add(self, text: str) -> None:
        if not self._open:
            self._texts.clear()
        self._texts.append(text)
        self._open = True

    def close(self) -> str:
        """Return the remarks' text for the line that follows."""
        self._open = False
        return " ".join(filter(None, self._texts))


@dataclass(slots=True)
class AccessList:
    """A list by name, or by number as a name; its lines by sequence number.

    `reason`: of a list of another kind, why its lines are not read.
    """

    name: str
    kind: Kind
    line: int
    reason: str = ""
    entries: dict[int, Entry] = field(default_factory=dict)
    _remarks: _Remarks = field(default_factory=_Remarks)
    _highest: int = 0

    def in_order(self) -> list[Entry]:
        """The lines as they are asked."""
        return [self.entries[sequence] for sequence in sorted(self.entries)]

    def add(self, words: list[str], text: str, number: int) -> None:
        """Add one line.

        It is a rule at its sequence number or ten after the last, a remark, or ``no 20``.
        """
        words = words[1:] if words[0] == "sequence" and len(words) > 2 else words
        sequence = None
        if words[0].isdigit():
            sequence, words = _read_sequence(words[0]), words[1:]
        if not words:
            raise BadInput(f"'{shown(text)}' is no line of an access list")
        if words[0] == "no":
            self._remove_entry(words[1:])
        elif words[0] == "remark":
            self._remarks.add(plain(" ".join(words[1:])))
        else:
            if self.kind is Kind.IPV6 and len(words) > 2 and words[-2] == "sequence":
                sequence, words = _read_sequence(words[-1]), words[:-2]
            self._append_entry(sequence, Entry(number, text, _cut_comment(words), self._remarks.close()))

    def _append_entry(self, sequence: int | None, entry: Entry) -> None:
        place = self._highest + 10 if sequence is None else sequence
        if place in self.entries:
            raise BadInput(f"there is already a line with the sequence number {place}")
        self.entries[place] = entry
        self._highest = max(self._highest, place)

    def _remove_entry(self, words: list[str]) -> None:
        if len(words) == 1 and words[0].isdigit():
            self.entries.pop(_read_sequence(words[0]), None)
        elif words[:1] != ["remark"]:
            raise BadInput("only `no` with a sequence number is read inside a list")


@dataclass(slots=True)
class AsaList:
    """A list of an ASA: ``access-list NAME [line N] extended permit ...`` in each line.

    A PIX says the same without the word `extended`.
    """

    name: str
    line: int
    kind: Kind = Kind.ASA
    reason: str = ""
    _rows: list[Entry] = field(default_factory=list)

    def in_order(self) -> list[Entry]:
        """The lines as they are asked."""
        remarks = _Remarks()
        found = []
        for row in self._rows:
            if row.words[0] == "remark":
                remarks.add(row.remark)
            else:
                found.append(Entry(row.line, row.text, row.words, remarks.close()))
        return found

    def add(self, words: list[str], text: str, number: int) -> None:
        """Add a command's rule or remark, at its place or at the end."""
        place = len(self._rows)
        if words[0] == "line" and len(words) > 2:
            place, words = _read_sequence(words[1]) - 1, words[2:]
            if place < 0:
                raise BadInput("an ASA counts the lines of a list from 1")
        rule = words[1:] if words[0] == "extended" else words
        if words[0] == "remark":
            self._rows.insert(place, Entry(number, text, ("remark",), plain(" ".join(words[1:]))))
        elif rule[:1] in (["permit"], ["deny"]):
            self._rows.insert(place, Entry(number, text, tuple(rule)))
        elif words[0] in _ASA_KINDS:
            self.kind, self.reason = Kind.FOREIGN, _ASA_KINDS[words[0]]
        else:
            raise BadInput(f"'{shown(text)}' is no line of an access list")


_ASA_KINDS: Mapping[str, str] = {
    "standard": "a standard list of an ASA names destinations of routes, not traffic",
    "extended": "its lines stand apart from its name, as in no system that is known here",
    "ethertype": "it is about Ethernet, not IP",
    "webtype": "it is about URLs, not packets",
}
ASA_WORDS = frozenset({*_ASA_KINDS, "remark", "line", "permit", "deny"})
"""The words that may follow the name of a list in ASA's `access-list`."""


@dataclass(slots=True)
class Group:
    """An object group, or an object of an ASA.

    It has a name, a kind (`network`, `service`, ...), the rest of its header (`tcp`), and its lines.
    """

    name: str
    kind: str
    line: int
    qualifier: str = ""
    lines: list[tuple[str, ...]] = field(default_factory=list)


class Groups(dict[str, Group]):
    """Groups by name, with cached results.

    A large group may occur in thousands of lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[object, ...], object] = {}

    def once(self, key: tuple[object, ...], work: Callable[[], _T]) -> _T:
        """Compute something about a group at its first use and cache it.

        A BadInput is raised again at each use.
        """
        if key not in self._known:
            try:
                self._known[key] = work()
            except BadInput as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, BadInput):
            raise BadInput(found.reason)
        return cast("_T", found)


@dataclass(frozen=True, slots=True)
class Config:
    """The parts of a configuration that matter here.

    `objects` and `names` (addresses by name) are an ASA's; `unified`: its `any` means both IP versions (since 9.0).
    `bound`: for each list, where `access-group` puts it, in words.
    """

    lists: Mapping[str, AccessList | AsaList]
    groups: Groups
    objects: Mapping[str, Group]
    names: Mapping[str, str]
    bound: Mapping[str, tuple[str, ...]]
    unified: bool = True


def _cut_comment(words: list[str]) -> tuple[str, ...]:
    return tuple(words[: words.index("!")] if "!" in words else words)


def _read_sequence(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 0 < len(word) <= 10):
        raise BadInput(f"'{shown(word)}' is not a sequence number")
    return int(word)
