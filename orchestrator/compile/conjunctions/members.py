"""The rules that name address groups, and their changed atoms when members change.

A rule loses the atoms of the prefixes that its side lost, and gets those of the prefixes that it found (`sides.py`);
the rest of its atoms stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.compile.conjunctions.sides import Regrouping, names_groups
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Rule, with_sides


class RuleChange(NamedTuple):
    """A rule whose cover changed, as rules for its lost and gained atoms.

    Where both of its sides changed, all its atoms are to be made anew.
    """

    label: int
    rule: Rule
    lost: Rule | None = None
    found: Rule | None = None
    anew: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The rules of a list that name groups, by their labels."""

    users: Mapping[int, Rule]

    @classmethod
    def of(cls, labels: Iterable[int], rules: Iterable[Rule]) -> Members:
        """Find the rules that name groups."""
        return cls(_find_users(labels, rules))

    def without(self, gone: Iterable[int]) -> Members:
        """Return the members after some rules went."""
        going = self.users.keys() & gone
        return Members({label: self.users[label] for label in self.users.keys() - going}) if going else self

    def joined_by(self, labels: Iterable[int], rules: Iterable[Rule]) -> Members:
        """Return the members after some rules came."""
        coming = _find_users(labels, rules)
        return Members({**self.users, **coming}) if coming else self

    def concerned_rules(self, groups: Regrouping) -> tuple[RuleChange, ...]:
        """Which rules a change of groups concerns, by ascending label."""
        concerned = sorted(label for label, rule in self.users.items() if groups.concerns(rule))
        found = [_rule_change(label, self.users[label], groups) for label in concerned]
        return tuple(each for each in found if each is not None)


def _find_users(labels: Iterable[int], rules: Iterable[Rule]) -> dict[int, Rule]:
    return {label: rule for label, rule in zip(labels, rules, strict=True) if names_groups(rule)}


def _rule_change(label: int, rule: Rule, groups: Regrouping) -> RuleChange | None:
    source, destination = groups.change(rule.source), groups.change(rule.destination)
    if source.nothing and destination.nothing:
        return None
    if not source.nothing and not destination.nothing:
        return RuleChange(label, rule, anew=True)
    side, change = ("source", source) if destination.nothing else ("destination", destination)
    return RuleChange(label, rule, _narrow_side(rule, side, change.gone), _narrow_side(rule, side, change.come))


def _narrow_side(rule: Rule, side: str, prefixes: tuple[Prefix, ...]) -> Rule | None:
    """Return a rule with some prefixes for a side.

    None without any, for that would mean every address.
    """
    return with_sides(rule, {side: Addresses(prefixes)}) if prefixes else None
