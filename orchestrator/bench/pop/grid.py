"""The 65,536 blocks of one IP version in which worlds are drawn.

Every /16 of IPv4, every /48 of 2001:db8::/32.

A /48 is the longest chunk that the edge's hash takes: it fills the field that is hashed. Senders are in blocks that
nobody owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.edge.chunks import Chunking
from orchestrator.edge.hashing import U64
from orchestrator.policy.addresses import Family, Prefix

BLOCKS = 1 << 16
HOST = 29 << 8 | 40
"""The host part of machines, and of packets that are for a block and no host of its own."""
_PRIVATE, _LOOPBACK, _LINK_LOCAL, _FIRST, _LAST = 10, 127, 169 << 8 | 254, 1, 223


@dataclass(frozen=True)
class Grid:
    """Blocks of an IP version from chunk `first`, a permitted client, a foreign address."""

    chunking: Chunking
    first: int
    client: Prefix
    stranger: int

    @property
    def family(self) -> Family:
        return self.chunking.family

    @cached_property
    def every(self) -> U64:
        """The chunks of all blocks."""
        return np.arange(self.first, self.first + BLOCKS, dtype=np.uint64)

    @cached_property
    def routable(self) -> U64:
        """Those that a kernel forwards to."""
        if self.family is Family.IPV6:
            return self.every
        head = self.every >> np.uint64(8)
        good = (head >= _FIRST) & (head <= _LAST) & (head != _PRIVATE) & (head != _LOOPBACK)
        routed: U64 = self.every[good & (self.every != _LINK_LOCAL)]
        return routed

    @property
    def hosts(self) -> int:
        """How many addresses a block has."""
        return 1 << (self.family.bits - self.chunking.length)

    def addresses(self, keys: U64, hosts: Sequence[int] | None = None) -> list[int]:
        """An address in each chunk: by default that with the machines' host part."""
        parts = hosts or [HOST] * len(keys)
        return [key * self.hosts + part for key, part in zip(keys.tolist(), parts, strict=True)]


def _make_grid(space: str, length: int, client: str, stranger: str) -> Grid:
    space_, client_, stranger_ = map(Prefix.parse, (space, client, stranger))
    chunking = Chunking(space_.family, length)
    return Grid(chunking, chunking.key(space_.network), client_, stranger_.network)


def figure_prefix(grid: Grid) -> str:
    """Return the prefix of a grid's figure names: empty for IPv4."""
    return "" if grid.family is Family.IPV4 else f"ipv{grid.family.value}_"


IPV4 = _make_grid("0.0.0.0/0", 16, "10.0.0.170", "10.0.0.9")
IPV6 = _make_grid("2001:db8::/32", 48, "fd00::170", "fd00::9")
