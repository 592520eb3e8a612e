"""A packet filter's driver: observe, apply and hits over any `Tool`.

    rows of the program ── resolve ──▶ objects as the device lists them ◀── Tool.read ── device
                                              │ a delta of them
                                              ▼
                                        Tool.write(before, after, stamp)   one transaction

A row is an object of the filter (`compile/filters/rows.py`), so what a foreign hand changed, added or took away inside
our tables shows as rows that differ, and is put right like every other difference. The last reading of the device is
remembered, so that an apply knows the whole of it; after any error it is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple, Protocol

import numpy as np

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters.comments import read_comment
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.filters.rows import Filter, filter_row
from orchestrator.enforce.changing import LASTING, Changing, wholly
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Hits, Observed, Stamp
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

    `stamp` is None unless both IP versions carry the same one.
    """

    objects: Objects
    stamp: Stamp | None
    counts: tuple[Count, ...]


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
        self._tool = tool
        self._legs = legs
        self._held: Objects | None = None
        self._counts: tuple[Count, ...] = ()

    def claim(self, epoch: int) -> bool:  # noqa: ARG002  # nobody else writes here
        """Always granted."""
        return True

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:  # noqa: ARG002  # there are no ports
        """The rows of this driver's filters, in the form in which the device lists them."""
        return FlowTable.of(filter_row(key.filter, key.name, text) for key, text in self._normal(flows))

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
        removed = {key for key, _ in self._normal(delta.removed)}
        after = {key: text for key, text in before.items() if key not in removed}
        after.update(self._normal(delta.added))
        self._tool.write(before, after, stamp)
        self._held = after

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Apply a change and read it back.

        Counters are read right before, for some of them begin anew.
        """
        yield LASTING
        last = self.hits()
        return replace(wholly(self, delta, stamp), last=last)

    def counter_keys(self, flows: FlowTable) -> U64 | None:  # noqa: ARG002
        """None: counters are not those of rows, of which one may hold many."""
        return None

    def hits(self) -> Hits:
        """Return the counts of every rule, default and return traffic, in both IP versions."""
        return _hits(self._read().counts)

    def packets_under(self, comment: str) -> int:
        """Return the packets under a comment when the device was last read."""
        return sum(count.packets for count in self._counts if count.comment == comment)

    def _normal(self, flows: FlowTable) -> Iterator[tuple[Key, str]]:
        """The rows of this driver's filters as objects in normal form."""
        for flow in flows.rows():
            if flow.table in self._tool.filters:
                name = flow.match.decode()
                yield (
                    Key(Filter(flow.table), name),
                    self._tool.normal(name, self._legs.resolve_legs(flow.instructions.decode())),
                )

    def _read(self) -> Holding:
        self._held = None
        found = self._tool.read()
        self._held, self._counts = found.objects, found.counts
        return found


def _hits(counts: Iterable[Count]) -> Hits:
    owned = [(count, owner) for count in counts if (owner := read_comment(count.comment)) is not None]
    cookies = [Cookie(Tier.SERVER, *owner).pack() for _, owner in owned]
    return Hits(
        key=np.array([_counter_key(count) for count, _ in owned], np.uint64),
        cookie=np.array(cookies, np.uint64),
        packets=np.array([count.packets for count, _ in owned], np.uint64),
        bytes=np.array([count.bytes for count, _ in owned], np.uint64),
        idle_s=np.full(len(owned), UNKNOWN_IDLE_S, np.uint32),
        age_s=np.full(len(owned), np.nan),
    )


def _counter_key(count: Count) -> int:
    return int.from_bytes(blake2b(f"{count.name} {count.comment}".encode(), digest_size=8).digest(), "big")
