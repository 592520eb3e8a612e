"""The packets of rules as sets by axis, read without the compiler's atoms.

    rule ──▶ want ── source ─────────▶ address set (a list of disjoint spans in each IP version)
                 ├── ports, or ICMP ─▶ port set     (a list of disjoint ranges)
                 ├── TCP flags, DSCP ─▶ word set     (a list of disjoint values under masks)
                 └── protocol, fragments, IP version, table

A rule's packets are every combination of one member from each axis. Tens of thousands of rules share few sets, and most
sides are one prefix; these go by columns, the others through `policy.spans`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.policy import spans
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.dscp import HIGHEST_CODE_POINT, list_code_points
from orchestrator.policy.fields import DSCP, DSCP_SHIFT, FRAGMENTS, NUMBERS, OF_ICMP
from orchestrator.policy.model import AddressGroup, Rule, resolve
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import only_family
from orchestrator.policy.spans import Span
from orchestrator.policy.tcpflags import FlagMatch

WANT = np.dtype(
    [
        ("side", np.uint32, (2,)),
        ("ports", np.uint32, (2,)),
        ("words", np.uint32),
        ("protocol", np.uint8, (2,)),
        ("fragments", np.uint8, (2,)),
        ("family", np.uint8),
        ("table", np.uint8),
        ("unused", np.uint8, (2,)),
    ]
)
"""`want` of the extension: places of its sets in the pools; lowest and highest; the only IP version (0: both)."""

_WANT_OCTETS = struct.Struct("<5I6B2x")
"""A row of `WANT`: for a few, NumPy takes longer to find out what is in a tuple."""

_FEW = 16
"""So many rules are looked at one by one."""
_SPAN = np.dtype([("low", np.uint64, (2,)), ("high", np.uint64, (2,))])
_HALF = (1 << 64) - 1
_WHOLE = (1 << 128) - 1
_ONES = np.uint64(_HALF)
_EVERY_PORT = [(0, HIGHEST_PORT)]
_ANY_WORD = [(0, 0)]
_KIND_OF = attrgetter(*(each.attribute for each in (*NUMBERS, DSCP, FRAGMENTS)), "established", "tcp_flags")
_ICMP_OF = attrgetter(*(each.attribute for each in OF_ICMP))


class Pool(NamedTuple):
    """Sets in one array: set i is the members `start[i]` to `start[i + 1]`."""

    start: npt.NDArray[np.uint32]
    members: npt.NDArray[Any]


class Wanted(NamedTuple):
    """A row of `WANT` a rule, and pools of sets.

    Address sets come in pairs: IPv4, IPv6.
    """

    wants: npt.NDArray[Any]
    addresses: Pool
    ports: Pool
    words: Pool


def expected_packets(rules: Sequence[Rule], table: Sequence[int], groups: Mapping[str, AddressGroup]) -> Wanted:
    """Return every rule's packets; `table` is the table of its flow entries."""
    return expect_one_by_one(rules, table, groups) if 0 < len(rules) <= _FEW else expect_by_column(rules, table, groups)


def expect_by_column(rules: Sequence[Rule], table: Sequence[int], groups: Mapping[str, AddressGroup]) -> Wanted:
    """Return the packets of many rules, computed by column."""
    wants = np.zeros(len(rules), WANT)
    if not rules:
        return Wanted(wants, _make_pool([], np.uint8), _make_pool([], np.uint16), _make_pool([], np.uint16))
    sides, wants["side"] = _number_objects([rule.source for rule in rules], [rule.destination for rule in rules])
    kinds, ports_of = _Kinds(), _Ports()
    kind = [kinds.number(rule) for rule in rules]
    wants["ports"][:, 0] = ports_of.numbers([rule.source_ports for rule in rules])
    wants["ports"][:, 1] = ports_of.numbers([rule.destination_ports for rule in rules])
    rows = np.array(kinds.rows, WANT)[kind]
    for name in ("words", "protocol", "family"):
        wants[name] = rows[name]
    for side, values in enumerate(zip(*map(_ICMP_OF, kinds.examples), strict=True)):
        sets = np.array([-1 if each is None else ports_of.one(each, each) for each in values], np.int64)[kind]
        wants["ports"][:, side] = np.where(sets < 0, wants["ports"][:, side], sets)
    whole_only = (wants["ports"] != 0).any(axis=1) | kinds.looking_at_flags()[kind]
    wants["fragments"][:, 0] = rows["fragments"][:, 0]
    wants["fragments"][:, 1] = ~whole_only
    wants["table"] = table
    return Wanted(wants, _make_address_pool(sides, groups), ports_of.pool(), kinds.word_pool())


