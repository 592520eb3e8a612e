"""From atoms to flow entries: the bulk encoder.

Tens of thousands of matches are written at NumPy speed by grouping the atoms by *layout*: which fields a match holds
and which of them carry a mask. Matches of one layout have their headers, values and masks at the same offsets, so a
layout is one structured dtype, filled column by column. There are a few dozen layouts in a list, whatever its length.

Port ranges become the fewest value/mask pairs that cover them (as in `policy.ports.masks`, for a column at a time), so
an atom may be several flow entries; these are disjoint, as the pairs are. DSCP takes no mask in OpenFlow: an atom that
asks for several code points has a flow entry for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.fewrules import FEW, ICMP_FIELDS, PORT_FIELDS, few_counts, few_matches
from orchestrator.compile.openflow.instructions import reporting
from orchestrator.compile.openflow.oxm import Field
from orchestrator.errors import TooLarge
from orchestrator.policy.fields import DSCP_SHIFT
from orchestrator.policy.maskedword import FLAG_BITS, code_points_under
from orchestrator.program.flows import U16, U64, FlowTable
from orchestrator.program.rules import ANY_BYTE, FRAG_LATER, FRAG_NOT_LATER, PERMIT, RuleTable

MOST_FLOWS = 4_000_000
"""The most entries that one list may expand to; no switch of ours holds more."""

Column = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]

_NO_MASK, _MASKED, _EXACT = 0, 1, 2
"""How a match looks at a field: not at all, at some bits, at all of them."""

_ALL_16, _ALL_64 = 0xFFFF, 0xFFFFFFFFFFFFFFFF
_PORTS = 1 << 16


@dataclass(frozen=True, slots=True)
class RuleStage:
    """A table of one direction's rules: the tenant's register, instructions of permit and deny."""

    table: int
    register: Field | None
    permit: bytes
    deny: bytes


@lru_cache(maxsize=1024)
def doings(stage: RuleStage, meter: int) -> tuple[bytes, ...]:
    """Return the instructions of permit, deny, permit and report, deny and report."""
    plain = stage.permit, stage.deny
    return (*plain, *(reporting(each, meter) for each in plain))


def meter_of(tenant: int) -> int:
    """Return the meter of reports about a tenant's rules; 0: the operator's."""
    return tenant + 1


def path_mtu_meter_of(tenant: int) -> int:
    """Return the meter of messages about path MTU to a tenant's endpoints.

    Its number follows those of the meters for reports.
    """
    return (1 << 31) + tenant


class MaskedRules(NamedTuple):
    """Atoms with port ranges as value/mask pairs, and one code point each (ANY_BYTE: every one).

    `atom` is the row in the `RuleTable` that each came from.
    """

    atom: Rows
    sp_value: U16
    sp_mask: U16
    dp_value: U16
    dp_mask: U16
    dscp: npt.NDArray[np.int16]


def with_port_masks(rules: RuleTable) -> MaskedRules:
    """Return every atom for each code point and pair of port masks.

    Raises TooLarge.
    """
    sources, destinations = _Covers.of(rules.sp_lo, rules.sp_hi), _Covers.of(rules.dp_lo, rules.dp_hi)
    points = _CodePoints.of(rules.word_value, rules.word_mask)
    repeats = sources.how_many * destinations.how_many * points.how_many
    if repeats.sum() > MOST_FLOWS:
        worst = int(rules.order[int(repeats.argmax())])
        raise TooLarge(
            f"the list needs {repeats.sum()} flow entries, over {MOST_FLOWS}; this rule needs the most of them",
            place=f"rules[{worst}]",
        )
    atom = np.repeat(np.arange(len(rules)), repeats)
    left = np.arange(len(atom)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    left, destination = np.divmod(left, destinations.how_many[atom])
    left, source = np.divmod(left, sources.how_many[atom])
    sp_value, sp_mask = sources.pair(atom, source)
    dp_value, dp_mask = destinations.pair(atom, destination)
    return MaskedRules(atom, sp_value, sp_mask, dp_value, dp_mask, points.values[points.first[atom] + left])


def flow_counts(rules: RuleTable) -> Rows:
    """How many flow entries each atom becomes."""
    if len(rules) <= FEW:
        return np.array(few_counts(rules), np.intp)
    return mask_counts(rules) * _CodePoints.of(rules.word_value, rules.word_mask).how_many


def mask_counts(rules: RuleTable) -> Rows:
    """How many pairs of port masks each atom takes."""
    return _Covers.of(rules.sp_lo, rules.sp_hi).how_many * _Covers.of(rules.dp_lo, rules.dp_hi).how_many


_THE_ONE: Rows = np.zeros(1, np.intp)


class _Covers(NamedTuple):
    """For a column of port ranges: each one's first pair in `pairs`, and their number."""

    first: Rows
    how_many: Rows
    pairs: U16

    @classmethod
    def of(cls, low: U16, high: U16) -> _Covers:
        """Return the masks that cover each range, equal ranges once."""
        ends = low.astype(np.uint32) << 16 | high
        ranges, which = np.unique(ends, return_inverse=True) if len(ends) != 1 else (ends, _THE_ONE)
        owner, pairs = port_masks((ranges >> 16).astype(np.int64), (ranges & _ALL_16).astype(np.int64))
        counts = np.bincount(owner, minlength=len(ranges))
        return cls((np.cumsum(counts) - counts)[which], counts[which], pairs)

    def pair(self, atom: Rows, index: Rows) -> tuple[U16, U16]:
        """Return values and masks of the covers with these indices, an atom each."""
        found = self.pairs[self.first[atom] + index]
        return found[:, 0], found[:, 1]


