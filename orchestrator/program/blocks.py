"""A program's rows in blocks with digests, so that small changes stay cheap.

    root ── H(ports, the digests of all shelves)
     ├── tenant 0, shelf 0            ── H(the digests of its blocks)
     │    └── structure                ── H(rows, ascending)
     └── tenant 7, shelf 0
          ├── rules   0-127            ── H(rows, ascending)
          ├── rules 128-255, part 0    ── H(rows, ascending): one of these rules makes thousands of rows
          ├── rules 128-255, part 1    ── ...
          └── ...

A row's bucket (tenant and upper bits of the cookie) and part say which block it lies in (`buckets.py`); 64 buckets in a
row share a shelf. All of that follows from the rows alone: equal rows make equal blocks, whatever way led to them. A
change makes the blocks and shelves that it touches anew and shares all others with what was before. What is here never
changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from orchestrator.policy.model import find_replaced
from orchestrator.program.block import Block, Line, edit_lines
from orchestrator.program.buckets import (
    COOKIE_BITS,
    PARTS,
    WHOLE,
    Bucket,
    Parts,
    buckets_of,
    cut,
    is_divided,
    part_of,
    parts_of,
)
from orchestrator.program.canonical import DIGEST_BYTES, canonical, hash_bytes, positions
from orchestrator.program.flows import U64, Flow, FlowTable

_SHELF_BITS = 6
"""Buckets of a tenant whose cookie bits differ only in the lowest 6 share a shelf."""

_FEW_SHELVES = 256
"""So many shelves are put in their places one by one; more of them are sorted anew."""

FEW_ROWS = 64
"""So many rows come and go line by line; more of them by column."""

_Shelf = tuple[int, int]
"""Tenant, and the uppermost bits of the cookie."""


class _Blocks:
    """The blocks of a shelf, by their bucket's cookie bits and part, with their digest."""

    __slots__ = ("by_name", "digest", "name")

    def __init__(self, name: _Shelf, by_name: Mapping[tuple[int, int], Block]) -> None:
        self.name = name
        self.by_name = by_name
        self.digest = hash_bytes(b"".join([by_name[name].digest for name in sorted(by_name)]))

    def of_bucket(self, upper: int) -> Parts:
        """The blocks of one bucket."""
        whole = self.by_name.get((upper, WHOLE))
        if whole is not None:
            return {WHOLE: whole}
        return {part: self.by_name[upper, part] for part in range(PARTS) if (upper, part) in self.by_name}


class _Names:
    """All shelves in the order of their names, with their digests one behind the other. Never changes.

    What a change costs is copied by C: with 10,000 tenants there are 40,000 shelves.
    """

    __slots__ = ("digests", "names", "shelves")

    def __init__(self, names: Sequence[_Shelf], shelves: Sequence[_Blocks], digests: bytes) -> None:
        self.names = names
        self.shelves = shelves
        self.digests = digests

    @classmethod
    def of(cls, shelves: Mapping[_Shelf, _Blocks]) -> _Names:
        """Sort the names of some shelves."""
        names = sorted(shelves)
        ordered = [shelves[name] for name in names]
        return cls(names, ordered, b"".join([each.digest for each in ordered]))

    def after(self, changed: Mapping[_Shelf, _Blocks | None]) -> _Names:
        """Return the names and digests with a few other shelves; None takes one out."""
        names, shelves, digests = list(self.names), list(self.shelves), bytearray(self.digests)
        for name, shelf in changed.items():
            place = bisect_left(names, name)
            at = slice(place * DIGEST_BYTES, (place + 1) * DIGEST_BYTES)
            is_there = place < len(names) and names[place] == name
            if shelf is None and is_there:
                del names[place], shelves[place], digests[at]
            elif shelf is not None and is_there:
                shelves[place], digests[at] = shelf, shelf.digest
            elif shelf is not None:
                names.insert(place, name)
                shelves.insert(place, shelf)
                digests[at.start : at.start] = shelf.digest
        return _Names(names, shelves, bytes(digests))

    def of_tenant(self, tenant: int) -> Sequence[_Shelf]:
        """Return the shelves that hold a tenant's rows."""
        return self.names[bisect_left(self.names, (tenant, 0)) : bisect_left(self.names, (tenant + 1, 0))]


