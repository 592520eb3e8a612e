"""From rules to atoms: the rows of a `RuleTable`.

A rule is the union of its families x sources x destinations x port ranges x words (`fields.WORD`). Prefixes of one
side are aggregated first and port ranges are disjoint by construction, so the atoms of a rule are disjoint and no
packet is in two of them.

Lists hold tens of thousands of rules, so Python hardly touches a single one: attributes are read as columns.
Sides, port lists and kinds (everything else that a rule matches) are laid down once for each distinct object in a
`_Pool`, and NumPy gathers and multiplies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _columns
from orchestrator.compile.cookies import HIGHEST_NUMBER, LEAVES
from orchestrator.compile.openflow.fewrules import ACTIONS, DIRECTIONS, FEW, Atom, few_atoms, table_of
from orchestrator.errors import BadPolicy, TooLarge
from orchestrator.policy.addresses import Addresses, Family, Prefix, aggregate
from orchestrator.policy.fields import BITS_AXES, Kind
from orchestrator.policy.maskedword import words_of_rule
from orchestrator.policy.model import AddressGroup, ReturnTraffic, Rule, resolve
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.ports import HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import only_family
from orchestrator.program.rules import (
    ANY_BYTE,
    FRAG_ANY,
    FRAG_LATER,
    FRAG_NOT_LATER,
    RuleTable,
)

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


def distinct(objects: Sequence[Any], *names: str) -> tuple[list[Any], Indices]:
    """Return the distinct values of attributes, and each object's index into them.

    Values count as distinct when they are different objects.
    """
    values, which = _columns.distinct(objects, names)
    return values, np.frombuffer(which, np.int64)


def prefix_words(prefixes: Sequence[Prefix]) -> Words:
    """Return (n, 4) words: family, both halves of the network in 128 bits, length."""
    return np.frombuffer(_columns.prefixes(prefixes), np.uint64).reshape(-1, 4)


def range_words(ranges: Sequence[PortRange]) -> Words:
    """(n, 2): the lowest and the highest port."""
    return np.frombuffer(_columns.ranges(ranges), np.uint64).reshape(-1, 2)


MOST_ATOMS = 2_000_000
"""What one list may expand to; beyond, a few wide rules would take all the memory there is."""

_FEW_NUMBERS = 64
"""So many rules are asked for their numbers one by one."""


def atoms(
    rules: Sequence[Rule],
    groups: Mapping[str, AddressGroup],
    *,
    tenant: int = 0,
    numbers: Mapping[str, int] | None = None,
) -> RuleTable:
    """The atoms of a list, ordered by rule, then family.

    `numbers` gives every rule its number, which may have the part `LEAVES` (None: all are 0). Raises BadPolicy if one
    is missing or does not fit into a cookie, TooLarge if the rules expand to more than `MOST_ATOMS` rows.
    """
    number = _number_rules(rules, numbers)
    few = few_atoms(rules, groups, tenant, number)
    if few is not None and len(few) <= MOST_ATOMS:
        return table_of(few)
    return atoms_by_column(rules, groups, tenant, np.array(number, np.uint64))


def atoms_one_by_one(
    rules: Sequence[Rule], groups: Mapping[str, AddressGroup], *, tenant: int, numbers: Mapping[str, int]
) -> list[Atom] | None:
    """Return a few rules' atoms as values; None for many.

    Raises BadPolicy as `atoms` does.
    """
    return few_atoms(rules, groups, tenant, _number_rules(rules, numbers)) if len(rules) <= FEW else None


def atoms_by_column(
    rules: Sequence[Rule], groups: Mapping[str, AddressGroup], tenant: int, number: npt.NDArray[np.uint64]
) -> RuleTable:
    """Return the atoms of many rules, computed by column."""
    sides, source, destination = _both(rules, "source", "destination")
    ports, source_ports, destination_ports = _both(rules, "source_ports", "destination_ports")
    directions, direction_of = distinct(rules, "direction")
    actions, action_of = distinct(rules, "action")
    logs, log_of = distinct(rules, "log")
    kinds = _Kinds.of(rules)
    listed = _Listed(
        source=source,
        destination=destination,
        source_ports=source_ports,
        destination_ports=destination_ports,
        kind=kinds.of_rule,
        direction=np.array([DIRECTIONS[each] for each in directions], np.uint8)[direction_of],
        action=np.array([ACTIONS[each] for each in actions], np.uint8)[action_of],
        log=np.array(logs, np.uint8)[log_of],
    )
    pools = _Pools(_side_pool(sides, groups), _port_pool(ports), kinds)
    return _expand_rules(listed, pools, tenant, number)


def _number_rules(rules: Sequence[Rule], numbers: Mapping[str, int] | None) -> list[int]:
    if numbers is None:
        return [0] * len(rules)
    if isinstance(numbers, RuleNumbers) and len(rules) > _FEW_NUMBERS:
        numbers = numbers.as_dict()
    known = list(map(numbers.get, map(attrgetter("id"), rules), repeat(0)))
    if known and (min(known) < 1 or max(known) > HIGHEST_NUMBER):
        wrong = [place for place, number in enumerate(known) if not 1 <= number & ~LEAVES <= HIGHEST_NUMBER]
        if not wrong:
            return known
        position = wrong[0]
        reason = f"rule '{rules[position].id}' has no number, or not one in 1..{HIGHEST_NUMBER}"
        raise BadPolicy(reason, place=f"rules[{position}].id")
    return known


def _both(rules: Sequence[Rule], one: str, other: str) -> tuple[list[Any], Indices, Indices]:
    """Return the distinct values of two attributes, and each rule's index for both."""
    first, which = distinct(rules, one)
    second, which_too = distinct(rules, other)
    return first + second, which, which_too + len(first)


