"""Names for flow entries: 64 bits that stand for table, priority, match and cookie.

Counters are kept apart by these: one entry is replaced, and the others of its rule go on counting. The cookie belongs
to the name because a switch makes a new entry of one whose cookie changes.

    key = mix( Σ mix(word[i] + (i + 1) * GOLDEN) )     word 0: length | table | priority, 1: cookie, 2...: match

in which `mix` is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): the words of an entry are mixed apart before
they are added, so that no two of them cancel each other. The match is read as little-endian words, padded with zeros;
its length is part of word 0. The same is computed from a switch's answer in `enforce/_native/flowstats.c`.
"""

from __future__ import annotations

import numpy as np

from orchestrator.program.flows import U64, FlowTable

GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def entry_keys(flows: FlowTable) -> U64:
    """The key of every row."""
    length = flows.match_length.astype(np.uint64)
    place = flows.table.astype(np.uint64) << np.uint64(16) | flows.priority.astype(np.uint64)
    total = _mix_word(length << np.uint64(32) | place, 1) + _mix_word(flows.cookie, 2)
    words = _words(flows)
    for index in range(words.shape[1]):
        there = np.uint64(8 * index) < length
        total += np.where(there, _mix_word(words[:, index], index + 3), np.uint64(0))
    return _mix_word(total, 0)


def _words(flows: FlowTable) -> U64:
    """The matches as little-endian words, padded with zeros."""
    rows, width = flows.match.shape
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = flows.match
    return padded.view("<u8")


def _mix_word(word: U64, place: int) -> U64:
    """The finaliser of SplitMix64, of a word at its place."""
    mixed = word + np.uint64(place * GOLDEN & (1 << 64) - 1)
    mixed = (mixed ^ mixed >> np.uint64(30)) * _FIRST
    mixed = (mixed ^ mixed >> np.uint64(27)) * _SECOND
    return mixed ^ mixed >> np.uint64(31)