def expect_one_by_one(rules: Sequence[Rule], table: Sequence[int], groups: Mapping[str, AddressGroup]) -> Wanted:
    """Return a few rules' packets, each with sets of its own.

    A column of one value takes as long as one of a thousand.
    """
    rows, words = [], []
    addresses: list[list[Span]] = []
    ports: list[list[tuple[int, int]]] = []
    for place, (rule, at) in enumerate(zip(rules, table, strict=True)):
        for side in (rule.source, rule.destination):
            spans_of = _spans_of(side, groups)
            addresses += [[span for six, span in spans_of if six == version] for version in (0, 1)]
        kind, code = _ICMP_OF(rule)
        own = _port_set(rule.source_ports, kind), _port_set(rule.destination_ports, code)
        ports += own
        words.append(_list_words(rule))
        whole_only = own != (_EVERY_PORT, _EVERY_PORT) or bool(rule.flag_matches)
        fragments = int(rule.fragments), int(not whole_only)
        two, family = (2 * place, 2 * place + 1), only_family(rule.protocol) or 0
        rows.append(_WANT_OCTETS.pack(*two, *two, place, *_read_protocols(rule), *fragments, family, at))
    spans_wanted = b"".join([_span_bytes(span) for each in addresses for span in each])
    pool = Pool(_sum_lengths(addresses), np.frombuffer(spans_wanted, _SPAN))
    return Wanted(np.frombuffer(b"".join(rows), WANT), pool, _make_pool(ports, np.uint16), _make_pool(words, np.uint16))


def _span_bytes(span: Span) -> bytes:
    """A row of `_SPAN`."""
    return (span.low | span.high << 128).to_bytes(_SPAN.itemsize, "little")


def _split_halves(value: int) -> tuple[int, int]:
    return value & _HALF, value >> 64


def _number_objects(ones: list[Any], others: list[Any]) -> tuple[list[Any], npt.NDArray[np.uint32]]:
    """Return two columns' distinct objects (not values), and their places, (n, 2)."""
    both = ones + others
    distinct = {id(each): each for each in both}
    number = dict(zip(distinct, range(len(distinct)), strict=True))
    which = np.fromiter(map(number.__getitem__, map(id, both)), np.uint32, len(both))
    return list(distinct.values()), which.reshape(2, -1).T