class _Listed(NamedTuple):
    """A row a rule: places in the pools, direction, action and whether it logs."""

    source: Indices
    destination: Indices
    source_ports: Indices
    destination_ports: Indices
    kind: Indices
    direction: npt.NDArray[np.uint8]
    action: npt.NDArray[np.uint8]
    log: npt.NDArray[np.uint8]


class _Pool(NamedTuple):
    """Lists of rows in one array: list i is the `size[i]` rows from `start[i]`."""

    start: Indices
    size: Indices
    columns: tuple[Words, ...]

    @classmethod
    def of(cls, owner: Indices, owners: int, columns: tuple[Words, ...]) -> _Pool:
        """Rows that say which list each belongs to."""
        order = np.argsort(owner, kind="stable")
        size = np.bincount(owner, minlength=owners)
        return cls(np.cumsum(size) - size, size, tuple(column[order] for column in columns))


class _Pools(NamedTuple):
    """The columns that rules are assembled from."""

    sides: _Pool
    ports: _Pool
    kinds: _Kinds


_FAMILIES = np.array(list(Family), np.uint64)


def _side_pool(sides: list[Addresses], groups: Mapping[str, AddressGroup]) -> _Pool:
    """Return sides as lists of prefixes (upper half, lower half, length).

    Of side i, list 2i is of IPv4, 2i + 1 of IPv6.
    """
    lists, list_of = distinct(sides, "prefixes")
    named, named_of = distinct(sides, "groups")
    single = (np.fromiter(map(len, lists), np.intp, len(lists)) == 1)[list_of]
    single &= (np.fromiter(map(len, named), np.intp, len(named)) == 0)[named_of]
    alone = np.flatnonzero(single)  # nearly all, and then there is nothing to aggregate
    prefixes = list(map(itemgetter(0), map(lists.__getitem__, list_of[alone].tolist())))
    several = np.flatnonzero(~single).tolist()
    resolved = _resolve_sides([sides[place] for place in several], groups)
    prefixes += [prefix for each in resolved for prefix in each]
    owner = np.concatenate((alone, np.repeat(np.array(several, np.int64), [len(each) for each in resolved])))
    words = prefix_words(prefixes)
    list_number = owner * len(_FAMILIES) + np.searchsorted(_FAMILIES, words[:, 0])
    return _Pool.of(list_number, len(sides) * len(_FAMILIES), (words[:, 1], words[:, 2], words[:, 3]))


