"""Sets of small numbers, kept as the bits of one number, under masks."""

from __future__ import annotations

from collections.abc import Iterator


def halve_members(members: int, bit: int) -> Iterator[tuple[int, int]]:
    """Yield disjoint (value, mask) pairs for a set of numbers below 2^(bit + 1).

    The set is halved bit by bit, from `bit` down.
    """
    if not members:
        return
    if members == (1 << (1 << bit + 1)) - 1:
        yield 0, 0
        return
    size = 1 << bit
    low, high = members & ((1 << size) - 1), members >> size
    if low == high:
        yield from halve_members(low, bit - 1)
        return
    yield from ((value, mask | size) for value, mask in halve_members(low, bit - 1))
    yield from ((value | size, mask | size) for value, mask in halve_members(high, bit - 1))
