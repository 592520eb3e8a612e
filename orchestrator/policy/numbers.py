"""The numbers of a list's rules, as a mapping with cheap small changes.

A list of 100,000 rules has as many numbers, and a new version of it often only one other. So a mapping shares a large
base with the one that it was made from and keeps what differs in a small overlay; when that has grown, a new base is
made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_LARGEST_OVERLAY: Final = 256
_GONE: Final = 0
"""Stands in an overlay for "not there"; numbers start at 1."""


class RuleNumbers(Mapping[str, int]):
    """The number of each rule id; it never changes."""

    __slots__ = ("_base", "_length", "overlay")

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._base: Mapping[str, int] = dict(numbers)
        self.overlay: Mapping[str, int] = {}
        self._length = len(self._base)

    def __getitem__(self, rule_id: str) -> int:
        number = self.overlay.get(rule_id)
        if number is None:
            return self._base[rule_id]
        if number == _GONE:
            raise KeyError(rule_id)
        return number

    def __contains__(self, rule_id: object) -> bool:
        return isinstance(rule_id, str) and self._number(rule_id) != _GONE

    def _number(self, rule_id: str) -> int:
        """Return a rule's number, `_GONE` where it has none."""
        return self.overlay.get(rule_id, self._base.get(rule_id, _GONE))

    def __iter__(self) -> Iterator[str]:
        yield from (rule_id for rule_id in self._base if rule_id not in self.overlay)
        yield from (rule_id for rule_id, number in self.overlay.items() if number != _GONE)

    def __len__(self) -> int:
        return self._length

    def as_dict(self) -> dict[str, int]:
        """Return the numbers as a plain dictionary, which is faster to look up many."""
        plain = {**self._base, **self.overlay}
        for rule_id, number in self.overlay.items():
            if number == _GONE:
                del plain[rule_id]
        return plain

    def exchange_ids(self, gone: Iterable[str], come: Mapping[str, int]) -> RuleNumbers:
        """Return the mapping without some ids, which must exist, and then with others."""
        overlay, length = dict(self.overlay), self._length
        for rule_id in gone:
            length -= rule_id in self
            overlay[rule_id] = _GONE
        for rule_id, number in come.items():
            there = overlay.get(rule_id, self._base.get(rule_id, _GONE)) != _GONE
            length += not there
            overlay[rule_id] = number
        twin = RuleNumbers.__new__(RuleNumbers)
        twin._base, twin.overlay, twin._length = self._base, overlay, length
        return twin if len(overlay) <= _LARGEST_OVERLAY else RuleNumbers(twin.as_dict())

    def differing(self, other: RuleNumbers) -> frozenset[str] | None:
        """Return the ids with different numbers in both.

        None if only comparing them all would tell.
        """
        if self._base is not other._base:
            return None
        ids = {rule_id for rule_id, _ in self.overlay.items() ^ other.overlay.items()}
        return frozenset(rule_id for rule_id in ids if self._number(rule_id) != other._number(rule_id))