def _resolve_sides(sides: list[Addresses], groups: Mapping[str, AddressGroup]) -> list[tuple[Prefix, ...]]:
    """Return the prefixes of sides in both families.

    Groups may be large, so equal sides that name some are resolved once.
    """
    known: dict[Addresses, tuple[Prefix, ...]] = {}
    found = []
    for side in sides:
        prefixes = known.get(side) if side.groups else None
        if prefixes is None:
            prefixes = tuple(each for family in Family for each in aggregate(resolve(side, groups, family)))
            if side.groups:
                known[side] = prefixes
        found.append(prefixes)
    return found


def _port_pool(lists: list[tuple[PortRange, ...]]) -> _Pool:
    """Port lists as ranges (low, high)."""
    words = range_words(list(chain.from_iterable(lists)))
    owner = np.repeat(np.arange(len(lists)), np.fromiter(map(len, lists), np.intp, len(lists)))
    return _Pool.of(owner, len(lists), (words[:, 0], words[:, 1]))


_KIND = (*(field.attribute for field in BITS_AXES if field.kind is not Kind.BITS), "established", "tcp_flags")
"""The attributes of a rule that are its kind; the last two are what it asks of TCP flags."""


class _Kinds(NamedTuple):
    """The distinct matches of rules besides addresses and ports.

    `words` are lists of (value, mask).

    `family` is the only one the kind can match in (0: both), `frag` what it asks of fragments, ports not counted in.
    """

    of_rule: Indices
    protocol: npt.NDArray[np.int16]
    icmp_type: npt.NDArray[np.int16]
    icmp_code: npt.NDArray[np.int16]
    frag: npt.NDArray[np.uint8]
    family: npt.NDArray[np.uint8]
    words: _Pool

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> _Kinds:
        """Find what rules match besides addresses and ports, each kind once."""
        keys, of_rule = distinct(rules, *_KIND)
        example = np.empty(len(keys), np.int64)
        example[of_rule] = np.arange(len(rules))
        kinds = [rules[place] for place in example.tolist()]
        words = [(number, each) for number, rule in enumerate(kinds) for each in words_of_rule(rule)]
        values = np.array([each for _, each in words], np.uint64).reshape(-1, 2)
        return cls(
            of_rule=of_rule,
            protocol=np.array([_replace_none(rule.protocol) for rule in kinds], np.int16),
            icmp_type=np.array([_replace_none(rule.icmp_type) for rule in kinds], np.int16),
            icmp_code=np.array([_replace_none(rule.icmp_code) for rule in kinds], np.int16),
            frag=np.array([_number_fragments(rule) for rule in kinds], np.uint8),
            family=np.array([only_family(rule.protocol) or 0 for rule in kinds], np.uint8),
            words=_Pool.of(
                np.array([number for number, _ in words], np.int64), len(kinds), (values[:, 0], values[:, 1])
            ),
        )


def _replace_none(value: int | None) -> int:
    return ANY_BYTE if value is None else value


def _number_fragments(rule: Rule) -> int:
    if rule.fragments:
        return FRAG_LATER
    return FRAG_NOT_LATER if rule.flag_matches or rule.icmp_type is not None else FRAG_ANY


