"""Check that a rule's items lie inside it and have its volume, in C.

Items that are disjoint (`order.py` sees to that), inside their rule and together of its volume are the rule, no more
and no less. A volume is how many combinations of address, address, port, port, word, protocol and kind of fragment
there are; it has up to 311 bits and is counted exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from orchestrator.compile.equivalence.extension import NATIVE
from orchestrator.compile.equivalence.rowdecoder import FAMILY, FRAGMENTS, PROTOCOL, TABLE, Items
from orchestrator.compile.equivalence.rulesets import Pool, Wanted
from orchestrator.policy.fields import WORD_BITS

COVERED, OUTSIDE, WRONG_VOLUME = range(3)
_WORDS = 1 << WORD_BITS
"""How many words there are."""


def cover(items: Items, wanted: Wanted) -> tuple[int, int]:
    """Return the first error and its item (`OUTSIDE`) or rule (`WRONG_VOLUME`).

    Items are ordered by `rule`, the place of their rule in `wanted`.
    """
    if NATIVE is None:
        return reference_cover(items, wanted)
    found: tuple[int, int] = NATIVE.cover(items, wanted.wants, *wanted.addresses, *wanted.ports, *wanted.words)
    return found


def reference_cover(items: Items, wanted: Wanted) -> tuple[int, int]:
    """The same, an item at a time."""
    for rule in range(len(wanted.wants)):
        want = wanted.wants[rule]
        left = {family: _count_wanted(want, family, wanted) for family in (4, 6)}
        for place in np.flatnonzero(items["rule"] == rule).tolist():
            if not _is_inside(items[place], want, wanted):
                return OUTSIDE, place
            left[int(items[place]["small_low"][FAMILY])] -= _count_packets(items[place])
        if any(left.values()):
            return WRONG_VOLUME, rule
    stray = np.flatnonzero(items["rule"] >= len(wanted.wants))
    return (OUTSIDE, int(stray[0])) if len(stray) else (COVERED, len(items))


def _read_members(pool: Pool, number: int) -> Any:
    return pool.members[int(pool.start[number]) : int(pool.start[number + 1])]


def _join_halves(halves: Any) -> int:
    return int(halves[1]) << 64 | int(halves[0])


def _read_addresses(want: Any, side: int, family: int, wanted: Wanted) -> list[tuple[int, int]]:
    spans = _read_members(wanted.addresses, 2 * int(want["side"][side]) + (family == 6))
    return [(_join_halves(span["low"]), _join_halves(span["high"])) for span in spans]


def _read_ports(want: Any, side: int, wanted: Wanted) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in _read_members(wanted.ports, int(want["ports"][side]))]


def _is_inside(item: Any, want: Any, wanted: Wanted) -> bool:
    family = int(item["small_low"][FAMILY])
    if family not in (4, 6) or family != item["small_high"][FAMILY] or want["family"] not in (0, family):
        return False
    for side in (0, 1):
        addresses = _join_halves(item["low"][side]), _join_halves(item["high"][side])
        ports = int(item["port_low"][side]), int(item["port_high"][side])
        if not _lies_in(addresses, _read_addresses(want, side, family, wanted)):
            return False
        if not _lies_in(ports, _read_ports(want, side, wanted)):
            return False
    table = int(want["table"])
    small = ((PROTOCOL, want["protocol"]), (FRAGMENTS, want["fragments"]), (TABLE, (table, table)))
    if any(item["small_low"][axis] < low or high < item["small_high"][axis] for axis, (low, high) in small):
        return False
    value, mask = (int(each) for each in item["word"])
    words = ((int(one), int(other)) for one, other in _read_members(wanted.words, int(want["words"])))
    return any(not other & ~mask and not (one ^ value) & other for one, other in words)


def _lies_in(span: tuple[int, int], spans: list[tuple[int, int]]) -> bool:
    return any(low <= span[0] and span[1] <= high for low, high in spans)


def _count_packets(item: Any) -> int:
    def list_widths() -> Iterator[int]:
        for side in (0, 1):
            yield _join_halves(item["high"][side]) - _join_halves(item["low"][side]) + 1
            yield int(item["port_high"][side]) - int(item["port_low"][side]) + 1
        for axis in (PROTOCOL, FRAGMENTS):
            yield int(item["small_high"][axis]) - int(item["small_low"][axis]) + 1
        yield _WORDS >> int(item["word"][1]).bit_count()

    return prod(list_widths())


def _count_wanted(want: Any, family: int, wanted: Wanted) -> int:
    if want["family"] not in (0, family):
        return 0
    sizes = [sum(high - low + 1 for low, high in _read_addresses(want, side, family, wanted)) for side in (0, 1)]
    sizes += [sum(high - low + 1 for low, high in _read_ports(want, side, wanted)) for side in (0, 1)]
    sizes.append(sum(_WORDS >> int(mask).bit_count() for _, mask in _read_members(wanted.words, int(want["words"]))))
    sizes += [int(want[axis][1]) - int(want[axis][0]) + 1 for axis in ("protocol", "fragments")]
    return prod(sizes)
