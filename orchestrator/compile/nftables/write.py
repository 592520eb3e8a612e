"""A plan as chains, maps and rules.

A chain holds the rules of its plan in order. A part that several ways lead to is one chain, which `jump` leads to and
which returns where nothing in it matched; a way that ends at a single row with nothing left to look at carries the
verdict in the map itself. Every verdict has a counter beside it and the row's comment; that of a row that logs leads
through a chain that reports the packet first, and that of a limited row to a chain that denies what is too much.

The name of a part follows from what it holds, which names the parts that it leads to in turn. So a changed rule makes a
few parts anew, on the way from the list to the rule, and leaves all others as they are, by name and content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from orchestrator.compile.filters import limits as filterlimits
from orchestrator.compile.filters.filterlists import Line
from orchestrator.compile.nftables import words
from orchestrator.compile.nftables.plan import Cut, Plan, Rules, Sequence, Table
from orchestrator.compile.nftables.space import Axis, Bits, Space
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family

_NAME_BYTES = 8
_OF_EVERY_PROTOCOL = frozenset({Axis.PROTOCOL, Axis.SOURCE, Axis.DESTINATION})
"""How much of a digest is a name's. Two parts that shared one would be noticed, and the list refused."""


@dataclass(slots=True)
class Declarations:
    """The inside of a table: sets, maps and chains by kind and name, as lines."""

    objects: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """All of it as text, an empty line behind each object."""
        return [line for head, body in self.objects.items() for line in (*block(head, body), "")]

    def map(self, name: str, fields: Iterable[str], elements: Iterable[str], *flags: str) -> None:
        """A verdict map; `flags` are further statements of its declaration."""
        self._add_block(
            f"map {name}",
            [f"typeof {' . '.join(fields)} : verdict", *flags, *_write_elements(elements)],
        )

    def set(self, name: str, fields: Iterable[str], elements: Iterable[str]) -> None:
        """Declare a set of intervals."""
        self._add_block(f"set {name}", [f"typeof {' . '.join(fields)}", "flags interval", *_write_elements(elements)])

    def limit(self, name: str, text: str) -> None:
        """Declare a limit."""
        self._add_block(f"limit {name}", [text])

    def chain(self, name: str, rules: Iterable[str]) -> None:
        """Declare a chain with its rules."""
        self._add_block(f"chain {name}", rules)

    def _add_block(self, head: str, body: Iterable[str]) -> None:
        lines = tuple(body)
        if self.objects.setdefault(head, lines) != lines:
            raise TooLarge(f"two parts of the list came to one name, '{head}'")


def block(head: str, body: Iterable[str]) -> list[str]:
    """An object of a table as text."""
    return [f"\t{head} {{", *(f"\t\t{line}" for line in body), "\t}"]


def _write_elements(elements: Iterable[str]) -> list[str]:
    found = [f"\t{each}," for each in elements]
    return ["elements = {", *found, "}"] if found else []


class Doings(NamedTuple):
    """The verdicts of a list's rows, in nft's words."""

    permit: str = "accept"
    deny: str = "drop"
    leave: str = ""
    """With a packet that is left to connections."""


DECIDES = Doings()


