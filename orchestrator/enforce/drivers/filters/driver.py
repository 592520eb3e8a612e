"""A packet filter's driver: observe, apply and hits over any `Tool`.

    rows of the program ── resolve ──▶ objects as the device lists them ◀── Tool.read ── device
                                              │ a delta of them
                                              ▼
                                        Tool.write(before, after, stamp)   one transaction

A row is an object of the filter (`compile/filters/filterrows.py`), so what a foreign hand changed, added or took away
inside our tables shows as rows that differ, and is put right like every other difference. The last reading of the
device is remembered, so that an apply knows the whole of it; after any error it is read again. The normal form of an
object's text is made once, however often the object is resolved, compared and written.

The stamp stands inside the rule set as words: ``generation 17 digest 00112233445566778899aabbccddeeff``, in the comment
of a rule that no packet meets, in a chain of its own that is written in the same transaction as all the rest.

A full table of connections (`nf_conntrack_max`) drops what would open one before any filter sees it, and known
connections go on. The kernel counts these packets for the network namespace; nothing in a filter's tables does
(`packets_without_room`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from orchestrator.compile.cookies import NO_ROOM, Cookie
from orchestrator.compile.filters.filterrows import Filter, filter_row, read_comment
from orchestrator.compile.filters.filtertracking import OPENS
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.enforce.changing import Changing, change_wholly
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Hits, Observed, Stamp
from orchestrator.enforce.drivers.filters.command import Run
from orchestrator.errors import Missing, Refused
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, FlowTable
from orchestrator.program.program import Tier


class Key(NamedTuple):
    """The device's name of an object."""

    filter: Filter
    name: str


Objects = Mapping[Key, str]
"""Objects of a filter with their text, in the form in which the device lists them."""


class Count(NamedTuple):
    """One counter.

    `name` is unique on the device for ever, so that a replaced counter gets a new one; `comment` names its rule.
    """

    name: str
    comment: str
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Holding:
    """The objects read from a device.

    `stamp` is None unless both IP versions carry the same one. `without_room`: packets that the kernel has dropped, for
    it could remember no more connections; None where nothing is tracked.
    """

    objects: Objects
    stamp: Stamp | None
    counts: tuple[Count, ...]
    without_room: int | None = None


class _Normal(NamedTuple):
    """An object's text in a program, and as the device lists it."""

    compiled: bytes
    text: str


class Tool(Protocol):
    """Reads and writes one kind of filter."""

    filters: frozenset[Filter]

    def read(self) -> Holding:
        """All that is ours on the device. Raises Unreachable, Refused, Missing."""
        ...

    def write(self, before: Objects, after: Objects, stamp: Stamp) -> None:
        """Change the device from `before` to `after`.

        Raises as `read`; Refused also for objects that would let pass what no rule permits.
        """
        ...

    def normal(self, name: str, text: str) -> str:
        """An object's text in the form in which the device lists it."""
        ...


