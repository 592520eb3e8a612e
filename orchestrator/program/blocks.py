"""The rows of a program in blocks, each with its digest: what makes a small change of a large program a small thing.

    root ── H(ports, the keys and digests of all blocks)
     ├── tenant 0, structure       ── H(rows, ascending)
     ├── tenant 7, rules   0-127   ── H(rows, ascending)
     ├── tenant 7, rules 128-255   ── ...
     └── ...

A row lies in the block of its tenant and of the upper bits of its cookie, so its place follows from the row alone:
equal rows make equal blocks, whatever way led to them. Within a block rows stand in canonical order. A change makes the
blocks that it touches anew and shares all others with what was before; the same blocks serve for finding the rows of a
cookie and for the difference of two programs. What is here never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.program.canonical import HEAD_BYTES, canonical, hashed, positions
from orchestrator.program.flows import U64, FlowTable

_BITS = 7
"""Cookies that differ only in their lowest 7 bits share a block: 128 rules, some two hundred rows."""

_Key = tuple[int, int]
"""Tenant, and the upper bits of the cookie."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some rows in canonical order, and the digest over them."""

    rows: FlowTable
    digest: bytes


class Blocks:
    """A set of rows."""

    __slots__ = ("_blocks", "_count")

    def __init__(self, blocks: Mapping[_Key, Block], count: int) -> None:
        self._blocks = blocks
        self._count = count

    @classmethod
    def of(cls, flows: FlowTable) -> Blocks:
        """The rows of a table."""
        return cls(_cut(flows), len(flows))

    def __len__(self) -> int:
        """How many rows there are."""
        return self._count

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks.values())

    def digest(self, ports: tuple[str, ...]) -> bytes:
        """The 16-byte digest of the rows together with what their symbols stand for."""
        leaves = [
            tenant.to_bytes(4, "big") + cookies.to_bytes(8, "big") + block.digest
            for (tenant, cookies), block in sorted(self._blocks.items(), key=_by_key)
        ]
        return hashed(hashed("\0".join(ports).encode()) + b"".join(leaves))

    def joined(self) -> FlowTable:
        """All rows as one table, in canonical order. Copies."""
        return FlowTable.joined([block.rows for _, block in sorted(self._blocks.items(), key=_by_key)])

    def of_cookies(self, cookies: U64) -> FlowTable:
        """The rows with these cookies."""
        wanted = set((cookies >> np.uint64(_BITS)).tolist())
        near = FlowTable.joined([block.rows for (_, upper), block in self._blocks.items() if upper in wanted])
        return near.take(np.flatnonzero(np.isin(near.cookie, cookies)))

    def replaced(self, removed: FlowTable, added: FlowTable) -> Blocks:
        """These rows without some and with others. Raises Stale if a row to be removed is not there."""
        blocks = dict(self._blocks)
        touched = sorted(_keys(removed) | _keys(added))
        near = FlowTable.joined([blocks.pop(key).rows for key in touched if key in blocks])
        keep = np.ones(len(near), np.bool_)
        keep[positions(canonical(near), canonical(removed))] = False
        rows = FlowTable.joined((near.take(keep), added))
        blocks.update(_cut(rows))
        return Blocks(blocks, len(self) - len(near) + len(rows))

    def apart(self, other: Blocks) -> tuple[FlowTable, FlowTable]:
        """The rows of the blocks in which this set and another differ: those here, those there."""
        differing = [
            key
            for key in self._blocks.keys() | other._blocks.keys()
            if _digest(self._blocks.get(key)) != _digest(other._blocks.get(key))
        ]
        mine, theirs = (
            FlowTable.joined([blocks[key].rows for key in sorted(differing) if key in blocks])
            for blocks in (self._blocks, other._blocks)
        )
        return mine, theirs

    def bytes_apart(self, other: Blocks) -> int:
        """Octets that these blocks take up and the other ones do not."""
        shared = set(map(id, other))
        return sum(block.rows.nbytes for block in self if id(block) not in shared)


def _cut(flows: FlowTable) -> dict[_Key, Block]:
    """Any rows as blocks."""
    if not len(flows):
        return {}
    rows = canonical(flows)
    order = np.argsort(rows, kind="stable")  # rows mostly come in long ascending runs, which this sort makes use of
    ordered, rows = flows.take(order), rows[order]
    octets = rows.view(np.uint8).reshape(len(rows), -1)
    upper = ordered.cookie >> np.uint64(_BITS)
    starts = np.flatnonzero((np.diff(ordered.tenant) != 0) | (np.diff(upper) != 0)) + 1
    blocks = {}
    for start, end in pairwise([0, *starts.tolist(), len(rows)]):
        longest = int(ordered.match_length[start:end].max())
        content = octets[start:end, : HEAD_BYTES + longest].tobytes()
        key = int(ordered.tenant[start]), int(upper[start])
        blocks[key] = Block(ordered.part(start, end), hashed(longest.to_bytes(1, "big") + content))
    return blocks


def _keys(flows: FlowTable) -> set[_Key]:
    upper: npt.NDArray[np.uint64] = flows.cookie >> np.uint64(_BITS)
    return set(zip(flows.tenant.tolist(), upper.tolist(), strict=True))


def _by_key(item: tuple[_Key, Block]) -> _Key:
    return item[0]


def _digest(block: Block | None) -> bytes | None:
    return None if block is None else block.digest