@dataclass(slots=True)
class PlanWriter:
    """Writes the plan of one list of a tenant (its number; 0: the operator).

    `counted`: whether its verdicts have counters and comments, and rows that log report.

    `first`: whether rows ask for the packet that opened the connection.
    """

    declarations: Declarations
    name: str
    space: Space
    tenant: int = 0
    counted: bool = True
    first: bool = False
    doings: Doings = DECIDES
    _chains: dict[int, str] = field(default_factory=dict)
    _conditions: dict[int, list[tuple[Axis | None, str]]] = field(default_factory=dict)
    _certain_rows: dict[frozenset[Axis], Bits] = field(default_factory=dict)
    _about_icmp: frozenset[int] = field(init=False)
    """The rows that ask for an ICMP type."""

    def __post_init__(self) -> None:
        self._about_icmp = frozenset(row for row, line in enumerate(self.space.lines) if line.icmp_type >= 0)

    def rules(self, plan: Plan) -> list[str]:
        """Return a plan's rules for a chain, and declare the chains and maps they use."""
        if isinstance(plan, Rules):
            return [self._write_rule(row, plan.cut) for row in plan.rows]
        if isinstance(plan, Sequence):
            return [rule for part in plan.parts for rule in self.rules(part)]
        return [self._write_table(plan) if isinstance(plan, Table) else self._write_cut(plan)]

    @property
    def _family(self) -> Family:
        return self.space.family

    def _write_rule(self, row: int, cut: frozenset[Axis]) -> str:
        line = self.space.lines[row]
        start = self._looked_at(row, cut)
        counts = self.counted and not line.leaves
        counter, comment = (["counter"], [f'comment "{line.comment}"']) if counts else ([], [])
        return " ".join([*start, *counter, self.verdict(line), *comment])

    def _looked_at(self, row: int, cut: frozenset[Axis]) -> list[str]:
        """Return a rule's conditions, without the axes that were cut.

        nft reads ports of the packet that opened a connection only behind the protocol, in the same rule.
        """
        if row not in self._conditions:
            self._conditions[row] = words.conditions(self.space.lines[row], self._family, first=self.first)
        asked = self._conditions[row]
        if self.first and any(axis not in cut and axis not in _OF_EVERY_PROTOCOL for axis, _ in asked):
            cut = cut - {Axis.PROTOCOL}
        return [text for axis, text in asked if axis not in cut]

    def _write_table(self, plan: Table) -> str:
        lines = [self.space.lines[row] for row in plan.rows]
        fields, masked = words.shape_fields(plan.shape, self._family, icmp=lines[0].icmp_type >= 0)
        elements = [self._write_element(words.shape_key(plan.shape, line, self._family), line) for line in lines]
        name = self._declare_map(fields, elements, *(["counter"] if self.counted else []))
        return f"{' . '.join(masked)} vmap @{name}"

    def _write_element(self, key: str, line: Line) -> str:
        comment = f' comment "{line.comment}"' if self.counted and not line.leaves else ""
        return f"{key}{comment} : {self.verdict(line)}"

    def _write_cut(self, plan: Cut) -> str:
        icmp = any(self._asks_icmp(span.then) for span in plan.spans)
        elements, single, verdicts = [], True, False
        for span in plan.spans:
            values = words.within(plan.axis, span.low, span.high, icmp=icmp)
            if values is None:
                continue
            key = words.interval(plan.axis, self._family, *values)
            certain = self._certain(span.then)
            single &= values[0] == values[1]
            verdicts |= certain is not None
            elements.append(
                f"{key} : jump {self._declare_chain(span.then)}"
                if certain is None
                else self._write_element(key, certain)
            )
        flags = [*([] if single else ["flags interval"]), *(["counter"] if verdicts and self.counted else [])]
        looked_at = words.field(plan.axis, self._family, icmp=icmp, first=self.first)
        return f"{looked_at} vmap @{self._declare_map([looked_at], elements, *flags)}"

    def _asks_icmp(self, plan: Plan) -> bool:
        """Return whether a part matches an ICMP type.

        Parts behind a cut of the protocol are all about one protocol.
        """
        if isinstance(plan, Sequence):
            return any(map(self._asks_icmp, plan.parts))
        if isinstance(plan, Cut):
            return any(self._asks_icmp(span.then) for span in plan.spans)
        return not self._about_icmp.isdisjoint(plan.rows)

    def _certain(self, plan: Plan) -> Line | None:
        """Return the row that decides every packet here; None if conditions remain."""
        if not isinstance(plan, Rules) or len(plan.rows) != 1:
            return None
        row = plan.rows[0]
        if plan.cut not in self._certain_rows:
            self._certain_rows[plan.cut] = self.space.certain(plan.cut)
        return self.space.lines[row] if self._certain_rows[plan.cut][row] else None

    def _declare_chain(self, plan: Plan) -> str:
        if id(plan) not in self._chains:
            rules = self.rules(plan)
            name = self._chains[id(plan)] = self._name_part("c", rules)
            self.declarations.chain(name, rules)
        return self._chains[id(plan)]

    def _declare_map(self, fields: list[str], elements: list[str], *flags: str) -> str:
        name = self._name_part("m", [*fields, *flags, *elements])
        self.declarations.map(name, fields, elements, *flags)
        return name

    def _name_part(self, kind: str, lines: list[str]) -> str:
        """Return the name of a part, made of its content and the parts it uses."""
        content = "\n".join(lines).encode()
        return f"{self.name}_{kind}{blake2b(content, digest_size=_NAME_BYTES).hexdigest()}"

    def verdict(self, line: Line) -> str:
        """Return a line's verdict, or the jump to a chain that logs or limits."""
        if line.leaves:
            return self.doings.leave
        verdict = self.doings.permit if line.permit else self.doings.deny
        if line.limited:
            rules = filterlimits.nftables_messages(self.tenant)
        elif line.log and self.counted:
            rules = [filterlimits.nftables_report(self.tenant, line.comment), verdict]
        else:
            return verdict
        name = self._name_part("l", rules)
        self.declarations.chain(name, rules)
        return f"goto {name}"