def _expand_rules(listed: _Listed, pools: _Pools, tenant: int, numbers: Words) -> RuleTable:
    """Every combination of what the rules list."""
    rule, version = _units(listed, pools)
    parts = _combinations(rule, version, listed, pools)
    rule, version = rule[parts.unit], version[parts.unit]
    kind = listed.kind[rule]
    src_hi, src_lo, src_len = (column[parts.source] for column in pools.sides.columns)
    dst_hi, dst_lo, dst_len = (column[parts.destination] for column in pools.sides.columns)
    low, high = (column.astype(np.uint16) for column in pools.ports.columns)
    sp_lo, sp_hi, dp_lo, dp_hi = (
        ends[rows] for rows in (parts.source_ports, parts.destination_ports) for ends in (low, high)
    )
    with_ports = (sp_lo > 0) | (sp_hi < HIGHEST_PORT) | (dp_lo > 0) | (dp_hi < HIGHEST_PORT)
    word_value, word_mask = (column[parts.words].astype(np.uint16) for column in pools.kinds.words.columns)
    return RuleTable(
        order=rule.astype(np.uint32),
        number=numbers[rule],
        tenant=np.full(len(rule), tenant, np.uint32),
        direction=listed.direction[rule],
        action=listed.action[rule],
        family=_FAMILIES.astype(np.uint8)[version],
        protocol=pools.kinds.protocol[kind],
        src_hi=src_hi,
        src_lo=src_lo,
        src_len=src_len.astype(np.uint8),
        dst_hi=dst_hi,
        dst_lo=dst_lo,
        dst_len=dst_len.astype(np.uint8),
        sp_lo=sp_lo,
        sp_hi=sp_hi,
        dp_lo=dp_lo,
        dp_hi=dp_hi,
        icmp_type=pools.kinds.icmp_type[kind],
        icmp_code=pools.kinds.icmp_code[kind],
        word_value=word_value,
        word_mask=word_mask,
        frag=np.where(with_ports, np.uint8(FRAG_NOT_LATER), pools.kinds.frag[kind]),
        log=listed.log[rule],
    )


def _units(listed: _Listed, pools: _Pools) -> tuple[Indices, Indices]:
    """Return the rules and families in which they can match, ordered by rule.

    Families are places in `Family`.
    """
    only, size = pools.kinds.family[listed.kind], pools.sides.size.reshape(-1, len(_FAMILIES))
    can = (size[listed.source] > 0) & (size[listed.destination] > 0)
    can &= (only[:, None] == 0) | (only[:, None] == _FAMILIES)
    rule, version = np.nonzero(can)
    return rule, version


class _Parts(NamedTuple):
    """One row an atom: the unit it belongs to and its rows in the pools."""

    unit: Indices
    source: Indices
    destination: Indices
    source_ports: Indices
    destination_ports: Indices
    words: Indices


def _combinations(rule: Indices, version: Indices, listed: _Listed, pools: _Pools) -> _Parts:
    """Number the combinations of every unit and take the numbers apart as mixed-radix digits."""
    axes = [
        (pool.start[lists], pool.size[lists])
        for pool, lists in (
            (pools.sides, listed.source[rule] * len(_FAMILIES) + version),
            (pools.sides, listed.destination[rule] * len(_FAMILIES) + version),
            (pools.ports, listed.source_ports[rule]),
            (pools.ports, listed.destination_ports[rule]),
            (pools.kinds.words, listed.kind[rule]),
        )
    ]
    counts = np.ones(len(rule))
    for _, count in axes:
        counts *= count
    if counts.sum() > MOST_ATOMS:
        raise TooLarge(
            f"the list needs {counts.sum():.0f} matches, over {MOST_ATOMS}; this rule needs the most of them",
            place=f"rules[{int(rule[int(counts.argmax())])}]",
        )
    repeats = counts.astype(np.int64)
    if repeats.max(initial=1) == 1:  # which the rest gives too, but many lists are such
        return _Parts(np.arange(len(rule)), *(start for start, _ in axes))
    unit = np.repeat(np.arange(len(rule)), repeats)
    left = np.arange(len(unit)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    rows = []
    for start, count in reversed(axes):
        left, digit = np.divmod(left, count[unit])
        rows.append(start[unit] + digit)
    return _Parts(unit, *reversed(rows))


def return_atoms(tenant: int, returns: ReturnTraffic) -> RuleTable:
    """The return-traffic rules of both directions, as rows of a tenant's lists."""
    return atoms(return_rules(returns), {}, tenant=tenant)
