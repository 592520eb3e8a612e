"""Merge two edits of one access list that began at the same version.

                 ┌── mine ────┐
    base ────────┤            ├────▶ one list, or what stands in the way
                 └── theirs ──┘

A side *touches* a rule if it adds, removes, changes or moves it, or changes an address group that the rule names. The
lists are merged only if no rule that one side touches shares a packet with a rule that the other side touches. Then
every packet is decided by rules of one side and by rules that nobody touched, and these keep their order in the merged
list: it decides each packet as the side decides it that touched a rule for it. Where two rules do share a packet, only
a person can say which of them is meant to win, so that is refused with the names of both. `take_mine` is for the person
who has said it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.errors import ChangeTheRequest
from orchestrator.policy.model import Acl, AddressGroup, Direction, Rule, RuleId
from orchestrator.policy.rulechanges import ListChanges, list_changes
from orchestrator.policy.space import Box, boxes_of

MOST_PAIRS = 250_000
"""Pairs of touched rules that are compared: about a second's work."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The merged list, or, where it is None, the reasons why there is none."""

    acl: Acl | None
    conflicts: tuple[str, ...] = ()


def merge(base: Acl, mine: Acl, theirs: Acl) -> Merge:
    """Merge the edits base -> mine and base -> theirs.

    Conflicts name rules, groups and defaults.
    """
    if mine in (base, theirs):
        return Merge(theirs)
    if theirs == base:
        return Merge(mine)
    ours, others = _Side(base, mine), _Side(base, theirs)
    kept = _find_untouched(base, ours, others)
    conflicts = (
        *_find_default_conflicts(ours, others),
        *_find_group_conflicts(ours, others),
        *_find_rule_conflicts(ours, others),
        *_place_conflicts(ours, others, frozenset(kept)),
    )
    if conflicts:
        return Merge(None, conflicts)
    try:
        return Merge(_merge_rules(kept, ours, others))
    except ChangeTheRequest as error:  # such as a rule that names a group which the other side removed
        return Merge(None, (str(error),))


def take_mine(base: Acl, mine: Acl, theirs: Acl) -> Acl:
    """Merge two edits; where both touch the same thing, `mine` wins.

    Of two touched rules at one place, mine comes first. A group that one side removed stays while a rule of the other
    names it. Packets that no rule touched by mine matches are decided as `theirs` decides them.
    """
    ours, others = _Side(base, mine), _Side(base, theirs)
    return _merge_rules(_find_untouched(base, ours, others), others, ours, spare={**theirs.groups, **mine.groups})


class _Side:
    """One edit of the base: what it touches, and where its touched rules stand."""

    def __init__(self, base: Acl, acl: Acl) -> None:
        self.acl = acl
        self.changes: ListChanges = list_changes(base, acl)
        self.rules: Mapping[RuleId, Rule] = {rule.id: rule for rule in acl.rules}
        self.boxes: dict[RuleId, tuple[tuple[Direction, Box], ...]] = {}
        """The touched rules with the packets that they match, or did at the base."""
        edited = {change.id for change in self.changes.rules}
        groups = set(self.changes.groups)
        old = {rule.id: rule for rule in base.rules}
        for name in dict.fromkeys((*old, *self.rules)):
            sides = [(old.get(name), base.groups), (self.rules.get(name), acl.groups)]
            if name in edited or any(rule is not None and groups & _list_groups(rule) for rule, _ in sides):
                self.boxes[name] = tuple(_make_boxes(sides))

    def edits(self, way: Direction) -> bool:
        """Whether it touches any rule of a direction."""
        return any(direction is way for boxes in self.boxes.values() for direction, _ in boxes)

    def places(self, kept: Collection[RuleId]) -> Mapping[RuleId, RuleId | None]:
        """Return the touched rules in order, each with the kept rule before it.

        None: the top of the list.
        """
        found: dict[RuleId, RuleId | None] = {}
        last: RuleId | None = None
        for rule in self.acl.rules:
            if rule.id in kept:
                last = rule.id
            elif rule.id in self.boxes:
                found[rule.id] = last
        return found


def _list_groups(rule: Rule) -> set[str]:
    return {*rule.source.groups, *rule.destination.groups}


