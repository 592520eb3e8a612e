"""From rules to atoms: the rows of a `RuleTable`.

A rule is the union of its families x sources x destinations x port ranges x flag matches. Prefixes of one side are
aggregated first and port ranges are disjoint by construction, so the atoms of a rule are disjoint and no packet is in
two of them.

Lists hold tens of thousands of rules, so Python touches each rule only to fetch its attributes, a column at a time.
Sides, port lists and kinds (everything else that a rule matches) are laid down once for each distinct object in a
`_Pool`, and NumPy gathers and multiplies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import HIGHEST_NUMBER
from orchestrator.errors import BadPolicy, TooLarge
from orchestrator.policy.addresses import Addresses, Family, Prefix, aggregate
from orchestrator.policy.model import Action, AddressGroup, Direction, Rule, resolve
from orchestrator.policy.ports import HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import only_family
from orchestrator.program.rules import (
    ANY_BYTE,
    DENY,
    EGRESS,
    FRAG_ANY,
    FRAG_LATER,
    FRAG_NOT_LATER,
    INGRESS,
    PERMIT,
    RuleTable,
)

MOST_ATOMS = 2_000_000
"""What one list may expand to; beyond, a few wide rules would take all the memory there is."""

_HALF = (1 << 64) - 1
Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Thing = TypeVar("Thing")


def atoms(
    rules: Sequence[Rule],
    groups: Mapping[str, AddressGroup],
    *,
    tenant: int = 0,
    numbers: Mapping[str, int] | None = None,
) -> RuleTable:
    """The atoms of a list, ordered by rule, then family.

    `numbers` gives every rule its number (None: all are 0). Raises BadPolicy if one is missing or does not fit into a
    cookie, TooLarge if the rules expand to more than `MOST_ATOMS` rows.
    """
    sides, side_of = _distinct([rule.source for rule in rules] + [rule.destination for rule in rules])
    ports, ports_of = _distinct([rule.source_ports for rule in rules] + [rule.destination_ports for rule in rules])
    kinds = _Kinds.of(rules)
    listed = _Listed(
        source=side_of[: len(rules)],
        destination=side_of[len(rules) :],
        source_ports=ports_of[: len(rules)],
        destination_ports=ports_of[len(rules) :],
        kind=kinds.of_rule,
        direction=np.array([INGRESS if rule.direction is Direction.INGRESS else EGRESS for rule in rules], np.uint8),
        action=np.array([PERMIT if rule.action is Action.PERMIT else DENY for rule in rules], np.uint8),
    )
    pools = _Pools(_side_pools(sides, groups), _port_pool(ports), kinds)
    return _expanded(listed, pools, tenant, _numbers(rules, numbers))


def _numbers(rules: Sequence[Rule], numbers: Mapping[str, int] | None) -> npt.NDArray[np.uint64]:
    if numbers is None:
        return np.zeros(len(rules), np.uint64)
    known = [numbers.get(rule.id, 0) for rule in rules]
    if known and (min(known) < 1 or max(known) > HIGHEST_NUMBER):
        position = next(position for position, number in enumerate(known) if not 1 <= number <= HIGHEST_NUMBER)
        reason = f"rule '{rules[position].id}' has no number, or not one in 1..{HIGHEST_NUMBER}"
        raise BadPolicy(reason, place=f"rules[{position}].id")
    return np.array(known, np.uint64)


def _distinct(objects: list[Thing]) -> tuple[list[Thing], Indices]:
    """The distinct objects (not values) of a list, and for each element which of them it is."""
    identities = np.fromiter(map(id, objects), np.int64, len(objects))
    _, first, which = np.unique(identities, return_index=True, return_inverse=True)
    return [objects[position] for position in first.tolist()], which


class _Listed(NamedTuple):
    """A row a rule: places in the pools, direction and action."""

    source: Indices
    destination: Indices
    source_ports: Indices
    destination_ports: Indices
    kind: Indices
    direction: npt.NDArray[np.uint8]
    action: npt.NDArray[np.uint8]


class _Pool(NamedTuple):
    """Lists of rows, one after the other: list i is the `size[i]` rows from `start[i]` on."""

    start: Indices
    size: Indices
    columns: tuple[Words, ...]

    @classmethod
    def of(cls, owner: Sequence[int], owners: int, columns: tuple[Words, ...]) -> _Pool:
        """Rows that say which list each belongs to."""
        order = np.argsort(np.array(owner, np.int64), kind="stable")
        size = np.bincount(np.array(owner, np.int64), minlength=owners)
        return cls(np.cumsum(size) - size, size, tuple(column[order] for column in columns))


class _Pools(NamedTuple):
    """What the rules of a list are put together from."""

    sides: Mapping[Family, _Pool]
    ports: _Pool
    kinds: _Kinds


def _side_pools(sides: list[Addresses], groups: Mapping[str, AddressGroup]) -> Mapping[Family, _Pool]:
    """Sides as lists of prefixes (upper half, lower half, length), a pool a family."""
    owners: dict[Family, list[int]] = {family: [] for family in Family}
    prefixes: dict[Family, list[Prefix]] = {family: [] for family in Family}
    for number, side in enumerate(sides):
        if len(side.prefixes) == 1 and not side.groups:  # nearly always, and then there is nothing to aggregate
            prefix = side.prefixes[0]
            owners[prefix.family].append(number)
            prefixes[prefix.family].append(prefix)
        else:
            for family in Family:
                several = aggregate(resolve(side, groups, family))
                owners[family] += [number] * len(several)
                prefixes[family] += several
    return {
        family: _Pool.of(owners[family], len(sides), _prefix_columns(family, prefixes[family])) for family in Family
    }


def _prefix_columns(family: Family, prefixes: list[Prefix]) -> tuple[Words, ...]:
    length = np.array([prefix.length for prefix in prefixes], np.uint64)
    if family is Family.IPV4:
        network = np.array([prefix.network for prefix in prefixes], np.uint64)
        return network << np.uint64(32), np.zeros(len(prefixes), np.uint64), length
    upper = np.array([prefix.network >> 64 for prefix in prefixes], np.uint64)
    lower = np.array([prefix.network & _HALF for prefix in prefixes], np.uint64)
    return upper, lower, length


def _port_pool(lists: list[tuple[PortRange, ...]]) -> _Pool:
    """Port lists as ranges (low, high)."""
    owner = [number for number, ports in enumerate(lists) for _ in ports]
    ranges = [each for ports in lists for each in ports]
    low = np.array([each.low for each in ranges], np.uint64)
    return _Pool.of(owner, len(lists), (low, np.array([each.high for each in ranges], np.uint64)))


_KIND_OF = attrgetter("protocol", "icmp_type", "icmp_code", "established", "tcp_flags", "fragments")


class _Kinds(NamedTuple):
    """What rules match besides addresses and ports, a row a distinct kind; `flags` are lists of (value, mask).

    `family` is the only one the kind can match in (0: both), `frag` what it asks of fragments, ports not counted in.
    """

    of_rule: Indices
    protocol: npt.NDArray[np.int16]
    icmp_type: npt.NDArray[np.int16]
    icmp_code: npt.NDArray[np.int16]
    frag: npt.NDArray[np.uint8]
    family: npt.NDArray[np.uint8]
    flags: _Pool

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> _Kinds:
        keys = list(map(_KIND_OF, rules))
        examples = dict(zip(keys, rules, strict=True))
        numbers = {key: number for number, key in enumerate(examples)}
        kinds = list(examples.values())
        flags = [(number, each) for number, rule in enumerate(kinds) for each in rule.flag_matches or (_NO_FLAGS,)]
        values = np.array([(each.value, each.mask) for _, each in flags], np.uint64).reshape(-1, 2)
        return cls(
            of_rule=np.array([numbers[key] for key in keys], np.int64),
            protocol=np.array([_or_any(rule.protocol) for rule in kinds], np.int16),
            icmp_type=np.array([_or_any(rule.icmp_type) for rule in kinds], np.int16),
            icmp_code=np.array([_or_any(rule.icmp_code) for rule in kinds], np.int16),
            frag=np.array([_fragments(rule) for rule in kinds], np.uint8),
            family=np.array([only_family(rule.protocol) or 0 for rule in kinds], np.uint8),
            flags=_Pool.of([number for number, _ in flags], len(kinds), (values[:, 0], values[:, 1])),
        )


class _NoFlags(NamedTuple):
    value: int = 0
    mask: int = 0


_NO_FLAGS = _NoFlags()


def _or_any(value: int | None) -> int:
    return ANY_BYTE if value is None else value


def _fragments(rule: Rule) -> int:
    if rule.fragments:
        return FRAG_LATER
    return FRAG_NOT_LATER if rule.flag_matches or rule.icmp_type is not None else FRAG_ANY


def _expanded(listed: _Listed, pools: _Pools, tenant: int, numbers: Words) -> RuleTable:
    """Every combination of what the rules list."""
    rule, family = _units(listed, pools)
    parts = _combinations(rule, family, listed, pools)
    rule, family = rule[parts.unit], family[parts.unit]
    kind = listed.kind[rule]
    src_hi, src_lo, src_len = _prefixes(pools.sides, family, parts.source)
    dst_hi, dst_lo, dst_len = _prefixes(pools.sides, family, parts.destination)
    low, high = (column.astype(np.uint16) for column in pools.ports.columns)
    sp_lo, sp_hi, dp_lo, dp_hi = (
        ends[rows] for rows in (parts.source_ports, parts.destination_ports) for ends in (low, high)
    )
    with_ports = (sp_lo > 0) | (sp_hi < HIGHEST_PORT) | (dp_lo > 0) | (dp_hi < HIGHEST_PORT)
    flags_value, flags_mask = (column[parts.flags].astype(np.uint8) for column in pools.kinds.flags.columns)
    return RuleTable(
        order=rule.astype(np.uint32),
        number=numbers[rule],
        tenant=np.full(len(rule), tenant, np.uint32),
        direction=listed.direction[rule],
        action=listed.action[rule],
        family=family,
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
        flags_value=flags_value,
        flags_mask=flags_mask,
        frag=np.where(with_ports, np.uint8(FRAG_NOT_LATER), pools.kinds.frag[kind]),
    )


def _units(listed: _Listed, pools: _Pools) -> tuple[Indices, npt.NDArray[np.uint8]]:
    """The (rule, family) pairs in which rules can match, ordered by rule: two columns."""
    only = pools.kinds.family[listed.kind]
    can = [
        (pool.size[listed.source] > 0) & (pool.size[listed.destination] > 0) & ((only == 0) | (only == family))
        for family, pool in pools.sides.items()
    ]
    rule, version = np.nonzero(np.stack(can, axis=1))
    return rule, np.array(list(pools.sides), np.uint8)[version]


class _Parts(NamedTuple):
    """One row an atom: the unit it belongs to and its rows in the pools."""

    unit: Indices
    source: Indices
    destination: Indices
    source_ports: Indices
    destination_ports: Indices
    flags: Indices


def _combinations(rule: Indices, family: npt.NDArray[np.uint8], listed: _Listed, pools: _Pools) -> _Parts:
    """Number the combinations of every unit and take the numbers apart as mixed-radix digits."""
    axes = [_side_axis(pools.sides, family, side[rule]) for side in (listed.source, listed.destination)]
    axes += [
        (pools.ports.start[ports[rule]], pools.ports.size[ports[rule]])
        for ports in (listed.source_ports, listed.destination_ports)
    ]
    flags = pools.kinds.flags
    axes.append((flags.start[listed.kind[rule]], flags.size[listed.kind[rule]]))
    counts = np.prod([count.astype(np.float64) for _, count in axes], axis=0)
    if counts.sum() > MOST_ATOMS:
        raise TooLarge(
            f"the list needs {counts.sum():.0f} matches, over {MOST_ATOMS}; this rule needs the most of them",
            place=f"rules[{int(rule[int(counts.argmax())])}]",
        )
    repeats = counts.astype(np.int64)
    unit = np.repeat(np.arange(len(rule)), repeats)
    left = np.arange(len(unit)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    rows = []
    for start, count in reversed(axes):
        left, digit = np.divmod(left, count[unit])
        rows.append(start[unit] + digit)
    return _Parts(unit, *reversed(rows))


def _side_axis(pools: Mapping[Family, _Pool], family: npt.NDArray[np.uint8], side: Indices) -> tuple[Indices, Indices]:
    """Start and size of a side's rows in the pool of each unit's family."""
    v4, v6 = pools[Family.IPV4], pools[Family.IPV6]
    four = family == Family.IPV4
    return np.where(four, v4.start[side], v6.start[side]), np.where(four, v4.size[side], v6.size[side])


def _prefixes(
    pools: Mapping[Family, _Pool], family: npt.NDArray[np.uint8], rows: Indices
) -> tuple[Words, Words, Words]:
    """Upper half, lower half and length of prefixes given by family and row in that family's pool."""
    found = np.zeros((3, len(rows)), np.uint64)
    for each, pool in pools.items():
        mine = family == each
        for column, stored in zip(found, pool.columns, strict=True):
            column[mine] = stored[rows[mine]]
    return found[0], found[1], found[2]
