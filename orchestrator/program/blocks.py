"""A program's rows in blocks with digests, so that small changes stay cheap.

    root ── H(ports, the digests of all shelves)
     ├── tenant 0, shelf 0            ── H(the digests of its blocks)
     │    └── structure                ── H(rows, ascending)
     └── tenant 7, shelf 0
          ├── rules   0-127            ── H(rows, ascending)
          ├── rules 128-255, part 0    ── H(rows, ascending): one of these rules makes thousands of rows
          ├── rules 128-255, part 1    ── ...
          └── ...

A row's bucket (tenant and upper bits of the cookie) and part say which block it lies in (see below); 64 buckets in a
row share a shelf. All of that follows from the rows alone: equal rows make equal blocks, whatever way led to them. A
change makes the blocks and shelves that it touches anew and shares all others with what was before. Values here never
change.

The place of a row: its bucket, by tenant and cookie, and its part.

A bucket of up to `MOST_ROWS` rows is one block (part `WHOLE`); a larger one, as a rule over thousands of members makes,
is divided into `PARTS` blocks by a checksum of the row, so that one row of it still costs little. Which of the two
follows from how many rows there are, so equal rows make equal blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.errors import Stale
from orchestrator.policy.listed import find_replaced
from orchestrator.program.block import Block, Line, edit_lines
from orchestrator.program.canonical import HEAD_BYTES, Rows, canonical, hash_bytes, positions
from orchestrator.program.flows import U32, U64, FewFlows, Flow, FlowTable

COOKIE_BITS = 7
"""Cookies that differ only in their lowest 7 bits share a bucket: 128 rules, some two hundred rows."""

MOST_ROWS = 1024
"""A bucket of more rows is divided."""

PARTS = 128
"""Into so many blocks, less those that would be empty."""

WHOLE = PARTS
"""The one part of a bucket that is not divided."""

Bucket = tuple[int, int]
"""Tenant, and the upper bits of the cookie."""

Parts = dict[int, Block]
"""The blocks of a bucket."""


def is_divided(rows: int) -> bool:
    """Whether a bucket of so many rows is."""
    return rows > MOST_ROWS


def part_of(data: bytes) -> int:
    """The part of a divided bucket in which a line lies."""
    return zlib.crc32(data) % PARTS


def parts_of(lines: Sequence[Line]) -> Parts:
    """The blocks of a bucket that holds some lines, which are in order."""
    if not is_divided(len(lines)):
        return {WHOLE: Block.of_lines(lines)} if lines else {}
    divided: dict[int, list[Line]] = {}
    for line in lines:
        divided.setdefault(part_of(line.data), []).append(line)
    return {part: Block.of_lines(each) for part, each in divided.items()}


def buckets_of(flows: FlowTable) -> set[Bucket]:
    """The buckets that rows lie in."""
    upper: npt.NDArray[np.uint64] = flows.cookie >> np.uint64(COOKIE_BITS)
    return set(zip(flows.tenant.tolist(), upper.tolist(), strict=True))


def cut(flows: FlowTable) -> dict[Bucket, Parts]:
    """Cut rows into the blocks of their buckets."""
    if not len(flows):
        return {}
    rows = canonical(flows)
    order = np.argsort(rows, kind="stable")  # rows mostly come in long ascending runs, which this sort makes use of
    ordered, rows = flows.take(order), rows[order]
    upper = ordered.cookie >> np.uint64(COOKIE_BITS)
    starts = np.flatnonzero((np.diff(ordered.tenant) != 0) | (np.diff(upper) != 0)) + 1
    buckets = {}
    for start, end in pairwise([0, *starts.tolist(), len(rows)]):
        bucket = int(ordered.tenant[start]), int(upper[start])
        buckets[bucket] = dict(_parts(ordered.part(start, end), rows[start:end]))
    return buckets


def _parts(ordered: FlowTable, rows: Rows) -> Iterator[tuple[int, Block]]:
    """The blocks of one bucket from its rows, which are in order."""
    if not is_divided(len(rows)):
        yield WHOLE, _make_block(ordered, rows)
        return
    part = np.array([part_of(data) for data in rows.tolist()], np.intp)
    order = np.argsort(part, kind="stable")
    starts = np.flatnonzero(np.diff(part[order])) + 1
    for chosen in np.split(order, starts):
        yield int(part[chosen[0]]), _make_block(ordered.take(chosen), rows[chosen])


def _make_block(ordered: FlowTable, rows: Rows) -> Block:
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    longest = int(ordered.match_length.max())
    return Block.of_columns(ordered, data[:, : HEAD_BYTES + longest].tobytes(), longest)


_SHELF_BITS = 6
"""Buckets of a tenant whose cookie bits differ only in the lowest 6 share a shelf."""

_FEW_TENANTS = 64
"""So many tenants are put in their places one by one; more of them are sorted anew."""

FEW_ROWS = 64
"""So many rows come and go line by line; more of them by column."""


class _Blocks:
    """The blocks of a shelf, by their bucket's cookie bits and part, with their digest."""

    __slots__ = ("by_name", "digest")

    def __init__(self, by_name: Mapping[tuple[int, int], Block]) -> None:
        self.by_name = by_name
        self.digest = hash_bytes(b"".join([by_name[name].digest for name in sorted(by_name)]))

    def of_bucket(self, upper: int) -> Parts:
        """The blocks of one bucket."""
        whole = self.by_name.get((upper, WHOLE))
        if whole is not None:
            return {WHOLE: whole}
        return {part: self.by_name[upper, part] for part in range(PARTS) if (upper, part) in self.by_name}

    def without(self, other: _Blocks | None) -> Iterator[Block]:
        """Yield the blocks that another shelf lacks in the same place, by name."""
        found = {} if other is None else other.by_name
        for place, block in sorted(self.by_name.items(), key=lambda item: item[0]):
            there = found.get(place)
            if there is not block and (there is None or there.digest != block.digest):
                yield block


