"""Moving a rule above the others without changing what the list means.

A popular rule is asked late because others stand before it. Above all of them it would also decide packets that were
theirs. There are two forms in which it may stand there:

    alone       nothing before it overlaps it: the rule as it is
    narrowed    only the packets that it decides: its box without those of the rules before it, as a few disjoint boxes
    together    its box, and above it the parts within its box of every rule before it, in list order

        list                         narrowed                     together
        1  deny   tcp 10.9/16 ->     2  permit tcp 10/8 minus     1  deny   tcp 10.9/16 -> web
        2  permit tcp 10/8 -> web       10.9/16 -> web            2  permit tcp 10/8 -> web

Every entry keeps the number of its row, so counters stay with the rule that decides, and any set of hoisted rules
stands together when its entries are sorted by row. Let a packet be held by an entry, and f be the first row of the list
that holds it. No entry of a row before f holds it, for an entry is a part of its row. And there is one of f that does:
an entry of a rule that is alone or narrowed holds only packets that this rule decides, so the rule is f; where rules
stand together, the part of f within the box is an entry. So f decides, as before.

`proof` checks just that, with no regard to how the entries were found.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.errors import AclflowError
from orchestrator.policy.model import RuleId
from orchestrator.policy.protocols import TCP
from orchestrator.policy.rulelist import RuleList
from orchestrator.policy.space import ALL_BYTES, WHOLE, Box, everything, remaining
from orchestrator.policy.tcpflags import ESTABLISHED_SET


class Form(enum.Enum):
    """How a rule is lifted."""

    ALONE = "alone"
    NARROWED = "narrowed"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class Entry:
    """Packets that are decided above the list as row `row` of it decides them."""

    row: int
    box: Box


@dataclass(frozen=True, slots=True)
class Hoisted:
    """A rule and the entries lifted for it, in matching order."""

    rule: RuleId
    form: Form
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Stays:
    """A rule that is not moved, and why."""

    rule: RuleId
    because: str


Cost = Callable[[Box], int]
"""Returns the cost of an entry where it is to stand: a switch needs several flow entries for some boxes."""


def _cost_one(_: Box) -> int:
    return 1


def hoist(rows: RuleList, row: int, *, most_entries: int, cost: Cost = _cost_one) -> Hoisted | Stays:
    """Lift row `row` of a list in the cheapest form.

    If both forms cost the same, the narrowed one is taken.
    """
    target = rows.rows[row]
    above = rows.overlapping(target.box, stop=row)
    if not above:
        return _refuse_if_large(Hoisted(target.id, Form.ALONE, (Entry(row, target.box),)), most_entries)
    pieces = _pieces(target.box, [rows.rows[each].box for each in above], most_entries)
    if pieces is not None and not pieces:
        return Stays(target.id, "the rules before it decide all its packets")
    shares = ((each, rows.rows[each].box.intersect(target.box)) for each in above)
    companions = tuple(Entry(each, share) for each, share in shares if share is not None)
    together = Hoisted(target.id, Form.TOGETHER, (*companions, Entry(row, target.box)))
    if pieces is None:
        return _refuse_if_large(together, most_entries)
    narrowed = Hoisted(target.id, Form.NARROWED, tuple(Entry(row, piece) for piece in pieces))
    if len(together.entries) > most_entries or _sum_cost(narrowed, cost) <= _sum_cost(together, cost):
        return narrowed
    return together


def arrange_entries(hoisted: Iterable[Hoisted]) -> tuple[Entry, ...]:
    """Return the entries of several hoisted rules of one list in matching order, each once."""
    entries = dict.fromkeys(entry for each in hoisted for entry in each.entries)
    return tuple(sorted(entries, key=lambda entry: entry.row))


def parts(rows: RuleList, box: Box, *, most_entries: int) -> tuple[Entry, ...] | None:
    """Lift packets: the part of every row that may decide some; None if too many.

    For packets that are no rule's own, such as the replies to those of a rule.
    """
    answering = rows.answering(box)
    if len(answering) > most_entries:
        return None
    shares = ((row, rows.rows[row].box.intersect(box)) for row in answering)
    return tuple(Entry(row, share) for row, share in shares if share is not None)


def reply_box(box: Box, protocol: int) -> Box:
    """Return the replies of a protocol to a box's packets: of TCP, established segments alone."""
    return everything(box.family)._replace(
        fragments=WHOLE,
        protocols=1 << protocol,
        tcp_flags=ESTABLISHED_SET if protocol == TCP else ALL_BYTES,
        source=box.destination,
        destination=box.source,
        source_ports=box.destination_ports,
        destination_ports=box.source_ports,
    )


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof's result: one packet set per non-empty entry, each decided as in the list."""

    entries: int
    sets: int


class NotTheSame(AclflowError):
    """Entries would decide some packets otherwise than the list.

    This is a defect, so nothing is lifted.
    """


def proof(rows: RuleList, entries: Sequence[Entry]) -> Proof:
    """Show that the list decides every packet of an entry by the same row.

    Raises NotTheSame.
    """
    sets = 0
    for number, entry in enumerate(entries):
        asked_before = [other.box for other in entries[:number] if other.box.overlaps(entry.box)]
        for decided in remaining((entry.box,), asked_before):
            deciders = rows.deciders(decided)
            if deciders != [entry.row]:
                other = next(each for each in deciders if each != entry.row)
                raise NotTheSame(
                    f"'{rows.rows[entry.row].id}' would decide packets that '{rows.rows[other].id}' decides"
                )
            sets += 1
    return Proof(len(entries), sets)


def _pieces(box: Box, others: Sequence[Box], at_most: int) -> tuple[Box, ...] | None:
    """The box without the others; None if that takes more boxes than allowed."""
    pieces: tuple[Box, ...] = (box,)
    for other in others:
        pieces = remaining(pieces, (other,))
        if len(pieces) > at_most:
            return None
    return pieces


def _sum_cost(hoisted: Hoisted, cost: Cost) -> int:
    return sum(cost(entry.box) for entry in hoisted.entries)


def _refuse_if_large(hoisted: Hoisted, most_entries: int) -> Hoisted | Stays:
    if len(hoisted.entries) <= most_entries:
        return hoisted
    return Stays(
        hoisted.rule, f"{len(hoisted.entries)} entries would have to stand above the list, over {most_entries}"
    )
