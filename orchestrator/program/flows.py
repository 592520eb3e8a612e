"""Flows as columns: the rows of an OpenFlow program, from the compiler to the wire.

A row is one flow entry. Its *key* is what the switch calls the same entry: table, priority and match. Its *value* is
the cookie and the instructions. Matches are kept as the standard's own bytes (OXM TLVs, in the order in which Open
vSwitch writes them back), so that what was compiled, what is sent and what is read back compare byte for byte.

Rows name switch ports by symbol, because the same program serves every switch of a domain: port number
``SYMBOL_BASE + i`` stands for ``ports[i]``, and the driver puts the switch's own number in its place. A row whose port
a switch does not have is left out there; so an endpoint may move between switches and the program stays. Symbols stand
in the `in_port` of a match, in output actions, and in actions that set the pipeline's output register.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

SYMBOL_BASE = 0xFE000000
"""Port numbers from here to 0xfeffffff are symbols in a program (the standard reserves only 0xffffff00 upwards)."""

GROUPS = 255
"""Rows of this table, which no switch has for flows, are groups of buckets (`compile/openflow/groups.py`)."""

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]


class FlowKey(NamedTuple):
    """The identity of a flow entry on a switch."""

    table: int
    priority: int
    match: bytes


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow entry as a value, for single entries and for inspection."""

    table: int
    priority: int
    match: bytes
    instructions: bytes
    cookie: int
    tenant: int = 0

    @property
    def key(self) -> FlowKey:
        return FlowKey(self.table, self.priority, self.match)


@dataclass(frozen=True, slots=True)
class FlowTable:
    """Flow entries as columns.

    n rows; `match` is (n, width), zero-padded behind `match_length`; `instructions` holds indices into
    `instruction_set`, for thousands of rows share a handful of instruction lists. `tenant` is the number of the tenant
    whose policy made the row (0: structure), used to bucket digests and deltas.
    """

    table: U8
    priority: U16
    cookie: U64
    tenant: U32
    match_length: U8
    match: U8
    instructions: U32
    instruction_set: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.table)

    def are_groups(self) -> npt.NDArray[np.bool_]:
        """Which rows are groups."""
        return np.asarray(self.table == GROUPS)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take up."""
        columns = (self.table, self.priority, self.cookie, self.tenant, self.match_length, self.match)
        return sum(column.nbytes for column in columns) + self.instructions.nbytes

    @classmethod
    def of(cls, flows: Iterable[Flow]) -> FlowTable:
        """Columns from single flows."""
        rows = tuple(flows)
        return cls.with_set(rows, tuple(dict.fromkeys([row.instructions for row in rows])))

    @classmethod
    def with_set(cls, rows: Sequence[Flow], instruction_set: tuple[bytes, ...]) -> FlowTable:
        """Columns from single flows whose instructions are all in a set."""
        place = {each: index for index, each in enumerate(instruction_set)}
        width = max([len(row.match) for row in rows], default=0)
        padded = b"".join([row.match.ljust(width, b"\0") for row in rows])
        return cls(
            table=np.array([row.table for row in rows], np.uint8),
            priority=np.array([row.priority for row in rows], np.uint16),
            cookie=np.array([row.cookie for row in rows], np.uint64),
            tenant=np.array([row.tenant for row in rows], np.uint32),
            match_length=np.array([len(row.match) for row in rows], np.uint8),
            match=np.frombuffer(padded, np.uint8).reshape(len(rows), width),
            instructions=np.array([place[row.instructions] for row in rows], np.uint32),
            instruction_set=instruction_set,
        )

    @classmethod
    def join_tables(cls, tables: Sequence[FlowTable]) -> FlowTable:
        """The rows of several tables, one after the other, with one shared instruction set."""
        if not tables:
            return cls.of(())
        known: dict[bytes, int] = {}
        renumbered: dict[int, U32] = {}
        tables = _with_used_sets(tables)
        width = max([part.match.shape[1] for part in tables])
        match = np.zeros((sum(map(len, tables)), width), np.uint8)
        indices = []
        start = 0
        for part in tables:
            shared = part.instruction_set
            if id(shared) not in renumbered:
                renumbered[id(shared)] = np.array([known.setdefault(each, len(known)) for each in shared], np.uint32)
            indices.append(renumbered[id(shared)][part.instructions] if len(part) else part.instructions)
            match[start : start + len(part), : part.match.shape[1]] = part.match
            start += len(part)
        return cls(
            table=np.concatenate([part.table for part in tables]),
            priority=np.concatenate([part.priority for part in tables]),
            cookie=np.concatenate([part.cookie for part in tables]),
            tenant=np.concatenate([part.tenant for part in tables]),
            match_length=np.concatenate([part.match_length for part in tables]),
            match=match,
            instructions=np.concatenate(indices),
            instruction_set=tuple(known),
        )

    def columns(self) -> dict[str, Any]:
        """Every column, and the instruction set, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> FlowTable:
        """Select some rows, by index or by mask; the instruction set stays."""
        return FlowTable(
            self.table[rows],
            self.priority[rows],
            self.cookie[rows],
            self.tenant[rows],
            self.match_length[rows],
            self.match[rows],
            self.instructions[rows],
            self.instruction_set,
        )

    def part(self, start: int, end: int) -> FlowTable:
        """Rows `start` up to, not including, `end`, without copying them."""
        return FlowTable(
            self.table[start:end],
            self.priority[start:end],
            self.cookie[start:end],
            self.tenant[start:end],
            self.match_length[start:end],
            self.match[start:end],
            self.instructions[start:end],
            self.instruction_set,
        )

    def compact_sets(self) -> FlowTable:
        """Return the same rows with only the used instruction lists, by first use."""
        if len(self.instruction_set) == min(len(self), 1):
            return self
        instructions, kept = _compact_set(self.instructions, self.instruction_set)
        return replace(self, instructions=instructions, instruction_set=kept)

    def row(self, index: int) -> Flow:
        """One row as a value."""
        return Flow(
            table=int(self.table[index]),
            priority=int(self.priority[index]),
            match=self.match[index, : int(self.match_length[index])].tobytes(),
            instructions=self.instruction_set[int(self.instructions[index])],
            cookie=int(self.cookie[index]),
            tenant=int(self.tenant[index]),
        )

    def rows(self) -> list[Flow]:
        """Every row as a value: for tests, small tables and looking at."""
        return [self.row(index) for index in range(len(self))]

    def keys(self) -> list[FlowKey]:
        """Every row's key, in row order; the bulk path of comparing."""
        width = self.match.shape[1]
        whole = np.ascontiguousarray(self.match).tobytes()
        return [
            FlowKey(table, priority, whole[start : start + length])
            for table, priority, length, start in zip(
                self.table.tolist(),
                self.priority.tolist(),
                self.match_length.tolist(),
                range(0, width * len(self), width) if width else [0] * len(self),
                strict=True,
            )
        ]


