"""The C part of the proof again in plain Python: the oracle for it, with the same names and arguments.

Tests put this module in the place of `orchestrator.compile._equivalence`, and every law and mutant runs with either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.equivalence.checks import COVERED, OUTSIDE, WRONG_VOLUME
from orchestrator.compile.equivalence.order import Pair, overlapping
from orchestrator.compile.equivalence.rowdecoder import FAMILY, FRAGMENTS, PROTOCOL, TABLE, Items
from orchestrator.compile.equivalence.rulesets import Pool, Wanted
from orchestrator.compile.equivalence.shortestedit import Step
from orchestrator.policy.addresses import Family
from orchestrator.policy.dscp import HIGHEST_CODE_POINT
from orchestrator.policy.fields import DSCP_SHIFT, TCP_FLAGS, WORD_BITS

_WORDS = 1 << WORD_BITS
"""How many words there are."""

# ---------------------------------------------------------------------------------------------------- matches as boxes


class _Field(NamedTuple):
    name: str
    size: int
    family: int = 0
    protocol: int = 0


_FIELDS = {
    (0x8000, 5): _Field("eth_type", 2),
    (0x8000, 11): _Field("source", 4, 4),
    (0x8000, 12): _Field("destination", 4, 4),
    (0x8000, 26): _Field("source", 16, 6),
    (0x8000, 27): _Field("destination", 16, 6),
    (0x0001, 26): _Field("fragment", 1),
    (0x8000, 8): _Field("dscp", 1),
    (0x8000, 10): _Field("protocol", 1),
    **{(0x8000, first): _Field("from", 2, 0, protocol) for first, protocol in ((13, 6), (15, 17), (17, 132))},
    **{(0x8000, first): _Field("to", 2, 0, protocol) for first, protocol in ((14, 6), (16, 17), (18, 132))},
    (0x8000, 42): _Field("flags", 2, 0, 6),
    (0x8000, 19): _Field("from", 1, 4, 1),
    (0x8000, 20): _Field("to", 1, 4, 1),
    (0x8000, 29): _Field("from", 1, 6, 58),
    (0x8000, 30): _Field("to", 1, 6, 58),
    (0x8001, 0): _Field("registers 0", 8),
    (0x8001, 1): _Field("registers 2", 8),
}
_CUT_SHORT, _UNKNOWN, _TWICE, _BESIDE, _NOT_A_PREFIX, _NO_SUCH = range(1, 7)
_FAMILY_OF = {0x0800: 4, 0x86DD: 6}
_HIGHEST_FLAGS = (1 << TCP_FLAGS.bits[Family.IPV4]) - 1


class _NotUnderstoodError(Exception):
    def __init__(self, reason: int) -> None:
        self.reason = reason


class _Test(NamedTuple):
    field: _Field
    value: int
    mask: int

    @property
    def ones(self) -> int:
        return (1 << 8 * self.field.size) - 1

    @property
    def exact(self) -> int:
        if self.mask != self.ones:
            raise _NotUnderstoodError(_NO_SUCH if self.field.name == "eth_type" else _NOT_A_PREFIX)
        return self.value

    @property
    def interval(self) -> tuple[int, int]:
        free = self.ones & ~self.mask
        if free & (free + 1):
            raise _NotUnderstoodError(_NOT_A_PREFIX)
        return self.value, self.value | free


def decode(
    match: npt.NDArray[np.uint8], _width: int, length: npt.NDArray[Any], items: Items, registers: npt.NDArray[Any]
) -> tuple[int, int]:
    """Decode row by row; return the row that is not understood (-1: none), and why."""
    for row in range(len(items)):
        try:
            _fill_item(items[row], registers[row], _read_tests(match[row, : int(length[row])].tobytes()))
        except _NotUnderstoodError as error:
            return row, error.reason
    return -1, 0


def _read_tests(match: bytes) -> list[_Test]:
    found: list[_Test] = []
    known: set[tuple[int, int]] = set()
    while match:
        if len(match) < 4:
            raise _NotUnderstoodError(_CUT_SHORT)
        oxm_class, kind, length = struct.unpack_from(">HBB", match)
        key = (oxm_class, kind >> 1)
        field = _FIELDS.get(key)
        if field is None or length != field.size << (kind & 1):
            raise _NotUnderstoodError(_UNKNOWN)
        if len(match) < 4 + length:
            raise _NotUnderstoodError(_CUT_SHORT)
        if key in known:
            raise _NotUnderstoodError(_TWICE)
        known.add(key)
        body, match = match[4 : 4 + length], match[4 + length :]
        value = int.from_bytes(body[: field.size], "big")
        mask = int.from_bytes(body[field.size :], "big") if kind & 1 else (1 << 8 * field.size) - 1
        if value & ~mask:
            raise _NotUnderstoodError(_BESIDE)
        found.append(_Test(field, value, mask))
    return found


def _fill_item(item: Any, registers: Any, tests: list[_Test]) -> None:
    by_name = {test.field.name: test for test in tests}
    families, protocols = _kind(by_name)
    for test in tests:
        wrong_family = test.field.family and (test.field.family,) * 2 != families
        if wrong_family or (test.field.protocol and (test.field.protocol,) * 2 != protocols):
            raise _NotUnderstoodError(_NO_SUCH)
    whole = (1 << 128) - 1
    for side, name in enumerate(("source", "destination")):
        low, high = by_name[name].interval if name in by_name else (0, whole)
        if name in by_name and by_name[name].field.size == 4:
            low, high = low << 96, high << 96 | whole >> 32
        item["low"][side], item["high"][side] = divmod(low, 1 << 64)[::-1], divmod(high, 1 << 64)[::-1]
    for side, name in enumerate(("from", "to")):
        item["port_low"][side], item["port_high"][side] = by_name[name].interval if name in by_name else (0, 0xFFFF)
    for place, (low, high) in ((PROTOCOL, protocols), (FRAGMENTS, _read_fragments(by_name)), (FAMILY, families)):
        item["small_low"][place], item["small_high"][place] = low, high
    item["word"] = _read_word(by_name)
    for first in (0, 2):
        pair = by_name.get(f"registers {first}")
        if pair is not None:
            registers["value"][first : first + 2] = divmod(pair.value, 1 << 32)
            registers["mask"][first : first + 2] = divmod(pair.mask, 1 << 32)


def _kind(by_name: dict[str, _Test]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The IP version and the protocol, each as an interval."""
    families, protocols = (0, 255), (0, 255)
    if "eth_type" in by_name:
        family = _FAMILY_OF.get(by_name["eth_type"].exact)
        if family is None:
            raise _NotUnderstoodError(_NO_SUCH)
        families = (family, family)
    elif not by_name.keys().isdisjoint(("protocol", "fragment", "dscp")):
        raise _NotUnderstoodError(_NO_SUCH)
    if "protocol" in by_name:
        protocols = (by_name["protocol"].exact,) * 2
    return families, protocols