class _CodePoints(NamedTuple):
    """For a column of words: each one's first code point in `values`, and their number."""

    first: Rows
    how_many: Rows
    values: npt.NDArray[np.int16]

    @classmethod
    def of(cls, value: U16, mask: U16) -> _CodePoints:
        """Return the code points that each masked word stands for, equal words once."""
        if not (mask >> DSCP_SHIFT).any():
            return cls(np.zeros(len(mask), np.intp), np.ones(len(mask), np.intp), np.array([ANY_BYTE], np.int16))
        distinct, which = np.unique(value.astype(np.uint32) << 16 | mask, return_inverse=True)
        words = [(each >> 16, each & _ALL_16) for each in distinct.tolist()]
        lists = [code_points_under(*word) or (ANY_BYTE,) for word in words]
        counts = np.array(list(map(len, lists)), np.intp)
        values = np.array(list(chain.from_iterable(lists)), np.int16)
        return cls((np.cumsum(counts) - counts)[which], counts[which], values)


def port_masks(low: Column, high: Column) -> tuple[Rows, U16]:
    """Return the masks (`policy.ports.masks`) of ranges: each pair's range, and pairs."""
    rounds = [np.empty((3, 0), np.int64)]
    owner, at = np.arange(len(low)), low
    while len(owner):
        aligned = (at | _PORTS) & -(at | _PORTS)
        fitting = np.int64(1) << np.frexp(high[owner] - at + 1)[1].astype(np.int64) - 1
        size = np.minimum(aligned, fitting)
        rounds.append(np.stack((owner, at, _PORTS - size)))
        left = at + size <= high[owner]
        owner, at = owner[left], (at + size)[left]
    owner, *pairs = np.concatenate(rounds, axis=1)
    order = np.argsort(owner, kind="stable")
    return owner[order], np.stack(pairs, axis=1)[order].astype(np.uint16)


def rule_flows(rules: RuleTable, stage: RuleStage, priority: U16, cookie: U64, meter: int = 0) -> FlowTable:
    """Encode a table's rules; `priority` and `cookie` have one value an atom.

    `meter` is that of the rules that log; where none does it is not looked at.
    """
    atom, match, length = encode_few(rules, stage.register) if len(rules) <= FEW else encode_many(rules, stage.register)
    return FlowTable(
        table=np.full(len(atom), stage.table, np.uint8),
        priority=priority[atom],
        cookie=cookie[atom],
        tenant=rules.tenant[atom],
        match_length=length,
        match=match,
        instructions=((rules.action[atom] != PERMIT) + 2 * rules.log[atom]).astype(np.uint32),
        instruction_set=doings(stage, meter) if rules.log.any() else (stage.permit, stage.deny),
    )


