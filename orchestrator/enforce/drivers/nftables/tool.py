"""Read and write our tables with `nft`: one name, IPv4 and IPv6.

Both IP versions change in one transaction. Nothing else on the machine is touched: other tables may drop what we
accept, but nobody can accept what we drop. While a table takes the place of another, and after a death between the two
steps, there are tables of both names; then the newer ones are what is held, and the others too many.

`wait_for_packets` waits until no packet is under way that entered the kernel's filters before. The kernel walks its
rules under RCU, so what was taken out of the packets' way is out of it for good after one grace period. A global memory
barrier (membarrier(2), MEMBARRIER_CMD_GLOBAL) returns after such a period.
"""

from __future__ import annotations

import ctypes
import platform
import time
from dataclasses import dataclass, field

from orchestrator.compile.filters.filterrows import FILTERS
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.nftables.words import IP
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.drivers.filters.driver import (
    TRACKING_CHAINS,
    Count,
    FilterDriver,
    Holding,
    Key,
    Objects,
    packets_without_room,
    read_stamp,
)
from orchestrator.enforce.drivers.nftables import scripts
from orchestrator.enforce.drivers.nftables.listing import normal_object, read_table
from orchestrator.enforce.drivers.nftables.scripts import incremental
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.wire.firewalls import Plane

_MINE = FILTERS[Plane.NFTABLES]
_NO_TABLE = "No such file or directory"
_STRANGE, _LEFT_OVER = "strange", "left over"
"""The names under which what belongs to no object shows: an option that somebody set, a table that should be gone."""


@dataclass(slots=True)
class _Found:
    """The tables of one name: objects without the driver's own, stamps, counters."""

    objects: dict[Key, str] = field(default_factory=dict)
    stamps: dict[Family, Stamp | None] = field(default_factory=dict)
    counts: list[Count] = field(default_factory=list)

    @property
    def stamp(self) -> Stamp | None:
        """None unless both IP versions carry the same one."""
        return next(iter(self.stamps.values())) if len(self.stamps) == 2 and len({*self.stamps.values()}) == 1 else None

    @property
    def age(self) -> int:
        """The generation of both IP versions' tables; -1: they differ."""
        return self.stamp.generation if self.stamp else -1


class NftTool:
    """The tables of this network namespace."""

    filters = frozenset(_MINE.values())

    def __init__(self, run: Run = run) -> None:
        self._run = run
        self._name: str | None = None
        """The name of the tables that are held; None: there are none."""

    def read(self) -> Holding:
        """The newer tables, with older ones as something that should not be there."""
        found = {name: tables for name in scripts.NAMES if (tables := self._find_object(name)).stamps}
        self._name = max(found, key=lambda name: found[name].age, default=None)
        if self._name is None:
            return Holding({}, None, ())
        held = found[self._name]
        for name in found.keys() - {self._name}:
            held.objects[Key(_MINE[Family.IPV4], _LEFT_OVER)] = name
        tracks = any(key.name in TRACKING_CHAINS for key in held.objects)
        lost = packets_without_room(self._run) if tracks else None
        return Holding(held.objects, held.stamp, tuple(held.counts), lost)

    def _find_object(self, name: str) -> _Found:
        found = _Found()
        for family, mine in _MINE.items():
            try:
                text = self._run(("nft", "-nn", "-a", "list", "table", IP[family], name), "")
            except Refused as error:
                if _NO_TABLE not in str(error):
                    raise
                continue
            table = read_table(text)
            found.counts += table.counts
            found.stamps[family] = _taken_stamp(table.objects)
            if table.objects == {scripts.GUARD: scripts.GUARD_TEXT}:
                table.objects.clear()
            if table.strange:
                table.objects[_STRANGE] = "\n".join(table.strange)
            found.objects |= {Key(mine, each): text for each, text in table.objects.items()}
        return found

    def write(self, before: Objects, after: Objects, stamp: Stamp) -> None:
        """Write only the difference if nft takes it, else new tables in place of old."""
        new = _sort_into_tables(after)
        for table in new.values():
            scripts.check(table)
        if self._name is None or not self._change_object(self._name, _sort_into_tables(before), new, stamp):
            fresh = next(name for name in scripts.NAMES if name != self._name)
            self._run(("nft", "-f", "-"), scripts.whole(fresh, new, stamp))
            self._name = fresh
            wait_for_packets()
            self._run(("nft", "-f", "-"), scripts.replacement(fresh))

    def _change_object(self, name: str, old: scripts.Tables, new: scripts.Tables, stamp: Stamp) -> bool:
        """Whether a change of what differs was all that it took."""
        found = incremental(name, old, new, stamp)
        if found is None:
            return False
        try:
            if found.coming:
                self._run(("nft", "-f", "-"), found.coming)
            self._run(("nft", "-f", "-"), found.change)
            if found.going:
                wait_for_packets()
                self._run(("nft", "-f", "-"), found.going)
        except Refused:  # it may hold something else than we believe
            return False
        return True

    def normal(self, name: str, text: str) -> str:
        """An object's text in normal form."""
        return normal_object(name, text)


def nftables_driver(run: Run = run, legs: Legs = NO_LEGS) -> FilterDriver:
    """The driver of this network namespace's nftables."""
    return FilterDriver(NftTool(run), legs)


def _sort_into_tables(objects: Objects) -> scripts.Tables:
    return {
        family: {key.name: text for key, text in objects.items() if key.filter is mine}
        for family, mine in _MINE.items()
    }


def _taken_stamp(table: dict[str, str]) -> Stamp | None:
    """Remove the stamp from a table.

    One that is not as we write it stays, as an object that should not be there.
    """
    text = table.get(scripts.STAMP, "")
    words = text.removeprefix('return comment "').removesuffix('"')
    stamp = read_stamp(words)
    if stamp is None or scripts.stamp_rule(stamp) != text:
        return None
    del table[scripts.STAMP]
    return stamp


_NUMBERS = {"x86_64": 324, "aarch64": 283}
_GLOBAL = 1
_OTHERWISE_S = 0.2
"""Where there is no such call: packets are in the filter for microseconds."""


def wait_for_packets() -> None:
    """Return when every packet that was under way at the call has left the filter."""
    number = _NUMBERS.get(platform.machine())
    if number is None or ctypes.CDLL(None).syscall(number, _GLOBAL, 0, 0) != 0:
        time.sleep(_OTHERWISE_S)
