"""One flow table of the fake switch: entries by key, tuple space search.

Entries that look at the same bits have the same *shape*. Under one shape a packet can match only entries whose value
equals the packet's own bits, so that a dictionary answers; a look-up asks shape after shape, those with the highest
priority first, until no shape left can hold a higher one than was found.

An entry may say that a packet meets a clause of a conjunctive match instead of deciding it. When entries of one
priority say so for all clauses of a conjunction, the packet is looked up once more with the conjunction's number as
its `conj_id`; an entry that asks for this number then decides (ovs-actions(7), "conjunction").

A real switch may choose as it likes between entries of equal priority. This one refuses to guess: such a packet raises
`Ambiguous`, so that a program whose outcome depends on luck does not pass a test by luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.enforce.drivers.openflow.fake import fields
from orchestrator.enforce.drivers.openflow.fake.actions import Instructions
from orchestrator.enforce.drivers.openflow.fake.fields import Match


class Ambiguous(Exception):
    """Two entries of the same priority match a packet and do different things."""


@dataclass(slots=True, eq=False)
class Entry:
    """A flow entry with its counters. Times are in seconds of the switch's clock."""

    table: int
    priority: int
    match: Match
    cookie: int
    instructions: Instructions
    flags: int
    created: float
    used: float
    packets: int = 0
    byte_count: int = 0
    match_bytes: bytes = field(init=False)
    """The match as the switch describes it."""

    def __post_init__(self) -> None:
        self.match_bytes = fields.write_match(self.match)

    def __str__(self) -> str:
        return f"table {self.table} priority {self.priority} cookie {self.cookie:#018x}"


Shape = tuple[tuple[str, int], ...]
"""(field name, mask), sorted."""


@dataclass(slots=True)
class _Group:
    """The entries of one shape: by their values, and there by priority."""

    shape: Shape
    by_values: dict[tuple[int, ...], dict[int, Entry]] = field(default_factory=dict)
    priorities: dict[int, int] = field(default_factory=dict)
    top: int = -1
    """The highest priority, as of the last `renew`."""

    def count(self, priority: int, change: int) -> None:
        """Remember how many entries have a priority."""
        left = self.priorities.get(priority, 0) + change
        if left:
            self.priorities[priority] = left
        else:
            del self.priorities[priority]

    def renew(self) -> None:
        """Bring `top` up to date."""
        self.top = max(self.priorities)


class FlowTable:
    """The entries of one table."""

    def __init__(self) -> None:
        self._groups: dict[Shape, _Group] = {}
        self._order: list[_Group] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for group in self._groups.values():
            for by_priority in group.by_values.values():
                yield from by_priority.values()

    def find(self, priority: int, match: Match) -> Entry | None:
        """The entry with exactly this key."""
        shape, values = _split_match(match)
        group = self._groups.get(shape)
        return group.by_values.get(values, {}).get(priority) if group else None

    def put(self, entry: Entry) -> Entry | None:
        """Put an entry in; what had its key before, if anything."""
        shape, values = _split_match(entry.match)
        group = self._groups.setdefault(shape, _Group(shape))
        by_priority = group.by_values.setdefault(values, {})
        old = by_priority.get(entry.priority)
        by_priority[entry.priority] = entry
        if old is None:
            self._count += 1
            group.count(entry.priority, 1)
            self._order = None
        return old

    def remove(self, entry: Entry) -> None:
        """Take an entry out."""
        shape, values = _split_match(entry.match)
        group = self._groups[shape]
        by_priority = group.by_values[values]
        del by_priority[entry.priority]
        if not by_priority:
            del group.by_values[values]
        if not group.by_values:
            del self._groups[shape]
        group.count(entry.priority, -1)
        self._count -= 1
        self._order = None

    def look_up(self, packet: Mapping[str, int]) -> Entry | None:
        """The entry that decides a packet. Raises Ambiguous."""
        best, clauses = self._matching(packet)
        for priority in sorted({entry.priority for entry in clauses}, reverse=True):
            if best is not None and priority < best.priority:
                break
            for number in _met([entry for entry in clauses if entry.priority == priority]):
                found, _ = self._matching({**packet, "conj_id": number})
                best = _the_one(best, found, packet) if best is not None and priority == best.priority else found
            if best is not None and best.priority >= priority:
                break
        return best

    def _matching(self, packet: Mapping[str, int]) -> tuple[Entry | None, list[Entry]]:
        """Return the deciding entry, and those above it that name clauses.

        Raises Ambiguous.
        """
        best: Entry | None = None
        rival: Entry | None = None
        clauses: list[Entry] = []
        for group in self._sort_groups():
            if best is not None and group.top < best.priority:
                break
            values = tuple([packet.get(name, 0) & mask for name, mask in group.shape])
            for priority, entry in group.by_values.get(values, {}).items():
                if entry.instructions.conjunctions:
                    clauses.append(entry)
                elif best is None or priority > best.priority:
                    best, rival = entry, None
                elif priority == best.priority and entry.instructions.data != best.instructions.data:
                    rival = entry
        if best is not None and rival is not None:
            raise Ambiguous(f"{best} and cookie {rival.cookie:#018x} both match {dict(packet)}")
        return best, clauses

    def _sort_groups(self) -> list[_Group]:
        if self._order is None:
            for group in self._groups.values():
                group.renew()
            self._order = sorted(self._groups.values(), key=lambda group: -group.top)
        return self._order


def _met(entries: Iterable[Entry]) -> list[int]:
    """The conjunctions all of whose clauses are among those that the entries name."""
    clauses: dict[tuple[int, int], set[int]] = {}
    for entry in entries:
        for each in entry.instructions.conjunctions:
            clauses.setdefault((each.number, each.clauses), set()).add(each.clause)
    return sorted({number for (number, needed), met in clauses.items() if len(met) == needed})


def _the_one(best: Entry, other: Entry | None, packet: Mapping[str, int]) -> Entry:
    """Return the deciding one of two entries of one priority: either, if equal.

    Raises Ambiguous.
    """
    if other is None or other.priority < best.priority:
        return best
    if other.instructions.data != best.instructions.data:
        raise Ambiguous(f"{best} and cookie {other.cookie:#018x} both match {dict(packet)}")
    return best


def covers(wide: Match, narrow: Match) -> bool:
    """Whether every packet that `narrow` matches is matched by `wide`."""
    return all(
        name in narrow and not bits.mask & ~narrow[name].mask and narrow[name].value & bits.mask == bits.value
        for name, bits in wide.items()
    )


def _split_match(match: Match) -> tuple[Shape, tuple[int, ...]]:
    terms = sorted(match.items())
    return tuple((name, bits.mask) for name, bits in terms), tuple(bits.value for _, bits in terms)
