"""Rows, sets and packets as 32-bit words in the layout that `kernels/models.c` reads.

    packets    column c of packet i at words[c * room + i]    source, destination, ports, bytes
    rows       column c of row r at words[c * count + r]      bounds of the row's sets, and its kind
    sets       a header of offsets, then the sets             asked where the bounds do not say all

A row's bounds are the first and the last member of each of its sets of addresses and ports. For most rows they are the
sets; a row of which one set has several spans is *scattered*, and its sets are asked after its bounds held. The sets of
bytes (`fields.BYTES`) and fragments together are a row's *kind*: a list has few, and a packet is put to the most
frequent 32 of them once, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32, U64, Columns
from orchestrator.classify.packets import Packets
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import BYTES

U32 = npt.NDArray[np.uint32]

SCATTERED = np.uint32(1 << 31)
"""Of a kind: the row's bounds hold more than the row does."""


def words_of(family: Family) -> int:
    """32-bit words of an address."""
    return family.bits // 32


def packet_columns(family: Family) -> int:
    """Return how many words a packet takes."""
    return 2 * words_of(family) + 3


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The rows of one direction in one IP version, as a device reads them."""

    rows: U32
    """(columns, count): `4 * words + 3` columns, see `models.c`."""
    sets: U32
    """One piece, with offsets in its first eight words."""


def tables_of(columns: Columns) -> Tables:
    """The tables of some rows."""
    kinds, kind = _kinds(columns)
    return Tables(_make_rows(columns, kind), _sets(columns, kinds))


def pack(packets: Packets, family: Family, into: U32) -> None:
    """Write packets of one IP version into columns: `into` is (packet_columns, at least len(packets))."""
    count, words = len(packets), words_of(family)
    for side, column in (("source", 0), ("destination", words)):
        into[column : column + words, :count] = in_words(packets[side], words).T
    into[2 * words, :count] = packets["source_port"].astype(np.uint32) << 16 | packets["destination_port"]
    into[2 * words + 1, :count], into[2 * words + 2, :count] = 0, packets["later"] != 0
    for place, field in enumerate(BYTES):
        word, byte = (0, place) if place < 4 else (1, place - 3)  # the first of the second word says `later`
        into[2 * words + 1 + word, :count] |= packets[field.name].astype(np.uint32) << 8 * byte


def in_words(halves: U64, words: int) -> U32:
    """(n, 2) halves of addresses as (n, words), the most significant first."""
    upper, lower = halves[:, 0], halves[:, 1]
    parts = (upper >> np.uint64(32), upper, lower >> np.uint64(32), lower)[:words]
    return np.stack([part.astype(np.uint32) for part in parts], axis=1)


def _kinds(columns: Columns) -> tuple[I32, U32]:
    """The kinds of rows, the most frequent first, and the kind of each row."""
    kinds, kind, counts = np.unique(columns.rows[:, 4:], axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return kinds[order], rank[kind.reshape(-1)].astype(np.uint32)


def _make_rows(columns: Columns, kind: U32) -> U32:
    words, count = words_of(columns.family), len(columns)
    rows = np.zeros((4 * words + 3, count), np.uint32)
    scattered = np.zeros(count, np.bool_)
    for column, number in ((0, 0), (2 * words, 1)):
        begin, end = _ends(columns.address_starts, columns.rows[:, number])
        rows[column : column + words] = in_words(columns.addresses[begin, :2], words).T
        rows[column + words : column + 2 * words] = in_words(columns.addresses[end, 2:], words).T
        scattered |= begin != end
    for column, number in ((4 * words, 2), (4 * words + 1, 3)):
        begin, end = _ends(columns.port_starts, columns.rows[:, number])
        rows[column] = columns.ports[end, 1].astype(np.uint32) << 16 | columns.ports[begin, 0]
        scattered |= begin != end
    rows[4 * words + 2] = kind | np.where(scattered, SCATTERED, np.uint32(0))
    return rows


def _ends(starts: I32, numbers: I32) -> tuple[I32, I32]:
    """The first and the last span of each set."""
    return starts[numbers], starts[numbers + 1] - 1


def _sets(columns: Columns, kinds: I32) -> U32:
    """The sets that rows name, behind a header of eight words."""
    words = words_of(columns.family)
    first, last = in_words(columns.addresses[:, :2], words), in_words(columns.addresses[:, 2:], words)
    parts = (
        kinds,
        np.stack([columns.sets & np.uint64(0xFFFFFFFF), columns.sets >> np.uint64(32)], axis=2),
        columns.rows[:, :4],
        columns.address_starts,
        np.concatenate([first, last], axis=1),
        columns.port_starts,
        columns.ports[:, 1].astype(np.uint32) << 16 | columns.ports[:, 0],
    )
    return with_header((len(kinds),), *parts)


def with_header(words: Sequence[int], *parts: npt.NDArray[Any]) -> U32:
    """Join some words, the offset of each part, and the parts."""
    flat = [part.reshape(-1).astype(np.uint32) for part in parts]
    offsets = np.cumsum([len(words) + len(flat), *map(len, flat)])[:-1]
    return np.concatenate([np.array([*words, *offsets], np.uint32), *flat])