class _Tenant:
    """The shelves of a tenant, by number, with their digests one behind the other.

    Never changes.
    """

    __slots__ = ("digests", "number", "shelves")

    def __init__(self, number: int, shelves: Mapping[int, _Blocks]) -> None:
        self.number = number
        self.shelves = shelves
        self.digests = b"".join([shelves[each].digest for each in sorted(shelves)])

    def __iter__(self) -> Iterator[Block]:
        """Every block, in the order of names."""
        for each in sorted(self.shelves):
            by_name = self.shelves[each].by_name
            yield from map(by_name.__getitem__, sorted(by_name))


class _Digests:
    """The digests of all tenants' blocks, one behind the other, by tenant number.

    Never changes.

    A change of a few tenants copies arrays of numbers, whatever many others there are.
    """

    __slots__ = ("data", "ends", "tenants")

    def __init__(self, tenants: U32, ends: npt.NDArray[np.int64], data: bytes) -> None:
        self.tenants = tenants
        self.ends = ends
        self.data = data

    @classmethod
    def of(cls, tenants: Mapping[int, _Tenant]) -> _Digests:
        """Put the digests of some tenants in order."""
        parts = [tenants[number].digests for number in sorted(tenants)]
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return cls(np.array(sorted(tenants), np.uint32), ends, b"".join(parts))

    def after(self, changed: Mapping[int, _Tenant | None]) -> _Digests:
        """Return the digests with a few tenants exchanged; None takes one out."""
        tenants, ends, data = self.tenants, self.ends.copy(), bytearray(self.data)
        for number, tenant in changed.items():
            place = int(tenants.searchsorted(np.uint32(number)))
            is_there = place < len(tenants) and int(tenants[place]) == number
            start = int(ends[place - 1]) if place else 0
            end = int(ends[place]) if is_there else start
            new = b"" if tenant is None else tenant.digests
            data[start:end] = new
            ends[place:] += len(new) - (end - start)
            if tenant is None and is_there:
                tenants, ends = np.delete(tenants, place), np.delete(ends, place)
            elif tenant is not None and not is_there:
                tenants, ends = np.insert(tenants, place, number), np.insert(ends, place, start + len(new))
        return _Digests(tenants, ends, bytes(data))