class FilterDriver:
    """One device: the packet filter of a network namespace, always ours to write."""

    def __init__(self, tool: Tool, legs: Legs = NO_LEGS) -> None:
        self.tool = tool
        self._legs = legs
        self._held: Objects | None = None
        self._counts: tuple[Count, ...] = ()
        self._normal: dict[Key, _Normal] = {}
        """Of the objects that the device holds, and of those resolved since it was written last."""
        self._room = _Room()

    def claim(self, epoch: int) -> bool:  # noqa: ARG002  # nobody else writes here
        """Grant every claim."""
        return True

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:  # noqa: ARG002  # there are no ports
        """The rows of this driver's filters, in the form in which the device lists them."""
        return FlowTable.of(filter_row(key.filter, key.name, text) for key, text in self._normalize(flows))

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Read everything back; give all of it, or what has some cookies."""
        held = self._read()
        rows = FlowTable.of(filter_row(key.filter, key.name, text) for key, text in held.objects.items())
        if cookies is not None:
            rows = rows.take(np.flatnonzero(np.isin(rows.cookie, cookies)))
        return Observed(rows, held.stamp)

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Change objects and write the stamp, atomically for each IP version.

        No packet is of both.
        """
        before = self._held if self._held is not None else self._read().objects
        self._held = None
        removed = set(self._keys(delta.removed))
        after = {key: text for key, text in before.items() if key not in removed}
        after.update(self._normalize(delta.added))
        self._normal = {key: known for key, known in self._normal.items() if key in after}
        self.tool.write(before, after, stamp)
        self._held = after

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Apply a change and read it back.

        Counters are read right before, for some of them begin anew.
        """
        return change_wholly(self, delta, stamp)

    def counter_keys(self, flows: FlowTable) -> U64 | None:  # noqa: ARG002
        """None: counters are not those of rows, of which one may hold many."""
        return None

    def hits(self) -> Hits:
        """Return the counts of rules, defaults, return traffic, and packets without room."""
        held = self._read()
        counted = [
            (count, Cookie(Tier.SERVER, *owner).pack())
            for count in held.counts
            if (owner := read_comment(count.comment)) is not None
        ]
        lost = self._room.count_since(held.without_room)
        return _hits(counted if lost is None else [*counted, (lost, NO_ROOM[Tier.SERVER])])

    def packets_under(self, comment: str) -> int:
        """Return the packets under a comment when the device was last read."""
        return sum(count.packets for count in self._counts if count.comment == comment)

    def _keys(self, flows: FlowTable) -> Iterator[Key]:
        """The names of this driver's rows, without reading what they hold."""
        for flow in flows.rows():
            if flow.table in self.tool.filters:
                yield Key(Filter(flow.table), flow.match.decode())

    def _normalize(self, flows: FlowTable) -> Iterator[tuple[Key, str]]:
        """The rows of this driver's filters as objects in normal form."""
        for flow in flows.rows():
            if flow.table in self.tool.filters:
                key = Key(Filter(flow.table), flow.match.decode())
                yield key, self._normalize_text(key, flow.instructions)

    def _normalize_text(self, key: Key, compiled: bytes) -> str:
        """Return an object's text in normal form, which it may have already."""
        known = self._normal.get(key)
        if known is not None and (compiled == known.compiled or compiled == known.text.encode()):
            return known.text
        text = self.tool.normal(key.name, self._legs.resolve_legs(compiled.decode()))
        self._normal[key] = _Normal(compiled, text)
        return text

    def _read(self) -> Holding:
        self._held = None
        found = self.tool.read()
        self._held, self._counts = found.objects, found.counts
        return found


class _Room:
    """The kernel's count of packets without room, from when this driver first saw it."""

    def __init__(self) -> None:
        self._name = f"no room {secrets.token_hex(8)}"
        self._first: int | None = None
        self._last = 0

    def count_since(self, total: int | None) -> Count | None:
        """Return the count, which never goes down; None until something was tracked."""
        if total is not None:
            self._first = total if self._first is None else self._first
            self._last = max(self._last, total - self._first)
        return None if self._first is None else Count(self._name, "", self._last, 0)


def _hits(owned: Sequence[tuple[Count, int]]) -> Hits:
    """Counters, each with its cookie."""
    return Hits(
        key=np.array([_counter_key(count) for count, _ in owned], np.uint64),
        cookie=np.array([cookie for _, cookie in owned], np.uint64),
        packets=np.array([count.packets for count, _ in owned], np.uint64),
        bytes=np.array([count.bytes for count, _ in owned], np.uint64),
        idle_s=np.full(len(owned), UNKNOWN_IDLE_S, np.uint32),
        age_s=np.full(len(owned), np.nan),
    )


def _counter_key(count: Count) -> int:
    return int.from_bytes(blake2b(f"{count.name} {count.comment}".encode(), digest_size=8).digest(), "big")


_WORDS = re.compile(rf"generation (\d{{1,19}}) digest ([0-9a-f]{{{2 * DIGEST_BYTES}}})\Z")


def stamp_words(stamp: Stamp) -> str:
    """The stamp as a comment."""
    return f"generation {stamp.generation} digest {stamp.digest.hex()}"


def read_stamp(words: str) -> Stamp | None:
    """The stamp of a comment; None if it is not one."""
    found = _WORDS.match(words)
    return Stamp(int(found[1]), bytes.fromhex(found[2])) if found else None


STATISTICS = "/proc/net/stat/nf_conntrack"
"""A line of column names, and one of hexadecimal numbers for each processor."""
TRACKING_CHAINS = frozenset({OPENS, f"chain {OPENS}"})
"""The words of iptables and nftables that only filters which track connections have."""


def packets_without_room(run: Run) -> int:
    """Return how many packets were dropped so far; 0 where the kernel tracks nothing."""
    try:
        names, *processors = run(("cat", STATISTICS), "").splitlines()
    except (Refused, Missing):
        return 0
    place = names.split().index("drop")
    return sum(int(line.split()[place], 16) for line in processors)
