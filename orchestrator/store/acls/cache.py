"""Access lists in memory, and the names of their rules.

A list of 20,000 rules takes a third of a second to read from its rows and nothing to read from here. The cache is
keyed by tenant number and version, so it is never wrong and never needs to be told of a change: who needs a version
that is not here takes the newest older one and applies the rows that began and ended since (`refresh_groups`), which
costs what was changed. So it also stays right beside other processes.

It keeps the two newest versions of a tenant's list (they share their rules), and of all lists the most recently used
ones up to a number of rules.

A database needs seconds to search the names of a million rules, one text of a tenant's names some microseconds. Names
are kept as lists are (`NameCache`), for searches for a part of one. A rule takes its name and nine bytes, a name has at
most 64 characters. As many rules are held as `cached_rules` says; the tenants that were searched longest ago go first.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import TypeVar

from orchestrator.policy.listed import Listed
from orchestrator.policy.model import AddressGroup, Rule
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.store.records import AclRecord

T = TypeVar("T")

_VERSIONS_OF_ONE = 2
_COST_OF_A_LIST = 16
"""The weight of an entry beside its rules, in rules; so empty lists do not pile up."""
_MEMBERS_A_RULE = 8
"""How many members of address groups weigh as much as a rule."""
_FEW = 64


@dataclass(frozen=True, slots=True)
class KeyedGroup:
    """An address group with its members' order keys, ascending."""

    keys: array[int]
    group: AddressGroup