def _read_word(by_name: dict[str, _Test]) -> tuple[int, int]:
    """TCP flags under their mask, and above them a whole DSCP."""
    value = mask = 0
    if "flags" in by_name:
        value, mask = by_name["flags"].value, by_name["flags"].mask
        if mask > _HIGHEST_FLAGS:
            raise _NotUnderstoodError(_NO_SUCH)
    if "dscp" in by_name:
        asked = by_name["dscp"]
        if asked.mask != asked.ones or asked.value > HIGHEST_CODE_POINT:
            raise _NotUnderstoodError(_NO_SUCH)
        value, mask = value | asked.value << DSCP_SHIFT, mask | HIGHEST_CODE_POINT << DSCP_SHIFT
    return value, mask


def _read_fragments(by_name: dict[str, _Test]) -> tuple[int, int]:
    test = by_name.get("fragment")
    if test is None:
        return 0, 1
    if (test.value, test.mask) == (0, 2):
        return 0, 0
    if (test.value, test.mask) == (3, 0xFF):
        return 1, 1
    raise _NotUnderstoodError(_NO_SUCH)


# ---------------------------------------------------------------------------------------------------------------- order


class Index:
    """The search by the definition: every item against all others."""

    def __init__(self, items: Items, _order: object = None) -> None:
        self._items = items
        self.compared = 0

    def conflict(self) -> Pair | None:
        """Return two items that overlap and stand in the wrong order, or None."""
        self.compared += len(self._items) * (len(self._items) - 1) // 2
        for place in range(len(self._items)):
            found = np.flatnonzero(_find_conflicts(self._items[place], self._items[:place]))
            if len(found):
                return place, int(found[0])
        return None

    def conflict_of(self, items: Items, gone: npt.NDArray[np.bool_], /) -> Pair | None:
        for place in range(len(items)):
            found = np.flatnonzero(_find_conflicts(items[place], self._items) & ~gone)
            if len(found):
                return place, int(found[0])
        return None

    def mark_met(self, items: Items, met: npt.NDArray[np.bool_], /) -> None:
        for item in items:
            met |= overlapping(item, self._items)


