"""One direction of a list, in one IP version, as tuple space for devices.

    row 7    tcp 10.0.0.0/8 ──▶ 198.51.100.0/24 ports 22, 8000-8999

    shape    source /8, destination /24, the protocol         which bits of a packet are looked at
    key      10.0.0.0, 198.51.100.0, tcp                      their values: a row stands under each of its keys
    rows     ..., 7, ...                                      ascending, to be asked whether they hold the packet

A packet is looked up once a shape, by its bits under the shape's masks (Srinivasan, Suri and Varghese: Packet
classification using tuple space search, SIGCOMM 1999), in the order of the lowest row that each shape has, until no
shape can have a lower one than was found. The row under a key is a proposal only: whether a row holds a packet its box
says, axis by axis. So an index may leave out whatever would cost it many keys. Where a side names so many prefixes that
their combinations with the other side's were too many, only the smaller side is indexed, and neither where that were
still too many for the rows that there are; then ranges of ports are in it, as the blocks that make them up, which else
stay out. So thousands of rules that name the same large groups do not cost thousands of times what the groups say.

Tuples are merged to search fewer (Daly and others: TupleMerge, 2019).

    shape     source /24, destination /32, a port    one look-up in the hash table
    merged    source /24, destination /24            the same rows under shorter keys, several rows a key

A look-up is a read from memory that waits for the one before it, so fewer shapes are faster as long as few rows stand
under a key. Merging shortens the prefixes of a shape to multiples of eight bits (of IPv6 sixteen) and leaves out its
ports. Rows of a key that would get more than MOST_ROWS stay under their own shape.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32, U64, Columns, columns, starts_of
from orchestrator.classify.devices.tables import U32, in_words, with_header, words_of
from orchestrator.classify.packets import halves
from orchestrator.policy.addresses import Family
from orchestrator.policy.space import Box
from orchestrator.policy.spans import Span, Spans, size

MOST_KEYS = 256
"""A row stands under so many combinations of its sides' prefixes at most; beyond, under those of one side."""

MOST_ALTOGETHER = 1 << 21
"""Keys of a whole space, of which each row may have an equal share, but at least one with each of its ports."""

MOST_PORTS = 8
"""Ports that are named one by one, up to so many, are in the index; ranges are not."""

Key = tuple[int, int, int, int, int]
"""Both halves of source and destination, and ports and protocol in a word: masks, or values under masks."""

_Blocks = Sequence[tuple[tuple[int, int], tuple[int, int]]]
"""Masks and values of prefixes, each in two halves."""

_SOURCE_PORT_BIT, _DESTINATION_PORT_BIT, _PROTOCOL_BIT = 48, 32, 24
"""Where these stand in the last word of a key."""