@dataclass(frozen=True, slots=True)
class CachedAcl:
    """A list with its rows' order keys, ascending: `keys[i]` is that of `record.acl.rules[i]`.

    `numbers` is `record.numbers`, `groups` are those of `record.acl`.
    """

    record: AclRecord
    keys: array[int]
    numbers: RuleNumbers
    groups: Mapping[str, KeyedGroup]
    weight: int = field(init=False, repr=False, compare=False)
    """In rules."""

    def __post_init__(self) -> None:
        members = sum([len(each.keys) for each in self.groups.values()])
        object.__setattr__(self, "weight", len(self.keys) + members // _MEMBERS_A_RULE + _COST_OF_A_LIST)


@dataclass(frozen=True, slots=True)
class BegunRow:
    """A rule in the list since a version that an older copy lacks."""

    order_key: int
    number: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class EndedRow:
    """A rule as an older copy has it, where it is not any more."""

    order_key: int
    rule_id: str


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version's row, as far as lists need it; `created` in microseconds since 1970."""

    version: int
    author: str
    created: int
    ingress_default: str
    egress_default: str


@dataclass(slots=True)
class ListMoves:
    """A running transaction's change of a list: the new version, rows ended and begun."""

    head: VersionLine
    ended: list[EndedRow] = field(default_factory=list)
    begun: list[BegunRow] = field(default_factory=list)
    groups: bool = False
    """Whether it touched address groups too."""


_VERSION = attrgetter("record.version")


class AclCache:
    """The shared memory of lists. Safe between threads."""

    def __init__(self, rules: int) -> None:
        self._limit = rules
        self._weight = 0
        self._lock = threading.Lock()
        self._lists: OrderedDict[int, tuple[CachedAcl, ...]] = OrderedDict()  # newest version first

    def nearest(self, tenant: int, version: int) -> CachedAcl | None:
        """The newest copy of a tenant's list that is not newer than `version`."""
        with self._lock:
            found = next((e for e in self._lists.get(tenant, ()) if e.record.version <= version), None)
            if found is not None:
                self._lists.move_to_end(tenant)
            return found

    def put(self, tenant: int, entry: CachedAcl) -> None:
        """Keep a committed list."""
        with self._lock:
            before = self._lists.pop(tenant, ())
            others = [e for e in before if e.record.version != entry.record.version]
            kept = sorted([entry, *others], key=_VERSION, reverse=True)[:_VERSIONS_OF_ONE]
            self._lists[tenant] = tuple(kept)
            self._weight += sum([e.weight for e in kept]) - sum([e.weight for e in before])
            while self._weight > self._limit and len(self._lists) > 1:
                _, oldest = self._lists.popitem(last=False)
                self._weight -= sum(e.weight for e in oldest)


def refreshed_rules(
    old: CachedAcl, ended: Sequence[EndedRow], begun: Sequence[BegunRow]
) -> tuple[array[int], Listed[Rule], RuleNumbers]:
    """Return a list's order keys, rules and numbers after rows ended and began."""
    keys, ended, begun = _moved_aside(old, ended, begun)
    keys, rules = _change_rules(keys, old.record.acl.listed, ended, begun)
    numbers = old.numbers
    if {row.rule_id for row in ended} != {str(row.rule.id) for row in begun} or any(
        numbers.get(row.rule.id) != row.number for row in begun
    ):
        numbers = numbers.exchange_ids([row.rule_id for row in ended], {row.rule.id: row.number for row in begun})
    return keys, rules, numbers


def _moved_aside(
    old: CachedAcl, ended: Sequence[EndedRow], begun: Sequence[BegunRow]
) -> tuple[array[int], Sequence[EndedRow], Sequence[BegunRow]]:
    """Apply rows whose rules stay in place with new keys; return keys and the rest.

    Rows are spread anew where a gap is used up; nothing has become of their rules, which stay the same objects.
    """
    keys = array("q", old.keys)
    if not ended or not begun:
        return keys, ended, begun
    known = {row.rule_id: row for row in ended}
    places: dict[str, int] = {}
    for row in begun:
        before = known.get(row.rule.id)
        index = None if before is None else bisect.bisect_left(old.keys, before.order_key)
        if index is not None and old.numbers[row.rule.id] == row.number and old.record.acl.listed[index] == row.rule:
            places[row.rule.id], keys[index] = index, row.order_key
    pairs = {index for place in places.values() for index in (place, place + 1) if 0 < index < len(keys)}
    if any(keys[index - 1] >= keys[index] for index in pairs):
        return array("q", old.keys), ended, begun
    return (
        keys,
        [row for row in ended if row.rule_id not in places],
        [row for row in begun if row.rule.id not in places],
    )


def _change_rules(
    keys: array[int], rules: Listed[Rule], ended: Sequence[EndedRow], begun: Sequence[BegunRow]
) -> tuple[array[int], Listed[Rule]]:
    if len(ended) + len(begun) > _FEW:
        come = [(row.order_key, row.rule) for row in begun]
        keys, whole = splice_rows(keys, tuple(rules), [row.order_key for row in ended], come)
        return keys, Listed.of(whole)
    for gone in ended:
        index = bisect.bisect_left(keys, gone.order_key)
        del keys[index]
        rules = rules.without(index)
    for row in begun:
        index = bisect.bisect_left(keys, row.order_key)
        keys.insert(index, row.order_key)
        rules = rules.with_one(index, row.rule)
    return keys, rules


def splice_rows(
    keys: array[int], values: Sequence[T], ended: Sequence[int], begun: Sequence[tuple[int, T]]
) -> tuple[array[int], tuple[T, ...]]:
    """Ascending keys and their values after the rows at some keys ended and others began."""
    if len(ended) + len(begun) > _FEW:
        by_key = dict(zip(keys, values, strict=True))
        for key in ended:
            del by_key[key]
        by_key.update(begun)
        keys = array("q", sorted(by_key))
        return keys, tuple([by_key[key] for key in keys])
    keys, kept = array("q", keys), list(values)
    for key in ended:
        index = bisect.bisect_left(keys, key)
        del keys[index], kept[index]
    for key, value in begun:
        index = bisect.bisect_left(keys, key)
        keys.insert(index, key)
        kept.insert(index, value)
    return keys, tuple(kept)


_COST_OF_A_TENANT = 16
"""The weight of an entry beside its rules, in rules."""
_BETWEEN = "\n"
"""Stands between two names, for it is in none."""


@dataclass(frozen=True, slots=True)
class TenantNames:
    """The names and numbers of a tenant's rules at a version, in list order."""

    version: int
    text: str
    numbers: array[int]

    @classmethod
    def of(cls, version: int, rules: Iterable[tuple[str, int]]) -> TenantNames:
        """Make it of rule ids and their numbers."""
        listed = list(rules)
        return cls(version, _BETWEEN.join([name for name, _ in listed]), array("Q", [number for _, number in listed]))

    def find(self, contains: str) -> Iterator[int]:
        """Yield the numbers of rules with a part of a name, in list order."""
        if contains in self.text:
            yield from compress(self.numbers, [contains in name for name in self.text.split(_BETWEEN)])


class NameCache:
    """The shared memory of names. Safe between threads."""

    def __init__(self, rules: int) -> None:
        self.limit = rules
        self._weight = 0
        self._lock = threading.Lock()
        self._names: OrderedDict[int, TenantNames] = OrderedDict()

    def holds(self, rules: int, tenants: int) -> bool:
        """Whether there is room for that many rules of that many tenants."""
        return rules + tenants * _COST_OF_A_TENANT <= self.limit

    def find(self, versions: Mapping[int, int]) -> dict[int, TenantNames]:
        """Return the names that are here, by tenant number, of lists at some versions."""
        found = {}
        with self._lock:
            for tenant, version in versions.items():
                names = self._names.get(tenant)
                if names is not None and names.version == version:
                    self._names.move_to_end(tenant)
                    found[tenant] = names
        return found

    def put(self, names: Mapping[int, TenantNames]) -> None:
        """Keep names of committed lists, by tenant number."""
        with self._lock:
            for tenant, entry in names.items():
                before = self._names.pop(tenant, None)
                self._weight += _weigh(entry) - (0 if before is None else _weigh(before))
                self._names[tenant] = entry
            while self._weight > self.limit and self._names:
                _, oldest = self._names.popitem(last=False)
                self._weight -= _weigh(oldest)


def _weigh(names: TenantNames) -> int:
    return len(names.numbers) + _COST_OF_A_TENANT
