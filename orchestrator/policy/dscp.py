"""Differentiated services code points (RFC 2474): six bits of an IP header.

    bits of the byte       7    6    5    4    3    2    1    0
                          └────── code point ───────┘  └─ ECN ─┘
                          └─ precedence ─┘

A set of code points is a number here: bit i is set where code point i is a member, as in a box of packet space. Names
are those of the standards and are only read; what is written are numbers, for two names may mean one code point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.bitsets import halve_members

HIGHEST_CODE_POINT = 63
EVERY_CODE_POINT = (1 << 64) - 1
"""The set of all of them."""

CODE_POINT_BITS = 6

_PRECEDENCES = (
    "routine", "priority", "immediate", "flash", "flash-override", "critical", "internet", "network",
)  # fmt: skip
PRECEDENCES: Mapping[str, int] = MappingProxyType({name: number for number, name in enumerate(_PRECEDENCES)})
"""The upper three bits by the names of RFC 791, as Cisco spells them."""

NAMES: Mapping[str, int] = MappingProxyType(
    {
        **{f"cs{number}": number << 3 for number in range(8)},
        **{f"af{queue}{drop}": queue << 3 | drop << 1 for queue in range(1, 5) for drop in range(1, 4)},
        "be": 0,
        "default": 0,
        "le": 1,
        "va": 44,
        "voice-admit": 44,
        "ef": 46,
    }
)
"""RFC 2474 (cs, default), 2597 (af), 3246 (ef), 5865 (voice-admit), 8622 (le)."""


def of_precedence(number: int) -> int:
    """Return the set of the eight code points of a precedence, 0 to 7."""
    return 0xFF << (number << 3)


def parse_code_points(text: str) -> int:
    """Read a name, a number or a range as a set: ``ef``, ``46``, ``8-15``.

    Raises BadInput.
    """
    if text.lower() in NAMES:
        return 1 << NAMES[text.lower()]
    low, dash, high = text.partition("-")
    return code_points(_parse_end(low, text), _parse_end(high if dash else low, text))


def code_points(low: int, high: int) -> int:
    """Return the set of some code points side by side. Raises BadInput."""
    for end in (low, high):
        if not 0 <= end <= HIGHEST_CODE_POINT:
            raise BadInput(f"DSCP {end} is not in 0..{HIGHEST_CODE_POINT}")
    if low > high:
        raise BadInput(f"the DSCP range {low}-{high} is empty: the lower end is above the upper end")
    return (1 << high + 1) - (1 << low)


def _parse_end(end: str, text: str) -> int:
    if end.lower() in NAMES:
        return NAMES[end.lower()]
    if not (end.isascii() and end.isdigit() and len(end) <= 3):
        raise BadInput(f"'{text}' is not a DSCP: a number of 0..{HIGHEST_CODE_POINT}, a range, or a name such as ef")
    return int(end)


def list_code_points(members: int) -> list[int]:
    """The code points of a set, ascending."""
    return [number for number in range(HIGHEST_CODE_POINT + 1) if members >> number & 1]


def match_code_points(value: int, mask: int) -> list[int]:
    """The code points that have a value under a mask, ascending."""
    return [number for number in range(HIGHEST_CODE_POINT + 1) if number & mask == value]


def runs_of(members: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of code points in a set."""
    low = 0
    while members >> low:
        low += (members >> low & -(members >> low)).bit_length() - 1
        length = (~(members >> low) & (members >> low) + 1).bit_length() - 1
        yield low, low + length - 1
        low += length


def code_points_text(members: int, joint: str = ",") -> str:
    """Write a set as numbers and ranges: ``0,8-15,46``."""
    return joint.join(str(low) if low == high else f"{low}-{high}" for low, high in runs_of(members))


@lru_cache(maxsize=4096)
def code_point_masks(members: int | None) -> tuple[tuple[int, int], ...]:
    """Return disjoint (value, mask) pairs for exactly a set; mask 0 for all."""
    return ((0, 0),) if members is None else tuple(halve_members(members, CODE_POINT_BITS - 1))