class Blocks:
    """A set of rows."""

    __slots__ = ("_count", "_digests", "_tenants")

    def __init__(self, tenants: Mapping[int, _Tenant], digests: _Digests, count: int) -> None:
        self._tenants = tenants
        self._digests = digests
        self._count = count

    @classmethod
    def of(cls, flows: FlowTable) -> Blocks:
        """The rows of a table."""
        return cls({}, _Digests.of({}), 0)._with(cut(flows), len(flows))

    def __len__(self) -> int:
        """How many rows there are."""
        return self._count

    def __contains__(self, flow: Flow) -> bool:
        """Whether a row is among them."""
        line = Line.of(flow)
        parts = self._find_bucket((flow.tenant, flow.cookie >> COOKIE_BITS))
        block = parts.get(WHOLE) or parts.get(part_of(line.data))
        return block is not None and block.holds(line)

    def __iter__(self) -> Iterator[Block]:
        """Every block, in the order of names."""
        return chain.from_iterable(map(self._tenants.__getitem__, self._digests.tenants.tolist()))

    @property
    def tenants(self) -> tuple[int, ...]:
        """The numbers of the tenants that rows bear, ascending; 0 is nobody's."""
        return tuple(self._digests.tenants.tolist())

    def digest(self, ports: tuple[str, ...]) -> bytes:
        """The 16-byte digest of the rows together with what their symbols stand for."""
        return hash_bytes(hash_bytes("\0".join(ports).encode()) + self._digests.data)

    def join_rows(self) -> FlowTable:
        """Return all rows as one table, in one order for the same rows.

        Copies.
        """
        return FlowTable.join_tables([block.rows for block in self])

    def of_tenant(self, tenant: int) -> FlowTable:
        """Return the rows that bear a tenant's number; 0 is nobody's."""
        return FlowTable.join_tables([block.rows for block in self._tenants.get(tenant, ())])

    def of_cookies(self, cookies: U64) -> FlowTable:
        """The rows with these cookies."""
        wanted = set((cookies >> np.uint64(COOKIE_BITS)).tolist())
        shelves = {upper >> _SHELF_BITS for upper in wanted}
        near = [
            block.rows
            for tenant in self._tenants.values()
            for number, shelf in tenant.shelves.items()
            if number in shelves
            for (upper, _), block in shelf.by_name.items()
            if upper in wanted
        ]
        rows = FlowTable.join_tables(near)
        return rows.take(np.flatnonzero(np.isin(rows.cookie, cookies)))

    def find_rows(self, wanted: FlowTable) -> FlowTable:
        """Return the rows with the keys, cookies and tenants of some others, in their order.

        Raises Stale if one is not there.
        """
        return FewFlows.of([self._find_row(each) for each in wanted.rows()])

    def replace_rows(self, removed: FlowTable, added: FlowTable) -> Blocks:
        """Return these rows without some and with others.

        Raises Stale if a row to be removed is not there.
        """
        few = len(removed) + len(added) <= FEW_ROWS
        buckets = self._edit_buckets(removed, added) if few else self._cut_again(removed, added)
        return self._with(buckets, len(self) + len(added) - len(removed))

    def apart(self, other: Blocks) -> tuple[FlowTable, FlowTable]:
        """Return the rows of the blocks in which this set and another differ."""
        return (
            FlowTable.join_tables([block.rows for block in self._only_here(other)]),
            FlowTable.join_tables([block.rows for block in other._only_here(self)]),
        )

    def bytes_apart(self, other: Blocks) -> int:
        """Count the canonical bytes of blocks that another set does not have."""
        return sum(block.nbytes for block in self._only_here(other))

    def _only_here(self, other: Blocks) -> Iterator[Block]:
        """Yield the blocks that another set lacks in the same place, by name."""
        here, _ = find_replaced(tuple(self._tenants.values()), tuple(other._tenants.values()))
        for tenant in sorted(here, key=lambda each: each.number):
            there = other._tenants.get(tenant.number)
            for number in sorted(tenant.shelves):
                mine, theirs = tenant.shelves[number], None if there is None else there.shelves.get(number)
                if mine is not theirs:
                    yield from mine.without(theirs)

    def _find_row(self, wanted: Flow) -> Flow:
        for block in self._find_bucket((wanted.tenant, wanted.cookie >> COOKIE_BITS)).values():
            found = block.find_row(wanted)
            if found is not None:
                return found
        raise Stale("a row to be removed is not in the program")

    def _find_bucket(self, bucket: Bucket) -> Parts:
        tenant, upper = bucket
        owner = self._tenants.get(tenant)
        shelf = None if owner is None else owner.shelves.get(upper >> _SHELF_BITS)
        return shelf.of_bucket(upper) if shelf is not None else {}

    def _edit_buckets(self, removed: FlowTable, added: FlowTable) -> dict[Bucket, Parts]:
        """The buckets that a few rows touch, after the change: line by line."""
        changes: dict[Bucket, tuple[list[Line], list[Line]]] = {}
        for which, table in enumerate((removed, added)):
            for flow in table.rows():
                change = changes.setdefault((flow.tenant, flow.cookie >> COOKIE_BITS), ([], []))
                change[which].append(Line.of(flow))
        return {bucket: _after(self._find_bucket(bucket), *change) for bucket, change in changes.items()}

    def _cut_again(self, removed: FlowTable, added: FlowTable) -> dict[Bucket, Parts]:
        """The buckets that many rows touch, after the change: by column."""
        touched = sorted(buckets_of(removed) | buckets_of(added))
        near = FlowTable.join_tables([block.rows for bucket in touched for block in self._find_bucket(bucket).values()])
        rows = canonical(near)
        order = np.argsort(rows, kind="stable")
        keep = np.ones(len(near), np.bool_)
        keep[order[positions(rows[order], canonical(removed))]] = False
        return {bucket: {} for bucket in touched} | cut(FlowTable.join_tables((near.take(keep), added)))

    def _with(self, buckets: Mapping[Bucket, Parts], count: int) -> Blocks:
        """Return these rows with other blocks in some buckets, `count` rows in all."""
        changed: dict[int, dict[int, dict[tuple[int, int], Block]]] = {}
        for (tenant, upper), parts in buckets.items():
            number, shelves = upper >> _SHELF_BITS, changed.setdefault(tenant, {})
            if number not in shelves:
                known = self._tenants[tenant].shelves.get(number) if tenant in self._tenants else None
                shelves[number] = {} if known is None else dict(known.by_name)
            for part in self._find_bucket((tenant, upper)):
                del shelves[number][upper, part]
            for part, block in parts.items():
                shelves[number][upper, part] = block
        made = {tenant: self._tenant_with(tenant, shelves) for tenant, shelves in changed.items()}
        tenants = dict(self._tenants)
        for tenant, found in made.items():
            if found is None:
                tenants.pop(tenant, None)
            else:
                tenants[tenant] = found
        digests = self._digests.after(made) if len(made) <= _FEW_TENANTS else _Digests.of(tenants)
        return Blocks(tenants, digests, count)

    def _tenant_with(self, tenant: int, changed: Mapping[int, Mapping[tuple[int, int], Block]]) -> _Tenant | None:
        """A tenant's shelves with some exchanged; None where none is left."""
        shelves = dict(self._tenants[tenant].shelves) if tenant in self._tenants else {}
        for number, blocks in changed.items():
            shelves.pop(number, None)
            if blocks:
                shelves[number] = _Blocks(blocks)
        return _Tenant(tenant, shelves) if shelves else None