class Blocks:
    """A set of rows."""

    __slots__ = ("_count", "_names", "_shelves")

    def __init__(self, shelves: Mapping[_Shelf, _Blocks], names: _Names, count: int) -> None:
        self._shelves = shelves
        self._names = names
        self._count = count

    @classmethod
    def of(cls, flows: FlowTable) -> Blocks:
        """The rows of a table."""
        return cls({}, _Names((), (), b""), 0)._with(cut(flows), len(flows))

    def __len__(self) -> int:
        """How many rows there are."""
        return self._count

    def __contains__(self, flow: Flow) -> bool:
        """Whether a row is among them."""
        line = Line.of(flow)
        parts = self._of_bucket((flow.tenant, flow.cookie >> COOKIE_BITS))
        block = parts.get(WHOLE) or parts.get(part_of(line.octets))
        return block is not None and block.holds(line)

    def __iter__(self) -> Iterator[Block]:
        """Every block, in the order of names."""
        return chain.from_iterable(map(self._of_shelf, self._names.names))

    def digest(self, ports: tuple[str, ...]) -> bytes:
        """The 16-byte digest of the rows together with what their symbols stand for."""
        return hash_bytes(hash_bytes("\0".join(ports).encode()) + self._names.digests)

    def joined(self) -> FlowTable:
        """Return all rows as one table, in one order for the same rows.

        Copies.
        """
        return FlowTable.joined([block.rows for block in self])

    def of_tenant(self, tenant: int) -> FlowTable:
        """Return the rows that bear a tenant's number; 0 is nobody's."""
        names = self._names.of_tenant(tenant)
        return FlowTable.joined([block.rows for name in names for block in self._of_shelf(name)])

    def of_cookies(self, cookies: U64) -> FlowTable:
        """The rows with these cookies."""
        wanted = set((cookies >> np.uint64(COOKIE_BITS)).tolist())
        shelves = {upper >> _SHELF_BITS for upper in wanted}
        near = [
            block.rows
            for (_, number), shelf in self._shelves.items()
            if number in shelves
            for (upper, _), block in shelf.by_name.items()
            if upper in wanted
        ]
        rows = FlowTable.joined(near)
        return rows.take(np.flatnonzero(np.isin(rows.cookie, cookies)))

    def replaced(self, removed: FlowTable, added: FlowTable) -> Blocks:
        """Return these rows without some and with others.

        Raises Stale if a row to be removed is not there.
        """
        few = len(removed) + len(added) <= FEW_ROWS
        buckets = self._edited(removed, added) if few else self._cut_again(removed, added)
        return self._with(buckets, len(self) + len(added) - len(removed))

    def apart(self, other: Blocks) -> tuple[FlowTable, FlowTable]:
        """Return the rows of the blocks in which this set and another differ."""
        return (
            FlowTable.joined([block.rows for block in self._only_here(other)]),
            FlowTable.joined([block.rows for block in other._only_here(self)]),
        )

    def bytes_apart(self, other: Blocks) -> int:
        """Count the canonical bytes of blocks that another set does not have."""
        return sum(block.nbytes for block in self._only_here(other))

    def _only_here(self, other: Blocks) -> Iterator[Block]:
        """Yield the blocks that another set lacks in the same place, by name."""
        only_here, _ = find_replaced(self._names.shelves, other._names.shelves)
        for mine in only_here:
            theirs = other._shelves.get(mine.name)
            found = {} if theirs is None else theirs.by_name
            apart = [
                place
                for place, block in mine.by_name.items()
                if (there := found.get(place)) is not block and (there is None or there.digest != block.digest)
            ]
            for place in sorted(apart):
                yield mine.by_name[place]

    def _of_shelf(self, name: _Shelf) -> Iterator[Block]:
        by_name = self._shelves[name].by_name
        return map(by_name.__getitem__, sorted(by_name))

    def _of_bucket(self, bucket: Bucket) -> Parts:
        tenant, upper = bucket
        shelf = self._shelves.get((tenant, upper >> _SHELF_BITS))
        return shelf.of_bucket(upper) if shelf is not None else {}

    def _edited(self, removed: FlowTable, added: FlowTable) -> dict[Bucket, Parts]:
        """The buckets that a few rows touch, after the change: line by line."""
        changes: dict[Bucket, tuple[list[Line], list[Line]]] = {}
        for which, table in enumerate((removed, added)):
            for flow in table.rows():
                change = changes.setdefault((flow.tenant, flow.cookie >> COOKIE_BITS), ([], []))
                change[which].append(Line.of(flow))
        return {bucket: _after(self._of_bucket(bucket), *change) for bucket, change in changes.items()}

    def _cut_again(self, removed: FlowTable, added: FlowTable) -> dict[Bucket, Parts]:
        """The buckets that many rows touch, after the change: by column."""
        touched = sorted(buckets_of(removed) | buckets_of(added))
        near = FlowTable.joined([block.rows for bucket in touched for block in self._of_bucket(bucket).values()])
        rows = canonical(near)
        order = np.argsort(rows, kind="stable")
        keep = np.ones(len(near), np.bool_)
        keep[order[positions(rows[order], canonical(removed))]] = False
        return {bucket: {} for bucket in touched} | cut(FlowTable.joined((near.take(keep), added)))

    def _with(self, buckets: Mapping[Bucket, Parts], count: int) -> Blocks:
        """These rows with other blocks in some buckets, which makes `count` rows."""
        changed: dict[_Shelf, dict[tuple[int, int], Block]] = {}
        for (tenant, upper), parts in buckets.items():
            name = tenant, upper >> _SHELF_BITS
            if name not in changed:
                changed[name] = dict(self._shelves[name].by_name) if name in self._shelves else {}
            for part in self._of_bucket((tenant, upper)):
                del changed[name][upper, part]
            for part, block in parts.items():
                changed[name][upper, part] = block
        made = {name: _Blocks(name, blocks) if blocks else None for name, blocks in changed.items()}
        shelves = dict(self._shelves)
        for name, shelf in made.items():
            if shelf is None:
                shelves.pop(name, None)
            else:
                shelves[name] = shelf
        names = self._names.after(made) if len(made) <= _FEW_SHELVES else _Names.of(shelves)
        return Blocks(shelves, names, count)


def _after(parts: Parts, gone: list[Line], come: list[Line]) -> Parts:
    """The blocks of a bucket after some lines went and others came. Raises Stale."""
    rows = sum(map(len, parts.values())) + len(come) - len(gone)
    if parts and WHOLE not in parts and is_divided(rows):
        return _after_by_part(parts, gone, come)
    lines = parts[WHOLE].lines if WHOLE in parts else sorted(line for block in parts.values() for line in block.lines)
    return parts_of(edit_lines(lines, gone, come))


def _after_by_part(parts: Parts, gone: list[Line], come: list[Line]) -> Parts:
    """The same for a bucket that was divided and remains so."""
    changes: dict[int, tuple[list[Line], list[Line]]] = {}
    for which, lines in enumerate((gone, come)):
        for line in lines:
            changes.setdefault(part_of(line.octets), ([], []))[which].append(line)
    after = dict(parts)
    for part, change in changes.items():
        kept = edit_lines(parts[part].lines if part in parts else (), *change)
        after.pop(part, None)
        after.update({part: Block.of_lines(kept)} if kept else {})
    return after