def clash(items: Items, others: Items, same: bool) -> Pair | None:
    """Return a conflicting pair of one and other items; of one alone where both are the same."""
    if same:
        return Index(items).conflict()
    return Index(others).conflict_of(items, np.zeros(len(others), np.bool_))


def _find_conflicts(item: Items, others: Items) -> npt.NDArray[np.bool_]:
    earlier, later = others["key"] < item["key"], others["key"] > item["key"]
    wrong = (
        (others["key"] == item["key"])
        | (earlier & (others["priority"] <= item["priority"]))
        | (later & (others["priority"] >= item["priority"]))
    )
    found: npt.NDArray[np.bool_] = wrong & overlapping(item, others)
    return found


# ------------------------------------------------------------------------------------------------------------- coverage


def cover(items: Items, wants: npt.NDArray[Any], *pools: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the first error and its item or rule, an item at a time."""
    wanted = Wanted(wants, Pool(*pools[:2]), Pool(*pools[2:4]), Pool(*pools[4:]))
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


# ---------------------------------------------------------------------------------------------------------------- edits


def edits(old: Sequence[object], new: Sequence[object], most: int) -> list[Step] | None:
    """Return the shortest edit script: the furthest point on every diagonal after 0, 1, 2, ... steps."""
    rounds: list[dict[int, int]] = []
    for count in range(most + 1):
        last = rounds[-1] if rounds else {1: 0}
        furthest: dict[int, int] = {}
        for diagonal in range(-count, count + 1, 2):
            x = last[diagonal + 1] if _goes_down(last, diagonal, count) else last[diagonal - 1] + 1
            while x < len(old) and 0 <= x - diagonal < len(new) and old[x] is new[x - diagonal]:
                x += 1
            furthest[diagonal] = x
        rounds.append(furthest)
        end = len(old) - len(new)
        if furthest.get(end, -1) == len(old):
            return _write_script(rounds, len(old), len(new))
    return None


def _goes_down(last: dict[int, int], diagonal: int, count: int) -> bool:
    return diagonal == -count or (diagonal != count and last[diagonal - 1] < last[diagonal + 1])


def _write_script(rounds: list[dict[int, int]], x: int, y: int) -> list[Step]:
    found = []
    for count in range(len(rounds) - 1, 0, -1):
        last = rounds[count - 1]
        is_insert = _goes_down(last, x - y, count)
        before = x - y + 1 if is_insert else x - y - 1
        x, y = last[before], last[before] - before
        found.append(Step(x, y, is_insert))
    return found[::-1]
