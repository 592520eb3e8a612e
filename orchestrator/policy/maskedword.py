"""What rules and boxes ask of the word of bits (`fields.WORD`), as disjoint (value, mask) pairs.

    bit    7        0
          └ TCP flags┘

A pair with mask 0 matches every word; it is the only one where nothing is asked for.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from operator import itemgetter

from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import TCP_FLAGS, WORD
from orchestrator.policy.formats.express import flag_matches_of
from orchestrator.policy.model import Rule
from orchestrator.policy.space import Box
from orchestrator.policy.tcpflags import FlagMatch

Pairs = tuple[tuple[int, int], ...]

FLAG_BITS = (1 << TCP_FLAGS.bits[Family.IPV4]) - 1
"""The bits of TCP flags, which are the lowest of the word."""

ANY_WORD: Pairs = ((0, 0),)
_NAMED = tuple(((1 << each.bits[Family.IPV4]) - 1) << (each.shift or 0) for each in WORD if not each.is_maskable)
"""The bits of each field of which flow entries name values."""


def words_of_rule(rule: Rule) -> Pairs:
    """Return what a rule asks for, ordered by mask and value."""
    return _order(rule.flag_matches) if rule.flag_matches else ANY_WORD


def words_of_box(box: Box) -> Pairs:
    """Return what a box asks for."""
    return _combine(flag_matches_of(box.tcp_flags))


def count_rows(mask: int) -> int:
    """Return how many flow entries a word takes, for of some fields an entry names one value or none."""
    return prod(1 << (bits & ~mask).bit_count() for bits in _NAMED if mask & bits)


def count_rows_of_rule(rule: Rule) -> int:
    """Return how many flow entries the words of a rule take."""
    words = words_of_rule(rule)
    return 1 if words is ANY_WORD else sum(count_rows(mask) for _, mask in words)


@lru_cache(maxsize=4096)
def _order(flags: tuple[FlagMatch, ...]) -> Pairs:
    return tuple(sorted(_combine(flags), key=itemgetter(1, 0)))


@lru_cache(maxsize=4096)
def _combine(flags: tuple[FlagMatch, ...]) -> Pairs:
    return tuple((int(each.value), int(each.mask)) for each in flags) or ANY_WORD