def encode_few(rules: RuleTable, register: Field | None) -> tuple[Rows, Column, Column]:
    """Return each flow entry's atom, match bytes padded to one width, and length."""
    rows, matches = few_matches(rules, register)
    if len(rows) > MOST_FLOWS:
        return encode_many(rules, register)  # which says of what rule there are too many
    lengths = list(map(len, matches))
    width = max(lengths, default=0)
    padded = bytearray().join([each.ljust(width, b"\0") for each in matches])
    match = np.frombuffer(padded, np.uint8).reshape(len(rows), width)
    return np.array(rows, np.intp), match, np.array(lengths, np.uint8)


def encode_many(rules: RuleTable, register: Field | None) -> tuple[Rows, Column, Column]:
    """Encode many rules by column, as `encode_few` does one by one."""
    masked = with_port_masks(rules)
    atom = masked.atom
    return atom, *_matches(rules if len(rules) == len(atom) else rules.take(atom), masked, register)


class _Part(NamedTuple):
    """One field of a layout: values and masks as columns of words.

    One word, or two for 128 bits.
    """

    field: Field
    value: tuple[Column, ...]
    mask: tuple[Column, ...] | None = None


def _matches(rules: RuleTable, masked: MaskedRules, register: Field | None) -> tuple[Column, Column]:
    """The match bytes of every row, zero-padded to one width, and their lengths."""
    groups = _layouts(rules, masked)
    packed = [_pack_matches(_parts(rules, masked, register, rows), len(rows)) for rows in groups]
    width = max((each.shape[1] for each in packed), default=0)
    match = np.zeros((len(rules), width), np.uint8)
    length = np.zeros(len(rules), np.uint8)
    for rows, each in zip(groups, packed, strict=True):
        match[rows, : each.shape[1]] = each
        length[rows] = each.shape[1]
    return match, length


def _layouts(rules: RuleTable, masked: MaskedRules) -> list[Rows]:
    """The rows of each layout."""
    if len(rules) < 2:
        return [np.arange(1)] if len(rules) else []
    codes, which = np.unique(_layout_codes(rules, masked), return_inverse=True)
    ordered = np.argsort(which, kind="stable")
    return np.split(ordered, np.searchsorted(which[ordered], np.arange(1, len(codes))))


def _layout_codes(rules: RuleTable, masked: MaskedRules) -> npt.NDArray[np.uint32]:
    """Return a number for each row, equal for rows of one layout.

    Every digit is one field's way of being matched.
    """
    bits = np.where(rules.family == 4, 32, 128)
    digits = (
        (rules.family == 6, 2),
        (_find_kinds(rules.src_len, bits), 3),
        (_find_kinds(rules.dst_len, bits), 3),
        (rules.frag, 3),
        (rules.protocol + 1, 257),  # which ports and ICMP fields there are depends on it
        (_find_kinds(masked.sp_mask, _ALL_16), 3),
        (_find_kinds(masked.dp_mask, _ALL_16), 3),
        (rules.word_mask & FLAG_BITS != 0, 2),
        (masked.dscp >= 0, 2),
        *((column >= 0, 2) for column in rules.icmp),
    )
    code = np.zeros(len(rules), np.uint32)
    for digit, radix in digits:
        code = code * radix + digit.astype(np.uint32)
    return code


def _find_kinds(looked_at: Column, everything: Column | int) -> Column:
    return np.where(looked_at == 0, _NO_MASK, np.where(looked_at == everything, _EXACT, _MASKED))


