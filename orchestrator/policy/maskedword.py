"""Rules and boxes as (value, mask) pairs of the word of bits (`fields.WORD`).

    bit    13        8 7        0
          └── DSCP ──┘└ TCP flags┘

Pairs are disjoint. One with mask 0 matches every word; it is the only one where nothing is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from math import prod
from operator import itemgetter

from orchestrator.policy.addresses import Family
from orchestrator.policy.dscp import EVERY_CODE_POINT, code_point_masks, match_code_points
from orchestrator.policy.fields import DSCP_SHIFT, TCP_FLAGS, WORD
from orchestrator.policy.model import Rule
from orchestrator.policy.space import Box
from orchestrator.policy.tcpflags import FlagMatch, flag_matches_of

Pairs = tuple[tuple[int, int], ...]

FLAG_BITS = (1 << TCP_FLAGS.bits[Family.IPV4]) - 1
"""The bits of TCP flags, which are the lowest of the word."""

ANY_WORD: Pairs = ((0, 0),)
_NAMED = tuple(((1 << each.bits[Family.IPV4]) - 1) << (each.shift or 0) for each in WORD if not each.is_maskable)
"""The bits of each field of which flow entries name values."""


def words_of_rule(rule: Rule) -> Pairs:
    """Return what a rule asks for, ordered by mask and value."""
    return ANY_WORD if rule.dscp is None and not rule.flag_matches else _combine_in_order(rule.flag_matches, rule.dscp)


def words_of_box(box: Box) -> Pairs:
    """Return what a box asks for."""
    return _combine(flag_matches_of(box.tcp_flags), None if box.dscp == EVERY_CODE_POINT else box.dscp)


def count_rows(mask: int) -> int:
    """Return how many flow entries a word takes.

    Of some fields an entry names one value or none.
    """
    return prod(1 << (bits & ~mask).bit_count() for bits in _NAMED if mask & bits)


def count_rows_of_rule(rule: Rule) -> int:
    """Return how many flow entries the words of a rule take."""
    words = words_of_rule(rule)
    return 1 if words is ANY_WORD else sum(count_rows(mask) for _, mask in words)


def split_word(value: int, mask: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the (value, mask) of TCP flags, and that of DSCP."""
    return (value & FLAG_BITS, mask & FLAG_BITS), (value >> DSCP_SHIFT, mask >> DSCP_SHIFT)


@lru_cache(maxsize=4096)
def code_points_under(value: int, mask: int) -> tuple[int, ...]:
    """Return a word's code points under its mask; none where it asks none."""
    _, (wanted, looked_at) = split_word(value, mask)
    return tuple(match_code_points(wanted, looked_at)) if looked_at else ()


@lru_cache(maxsize=4096)
def _combine_in_order(flags: tuple[FlagMatch, ...], dscp: int | None) -> Pairs:
    return tuple(sorted(_combine(flags, dscp), key=itemgetter(1, 0)))


@lru_cache(maxsize=4096)
def _combine(flags: tuple[FlagMatch, ...], dscp: int | None) -> Pairs:
    """Return values and masks that ask for TCP flags and DSCP in one word."""
    asked: Iterable[tuple[int, int]] = [(int(each.value), int(each.mask)) for each in flags] or ANY_WORD
    return tuple(
        (flags_value | dscp_value << DSCP_SHIFT, flags_mask | dscp_mask << DSCP_SHIFT)
        for (flags_value, flags_mask), (dscp_value, dscp_mask) in product(asked, code_point_masks(dscp))
    )
