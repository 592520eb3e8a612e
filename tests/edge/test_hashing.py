"""The hash of Open vSwitch, computed for arrays, against its definition, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.edge.hashing import hash_keys, positions
from orchestrator.errors import BadInput

WORD = 0xFFFFFFFF
KEYS = st.one_of(st.integers(0, 2**48 - 1), st.sampled_from([0, 1, 0xFF, 0xFFFF, 2**32, 2**48 - 1]))
BASES = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**32 - 1]))


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & WORD


def lookup3(octets: bytes, basis: int) -> int:
    """Bob Jenkins' lookup3, as published, of up to twelve bytes."""
    a, b, c = (
        (0xDEADBEEF + len(octets) + basis + int.from_bytes(octets[at : at + 4], "little")) & WORD for at in (0, 4, 8)
    )
    c = ((c ^ b) - rotated(b, 14)) & WORD
    a = ((a ^ c) - rotated(c, 11)) & WORD
    b = ((b ^ a) - rotated(a, 25)) & WORD
    c = ((c ^ b) - rotated(b, 16)) & WORD
    a = ((a ^ c) - rotated(c, 4)) & WORD
    b = ((b ^ a) - rotated(a, 14)) & WORD
    return ((c ^ b) - rotated(b, 24)) & WORD


@given(st.lists(KEYS, min_size=1, max_size=20), BASES)
def test_each_key_is_hashed_as_six_octets_in_network_order(keys: list[int], basis: int) -> None:
    found = hash_keys(np.array(keys, np.uint64), basis)
    assert found.tolist() == [lookup3(key.to_bytes(6, "big"), basis) for key in keys]


@given(st.lists(KEYS, min_size=1, max_size=8), st.lists(BASES, min_size=1, max_size=6), st.integers(1, 65536))
def test_positions_are_the_hash_modulo_the_width(keys: list[int], bases: list[int], width: int) -> None:
    found = positions(np.array(keys, np.uint64), bases, width)
    assert found.tolist() == [[lookup3(key.to_bytes(6, "big"), basis) % width for basis in bases] for key in keys]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="more than 48 bits"):
        positions(np.array([1 << 48], np.uint64), [1], 288)
    with pytest.raises(BadInput, match="cannot be"):
        positions(np.array([1], np.uint64), [1], 0)


def test_positions_are_spread_evenly() -> None:
    found = positions(np.arange(100_000, dtype=np.uint64), [7, 8], 288)
    counts = np.bincount(found.ravel(), minlength=288)
    assert counts.min() > 0.8 * counts.mean()
    assert counts.max() < 1.2 * counts.mean()
