"""Objects in normal form, from `nft list table` and from the compiler.

chain senders {                               name   chain senders
    type filter hook forward priority -1;...  text   its lines, each rule in normal form
    ...
}
map senders {                                 name   map senders
    typeof ip saddr : verdict                 text   its declaration, then each element behind a tab, in order
    flags interval
    elements = { 198.51.100.0/24 : jump egress_1, ... }
}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.filters.driver import Count
from orchestrator.enforce.drivers.nftables.words import declaration, elements, listed_element, listed_rule
from orchestrator.errors import Drifted

_TABLE = re.compile(r"table (\S+) (\S+) \{(?: # handle (\d+))?\Z")
_OBJECT = re.compile(r"\t(\w+ \S+) \{(?: # handle (\d+))?\Z")
_HOOK = re.compile(r"type (\w+) hook (\w+) priority (\S+(?: [-+] \d+)?); policy (\w+);\Z")
_PRIORITIES = {"filter": "0", "filter - 1": "-1", "raw": "-300"}


@dataclass(slots=True)
class ListedTable:
    """Objects by kind and name, and their counters.

    `strange` holds lines of the table that are in no object.
    """

    objects: dict[str, str] = field(default_factory=dict)
    counts: list[Count] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)


def read_table(text: str) -> ListedTable:
    """Read one table, as nft lists it with handles.

    Raises Drifted for text that it cannot print.
    """
    lines = text.splitlines()
    head = _TABLE.match(lines[0]) if lines else None
    if head is None or lines[-1] != "}":
        raise Drifted(f"nft printed what cannot be read: {text[:200]!r}")
    table, where = ListedTable(), f"{head[1]} {head[3]}"
    for name, handle, body in _taken_apart(lines[1:-1], table.strange):
        text, counts = _read_chain(where, body) if name.startswith("chain ") else _read_set(f"{where} {handle}", body)
        table.objects[name] = text
        table.counts += counts
    return table


def normal_object(name: str, text: str) -> str:
    """An object's text, as the compiler writes it, in normal form."""
    lines = text.splitlines()
    return (_read_chain("", lines) if name.startswith("chain ") else _read_set("", lines))[0]


def _taken_apart(lines: Sequence[str], strange: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Name, handle and lines of each object."""
    rows = iter(lines)
    for line in rows:
        head = _OBJECT.match(line)
        if head is None:
            if line.strip():
                strange.append(line.strip())
            continue
        body = []
        for inside in rows:
            if inside == "\t}":
                break
            body.append(inside.strip())
        yield head[1], head[2] or "", body


def _read_chain(where: str, lines: Sequence[str]) -> tuple[str, list[Count]]:
    text: list[str] = []
    counts: list[Count] = []
    for line in lines:
        hook = _HOOK.match(line)
        if hook is not None:
            priority = _PRIORITIES.get(hook[3], hook[3])
            text.append(f"type {hook[1]} hook {hook[2]} priority {priority}; policy {hook[4]};")
            continue
        rule = listed_rule(line)
        text.append(rule.text)
        if rule.comment:
            counts.append(Count(f"{where} {rule.handle}", rule.comment, rule.packets, rule.bytes))
    return "\n".join(text), counts


def _read_set(where: str, lines: Sequence[str]) -> tuple[str, list[Count]]:
    joined = " ".join(lines)
    _, _, inside = joined.partition("elements = {")
    found = [listed_element(each) for each in elements(inside.rpartition("}")[0])]
    statements = [declaration(line) for line in _statements(lines)]
    counts = [Count(f"{where} {each.text}", each.comment, each.packets, each.bytes) for each in found if each.comment]
    return "\n".join([*statements, *sorted(f"\t{each.text}" for each in found)]), counts


def _statements(lines: Sequence[str]) -> Iterator[str]:
    """Yield a declaration's statements before its elements."""
    for line in lines:
        if line.startswith("elements = {"):
            return
        yield line


Normal = Mapping[str, str]
"""Objects of one table: kind and name to text in normal form."""
