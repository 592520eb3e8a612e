"""Bounds of the flow entries of a list, from its rules alone.

A rule of a few kilobytes can ask for a million flow entries: sources x destinations x source ports x destination ports.
So what a change would cost is looked at before anything is compiled, and before other writers wait for it.

    at most    every combination of the rule's prefixes, port masks and flag matches; a rule that may become a
               conjunction takes no more than `GAIN` times its clauses, or fewer than `WORTH` combinations
    at least   the same, where no prefixes could be aggregated and no clauses shared; else nothing

An atom is at least one flow entry and a shape at least one, so the upper bound holds for both of these as well, but for
the hulls of conjunctions: two atoms a rule. Laws in the tests: least <= what is compiled <= most.

Where connections are tracked, the rules down to the last stateless one are in a second table (`lists/alone.py`).

The rules of a list are in pieces, which versions share (`policy/listed.py`); only a piece that is new is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from orchestrator.compile.conjunctions.conjunctive import (
    GAIN,
    WORTH,
    may_be_conjunctive,
    port_parts,
    splits_ports,
)
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Acl, AddressGroup, Rule
from orchestrator.policy.protocols import only_family

Groups = Mapping[str, AddressGroup]

ENDS = 16
"""More flow entries of a list than its rules take: those that end it, and return traffic's."""


_FEW_PIECES = 4
"""So many pieces that differ are compared with those before them; of more, all rules are looked at."""

_Replaced = tuple[Sequence[Rule], Sequence[Rule]]
"""Rules that went, and rules that came."""


class Bounds(NamedTuple):
    """How many flow entries something takes, at least and at most."""

    least: int
    most: int


def rule_bounds(rule: Rule, groups: Groups) -> Bounds:
    """Return the bounds of a rule's flow entries, if its number is below 2^31."""
    ports, rest = port_parts(rule)
    source, destination = rule.source, rule.destination
    families = 2 if only_family(rule.protocol) is None else 1
    if not may_be_conjunctive(rule):
        combinations = ports * rest * (families if source.is_any and destination.is_any else 1)
        return Bounds(combinations, combinations)
    sources = families if source.is_any else _size(source, groups)
    destinations = families if destination.is_any else _size(destination, groups)
    pairs = max(sources, destinations) if source.is_any or destination.is_any else sources * destinations
    others = ports + rest if splits_ports(rule) else ports * rest
    clauses = sources + destinations + families * (others + 1)
    return Bounds(0, min(pairs * ports * rest, max(WORTH, GAIN * clauses)))


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A piece of a list: bounds of its rules without groups, and the others."""

    rules: tuple[Rule, ...]
    bounds: Bounds
    naming: tuple[Rule, ...]

    @classmethod
    def of(cls, rules: tuple[Rule, ...]) -> _Piece:
        """Sum up the rules of a piece that name no group, and keep the others."""
        naming = tuple([rule for rule in rules if _names_groups(rule)])
        return cls(rules, _sum_plain(rules), naming)

    def after(self, rules: tuple[Rule, ...], step: _Replaced) -> _Piece:
        """Bound the piece that took this one's place, by its differing rules."""
        left, come = (_sum_plain(each) for each in step)
        bounds = Bounds(*(was - less + more for was, less, more in zip(self.bounds, left, come, strict=True)))
        may_name = self.naming or any(map(_names_groups, step[1]))
        return _Piece(rules, bounds, tuple(filter(_names_groups, rules)) if may_name else ())


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """The bounds of a list's flow entries.

    `after` gives those of the next version, at the cost of the change.
    """

    acl: Acl
    bounds: Bounds
    fresh: int
    """At most so many are of rules that the version before lacked, or whose groups were others there."""
    _pieces: Mapping[int, _Piece]
    _most_alone: int
    """At most so many of them decide about packets alone."""

    @classmethod
    def of(cls, acl: Acl, *, is_tracked: bool = False) -> Estimate:
        """Estimate a whole list; `is_tracked`: where connections are tracked."""
        pieces = {id(rules): _Piece.of(rules) for rules in acl.listed.pieces}
        alone = _most_alone(acl, pieces) if is_tracked else 0
        bounds = _sum_pieces(acl, pieces, alone)
        return cls(acl, bounds, bounds.most, pieces, alone)

    def after(self, acl: Acl, *, is_tracked: bool = False) -> Estimate:
        """Estimate another version of the list."""
        alone_before = self._most_alone
        if acl is self.acl and (bool(alone_before) is (is_tracked and acl.has_stateless)):
            return self
        now = {id(rules): rules for rules in acl.listed.pieces}
        gone = [piece for key, piece in self._pieces.items() if key not in now]
        come = [key for key in now if key not in self._pieces]
        if len(gone) == len(come) <= _FEW_PIECES:
            steps = [find_replaced(old.rules, now[key]) for old, key in zip(gone, come, strict=True)]
            made = {key: old.after(now[key], step) for old, key, step in zip(gone, come, steps, strict=True)}
        else:
            steps = [(_join([old.rules for old in gone]), _join([now[key] for key in come]))]
            made = {key: _Piece.of(now[key]) for key in come}
        pieces = {key: made.get(key) or self._pieces[key] for key in now}
        alone = _most_alone(acl, pieces) if is_tracked else 0
        fresh = self._most_fresh(acl, pieces, steps)
        fresh = 2 * fresh + max(0, alone - alone_before) if alone else fresh
        return Estimate(acl, _sum_pieces(acl, pieces, alone), fresh, pieces, alone)

    def _most_fresh(self, acl: Acl, pieces: Mapping[int, _Piece], steps: Iterable[_Replaced]) -> int:
        """Return a bound of the flow entries that are new in the next version.

        `steps` are rules that went from some pieces and came into others: one that did both is not new.
        """
        left = {id(rule) for gone, _ in steps for rule in gone}
        come = [rule for _, others in steps for rule in others if id(rule) not in left]
        before = self.acl.groups
        moved = {name for name, group in acl.groups.items() if before.get(name) is not group} if acl.groups else set()
        if moved:
            known = {id(rule) for rule in come}
            naming = [rule for piece in pieces.values() for rule in piece.naming if id(rule) not in known]
            come += [rule for rule in naming if not moved.isdisjoint((*rule.source.groups, *rule.destination.groups))]
        return _sum_rules(come, acl.groups).most


