"""Access lists in memory.

A list of 20,000 rules takes a third of a second to read from its rows and nothing to read from here. The cache is
keyed by tenant number and version, so it is never wrong and never needs to be told of a change: who needs a version
that is not here takes the newest older one and applies the rows that began and ended since (`refreshed`), which costs
what was changed. So it also stays right beside other processes.

It keeps the two newest versions of a tenant's list (they share their rules), and of all lists the most recently used
ones up to a number of rules.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.policy.model import Acl, Action, AddressGroup, Rule
from orchestrator.store.records import AclRecord

_VERSIONS_OF_ONE = 2
_COST_OF_A_LIST = 16
"""What an entry weighs beside its rules, in rules; so empty lists do not pile up."""
_FEW = 64


@dataclass(frozen=True, slots=True)
class CachedAcl:
    """A list with its rows' order keys, ascending: `keys[i]` is that of `record.acl.rules[i]`.

    `numbers` is what `record.numbers` shows; it is never changed, only copied.
    """

    record: AclRecord
    keys: array[int]
    numbers: dict[str, int]

    @property
    def weight(self) -> int:
        return len(self.keys) + _COST_OF_A_LIST


@dataclass(frozen=True, slots=True)
class BegunRow:
    """A rule that is in the list since a version that an older copy does not know."""

    order_key: int
    number: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class EndedRow:
    """A rule as an older copy has it, where it is not any more."""

    order_key: int
    rule_id: str


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
            others = [
                e for e in self._lists.pop(tenant, ()) if e.record.version != entry.record.version or self._drop(e)
            ]
            kept = sorted([entry, *others], key=lambda e: -e.record.version)
            self._lists[tenant] = tuple(kept[:_VERSIONS_OF_ONE])
            self._weight += entry.weight - sum(e.weight for e in kept[_VERSIONS_OF_ONE:])
            while self._weight > self._limit and len(self._lists) > 1:
                _, oldest = self._lists.popitem(last=False)
                self._weight -= sum(e.weight for e in oldest)

    def _drop(self, entry: CachedAcl) -> bool:
        self._weight -= entry.weight
        return False


def trusted_acl(
    rules: tuple[Rule, ...], groups: Mapping[str, AddressGroup], ingress_default: Action, egress_default: Action
) -> Acl:
    """A list that is known to be right, made without checking every rule again.

    Its rows came from a checked list, and every later row was checked alone before it was written (`acls.py`). For
    100,000 rules the check would take hundreds of times as long as the change of one of them.
    """
    acl = object.__new__(Acl)
    object.__setattr__(acl, "rules", rules)
    object.__setattr__(acl, "groups", groups)
    object.__setattr__(acl, "ingress_default", ingress_default)
    object.__setattr__(acl, "egress_default", egress_default)
    return acl


def refreshed_rules(
    old: CachedAcl, ended: Sequence[EndedRow], begun: Sequence[BegunRow]
) -> tuple[array[int], tuple[Rule, ...], dict[str, int]]:
    """The order keys, rules and numbers of a list after some rows ended and others began."""
    keys, rules = _spliced(old, ended, begun)
    numbers = old.numbers
    if {row.rule_id for row in ended} != {str(row.rule.id) for row in begun} or any(
        numbers.get(row.rule.id) != row.number for row in begun
    ):
        numbers = numbers.copy()
        for gone in ended:
            del numbers[gone.rule_id]
        numbers.update((row.rule.id, row.number) for row in begun)
    return keys, rules, numbers


def _spliced(
    old: CachedAcl, ended: Sequence[EndedRow], begun: Sequence[BegunRow]
) -> tuple[array[int], tuple[Rule, ...]]:
    if len(ended) + len(begun) > _FEW:
        by_key = dict(zip(old.keys, old.record.acl.rules, strict=True))
        for gone in ended:
            del by_key[gone.order_key]
        by_key.update((row.order_key, row.rule) for row in begun)
        keys = array("q", sorted(by_key))
        return keys, tuple([by_key[key] for key in keys])
    keys, rules = array("q", old.keys), list(old.record.acl.rules)
    for gone in ended:
        index = bisect.bisect_left(keys, gone.order_key)
        del keys[index], rules[index]
    for row in begun:
        index = bisect.bisect_left(keys, row.order_key)
        keys.insert(index, row.order_key)
        rules.insert(index, row.rule)
    return keys, tuple(rules)
