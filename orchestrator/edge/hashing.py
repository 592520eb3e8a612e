"""Positions of a chunk's bits in a line: Open vSwitch's `multipath(eth_src, basis, modulo_n, ...)` hash.

The switch copies a packet's chunk (the leading bits of its destination) into the low bits of `eth_src` and hashes these
six bytes with a basis of its own for each of the k functions. Computed here for arrays, so that lines, false matches
and winners are known before anything is installed.

The hash is Bob Jenkins' lookup3 over at most twelve bytes (jhash in Open vSwitch), read as little-endian words; its
other hashes depend on how it was compiled, this one does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

KEY_BITS = 48
"""As many as `eth_src` has: a longer prefix needs another field."""

_OCTETS = 6
_START = 0xDEADBEEF + _OCTETS
_ROUNDS = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))
"""lookup3's final mix of (a, b, c): each round is ``x ^= y; x -= rotate(y, bits)``."""


def hash_keys(keys: U64, basis: int) -> U32:
    """The hash of each key, below 2^48, taken as six bytes in network order."""
    start = np.uint32((_START + basis) & 0xFFFFFFFF)
    swapped = keys.astype(np.uint64).byteswap()  # the key's bytes are now the upper six of eight, the first lowest
    low = ((swapped >> np.uint64(16)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (swapped >> np.uint64(48)).astype(np.uint32)
    words = [low + start, high + start, np.full(len(keys), start, np.uint32)]
    for changed, by, bits in _ROUNDS:
        words[changed] ^= words[by]
        words[changed] -= _rotate_words(words[by], bits)
    return words[2]


def positions(keys: U64, bases: Sequence[int], width: int) -> U16:
    """Return each key's bits in a line of `width` bits: (keys, bases), possibly repeated.

    Raises BadInput for a key of more than 48 bits and a width that is none.
    """
    if not 0 < width <= 1 << 16:
        raise BadInput(f"a line of {width} bits cannot be", place="width")
    if len(keys) and int(keys.max()) >> KEY_BITS:
        raise BadInput(f"a chunk of more than {KEY_BITS} bits does not fit the field that is hashed", place="chunk")
    found = np.empty((len(keys), len(bases)), np.uint16)
    for column, basis in enumerate(bases):
        found[:, column] = hash_keys(keys, basis) % np.uint32(width)
    return found


def _rotate_words(words: U32, bits: int) -> U32:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
