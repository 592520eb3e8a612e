"""Check that overlapping items are in the order of their rules, in C.

Two items *conflict* when they overlap and either are of one rule (whose items must be disjoint) or the one of the
earlier rule has not the higher priority. A table without a conflict decides every packet by its first match.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _equivalence as native
from orchestrator.compile.equivalence.rowdecoder import TABLE, Items

Pair = tuple[int, int]


class Index(Protocol):
    """Items, ready to be asked for conflicts."""

    def conflict(self) -> Pair | None:
        """Return a conflicting pair, the later first, or None.

        The items came in list order.
        """

    def conflict_of(self, items: Items, gone: npt.NDArray[np.bool_], /) -> Pair | None:
        """A new item and one of those here, not `gone`, that conflict."""

    def mark_met(self, items: Items, met: npt.NDArray[np.bool_], /) -> None:
        """Set `met` for those here that share a packet with one of some items."""

    @property
    def compared(self) -> int:
        """How many boxes and items `conflict` has compared: what it cost."""


def index_of(items: Items) -> Index:
    """An index over items in list order."""
    return native.Index(items, _by_place(items))


def clash(items: Items, others: Items) -> Pair | None:
    """Return a conflicting pair of one and other items, for few items."""
    return native.clash(items, others, False)


def clash_among(items: Items) -> Pair | None:
    """Find two of few items, in any order, that conflict."""
    return native.clash(items, items, True)


def overlapping(item: Items, others: Items) -> npt.NDArray[np.bool_]:
    """Which of some items share a packet with one."""
    differing = (others["word"][:, 0] ^ item["word"][0]) & others["word"][:, 1] & item["word"][1]
    found: npt.NDArray[np.bool_] = differing == 0
    for low, high in (("small_low", "small_high"), ("port_low", "port_high")):
        found &= ((others[low] <= item[high]) & (others[high] >= item[low])).all(axis=1)
    for side in (0, 1):
        found &= _not_above(others["low"][:, side], item["high"][side])
        found &= _not_above(item["low"][side], others["high"][:, side])
    return found


def _not_above(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Whether one 128-bit number is at most the other; both as (lower, upper) halves."""
    found: npt.NDArray[np.bool_] = (one[..., 1] < other[..., 1]) | (
        (one[..., 1] == other[..., 1]) & (one[..., 0] <= other[..., 0])
    )
    return found


def _by_place(items: Items) -> npt.NDArray[np.uint32]:
    """Return an order with neighbours in space together: a Z-curve through addresses.

    Items of the same place on that curve follow one through their ports: a rule of many ports has no other difference.
    """
    addresses = _curve([_rank(items["low"][:, side]) for side in (0, 1)], _CURVE_BITS)
    ports = _curve([items["port_low"][:, side].astype(np.uint64) for side in (0, 1)], _PORT_BITS)
    return np.lexsort((ports, addresses, items["small_low"][:, TABLE])).astype(np.uint32)


def _curve(ranks: Sequence[npt.NDArray[np.uint64]], bits: int) -> npt.NDArray[np.uint64]:
    """Places along a Z-curve: the bits of some ranks in turn, the highest first."""
    places = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            places = places << np.uint64(1) | rank >> np.uint64(bit) & np.uint64(1)
    return places


_CURVE_BITS = 10
_PORT_BITS = 16


def _rank(addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Where each address stands among all of them, in `_CURVE_BITS` bits."""
    keys: npt.NDArray[np.integer] = addresses[:, 1]
    if addresses[:, 0].any():
        upper, lower = (np.unique(addresses[:, half], return_inverse=True)[1] for half in (1, 0))
        keys = upper << 32 | lower
    distinct, rank = np.unique(keys, return_inverse=True)
    scaled: npt.NDArray[np.uint64] = (rank * ((1 << _CURVE_BITS) - 1) // max(1, len(distinct) - 1)).astype(np.uint64)
    return scaled