class _Kinds:
    """The distinct matches of rules besides addresses and ports."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._known: dict[object, int] = {}
        self.examples: list[Rule] = []
        self._word_sets: dict[tuple[tuple[FlagMatch, ...], int | None], int] = {}

    def number(self, rule: Rule) -> int:
        """Return the number of what a rule matches besides addresses and ports."""
        key = _KIND_OF(rule)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.rows)
            words = self._word_sets.setdefault((rule.flag_matches, rule.dscp), len(self._word_sets))
            fragments = (1, 1) if rule.fragments else (0, 1)
            family = only_family(rule.protocol) or 0
            self.rows.append(((0, 0), (0, 0), words, _read_protocols(rule), fragments, family, 0, (0, 0)))
            self.examples.append(rule)
        return found

    def looking_at_flags(self) -> npt.NDArray[np.bool_]:
        """Which kinds look at TCP flags."""
        return np.array([bool(each.flag_matches) for each in self.examples], np.bool_)

    def word_pool(self) -> Pool:
        return _make_pool([_combine_words(*asked) for asked in self._word_sets], np.uint16)


def _read_protocols(rule: Rule) -> tuple[int, int]:
    return (0, 255) if rule.protocol is None else (rule.protocol, rule.protocol)


def _list_words(rule: Rule) -> list[tuple[int, int]]:
    return _combine_words(rule.flag_matches, rule.dscp)


def _combine_words(flags: tuple[FlagMatch, ...], dscp: int | None) -> list[tuple[int, int]]:
    """Return TCP flags under masks, each with one code point or with all.

    Flow entries name one code point or none.
    """
    asked = [(each.value, each.mask) for each in flags] or _ANY_WORD
    if dscp is None:
        return asked
    points = [point << DSCP_SHIFT for point in list_code_points(dscp)]
    return [(value | point, mask | HIGHEST_CODE_POINT << DSCP_SHIFT) for value, mask in asked for point in points]


def _port_set(ports: tuple[PortRange, ...], exact: int | None) -> list[tuple[int, int]]:
    """The ports, or the one ICMP type or code, that a rule asks for."""
    return [(each.low, each.high) for each in ports] if exact is None else [(exact, exact)]


class _Ports:
    """Sets of ports, of ICMP types and of ICMP codes. Set 0 is every port."""

    def __init__(self) -> None:
        self._sets: list[Sequence[tuple[int, int]]] = [_EVERY_PORT]
        self._known = {(0, HIGHEST_PORT): 0}

    def numbers(self, column: Sequence[tuple[PortRange, ...]]) -> npt.NDArray[np.int64]:
        """Return each port list's set.

        Most are one range; these are identified by its ends.
        """
        ends = [
            HIGHEST_PORT if ports is EVERY_PORT else ports[0].low << 16 | ports[0].high if len(ports) == 1 else -1
            for ports in column
        ]
        distinct, which = np.unique(np.array(ends, np.int64), return_inverse=True)
        found: npt.NDArray[np.int64] = np.array(
            [-1 if each < 0 else self.one(each >> 16, each & HIGHEST_PORT) for each in distinct.tolist()], np.int64
        )[which]
        for place in np.flatnonzero(found < 0).tolist():
            found[place] = self.number(column[place])
        return found

    def number(self, ports: tuple[PortRange, ...]) -> int:
        """Which set a port list is."""
        if len(ports) == 1:
            return self.one(ports[0].low, ports[0].high)
        self._sets.append(_port_set(ports, None))
        return len(self._sets) - 1

    def one(self, low: int, high: int) -> int:
        """The set of one range."""
        number = self._known.setdefault((low, high), len(self._sets))
        if number == len(self._sets):
            self._sets.append([(low, high)])
        return number

    def pool(self) -> Pool:
        """Return all port sets as one pool for C."""
        return _make_pool(self._sets, np.uint16)


def _make_pool(sets: Sequence[Sequence[tuple[int, int]]], dtype: npt.DTypeLike) -> Pool:
    return Pool(_sum_lengths(sets), np.array([member for each in sets for member in each], dtype).reshape(-1, 2))


def _sum_lengths(sets: Sequence[Sequence[object]]) -> npt.NDArray[np.uint32]:
    return np.array([0, *accumulate(map(len, sets))], np.uint32)


def _make_address_pool(sides: Sequence[Addresses], groups: Mapping[str, AddressGroup]) -> Pool:
    single = np.array([len(side.prefixes) == 1 and not side.groups for side in sides], np.bool_)
    at = np.flatnonzero(single)
    ones = [sides[number].prefixes[0] for number in at.tolist()]
    six = np.array([one.family is Family.IPV6 for one in ones], np.bool_)
    several = np.flatnonzero(~single).tolist()
    found = [(2 * number + six, each) for number in several for six, each in _spans_of(sides[number], groups)]
    place = np.concatenate((2 * at + six, np.array([number for number, _ in found], np.int64)))
    count = np.bincount(place, minlength=2 * len(sides))
    start = np.concatenate(([0], np.cumsum(count))).astype(np.uint32)
    members = np.zeros(int(start[-1]), _SPAN)
    members[start[place[: len(at)]]] = _prefix_spans(ones, six)
    taken: dict[int, int] = {}
    for number, (low, high) in found:
        row = members[start[number] + taken.setdefault(number, 0)]
        taken[number] += 1
        row["low"], row["high"] = _split_halves(low), _split_halves(high)
    return Pool(start, members)


def _spans_of(side: Addresses, groups: Mapping[str, AddressGroup]) -> list[tuple[int, Span]]:
    """Return a side's disjoint spans, left-aligned in 128 bits, with their family.

    The family is whether it is IPv6.
    """
    if side.is_any:
        return [(0, Span(0, _WHOLE)), (1, Span(0, _WHOLE))]
    if len(side.prefixes) == 1 and not side.groups:
        (one,) = side.prefixes
        return [(int(one.family is Family.IPV6), _align_span(Span(one.network, one.last), 128 - one.family.bits))]
    return [
        (int(family is Family.IPV6), _align_span(span, 128 - family.bits))
        for family in Family
        for span in spans.union(Span(each.network, each.last) for each in resolve(side, groups, family))
    ]


def _align_span(span: Span, shift: int) -> Span:
    return Span(span.low << shift, (span.high + 1 << shift) - 1)


def _prefix_spans(prefixes: Sequence[Prefix], six: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Prefixes as spans, left-aligned in 128 bits; `six` says which are of IPv6."""
    behind = 128 - np.array([each.length for each in prefixes], np.int64)
    rows = np.zeros(len(prefixes), _SPAN)
    if six.any():
        networks = [each.network << (96 if each.family is Family.IPV4 else 0) for each in prefixes]
        rows["low"][:, 0] = [each & _HALF for each in networks]
        rows["low"][:, 1] = [each >> 64 for each in networks]
    else:
        rows["low"][:, 1] = np.array([each.network for each in prefixes], np.uint64) << np.uint64(32)
    rows["high"][:, 0] = rows["low"][:, 0] | _ones(np.minimum(behind, 64))
    rows["high"][:, 1] = rows["low"][:, 1] | _ones(np.maximum(behind, 64) - 64)
    return rows


def _ones(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return words with ones in their lowest `bits` bits (0..64)."""
    found = np.right_shift(_ONES, (64 - np.maximum(bits, 1)).astype(np.uint64))
    return np.where(bits == 0, np.uint64(0), found)
