"""Tuple space for devices, with tuples merged to search fewer.

Daly and others: TupleMerge, 2019.

    shape     source /24, destination /32, a port    one look-up in the hash table
    merged    source /24, destination /24            the same rows under shorter keys, several rows a key

A look-up is a read from memory that waits for the one before it, so fewer shapes are faster as long as few rows stand
under a key. Merging shortens the prefixes of a shape to multiples of eight bits (of IPv6 sixteen) and leaves out its
ports. Rows of a key that would get more than MOST_ROWS stay under their own shape.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32, U64
from orchestrator.classify.devices.tables import U32, in_words, with_header, words_of
from orchestrator.classify.space import Space
from orchestrator.policy.addresses import Family

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