def _make_boxes(sides: Iterable[tuple[Rule | None, Mapping[str, AddressGroup]]]) -> Iterator[tuple[Direction, Box]]:
    for rule, groups in sides:
        if rule is not None:
            for box in boxes_of(rule, groups):
                yield rule.direction, box


def _find_default_conflicts(ours: _Side, others: _Side) -> Iterator[str]:
    for way in Direction:
        mine, theirs = way in ours.changes.defaults, way in others.changes.defaults
        if (mine and (theirs or others.edits(way))) or (theirs and ours.edits(way)):
            yield f"the {way.value} default was changed, and rules of that direction on the other side"


def _find_group_conflicts(ours: _Side, others: _Side) -> Iterator[str]:
    for name in sorted({*ours.changes.groups} & {*others.changes.groups}):
        if ours.acl.groups.get(name) != others.acl.groups.get(name):
            yield f"group '{name}' was changed on both sides"


def _find_rule_conflicts(ours: _Side, others: _Side) -> Iterator[str]:
    if len(ours.boxes) * len(others.boxes) > MOST_PAIRS:
        yield f"both sides touch too many rules to compare: {len(ours.boxes)} and {len(others.boxes)}"
        return
    for mine, our_boxes in ours.boxes.items():
        if mine in others.boxes and ours.rules.get(mine) != others.rules.get(mine):
            yield f"rule '{mine}' was changed on both sides"
            continue
        for theirs, other_boxes in others.boxes.items():
            if mine != theirs and _have_common_packets(our_boxes, other_boxes):
                yield f"your rule '{mine}' and their rule '{theirs}' match the same packets"


def _have_common_packets(left: Iterable[tuple[Direction, Box]], right: Iterable[tuple[Direction, Box]]) -> bool:
    rights = [*right]
    return any(way is other and box.overlaps(found) for way, box in left for other, found in rights)


def _place_conflicts(ours: _Side, others: _Side, kept: Collection[RuleId]) -> Iterator[str]:
    """Rules that both sides made the same, but put at different places."""
    mine, theirs = ours.places(kept), others.places(kept)
    for name in mine.keys() & theirs.keys():
        if ours.rules[name] == others.rules[name] and mine[name] != theirs[name]:
            yield f"rule '{name}' stands at different places on the two sides"


def _find_untouched(base: Acl, ours: _Side, others: _Side) -> tuple[RuleId, ...]:
    """The rules of the base that neither side touched, in order."""
    return tuple(rule.id for rule in base.rules if rule.id not in ours.boxes and rule.id not in others.boxes)


def _merge_rules(
    kept: Sequence[RuleId], ours: _Side, others: _Side, *, spare: Mapping[str, AddressGroup] = MappingProxyType({})
) -> Acl:
    """Put untouched rules in order, and behind each the sides' rules, the others' first.

    Where both sides touched a rule, the others' version is taken. Groups that rules name and that are gone are taken
    from `spare`.
    """
    behind: defaultdict[RuleId | None, list[Rule]] = defaultdict(list)
    untouched = frozenset(kept)
    for name, place in others.places(untouched).items():
        behind[place].append(others.rules[name])
    for name, place in ours.places(untouched).items():
        if name not in others.boxes:
            behind[place].append(ours.rules[name])
    rules = [*behind[None]]
    for name in kept:
        rules += [others.rules[name], *behind[name]]
    ingress, egress = (
        (others if way in others.changes.defaults else ours).acl.default(way)
        for way in (Direction.INGRESS, Direction.EGRESS)
    )
    groups = _merge_groups(ours, others)
    gone = {name for rule in rules for name in _list_groups(rule)} & (spare.keys() - groups.keys())
    groups |= {name: spare[name] for name in gone}
    return Acl(tuple(rules), groups, ingress_default=ingress, egress_default=egress)


def _merge_groups(ours: _Side, others: _Side) -> dict[str, AddressGroup]:
    groups = {name: group for name, group in ours.acl.groups.items() if name not in others.changes.groups}
    return groups | {name: others.acl.groups[name] for name in others.changes.groups if name in others.acl.groups}
