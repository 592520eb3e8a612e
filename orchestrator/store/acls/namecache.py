"""The names of rules in memory, for searches for a part of a name.

A database needs seconds to search the names of a million rules, one text of a tenant's names some microseconds. Names
are kept by tenant number and version of its list, as lists are (`cache.py`), so they are never wrong and never need to
be told of a change. A rule takes its name and nine bytes, a name has at most 64 characters. As many rules are held as
`cached_rules` says; the tenants that were searched longest ago go first.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress

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
