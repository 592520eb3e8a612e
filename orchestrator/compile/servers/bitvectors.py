"""Bit vectors: find the first of thousands of general rows by five searches.

Each axis is cut where some row begins or ends; an interval's *vector* has bit i set where row i reaches over it. The
lowest bit that the vectors of a packet's five intervals have in common is the first row that holds the packet.

    rows      r0 10.0.0.0/8 -> :80      r1 10.1.0.0/16      r2 everything
    source    0.0.0.0    10.0.0.0    10.1.0.0    10.2.0.0    11.0.0.0
    vector    100        101         111         101         100          (bit 2 first: r2 r1 r0)

A summary of a vector says which of its words hold a bit at all, and only words that all five summaries name are looked
at: a packet that many rows nearly hold costs few words more. Intervals with the same vector share one (a *class*).

Lakshman and Stiliadis: High-speed policy-based packet forwarding using efficient multi-dimensional range matching,
SIGCOMM 1998; Baboescu and Varghese: Scalable packet classification, SIGCOMM 2001.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import Packet
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.spans import Span

MOST_RULES = 16384
MOST_INTERVALS = 32768
WORDS = MOST_RULES // 64
SUMMARY = WORDS // 64

U64 = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.bool_]
_BYTES = 256
_CHUNK = 512
"""So many vectors are made at once: they are a byte a row while they are made."""


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Interval starts, ascending from 0, each one's class, and a vector for each class.

    A vector has `WORDS` words.
    """

    starts: tuple[int, ...]
    classes: npt.NDArray[np.uint32]
    vectors: U64

    def vector(self, value: int) -> U64:
        """The rows that reach over a value."""
        found: U64 = self.vectors[self.classes[bisect_right(self.starts, value) - 1]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """The rows of one IP version by axis: addresses, ports, protocol with TCP flags."""

    axes: tuple[Axis, ...]

    def first(self, packet: Packet) -> int | None:
        """The first row that holds a whole packet."""
        values = packet.source, packet.destination, *slot_values(packet), packet.protocol * _BYTES + packet.tcp_flags
        common = np.bitwise_and.reduce([axis.vector(value) for axis, value in zip(self.axes, values, strict=True)])
        words = np.flatnonzero(common)
        if not len(words):
            return None
        word = int(common[words[0]])
        return int(words[0]) * 64 + (word & -word).bit_length() - 1


def bit_vectors(rows: Sequence[CacheRow]) -> Vectors:
    """The vectors of some rows, all of one IP version, in order. Raises TooLarge."""
    if len(rows) > MOST_RULES:
        raise TooLarge(f"{len(rows)} rows of one IP version: the classifier has room for {MOST_RULES}")
    top = (1 << rows[0].family.bits) - 1 if rows else 0
    return Vectors(
        (
            _make_axis([row.source for row in rows], top),
            _make_axis([row.destination for row in rows], top),
            _make_axis([row.source_ports for row in rows], HIGHEST_PORT),
            _make_axis([row.destination_ports for row in rows], HIGHEST_PORT),
            _protocols(rows),
        )
    )


def summaries(vectors: U64) -> U64:
    """Mark, for each vector, which of its words are not zero: (n, SUMMARY)."""
    return _pack_bits(vectors != 0, SUMMARY)


def _make_axis(spans: Sequence[Span], top: int) -> Axis:
    starts = sorted({0, *(span.low for span in spans), *(span.high + 1 for span in spans if span.high < top)})
    rank = {value: place for place, value in enumerate(starts)} | {top + 1: len(starts)}
    low = np.array([rank[span.low] for span in spans], np.int64)
    high = np.array([rank[span.high + 1] for span in spans], np.int64)
    parts = []
    for first in range(0, len(starts), _CHUNK):
        places = np.arange(first, min(first + _CHUNK, len(starts)))[:, None]
        parts.append(_pack_bits((low <= places) & (places < high), WORDS))
    return _merge_intervals(starts, np.concatenate(parts))


def _protocols(rows: Sequence[CacheRow]) -> Axis:
    """Combine protocol and TCP flags in 16 bits, the protocol in the upper half."""
    low = np.array([row.protocols.low for row in rows], np.int64)
    high = np.array([row.protocols.high for row in rows], np.int64)
    value, mask = (np.array([row.flags[place] for row in rows], np.int64) for place in (0, 1))
    flags = np.arange(_BYTES)[:, None]
    asked = (flags & mask) == value
    ends = sorted({0, _BYTES, *low.tolist(), *(high + 1).tolist()})
    starts: list[int] = []
    parts: list[U64] = []
    for first, end in pairwise(ends):
        here = _pack_bits(asked & (low <= first) & (first <= high), WORDS)
        changes = [0, *(np.flatnonzero((here[1:] != here[:-1]).any(axis=1)) + 1).tolist()]
        protocols = range(first, end) if len(changes) > 1 else range(first, first + 1)
        starts += [protocol * _BYTES + change for protocol in protocols for change in changes]
        parts += [here[changes]] * len(protocols)
    return _merge_intervals(starts, np.concatenate(parts))


def _merge_intervals(starts: Sequence[int], vectors: U64) -> Axis:
    """Intervals beside each other that are alike as one, and each vector once."""
    kept = np.concatenate([[True], (vectors[1:] != vectors[:-1]).any(axis=1)])
    whole = np.ascontiguousarray(vectors[kept]).view(f"V{WORDS * 8}").ravel()
    _, first, classes = np.unique(whole, return_index=True, return_inverse=True)
    if kept.sum() > MOST_INTERVALS:
        raise TooLarge(
            f"rows cut an axis into {int(kept.sum())} intervals: the classifier has room for {MOST_INTERVALS}"
        )
    places = np.flatnonzero(kept)
    return Axis(tuple(starts[place] for place in places.tolist()), classes.astype(np.uint32), vectors[places[first]])


def _pack_bits(bits: Bits, words: int) -> U64:
    """Rows of bits as words, the lowest bit first."""
    matrix = np.zeros((len(bits), words * 8), np.uint8)
    packed = np.packbits(bits, axis=1, bitorder="little")
    matrix[:, : packed.shape[1]] = packed
    return matrix.view("<u8").astype(np.uint64)


def in_order(rows: Sequence[CacheRow]) -> Iterator[tuple[Family, Sequence[CacheRow]]]:
    """The rows of each IP version, in order."""
    for family in Family:
        yield family, [row for row in rows if row.family is family]