def _parts(rules: RuleTable, masked: MaskedRules, register: Field | None, rows: Rows) -> list[_Part]:
    """Return the fields of one layout in canonical order.

    `rows` are all the rows that have it.
    """
    first = rows[0]
    six, protocol = bool(rules.family[first] == 6), int(rules.protocol[first])
    parts = [_make_constant(oxm.ETH_TYPE, oxm.IPV6 if six else oxm.IPV4)]
    sides = ((rules.src_hi, rules.src_lo, rules.src_len), (rules.dst_hi, rules.dst_lo, rules.dst_len))
    fields = (oxm.IPV6_SRC, oxm.IPV6_DST) if six else (oxm.IPV4_SRC, oxm.IPV4_DST)
    for field, (upper, lower, length) in zip(fields, sides, strict=True):
        parts += _prefix(field, upper[rows], lower[rows], length[rows])
    if rules.frag[first] == FRAG_NOT_LATER:
        parts.append(_make_constant(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK))
    elif rules.frag[first] == FRAG_LATER:
        parts.append(_make_constant(oxm.IP_FRAG, oxm.FRAGMENT_LATER))
    if masked.dscp[first] >= 0:
        parts.append(_Part(oxm.IP_DSCP, (masked.dscp[rows],)))
    if protocol >= 0:
        parts.append(_make_constant(oxm.IP_PROTO, protocol))
    if protocol in PORT_FIELDS:
        ports = ((masked.sp_value, masked.sp_mask), (masked.dp_value, masked.dp_mask))
        for field, (value, mask) in zip(PORT_FIELDS[protocol], ports, strict=True):
            parts += _masked_field(field, value[rows], mask[rows], _ALL_16)
        flags, of_flags = (column[rows] & FLAG_BITS for column in (rules.word_value, rules.word_mask))
        parts += _masked_field(oxm.TCP_FLAGS, flags, of_flags, _ALL_16)
    for field, column in zip(ICMP_FIELDS.get(protocol, ()), rules.icmp, strict=False):
        if column[first] >= 0:
            parts.append(_Part(field, (column[rows],)))
    if register is not None:
        parts.append(_tenant(register, rules.tenant[rows]))
    return parts


def _make_constant(field: Field, value: int, mask: int | None = None) -> _Part:
    return _Part(field, (np.array(value),), None if mask is None else (np.array(mask),))


def _prefix(field: Field, upper: U64, lower: U64, length: Column) -> list[_Part]:
    """A side's prefix; IPv4 addresses lie in the upper 32 bits."""
    upper_mask = _leading(np.minimum(length, 64))
    if field.size == 4:
        return _masked_field(field, upper >> np.uint64(32), upper_mask >> np.uint64(32), 0xFFFFFFFF)
    if length[0] == 0:
        return []
    mask = None if length[0] == 128 else (upper_mask, _leading(np.maximum(length, 64) - 64))
    return [_Part(field, (upper, lower), mask)]


def _leading(length: Column) -> U64:
    """64-bit masks of the first `length` bits (0..64)."""
    shift = (64 - np.maximum(length, 1)).astype(np.uint64)
    return np.where(length == 0, np.uint64(0), np.uint64(_ALL_64) << shift)


def _masked_field(field: Field, value: Column, mask: Column, everything: int) -> list[_Part]:
    """Return a field under a mask.

    All rows look at it in the same way, so the first tells how.
    """
    if mask[0] == 0:
        return []
    return [_Part(field, (value,), None if mask[0] == everything else (mask,))]


def _tenant(register: Field, tenant: Column) -> _Part:
    """The tenant's number in one half of a packet register."""
    pair, lower = divmod(register.number, 2)
    shift = np.uint64(0 if lower else 32)
    value = tenant.astype(np.uint64) << shift
    return _Part(oxm.PACKET_REGISTERS[pair], (value,), (np.array(np.uint64(0xFFFFFFFF) << shift),))


def _pack_matches(parts: list[_Part], count: int) -> npt.NDArray[np.uint8]:
    """`count` matches of one layout as a (count, length) array of bytes."""
    names: list[tuple[str, str]] = []
    values: list[Column] = []
    for part in parts:
        words = part.value if part.mask is None else part.value + part.mask
        word = f">u{part.field.size // len(part.value)}"
        header = part.field.header if part.mask is None else part.field.masked_header
        values += (np.array(header), *words)
        names += [(f"f{len(names) + i}", ">u4" if i == 0 else word) for i in range(1 + len(words))]
    rows = np.empty(count, _make_row_type(tuple(names)))
    for (name, _), value in zip(names, values, strict=True):
        rows[name] = value
    return rows.view(np.uint8).reshape(count, rows.dtype.itemsize)


@cache
def _make_row_type(names: tuple[tuple[str, str], ...]) -> np.dtype[Any]:
    return np.dtype(list(names))
