"""`nft -f` scripts between two states of our tables, atomic over both IP versions.

    whole        a table made anew beside the old one, which is then deleted: right whatever is there
    incremental  only the chains that differ, so that all other counters go on counting, and a small change of a long
                 list costs little; where that is not simple there is none

A transaction of nftables is not all that it takes. A packet may be under way in the filter when it commits: the second
chain at the hook is then already the new one, and what looks into a map of a deleted table finds nothing there and goes
on to the next rule (seen with Linux 6.18: a packet passed that both policies deny). So a new table is first put beside
the old one. While both are there a packet must be accepted by both; while the one comes the other is whole, and while
the other goes the one is whole: whatever a packet under way sees of the one that comes or goes, it is also decided by a
table that does not change.

An incremental change touches the lists of one direction only, which are asked from one chain at the hook, so that a
packet under way sees them all as they were or all as they are: parts of a list are named by what they hold, so what is
new has new names and comes in a first transaction, when nothing leads there (a map that comes together with a chain
that asks it may show its elements a moment after the chain: a packet passed so); in a second one the list's own chain
changes; and what is gone is deleted in a third. Before that no packet is under way any more that entered before the
second (`tool.py`).

Beside the program's objects a table holds what is the driver's own: the chain `stamp`, which no packet meets, and in
a table without objects the chain `guard`, which drops everything that is forwarded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.compile.nftables.script import TABLE, whole_table
from orchestrator.compile.nftables.words import IP
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.filters.driver import stamp_words
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family

STAMP, GUARD = "chain stamp", "chain guard"
GUARD_TEXT = "type filter hook forward priority 0; policy drop;"
MOST_CHANGES = 400
"""With more objects to change than this, making all anew is no slower."""

NAMES = (TABLE, f"{TABLE}2")
"""The names of a table of ours: a new one gets the name that the old one does not have."""

_NAME = re.compile(r"(?:chain|map|set|limit) [A-Za-z0-9_]{1,120}\Z")
_OF_A_LIST = re.compile(r"(?:chain|map) (ingress|egress)_\d+(?:_|\Z)")
_LAST = "chain receivers"
"""The chain that must be there, and drop what gets to its end."""

Table = Mapping[str, str]
"""Objects of one table, kind and name to text in normal form."""
Tables = Mapping[Family, Table]


def check(table: Table) -> None:
    """Refuse foreign objects, and tables that would pass what no rule permits."""
    for name in table:
        if not _NAME.match(name) or name in (STAMP, GUARD):
            raise Refused(f"the program has an object '{name[:40]}', which is not one of ours")
    if table and not table.get(_LAST, "").startswith(GUARD_TEXT):
        raise Refused(f"the program's {_LAST} does not drop what gets to its end")


def stamp_rule(stamp: Stamp) -> str:
    """The rule that is the stamp."""
    return f'return comment "{stamp_words(stamp)}"'


def whole(name: str, tables: Tables, stamp: Stamp) -> str:
    """The script that makes the tables of a name anew."""
    lines = []
    for family, table in tables.items():
        own = {STAMP: (stamp_rule(stamp),), **({} if table else {GUARD: (GUARD_TEXT,)})}
        lines += whole_table(family, own | {each: _body(text) for each, text in table.items()}, name)
    return "\n".join([*lines, ""])


def removal(name: str) -> str:
    """The script after which there are no tables of a name."""
    tables = [f"table {IP[family]} {name}" for family in Family]
    return "".join(f"{table}\ndelete {table}\n" for table in tables)


def replacement(name: str) -> str:
    """Return the script that replaces all tables of a name.

    Where these are not there, nft refuses it, and what there is stays: nobody may take the last tables away.
    """
    there = [f"add chain {IP[family]} {name} {STAMP.removeprefix('chain ')}\n" for family in Family]
    return "".join([*there, *(removal(other) for other in NAMES if other != name)])


class Incremental(NamedTuple):
    """The scripts of a change: additions, redirection, removals.

    The first and the last may be empty.
    """

    coming: str
    change: str
    going: str


def incremental(name: str, before: Tables, after: Tables, stamp: Stamp) -> Incremental | None:
    """Return scripts for the difference of tables; None where a replacement is needed."""
    steps = [_Step.between(f"{IP[family]} {name}", before[family], after[family]) for family in Family]
    if sum(step.size for step in steps) > MOST_CHANGES or not all(step.is_simple for step in steps):
        return None
    lines = [line for step in steps for line in step.changes()]
    for step in steps:
        lines += [f"flush chain {step.table} stamp", f"add rule {step.table} stamp {stamp_rule(stamp)}"]
    coming, going = (
        [line for step in steps for line in lines_of(step)] for lines_of in (_Step.additions, _Step.removals)
    )
    return Incremental(*("".join(f"{line}\n" for line in each) for each in (coming, lines, going)))


def _body(text: str) -> tuple[str, ...]:
    """An object's lines as they stand in braces."""
    declared, elements = _apart(text)
    return (*declared, *(["elements = {", *(f"\t{each}," for each in elements), "}"] if elements else []))


