"""The text of iptables-save, as the chains of its filter table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.formats.assemble import Doubt, shown
from orchestrator.policy.formats.iptables.matches import read_line
from orchestrator.policy.formats.iptables.whole import for_whole_packets
from orchestrator.policy.formats.iptables.words import words_of
from orchestrator.policy.formats.results import NOT_SAID, Interfaces, Notes
from orchestrator.policy.formats.tables import Chain, Line

_CHAIN = re.compile(r":(\S+)\s+(\S+)(?:\s+\[\d+:\d+\])?\s*\Z")
_COUNTERS = re.compile(r"\[\d+:\d+\]\s+")
_POLICIES = frozenset({"ACCEPT", "DROP"})
_JUMPS = frozenset({"-j", "--jump"})


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter table, and drops in other tables, which no filter table carries over."""

    chains: Mapping[str, Chain]
    elsewhere: tuple[Doubt, ...]


@dataclass(slots=True)
class _Table:
    name: str
    number: int
    family: Family
    interfaces: Interfaces
    declared: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    lines: dict[str, list[Line]] = field(default_factory=dict)
    last: dict[str, list[str]] = field(default_factory=dict)
    committed: bool = False


def parse(text: str, family: Family, notes: Notes, interfaces: Interfaces = NOT_SAID) -> Filter:
    """Read the whole text. Raises BadInput, with the line as its place, where it is no iptables-save text."""
    found: _Table | None = None
    table: _Table | None = None
    elsewhere: list[Doubt] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            if line.startswith("*"):
                table = _open(line, number, table, found, family, interfaces)
                found = table if table.name == "filter" else found
            elif table is None or table.committed:
                raise BadInput("this is no line of iptables-save: a table such as *filter must come first")
            elif line == "COMMIT":
                table.committed = True
            elif table.name == "filter":
                _read(line, number, table)
            else:
                _look_at(line, number, table, elsewhere, notes)
        except AclflowError as error:
            raise error.within(f"line {number}") from None
    if found is None:
        raise BadInput("there is no *filter table in it")
    if table is not None and not table.committed:
        raise BadInput(f"*{table.name} has no COMMIT: is the file cut off?", place=f"line {table.number}")
    return Filter(_chains(found), tuple(elsewhere))


def _open(
    line: str, number: int, table: _Table | None, found: _Table | None, family: Family, interfaces: Interfaces
) -> _Table:
    name = line[1:].strip()
    if table is not None and not table.committed:
        raise BadInput(f"*{name} begins before the COMMIT of *{table.name}")
    if name == "filter" and found is not None:
        raise BadInput(f"a second *filter table; the first is on line {found.number}")
    return _Table(name, number, family, interfaces)


def _read(line: str, number: int, table: _Table) -> None:
    """A line of the filter table: the declaration of a chain, or one of its rules."""
    if line.startswith(":"):
        declared = _CHAIN.match(line)
        if declared is None or (declared[2] != "-" and declared[2] not in _POLICIES):
            raise BadInput(f"'{shown(line)}' is no chain: write :NAME ACCEPT|DROP|- [0:0]")
        table.declared[declared[1]] = (number, None if declared[2] == "-" else declared[2])
        return
    words = words_of(_COUNTERS.sub("", line, count=1) if line.startswith("[") else line)
    if len(words) < 2 or words[0] not in ("-A", "--append"):
        raise BadInput(f"'{shown(line)}' is no line of iptables-save: rules start with -A CHAIN")
    if words[1] not in table.declared:
        raise BadInput(f"the chain {shown(words[1])} is not declared")
    _add(table, words[1], words[2:], number, line)


def _add(table: _Table, chain: str, words: list[str], number: int, text: str) -> None:
    """Add a line to its chain, as one with the line before it where the two say one thing."""
    lines = table.lines.setdefault(chain, [])
    both = for_whole_packets(table.last.get(chain, []), words) if table.family is Family.IPV6 else None
    if both is not None:
        lines.pop()
    table.last[chain] = words
    lines.append(read_line(both or words, number, text, table.family, table.interfaces))


def _look_at(line: str, number: int, table: _Table, elsewhere: list[Doubt], notes: Notes) -> None:
    """A line of another table: it cannot permit, but it may drop."""
    if line.startswith(":"):
        policy = line.split()[1:2]
        drops = policy == ["DROP"]
    else:
        words = words_of(line)
        notes.add(f"the table {shown(table.name)} is no filter: its rules are left out", number)
        drops = any(one in _JUMPS and other in ("DROP", "REJECT") for one, other in itertools.pairwise(words))
    if drops:
        elsewhere.append(Doubt(number, line, f"a drop in the table {shown(table.name)} is not carried over"))


def _chains(table: _Table) -> Mapping[str, Chain]:
    chains = {
        name: Chain(name, name, number, policy, tuple(table.lines.get(name, ())))
        for name, (number, policy) in table.declared.items()
    }
    return MappingProxyType(chains)
