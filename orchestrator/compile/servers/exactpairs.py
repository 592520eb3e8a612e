"""Exact pairs: permits between two addresses, which a hash set holds by the million.

    hosts      source . destination                                    any protocol, later fragments too
    services   source . destination . protocol . destination port      TCP, UDP and SCTP

A pair is asked ahead of its list, so only those are taken out that no earlier deny may meet: told by addresses alone,
which leaves a pair in its list rather than lift one that a deny is about. The list then permits whatever a pair
permits, so for verdicts it makes no difference where it stands. Pairs are not counted rule by rule: hosts, which hold
the whole list, count them.

    key     source, destination (network order), and for services the protocol and the port, each padded to 4 bytes

is the element of a set of nftables as the kernel holds it, and the match of a row of a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.filters.filterlists import FilterList
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import WITH_PORTS
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import ANY_BYTE, FRAG_ANY, FRAG_NOT_LATER, PERMIT, RuleTable

Keys = npt.NDArray[np.uint8]
"""(n, key_bytes) bytes."""
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PairSet:
    """One set: its name, its table in a program, and its elements' fields.

    `element_bytes`: the size of an element that is not an address pair; 0: it follows from what it names.
    """

    name: str
    table: int
    family: Family
    names_service: bool
    element_bytes: int = 0

    @property
    def key_bytes(self) -> int:
        """Bytes of an element."""
        return self.element_bytes or self.family.bits // 4 + (8 if self.names_service else 0)


HOSTS4 = PairSet("hosts", 6, Family.IPV4, names_service=False)
HOSTS6 = PairSet("hosts", 7, Family.IPV6, names_service=False)
SERVICES4 = PairSet("services", 8, Family.IPV4, names_service=True)
SERVICES6 = PairSet("services", 9, Family.IPV6, names_service=True)
PAIR_SETS = (HOSTS4, HOSTS6, SERVICES4, SERVICES6)

_COOKIE_BITS = 16
"""Elements are spread over so many cookies: 512 buckets of a program, which share 8 shelves, whatever there is."""
_MIXER = np.uint64(0x9E3779B97F4A7C15)


def taken_out(each: FilterList) -> tuple[FilterList, Mapping[PairSet, Keys]]:
    """Return a list without its exact pairs, and the pairs, one for each rule."""
    rules = each.rules
    found: dict[PairSet, Keys] = {}
    gone = np.zeros(len(rules), np.bool_)
    for kind in PAIR_SETS:
        mine = pairs_of_kind(rules, kind) & _owned_destinations(rules, each.prefixes, kind.family)
        mine = _unmet(rules, mine)
        if mine.any():
            found[kind] = pair_keys(rules.take(mine), kind)
            gone |= mine
    if not found:
        return each, {}
    return FilterList(each.stage, each.tenant, each.prefixes, rules.take(~gone), each.kind[~gone], each.default), found


def pairs_alone(rules: RuleTable, prefixes: Iterable[Prefix]) -> Mapping[PairSet, Keys] | None:
    """Return the pairs that rows are, if nothing else, with no deny before them."""
    found: dict[PairSet, Keys] = {}
    for kind in PAIR_SETS:
        mine = pairs_of_kind(rules, kind) & _owned_destinations(rules, prefixes, kind.family)
        if mine.any():
            found[kind] = pair_keys(rules.take(mine), kind)
    return found if sum(map(len, found.values())) == len(rules) else None


def is_met(pairs: RuleTable, denies: RuleTable) -> bool:
    """Return whether a few pairs overlap one of many denies."""
    for place in range(len(pairs)):
        meets = denies.family == pairs.family[place]
        for side in ("src", "dst"):
            columns = (getattr(table, f"{side}_{half}") for half in ("hi", "lo") for table in (denies, pairs))
            theirs_high, high, theirs_low, low = columns
            for part, mine, first in ((theirs_high, high[place], 0), (theirs_low, low[place], 64)):
                meets &= ((part ^ mine) & _leading(getattr(denies, f"{side}_len"), first)) == 0
        if meets.any():
            return True
    return False


def _leading(length: npt.NDArray[np.uint8], first: int) -> npt.NDArray[np.uint64]:
    """Return the bits that prefixes match, of the 64 from bit `first`."""
    bits = np.clip(length.astype(np.int64) - first, 0, 64)
    mask: npt.NDArray[np.uint64] = np.where(bits == 0, 0, ~np.uint64(0) << (64 - np.maximum(bits, 1)).astype(np.uint64))
    return mask


def pair_rows(kind: PairSet, keys: Keys, tenant: int) -> FlowTable:
    """A tenant's pairs as rows of a program."""
    count = len(keys)
    base = np.uint64(Cookie(Tier.SERVER, Kind.STRUCTURE).pack())
    return FlowTable(
        np.full(count, kind.table, np.uint8),
        np.zeros(count, np.uint16),
        base + (_mix_keys(keys) >> np.uint64(64 - _COOKIE_BITS)),
        np.full(count, tenant, np.uint32),
        np.full(count, kind.key_bytes, np.uint8),
        keys,
        np.zeros(count, np.uint32),
        (b"",),
    )