def _with_used_sets(tables: Sequence[FlowTable]) -> list[FlowTable]:
    """Give tables a smaller set where the one they share exceeds their rows.

    Every block of a program carries the set of the compilation that made it.
    """
    sharing: defaultdict[int, list[int]] = defaultdict(list)
    for place, table in enumerate(tables):
        sharing[id(table.instruction_set)].append(place)
    found = list(tables)
    for places in sharing.values():
        parts, shared = [tables[place].instructions for place in places], tables[places[0]].instruction_set
        ends = np.cumsum([len(part) for part in parts])
        if ends[-1] < len(shared):
            instructions, kept = _compact_set(np.concatenate(parts), shared)
            for place, part in zip(places, np.split(instructions, ends[:-1]), strict=True):
                found[place] = replace(tables[place], instructions=part, instruction_set=kept)
    return found


def _compact_set(instructions: U32, instruction_set: tuple[bytes, ...]) -> tuple[U32, tuple[bytes, ...]]:
    """Return indices into the used members of a set, and these by first use."""
    first = np.full(len(instruction_set), len(instructions), np.intp)
    first[instructions[::-1]] = np.arange(len(instructions) - 1, -1, -1)  # of several, the last one stays
    used = np.argsort(first)[: np.count_nonzero(first < len(instructions))]
    rank = np.zeros(len(first), np.uint32)
    rank[used] = np.arange(len(used), dtype=np.uint32)
    return rank[instructions], tuple(instruction_set[index] for index in used.tolist())


class FewFlows(FlowTable):
    """A few flow entries as values.

    One changed rule yields them so. Columns are made at first use.
    """

    __slots__ = ("_rows",)

    def __new__(cls, **columns: Any) -> FlowTable:  # type: ignore[misc]
        """Make an ordinary table of given columns, as `dataclasses.replace` does."""
        return FlowTable(**columns)

    @classmethod
    def of(cls, flows: Iterable[Flow]) -> FewFlows:
        """A table of some rows."""
        table = object.__new__(cls)
        object.__setattr__(table, "_rows", list(flows))
        return table

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> Any:
        """Make the columns at their first use."""
        columns = FlowTable.of(self._rows).columns()
        if name not in columns:
            raise AttributeError(name)
        for each, column in columns.items():
            object.__setattr__(self, each, column)
        return columns[name]

    def rows(self) -> list[Flow]:
        """Every row as a value."""
        return list(self._rows)


GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def entry_keys(flows: FlowTable) -> U64:
    """Name every row by 64 bits that stand for its table, priority, match and cookie.

    Counters are kept apart by these: one entry is replaced, and the others of its rule go on counting. The cookie
    belongs to the name because a switch makes a new entry of one whose cookie changes.

        key = mix( Σ mix(word[i] + (i + 1) * GOLDEN) )     word 0: length | table | priority, 1: cookie, 2...: match

    in which `mix` is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): the words of an entry are mixed apart
    before they are added, so that no two of them cancel each other. The match is read as little-endian words, padded
    with zeros; its length is part of word 0. `enforce/_native/flowstats.c` computes the same from a switch's answer.
    """
    length = flows.match_length.astype(np.uint64)
    place = flows.table.astype(np.uint64) << np.uint64(16) | flows.priority.astype(np.uint64)
    total = _mix_word(length << np.uint64(32) | place, 1) + _mix_word(flows.cookie, 2)
    words = _words(flows)
    for index in range(words.shape[1]):
        there = np.uint64(8 * index) < length
        total += np.where(there, _mix_word(words[:, index], index + 3), np.uint64(0))
    return _mix_word(total, 0)


def _words(flows: FlowTable) -> U64:
    """The matches as little-endian words, padded with zeros."""
    rows, width = flows.match.shape
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = flows.match
    return padded.view("<u8")


def _mix_word(word: U64, place: int) -> U64:
    """The finaliser of SplitMix64, of a word at its place."""
    mixed = word + np.uint64(place * GOLDEN & (1 << 64) - 1)
    mixed = (mixed ^ mixed >> np.uint64(30)) * _FIRST
    mixed = (mixed ^ mixed >> np.uint64(27)) * _SECOND
    return mixed ^ mixed >> np.uint64(31)
