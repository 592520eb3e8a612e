"""Read the access lists and object groups of a configuration, line by line.

A whole configuration is taken: outside of access lists every line is passed over, inside of them none. Which system's
syntax a list has is told from its header:

    access-list 101 permit ...                IOS, by number
    ip access-list extended NAME              IOS            (EOS: standard NAME)
    ip access-list NAME                       NX-OS, EOS
    ipv4 access-list NAME                     IOS-XR
    ipv6 access-list NAME                     all of them
    access-list NAME extended permit ...      ASA
    access-list NAME permit ...               PIX            (by number too, below a firewall's version)

Lists about something else than IP packets (MAC, ARP, Ethernet, URLs) are kept by name only, so that asking for one says
why it cannot be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.errors import BadInput
from orchestrator.policy.formats.assemble import shown
from orchestrator.policy.formats.cisco.accesslist import ASA_WORDS, AccessList, AsaList, Config, Group, Groups, Kind

_STANDARD_NUMBERS = (range(1, 100), range(1300, 2000))
_EXTENDED_NUMBERS = (range(100, 200), range(2000, 2700))
_NO_LISTS = frozenset({"log-update", "logging", "resequence", "persistent", "helper", "match-local-traffic"})
_NO_LISTS_OF_ASA = frozenset({"alert-interval", "commit", "compiled", "deny-flow-max", "mode"})
_IN_A_LIST = frozenset({"permit", "deny", "remark", "evaluate", "dynamic", "no", "sequence"})
_IN_A_GROUP = frozenset(
    {"network-object", "service-object", "port-object", "protocol-object", "icmp-object", "group-object"}
)
_DECIDES_NOTHING = frozenset({"statistics", "counters"})
_OF_A_WHOLE_LIST = _DECIDES_NOTHING | {"fragments"}
"""Commands of NX-OS and EOS that stand among the rules, though a text may have lost its indentation."""

_HEADERS = re.compile(
    r"(no\s+)?(access-list|access-group|ip|ipv4|ipv6|mac|arp|ethernet-services|object-group|object|name)\s"
)
_OF_ASA = re.compile(r"^access-list (\S+) (?:line \d+ )?(?:extended|standard|ethertype|webtype)\b", re.MULTILINE)
_OF_A_FIREWALL = re.compile(r"^(?:ASA|PIX|FWSM) Version \d", re.MULTILINE)
_BEFORE_UNIFIED = re.compile(r"^(?:ASA Version [1-8]\.|PIX Version |FWSM Version )", re.MULTILINE)
_NOT_IP = "it is not about IP packets"
_BANNER = re.compile(r"banner\s+(?:exec|incoming|login|motd|prompt-timeout|slip-ppp)(?:\s+(\^C|\S)(.*))?$")
"""The first character that is no space ends the text when it comes again; without one, on EOS, a line of EOF does."""

_GROUP_KINDS = frozenset({"network", "service", "protocol", "icmp-type", "port"})


def parse(text: str) -> Config:
    """Read a configuration.

    Raises BadInput, with the line as the place, for a line inside a list that is no rule.
    """
    return _Parser(frozenset(_OF_ASA.findall(text)), _OF_A_FIREWALL.search(text) is not None).parse(text)


@dataclass(slots=True)
class _Parser:
    of_asa: frozenset[str]
    of_a_firewall: bool
    lists: dict[str, AccessList | AsaList] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    objects: dict[str, Group] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    bound: dict[str, tuple[str, ...]] = field(default_factory=dict)
    current: AccessList | Group | None = None

    def parse(self, text: str) -> Config:
        banner, end = 0, ""
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.strip()
            if end:
                end = "" if _is_end(line, end) else end
                continue
            if not line or line.startswith("!"):
                continue
            try:
                if not self._inside(line, number, indented=raw[0] in " \t"):
                    self.current = None
                    banner, end = number, self._end_of_banner(line)
                    if _HEADERS.match(line):
                        self._read_header(line, line.split(), number)
            except BadInput as error:
                raise error.within(f"line {number}") from None
        if end:
            raise BadInput(f"a banner begins here, and its end, '{end}', never comes", place=f"line {banner}")
        unified = _BEFORE_UNIFIED.search(text) is None
        return Config(self.lists, self.groups, self.objects, self.names, self.bound, unified)

    def _inside(self, line: str, number: int, *, indented: bool) -> bool:
        """Read a line as part of the current list or group, if it is."""
        words = line.split()
        if self.current is None or words[0] == "exit":
            return False
        if isinstance(self.current, Group):
            if indented or words[0] in _IN_A_GROUP:
                self.current.lines.append(tuple(words))
                return True
            return False
        said = words[1] if words[0] == "no" and len(words) > 1 else words[0]
        if said in _IN_A_LIST or said.isdigit():
            if self.current.kind is not Kind.FOREIGN:
                self.current.add(words, line, number)
            return True
        inside = indented or said in _OF_A_WHOLE_LIST
        if inside and self.current.kind is not Kind.FOREIGN and said not in _DECIDES_NOTHING:
            raise BadInput(f"'{shown(line)}' is no line of an access list")
        return inside

    def _end_of_banner(self, line: str) -> str:
        """Return the mark that ends the banner a line begins.

        A banner's text may look like rules. Empty: it ends with the line, as on every firewall.
        """
        found = _BANNER.match(line)
        if found is None or self.of_a_firewall or self.of_asa:
            return ""
        mark, rest = found.groups()
        return "EOF" if mark is None else "" if mark in rest else str(mark)

    def _read_header(self, line: str, words: list[str], number: int) -> None:
        gone = words[0] == "no"
        words = words[1:] if gone else words
        if words[0] == "access-list" and len(words) > 1:
            self._command(words[1:], line, number, gone=gone)
        elif words[0] == "object-group" and len(words) > 2:
            self._group(words[1:], number)
        elif words[0] == "object" and len(words) == 3:
            self._take_group(self.objects, Group(words[2], words[1], number))
        elif words[0] == "name" and len(words) > 2:
            self.names[words[2]] = words[1]
        elif "access-group" in words[:2] and not gone:
            self._binding(words[words.index("access-group") + 1 :])
        elif len(words) > 2 and words[1] == "access-list" and words[2] not in _NO_LISTS:
            self._begin_named(words[0], words[2:], line, number, gone=gone)

    def _command(self, words: list[str], line: str, number: int, *, gone: bool) -> None:
        """``access-list 101 permit ...``, or ASA's ``access-list NAME extended permit ...``."""
        name, rest = words[0], words[1:]
        is_asa = self._is_asa(name, rest)
        if is_asa and (name in _NO_LISTS_OF_ASA or rest == ["compiled"]):
            return
        if gone and is_asa and rest:
            raise BadInput("an ASA takes away one line by this; only `no access-list NAME` is read")
        if gone:
            self.lists.pop(name, None)
        elif is_asa:
            self._read_asa_line(name, rest, line, number)
        else:
            self._read_numbered(name, rest, line, number)

    def _is_asa(self, name: str, rest: list[str]) -> bool:
        """Return whether a command is an ASA's, which writes subnet masks.

        A router's lists have numbers here.
        """
        named = not name.isdigit() and bool(rest) and rest[0] in ASA_WORDS
        return named or self.of_a_firewall or name in self.of_asa

    def _read_asa_line(self, name: str, rest: list[str], line: str, number: int) -> None:
        found = self.lists.setdefault(name, AsaList(name, number))
        if isinstance(found, AccessList):
            raise BadInput(f"the access list {shown(name)} is {found.kind.value} on line {found.line}")
        if not rest:
            raise BadInput(f"'{shown(line)}' is no line of an access list")
        found.add(rest, line, number)
        if len(rest) == 1 and found.kind is Kind.FOREIGN:
            self.current = AccessList(name, Kind.FOREIGN, number)  # takes the lines below it

    def _read_numbered(self, name: str, rest: list[str], line: str, number: int) -> None:
        kind = _find_kind(name)
        found = self._find_list(name, kind, number, "" if kind is not Kind.FOREIGN else _NOT_IP)
        if found.kind is not Kind.FOREIGN:
            if not rest or rest[0] not in _IN_A_LIST:
                raise BadInput(f"'{shown(line)}' is no line of an access list")
            found.add(rest, line, number)

    def _begin_named(self, family: str, words: list[str], line: str, number: int, *, gone: bool) -> None:
        """Begin a named list: ``ip access-list [extended] NAME`` or ``ipv4 access-list NAME [permit ...]``.

        Lists of other families are skipped.
        """
        kind, name, rest = _kind_of_header(family, words)
        if gone:
            self.lists.pop(name, None)
            return
        self.current = self._find_list(name, kind, number, "" if kind is not Kind.FOREIGN else _NOT_IP)
        if rest and kind is not Kind.FOREIGN:
            self.current.add(rest, line, number)

    def _find_list(self, name: str, kind: Kind, number: int, reason: str) -> AccessList:
        found = self.lists.setdefault(name, AccessList(name, kind, number, reason))
        if found.kind is not kind or isinstance(found, AsaList):
            raise BadInput(f"the access list {shown(name)} is {found.kind.value} on line {found.line}")
        return found

    def _group(self, words: list[str], number: int) -> None:
        """``network NAME``, ``service NAME [tcp]``, XR's ``network ipv4 NAME``, NX-OS' ``ip address NAME``."""
        simple = words[0] in _GROUP_KINDS and not (words[1] in ("ipv4", "ipv6") and len(words) > 2)
        if simple:
            found = Group(words[1], words[0], number, " ".join(words[2:]))
        else:
            found = Group(words[-1], " ".join(words[:-1]), number)
        self._take_group(self.groups, found)

    def _take_group(self, among: dict[str, Group], new: Group) -> None:
        found = among.setdefault(new.name, new)
        if (found.kind, found.qualifier) != (new.kind, new.qualifier):
            raise BadInput(f"the group {shown(new.name)} is of another kind on line {found.line}")
        self.current = found

    def _binding(self, words: list[str]) -> None:
        """ASA's ``access-group NAME in interface outside`` or ``... global``; IOS' ``ip access-group NAME in``."""
        if words:
            self.bound[words[0]] = (*self.bound.get(words[0], ()), " ".join(words[1:]))


def _find_kind(name: str) -> Kind:
    number = int(name) if name.isascii() and name.isdigit() and len(name) <= 4 else 0
    if any(number in numbers for numbers in _STANDARD_NUMBERS):
        return Kind.STANDARD
    return Kind.EXTENDED if any(number in numbers for numbers in _EXTENDED_NUMBERS) else Kind.FOREIGN


def _kind_of_header(family: str, words: list[str]) -> tuple[Kind, str, list[str]]:
    """Return a list's kind and name, and the rule in its header."""
    named_kind = len(words) == 2 and words[0] in ("standard", "extended")
    if family == "ip" and named_kind:
        return Kind(words[0]), words[1], []
    if family == "ipv6" and named_kind:
        return (Kind.IPV6 if words[0] == "extended" else Kind.FOREIGN), words[1], []
    rest = words[1:]
    if rest and not (rest[0] in _IN_A_LIST or rest[0].isdigit()):
        return Kind.FOREIGN, words[0], rest
    kinds = {"ip": Kind.NAMED, "ipv4": Kind.XR, "ipv6": Kind.IPV6}
    return kinds.get(family, Kind.FOREIGN), words[0], rest


def _is_end(line: str, end: str) -> bool:
    return line == end if end == "EOF" else end in line
