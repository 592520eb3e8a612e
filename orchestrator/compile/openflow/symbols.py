"""Which symbol stands for which switch port.

A program's `ports` are a hash table: each name lies in the slot that its hash names or, where that is taken, in the
next free one; slots without a name hold an empty string and no row speaks of them. So when an endpoint comes or goes,
the symbols of the others stay (but for the rare one pushed on by a collision, and for the day the table doubles), and
with them the rows. A plain sorted list would renumber half of a domain's endpoints each time.

The table is the same whatever way led to its names. They are put in by name: of two that want a slot, the lesser has
it. So a name that comes pushes on those greater ones that it meets (an ordered hash table: Amble and Knuth, 1974), and
after one that goes, those that lie behind it without a gap are put in again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from orchestrator.program.flows import SYMBOL_BASE
from orchestrator.program.program import UPLINK

_FEWEST_SLOTS = 8
UPLINK_SYMBOL = SYMBOL_BASE
"""The uplink stands before the slots."""
SERVICES_SYMBOL = 0xFEFFFFFF
"""The port of a host's services stands behind all slots, in every program alike."""


@dataclass(frozen=True, slots=True)
class PortTable:
    """The `ports` of a program, and how many of them are names. Never changes."""

    ports: tuple[str, ...]
    names: int

    @classmethod
    def of(cls, names: Iterable[str]) -> PortTable:
        """Place interface names, given in any order."""
        wanted = sorted(set(names) - {UPLINK})
        slots = [""] * _count_slots(len(wanted))
        for name in wanted:
            _put(slots, name)
        return cls((UPLINK, *slots), len(wanted))

    @property
    def count(self) -> int:
        """How many slots there are."""
        return len(self.ports) - 1

    def symbols(self) -> Mapping[str, int]:
        """The port number that stands for each name."""
        return symbols(self.ports)

    def symbol(self, name: str) -> int:
        """The port number that stands for a name that is there."""
        slot = _hash_name(name) % self.count
        while self.ports[slot + 1] != name:
            slot = (slot + 1) % self.count
        return SYMBOL_BASE + slot + 1

    def after(self, gone: Sequence[str], come: Sequence[str]) -> tuple[PortTable, Sequence[str]]:
        """Exchange some names; returns the table, and the names that may have moved."""
        names = self.names - len(gone) + len(come)
        if _count_slots(names) != self.count:
            kept = (set(self.ports) - {"", UPLINK, *gone}) | set(come)
            return PortTable.of(kept), [*kept]
        slots, pushed = list(self.ports[1:]), list[str]()
        for name in gone:
            pushed += _take_out(slots, name)
        for name in come:
            pushed += _put(slots, name)
        return PortTable((UPLINK, *slots), names), [name for name in pushed if name not in gone]


def port_table(names: Iterable[str]) -> tuple[str, ...]:
    """Return a program's `ports` for interface names: the uplink, then the slots."""
    return PortTable.of(names).ports


def symbols(ports: tuple[str, ...]) -> Mapping[str, int]:
    """The port number that stands for each name."""
    return {name: SYMBOL_BASE + index for index, name in enumerate(ports) if name}


def _count_slots(names: int) -> int:
    """Return how many slots so many names get: a power of two, half full."""
    count = _FEWEST_SLOTS
    while count < 2 * names:
        count *= 2
    return count


@lru_cache(maxsize=1 << 16)
def _hash_name(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big")


def _put(slots: list[str], name: str) -> list[str]:
    """Put a name in; returns the names that it pushed on."""
    pushed: list[str] = []
    slot = _hash_name(name) % len(slots)
    while slots[slot]:
        if slots[slot] > name:
            slots[slot], name = name, slots[slot]
            pushed.append(name)
        slot = (slot + 1) % len(slots)
    slots[slot] = name
    return pushed


def _take_out(slots: list[str], name: str) -> list[str]:
    """Take a name out; returns the names behind it, which were put in again."""
    slot = _hash_name(name) % len(slots)
    while slots[slot] != name:
        slot = (slot + 1) % len(slots)
    slots[slot] = ""
    behind: list[str] = []
    slot = (slot + 1) % len(slots)
    while slots[slot]:
        behind.append(slots[slot])
        slots[slot] = ""
        slot = (slot + 1) % len(slots)
    for each in behind:
        _put(slots, each)
    return behind
