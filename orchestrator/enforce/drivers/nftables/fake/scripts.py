"""Transactions: apply an `nft -f` script to our tables, completely or not at all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from orchestrator.enforce.drivers.nftables.fake.tables import FAMILIES, Chain, Set, Table, element
from orchestrator.enforce.drivers.nftables.fake.walk import Ruleset
from orchestrator.enforce.drivers.nftables.words import elements
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family


def ruleset(script: str) -> Ruleset:
    """Return the ruleset of a machine without tables after a script."""
    return after(Ruleset(), script)


def after(before: Ruleset, script: str) -> Ruleset:
    """Return the ruleset after a script.

    Raises Refused for one that nft or the kernel would not take.
    """
    changing = _Script(copy.deepcopy(before), [line.strip() for line in script.splitlines() if line.strip()])
    changing.run()
    for table in changing.made.tables.values():
        table.close()
    return changing.made


class _Script:
    """A script under way."""

    def __init__(self, made: Ruleset, lines: list[str]) -> None:
        self.made = made
        self._lines = [line for line in lines if not line.startswith("#")]
        self._place = 0
        self._tables = max((table.handle for table in made.tables.values()), default=0)

    def run(self) -> None:
        """Every line."""
        while self._place < len(self._lines):
            line = self._lines[self._place]
            self._place += 1
            words = line.split()
            if words[0] == "table":
                self._table(FAMILIES[words[1]], words)
            else:
                self._command(words, line)

    def _table(self, family: Family, words: list[str]) -> None:
        key = family, words[2]
        if key not in self.made.tables:
            self._tables += 1
            self.made.tables[key] = Table(family, self._tables)
        if words[-1] == "{":
            self._inside(self.made.tables[key])

    def _inside(self, table: Table) -> None:
        """Declarations up to the table's closing brace."""
        while (line := self._lines[self._place]) != "}":
            kind, name = line.split()[:2]
            body = self._body()
            if kind == "chain":
                chain = table.chains.setdefault(name, Chain(table.next_handle()))
                for each in body:
                    table.add_line(chain, each)
            elif "elements = {" in body:
                split = body.index("elements = {")
                table.sets[name] = Set(kind, body[:split], table.next_handle())
                table.sets[name].elements += (element(each.removesuffix(",")) for each in body[split + 1 : -1])
            else:
                table.sets[name] = Set(kind, body, table.next_handle())
        self._place += 1

    def _body(self) -> list[str]:
        """The lines of the object that begins here; goes behind it."""
        depth, start = 0, self._place
        while True:
            line = self._lines[self._place]
            depth += line.endswith("{") - (line == "}")
            self._place += 1
            if not depth:
                return self._lines[start + 1 : self._place - 1]

    def _command(self, words: list[str], line: str) -> None:
        verb, kind, family, name = *words[:3], words[4] if len(words) > 4 else ""
        key = FAMILIES[family], words[3]
        table = self.made.tables.get(key)
        if table is None:
            raise Refused(f"nft: No such file or directory: {line}")
        if (verb, kind) == ("delete", "table"):
            del self.made.tables[key]
            return
        commands: Mapping[tuple[str, str], Callable[[Table, str, str], None]] = {
            ("add", "chain"): _add_chain,
            ("add", "map"): _add_map,
            ("add", "rule"): _add_rule,
            ("add", "element"): _add_elements,
            ("delete", "chain"): _delete_chain,
            ("delete", "map"): _delete_map,
            ("flush", "chain"): _flush_chain,
        }
        commands[verb, kind](table, name, line)


def _add_chain(table: Table, name: str, _line: str) -> None:
    table.chains.setdefault(name, Chain(table.next_handle()))


def _add_map(table: Table, name: str, line: str) -> None:
    statements = [each.strip() for each in _brace_line(line).split(";") if each.strip()]
    table.sets.setdefault(name, Set("map", statements, table.next_handle()))


def _add_rule(table: Table, name: str, line: str) -> None:
    table.add_line(table.chain(name), line.split(maxsplit=5)[5])


def _add_elements(table: Table, name: str, line: str) -> None:
    table.set(name).elements += map(element, elements(_brace_line(line)))


def _delete_chain(table: Table, name: str, _line: str) -> None:
    table.chain(name)
    del table.chains[name]


def _delete_map(table: Table, name: str, _line: str) -> None:
    table.set(name)
    del table.sets[name]


def _flush_chain(table: Table, name: str, _line: str) -> None:
    table.chain(name).rules.clear()


def _brace_line(line: str) -> str:
    return line.partition("{")[2].rpartition("}")[0].strip()