def _apart(text: str) -> tuple[list[str], list[str]]:
    """Statements or rules, and elements."""
    lines = text.splitlines()
    return [line for line in lines if line[:1] != "\t"], [line[1:] for line in lines if line[:1] == "\t"]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step between objects of a table.

    `is_made`: there are some before and after, so neither is the guard.
    """

    table: str
    gone: Table
    changed: Table
    added: Table
    is_made: bool

    @classmethod
    def between(cls, table: str, before: Table, after: Table) -> _Step:
        """Return the changes that lead from one table to another."""
        return cls(
            table,
            {name: text for name, text in before.items() if name not in after},
            {name: text for name, text in after.items() if before.get(name, text) != text},
            {name: text for name, text in after.items() if name not in before},
            bool(before) and bool(after),
        )

    @property
    def size(self) -> int:
        return len(self.gone) + len(self.changed) + len(self.added)

    @property
    def is_simple(self) -> bool:
        """Return whether it changes lists of one direction, and no existing map's content."""
        names = [*self.gone, *self.changed, *self.added]
        lists = [_OF_A_LIST.match(name) for name in names]
        directions = {found[1] for found in lists if found is not None}
        chains = all(name.startswith("chain ") for name in self.changed)
        return self.is_made and None not in lists and len(directions) <= 1 and chains

    def additions(self) -> Iterator[str]:
        """Yield objects that nothing refers to yet."""
        yield from (f"add {self._name_object(name)}" for name in self.added if name.startswith("chain "))
        for name, text in self.added.items():
            if not name.startswith("chain "):
                declared, elements = _apart(text)
                yield f"add {self._name_object(name)} {{ {'; '.join(declared)}; }}"
                yield f"add element {self.table} {name.partition(' ')[2]} {{ {', '.join(elements)} }}"
        yield from self._write_rules(self.added)

    def changes(self) -> Iterator[str]:
        """The chains that lead elsewhere now."""
        yield from (f"flush {self._name_object(name)}" for name in self.changed)
        yield from self._write_rules(self.changed)

    def removals(self) -> Iterator[str]:
        """Yield objects that nothing refers to any more.

        References go before their targets.
        """
        chains = [name for name in self.gone if name.startswith("chain ")]
        yield from (f"flush {self._name_object(name)}" for name in chains)
        yield from (f"delete {self._name_object(name)}" for name in self.gone if name.startswith("map "))
        yield from (f"delete {self._name_object(name)}" for name in chains)

    def _write_rules(self, objects: Table) -> Iterator[str]:
        for name, text in objects.items():
            if name.startswith("chain "):
                rule = f"add rule {self.table} {name.partition(' ')[2]}"
                yield from (f"{rule} {line}" for line in text.splitlines())

    def _name_object(self, name: str) -> str:
        kind, _, own = name.partition(" ")
        return f"{kind} {self.table} {own}"
