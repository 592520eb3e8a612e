"""Decode flow entries to items by a reader that shares nothing with the encoder.

An item is a box of closed intervals and a ternary word, as `_native/equivalence/equivalence.h` draws it. Matches that
are no such box (a mask that is not a prefix, a field that is not known, fields that no packet has together) are
refused, never read as something wider.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.equivalence.extension import NATIVE
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Family
from orchestrator.policy.dscp import HIGHEST_CODE_POINT
from orchestrator.policy.fields import DSCP_SHIFT, TCP_FLAGS
from orchestrator.program.flows import FlowTable

Items = npt.NDArray[Any]

LOW, HIGH = 0, 1
PROTOCOL, FRAGMENTS, FAMILY, TABLE = range(4)
"""Places in `small_low` and `small_high`."""

ITEM = np.dtype(
    [
        ("low", np.uint64, (2, 2)),
        ("high", np.uint64, (2, 2)),
        ("port_low", np.uint16, (2,)),
        ("port_high", np.uint16, (2,)),
        ("small_low", np.uint8, (4,)),
        ("small_high", np.uint8, (4,)),
        ("word", np.uint16, (2,)),
        ("priority", np.uint16),
        ("unused", np.uint16),
        ("rule", np.uint32),
        ("padding", np.uint32),
        ("key", np.int64),
        ("end", np.uint64),
    ]
)
"""`item` of the extension. Addresses are (side, half): source and destination, the lower half first.

`word` is a value under a mask: TCP flags, and above them DSCP.
"""

REGISTERS = np.dtype([("value", np.uint32, (4,)), ("mask", np.uint32, (4,))])
"""A match's masks and values for reg0 to reg3."""

REASONS = (
    "",
    "ends early",
    "has a field that rules do not match",
    "has a field twice",
    "has value bits beside its mask",
    "has a mask that is not a prefix",
    "asks for what no packet has together",
)
"""Why a match is not understood, by the numbers of the extension."""


class Decoded(NamedTuple):
    """Decoded flow entries, a row an entry.

    `rule` and `key` are left for the caller to fill.
    """

    items: Items
    registers: npt.NDArray[Any]


def decode(flows: FlowTable) -> Decoded:
    """Decode the matches of a table's rows.

    Raises NotEquivalent for the first row that is not understood.
    """
    items, registers = np.zeros(len(flows), ITEM), np.zeros(len(flows), REGISTERS)
    if NATIVE is None:
        row, reason = reference_decode(flows, items, registers)
    else:
        match = np.ascontiguousarray(flows.match)
        row, reason = NATIVE.decode(match, match.shape[1], flows.match_length, items, registers)
    if row >= 0:
        raise NotEquivalent(
            f"a flow entry {REASONS[reason]}: table {flows.table[row]}, match {flows.row(row).match.hex()}"
        )
    items["priority"] = flows.priority
    items["small_low"][:, TABLE] = items["small_high"][:, TABLE] = flows.table
    return Decoded(items, registers)


# ------------------------------------------------------------------------------------------- the same in plain Python


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


def reference_decode(flows: FlowTable, items: Items, registers: npt.NDArray[Any]) -> tuple[int, int]:
    """Decode row by row: the row that is not understood (-1: none), and why.

    The reference for the decoder by columns.
    """
    for row in range(len(flows)):
        try:
            _fill_item(items[row], registers[row], _read_tests(flows.row(row).match))
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