def _most_alone(acl: Acl, pieces: Mapping[int, _Piece]) -> int:
    """Return the most flow entries of the rules down to the last stateless one."""
    if not acl.has_stateless:
        return 0
    in_order = list(acl.listed.pieces)
    while not any(rule.stateless for rule in in_order[-1]):
        in_order.pop()
    rules = in_order.pop()
    last = max(place for place, rule in enumerate(rules) if rule.stateless)
    whole = [pieces[id(each)] for each in in_order]
    naming = sum(_sum_rules(each.naming, acl.groups).most for each in whole)
    return sum(each.bounds.most for each in whole) + naming + _sum_rules(rules[: last + 1], acl.groups).most + ENDS


def _sum_pieces(acl: Acl, pieces: Mapping[int, _Piece], alone: int) -> Bounds:
    parts = [each.bounds for each in pieces.values()]
    parts += [_sum_rules(each.naming, acl.groups) for each in pieces.values() if each.naming]
    least, most = map(sum, zip(*parts, strict=True)) if parts else (0, 0)
    return Bounds(least, most + ENDS + alone)


def widest_rule(acl: Acl) -> tuple[int, Bounds]:
    """Return the position and bounds of the costliest rule.

    The list must not be empty.
    """
    found = [rule_bounds(rule, acl.groups) for rule in acl.rules]
    place = max(range(len(found)), key=lambda each: found[each].most)
    return place, found[place]


def _join(pieces: Iterable[Sequence[Rule]]) -> Sequence[Rule]:
    return tuple(chain.from_iterable(pieces))


def _names_groups(rule: Rule) -> bool:
    return bool(rule.source.groups or rule.destination.groups)


def _sum_plain(rules: Iterable[Rule]) -> Bounds:
    """Sum the bounds of the rules without groups."""
    return _sum_rules([rule for rule in rules if not _names_groups(rule)], {})


def _sum_rules(rules: Iterable[Rule], groups: Groups) -> Bounds:
    """Add up the bounds of rules."""
    least = most = 0
    for rule in rules:
        bounds = rule_bounds(rule, groups)
        least += bounds.least
        most += bounds.most
    return Bounds(least, most)


def _size(side: Addresses, groups: Groups) -> int:
    """How many prefixes a side has, before they are aggregated."""
    return len(side.prefixes) + sum(len(groups[name].prefixes) for name in side.groups)