_NOTHING, _NO_PORT = (((0, 0), (0, 0)),), ((0, 0),)
"""The field that is not looked at: one mask of no bits, with its value."""


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Shapes, the keys of each with their rows, and the rows.

    See the module's text.
    """

    masks: U64
    """(shapes, 5), in the order in which they are asked."""
    lowest: I32
    """The lowest row under any key of each shape, ascending."""
    shape_of: I32
    """Of each key."""
    keys: U64
    """(keys, 5)"""
    starts: I32
    """Where the rows of each key begin in `listed`; one more for the end."""
    listed: I32
    columns: Columns
    """The rows."""


def space(boxes: Sequence[Box]) -> Space:
    """Build the tuple space of one or more boxes, in order of evaluation."""
    under: dict[Key, dict[Key, list[int]]] = {}
    made = columns(boxes[0].family, boxes)
    sides: dict[int, _Blocks] = {}
    for row, (box, (source, destination, *_)) in enumerate(zip(boxes, made.rows.tolist(), strict=True)):
        for number, spans in ((source, box.source), (destination, box.destination)):
            if number not in sides:
                sides[number] = _blocks(box.family, spans)
        for mask, value in _keys(box, sides[source], sides[destination], MOST_ALTOGETHER // len(boxes)):
            under.setdefault(mask, {}).setdefault(value, []).append(row)
    shapes = sorted(under.items(), key=lambda shape: min(found[0] for found in shape[1].values()))
    keys = [(place, value, found) for place, (_, values) in enumerate(shapes) for value, found in values.items()]
    return Space(
        masks=_make_words([mask for mask, _ in shapes], 5),
        lowest=np.array([min(found[0] for found in values.values()) for _, values in shapes], np.int32),
        shape_of=np.array([place for place, _, _ in keys], np.int32),
        keys=_make_words([value for _, value, _ in keys], 5),
        starts=starts_of([found for _, _, found in keys]),
        listed=np.array([row for _, _, found in keys for row in found], np.int32),
        columns=made,
    )


def _keys(box: Box, sources: _Blocks, destinations: _Blocks, share: int) -> Iterator[tuple[Key, Key]]:
    """Yield masks and values for a box of these blocks: about `share` at most."""
    from_ports = _numbers(box.source_ports, _SOURCE_PORT_BIT)
    to_ports = _numbers(box.destination_ports, _DESTINATION_PORT_BIT)
    if len(from_ports) * len(to_ports) > MOST_PORTS:
        from_ports = _NO_PORT
    rests = [*product(from_ports, to_ports, (_match_protocol(box),))]
    most = max(1, share // len(rests))
    if len(sources) * len(destinations) > min(MOST_KEYS, most):
        if len(sources) < len(destinations):
            destinations = _NOTHING
        else:
            sources = _NOTHING
        if len(sources) * len(destinations) > most:
            sources = destinations = _NOTHING
            from_ports, to_ports = (
                _ranges(box.source_ports, _SOURCE_PORT_BIT),
                _ranges(box.destination_ports, _DESTINATION_PORT_BIT),
            )
            if len(from_ports) * len(to_ports) <= min(MOST_KEYS, share):
                rests = [*product(from_ports, to_ports, (_match_protocol(box),))]
    for (one, ones), (other, others), words in product(sources, destinations, rests):
        yield (*one, *other, sum(mask for mask, _ in words)), (*ones, *others, sum(value for _, value in words))


def _numbers(ports: Spans, place: int) -> Sequence[tuple[int, int]]:
    """Return mask and value of each of a few ports, or one empty mask."""
    if size(ports) > MOST_PORTS:
        return _NO_PORT
    return [(0xFFFF << place, port << place) for span in ports for port in range(span.low, span.high + 1)]


def _ranges(ports: Spans, place: int) -> Sequence[tuple[int, int]]:
    """Masks and values of the blocks that make up a set of ports."""
    return [
        ((0xFFFF & ~(block - 1)) << place, low << place) for span in ports for low, block in _aligned_blocks(span, 16)
    ]


def _match_protocol(box: Box) -> tuple[int, int]:
    if box.protocols.bit_count() > 1:
        return 0, 0
    return 0xFF << _PROTOCOL_BIT, (box.protocols.bit_length() - 1) << _PROTOCOL_BIT


def _blocks(family: Family, spans: Spans) -> _Blocks:
    """Return masks and values of a set's prefixes, each in two halves."""
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    whole = (1 << family.bits) - 1
    for span in spans:
        for low, block in _aligned_blocks(span, family.bits):
            found.append((halves(family, whole & ~(block - 1)), halves(family, low)))
    return found


def _aligned_blocks(span: Span, bits: int) -> Iterator[tuple[int, int]]:
    """A span as blocks whose size divides where they begin: first members and sizes, ascending."""
    low = span.low
    while low <= span.high:
        block = min(low & -low or 1 << bits, 1 << ((span.high - low + 1).bit_length() - 1))
        yield low, block
        low += block


def _make_words(rows: Sequence[tuple[int, ...]], width: int) -> U64:
    return np.array(rows, np.uint64).reshape(-1, width)


MOST_ROWS = 8
"""Rows that a merged key may have."""

_ADDRESSES = 4
_PROTOCOL = np.uint64(0xFF << 24)
_MULTIPLIER = np.uint32(0x9E3779B1)


def tuples_of(space: Space) -> U32:
    """The shapes and keys of a space, as `kernels/models.c` reads them.

    The hash table is seeded anew each time.
    """
    family = space.columns.family
    seed = random.SystemRandom().getrandbits(32)
    masks, keys = _fields(space.masks, family), _fields(space.keys, family)
    slots = _hash_table(_hashes(seed, space.shape_of, keys))
    return with_header(
        (len(masks), len(slots), seed),
        np.concatenate([masks, space.lowest.reshape(-1, 1)], axis=1),
        slots,
        np.concatenate(
            [column.reshape(len(keys), -1) for column in (space.shape_of, keys, space.starts[:-1], space.starts[1:])],
            axis=1,
        ),
        space.listed,
    )