def _after(parts: Parts, gone: list[Line], come: list[Line]) -> Parts:
    """The blocks of a bucket after some lines went and others came. Raises Stale."""
    rows = sum(map(len, parts.values())) + len(come) - len(gone)
    if parts and WHOLE not in parts and is_divided(rows):
        return _after_by_part(parts, gone, come)
    lines = parts[WHOLE].lines if WHOLE in parts else sorted(line for block in parts.values() for line in block.lines)
    return parts_of(edit_lines(lines, gone, come))


def _after_by_part(parts: Parts, gone: list[Line], come: list[Line]) -> Parts:
    """Edit a bucket that was divided and remains so."""
    changes: dict[int, tuple[list[Line], list[Line]]] = {}
    for which, lines in enumerate((gone, come)):
        for line in lines:
            changes.setdefault(part_of(line.data), ([], []))[which].append(line)
    after = dict(parts)
    for part, change in changes.items():
        kept = edit_lines(parts[part].lines if part in parts else (), *change)
        after.pop(part, None)
        after.update({part: Block.of_lines(kept)} if kept else {})
    return after


def digest(flows: FlowTable, ports: tuple[str, ...]) -> bytes:
    """Return the 16-byte Merkle digest of a program's rows and symbols, made from scratch.

    It covers every row's key and value and what the symbols stand for. Row order, padding and the numbering of
    instruction lists do not count.
    """
    return Blocks.of(flows).digest(ports)