def keys_of(rows: FlowTable, kind: PairSet) -> Keys:
    """The elements of one set among the rows of a program."""
    return np.ascontiguousarray(rows.match[rows.table == kind.table, : kind.key_bytes])


def join_keys(parts: Iterable[Keys], kind: PairSet) -> Keys:
    """Join several arrays of keys."""
    return np.concatenate([np.empty((0, kind.key_bytes), np.uint8), *parts])


def pairs_of_kind(rules: RuleTable, kind: PairSet) -> Bits:
    """Return a mask of the permits that a kind of set can hold."""
    bits = kind.family.bits
    found: Bits = (rules.family == kind.family.value) & (rules.action == PERMIT)
    found &= (rules.src_len == bits) & (rules.dst_len == bits) & (rules.word_mask == 0)
    found &= (rules.sp_lo == 0) & (rules.sp_hi == HIGHEST_PORT)
    for column in rules.icmp:
        found &= column < 0
    if kind.names_service:
        found &= np.isin(rules.protocol, sorted(WITH_PORTS)) & (rules.dp_lo == rules.dp_hi)
        found &= rules.frag == FRAG_NOT_LATER
        return found
    any_port = (rules.dp_lo == 0) & (rules.dp_hi == HIGHEST_PORT)
    found &= (rules.protocol == ANY_BYTE) & any_port & (rules.frag == FRAG_ANY)
    return found


def _owned_destinations(rules: RuleTable, prefixes: Iterable[Prefix], family: Family) -> Bits:
    """Whether a destination is the tenant's own: of others its list is not asked."""
    found = np.zeros(len(rules), np.bool_)
    for prefix in prefixes:
        if prefix.family is family:
            found |= _within(rules.dst_hi, rules.dst_lo, *_halves(prefix), prefix.length, family)
    return found


def _unmet(rules: RuleTable, mine: Bits) -> Bits:
    """Return those of some rows that share no address pair with earlier denies."""
    left = mine.copy()
    for place in np.flatnonzero(rules.action != PERMIT).tolist():
        behind = slice(place + 1, None)
        if not left[behind].any():
            return left
        family = Family(int(rules.family[place]))
        meets = rules.family[behind] == family.value
        for side in ("src", "dst"):
            high, low = getattr(rules, f"{side}_hi"), getattr(rules, f"{side}_lo")
            length = int(getattr(rules, f"{side}_len")[place])
            meets &= _within(high[behind], low[behind], int(high[place]), int(low[place]), length, family)
        left[behind] &= ~meets
    return left


def _halves(prefix: Prefix) -> tuple[int, int]:
    """Return both halves of a network as columns, the leading 64 bits first."""
    network = prefix.network << (128 - prefix.family.bits)
    return network >> 64, network & ((1 << 64) - 1)


def _within(
    high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64], net_high: int, net_low: int, length: int, family: Family
) -> Bits:
    """Which addresses lie in a prefix."""
    mask = ((1 << length) - 1) << (128 - length)
    upper, lower = np.uint64(mask >> 64), np.uint64(mask & ((1 << 64) - 1))
    found: Bits = (high & upper) == (np.uint64(net_high) & upper)
    return found if family is Family.IPV4 else found & ((low & lower) == (np.uint64(net_low) & lower))


def pair_keys(rules: RuleTable, kind: PairSet) -> Keys:
    """Return the set elements of rules, one row each."""
    sides = [(rules.src_hi, rules.src_lo), (rules.dst_hi, rules.dst_lo)]
    if kind.family is Family.IPV4:
        parts = [(high >> np.uint64(32)).astype(">u4") for high, _ in sides]
    else:
        parts = [half.astype(">u8") for side in sides for half in side]
    columns = [part.view(np.uint8).reshape(len(rules), -1) for part in parts]
    if kind.names_service:
        service = np.zeros((len(rules), 8), np.uint8)
        service[:, 0] = rules.protocol
        service[:, 4:6] = rules.dp_lo.astype(">u2").view(np.uint8).reshape(-1, 2)
        columns.append(service)
    return np.concatenate(columns, axis=1)


def _mix_keys(keys: Keys) -> npt.NDArray[np.uint64]:
    """A number for each key whose upper bits depend on all bytes."""
    words = np.ascontiguousarray(keys).view("<u4").astype(np.uint64)
    found = np.zeros(len(keys), np.uint64)
    for column in words.T:
        found = (found ^ column) * _MIXER
        found ^= found >> np.uint64(29)
    return found * _MIXER