def _fields(words: U64, family: Family) -> U32:
    """Return masks or keys in 32-bit words, as (n, 2 * words + 2)."""
    width = words_of(family)
    last = words[:, _ADDRESSES]
    ports, protocol = last >> np.uint64(32), last >> np.uint64(24) & np.uint64(0xFF)
    sides = (in_words(words[:, :2], width), in_words(words[:, 2:4], width))
    return np.concatenate([*sides, np.stack([ports, protocol], axis=1).astype(np.uint32)], axis=1)


def _hashes(seed: int, shape: I32, keys: U32) -> U32:
    """`mixed` of models.c over the shape and the words of each key."""
    found = _mix_word(np.full(len(keys), seed, np.uint32), shape.astype(np.uint32))
    for column in range(keys.shape[1]):
        found = _mix_word(found, keys[:, column])
    return _mix_word(found, np.zeros(len(keys), np.uint32))


def _mix_word(found: U32, word: U32) -> U32:
    found = (found ^ word) * _MULTIPLIER
    return found ^ found >> np.uint32(15)


def _hash_table(hashes: U32) -> U32:
    """Return for each slot its key's number plus one, or zero; open addressing."""
    size = 1 << max(4, (2 * len(hashes) - 1).bit_length())
    slots = np.zeros(size, np.uint32)
    left, slot = np.arange(len(hashes)), hashes.astype(np.int64) & (size - 1)
    while len(left):
        free = slots[slot[left]] == 0
        _, taken = np.unique(np.where(free, slot[left], -1 - left), return_index=True)
        taken = taken[free[taken]]  # of several keys that want a slot, one gets it
        slots[slot[left[taken]]] = left[taken] + 1
        left = np.delete(left, taken)
        slot[left] = (slot[left] + 1) & (size - 1)
    return slots


def merge_shapes(space: Space) -> Space:
    """The same rows under fewer shapes. See the module's text."""
    coarse = _coarser(space.masks, space.columns.family)
    shapes, shape_of = np.unique(np.concatenate([coarse, space.masks]), axis=0, return_inverse=True)
    becomes, stays = np.split(shape_of.reshape(-1), [len(coarse)])
    many = np.diff(space.starts)
    under = np.repeat(np.arange(len(space.keys)), many)
    shape, key = becomes[space.shape_of], space.keys & coarse[space.shape_of]
    _, place = np.unique(np.concatenate([shape[:, None].astype(np.uint64), key], axis=1), axis=0, return_inverse=True)
    place = place.reshape(-1)
    distinct = np.unique(np.stack([place[under], space.listed], axis=1), axis=0)
    crowded = np.bincount(distinct[:, 0])[place] > MOST_ROWS
    shape = np.where(crowded, stays[space.shape_of], shape)
    key = np.where(crowded[:, None], space.keys, key)
    return _space_of(space, shapes, shape[under], key[under])


def _coarser(masks: U64, family: Family) -> U64:
    """Masks with prefixes cut to whole steps and without ports."""
    step = 8 if family is Family.IPV4 else 16
    kept = masks.copy()
    for half in range(_ADDRESSES):
        for low in range(0, 64, step):
            field = np.uint64(((1 << step) - 1) << low)
            kept[:, half] = np.where(kept[:, half] & field == field, kept[:, half], kept[:, half] & ~field)
    kept[:, _ADDRESSES] &= _PROTOCOL
    return kept


def _space_of(space: Space, shapes: U64, shape: npt.NDArray[np.intp], key: U64) -> Space:
    """Return a tuple space that has each listed row under its shape and key."""
    found = np.concatenate([shape[:, None].astype(np.uint64), key, space.listed[:, None].astype(np.uint64)], axis=1)
    found = np.unique(found, axis=0)
    begins = np.flatnonzero(np.r_[True, (found[1:, :-1] != found[:-1, :-1]).any(axis=1)])
    number, rows = found[:, 0].astype(np.intp), found[:, -1].astype(np.int32)
    lowest = np.full(len(shapes), np.iinfo(np.int32).max, np.int32)
    np.minimum.at(lowest, number, rows)
    order = np.argsort(lowest, kind="stable")[: len(np.unique(number))]
    rank = np.empty(len(shapes), np.int32)
    rank[order] = np.arange(len(order))
    return replace(
        space,
        masks=shapes[order],
        lowest=lowest[order],
        shape_of=rank[number[begins]],
        keys=np.ascontiguousarray(found[begins, 1:-1]),
        starts=np.r_[begins, len(found)].astype(np.int32),
        listed=rows,
    )
