"""Build rules from the clauses of a foreign list; the last step of every reader.

A reader turns each line into a `Clause`: an action and two sets of packets.

    sure    for these packets the line decides (if none before it did)
    maybe   for all others it certainly does not; sure lies within maybe

The two are equal where the line says only what we can see. Where it asks about an interface or a connection's state,
`sure` is smaller, and `doubts` say why. A permit becomes rules for `sure`, a deny becomes rules for `maybe`. Then the
result never permits what the original denies: say that its first matching rule for a packet is a permit. The original's
clause surely holds for that packet, and no deny before it can, for our denies cover all that theirs may.

Sets of many prefixes that rules of a list have in common, as address groups.

    object-group network CUSTOMERS          2,000 lines
    access-list OUT permit tcp object-group CUSTOMERS any eq 80
    access-list OUT permit tcp object-group CUSTOMERS any eq 443          ... and 1,000 more

Other formats name such sets in many ways, and have them written out by the time that their rules are ours. A list
that said each in full in every rule would be a thousand times as long as the text it was read from. A group's name is
made of what it holds, so whoever reads the same gives it the same.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.fields import DSCP
from orchestrator.policy.formats.express import Match, matches_of
from orchestrator.policy.formats.results import Effect, Loss, Notes
from orchestrator.policy.model import (
    SIDES,
    Acl,
    Action,
    AddressGroup,
    Direction,
    GroupName,
    Rule,
    RuleId,
    check_name,
    with_sides,
)
from orchestrator.policy.space import LATER, Box, remaining
from orchestrator.policy.spans import Span, union

MANY = 32
"""Sets of so many prefixes become groups where several sides of rules name them."""


def with_groups(rules: Sequence[Rule]) -> tuple[tuple[Rule, ...], Mapping[str, AddressGroup]]:
    """The rules, naming groups where they have large sets in common, and these groups."""
    found: dict[int, AddressGroup] = {}  # by identity: lines with the same set have the same object
    uses: Counter[str] = Counter()
    for rule in rules:
        for side in (rule.source, rule.destination):
            if len(side.prefixes) >= MANY:
                if id(side) not in found:
                    found[id(side)] = _make_group(side)
                uses[found[id(side)].name] += 1
    shared = {place: group for place, group in found.items() if uses[group.name] > 1}
    named = {place: Addresses((), (group.name,)) for place, group in shared.items()}
    groups: Mapping[str, AddressGroup] = {group.name: group for group in shared.values()}
    return tuple(_name_groups(rule, named) for rule in rules), MappingProxyType(groups)


def _make_group(addresses: Addresses) -> AddressGroup:
    content = " ".join(map(str, addresses.prefixes)).encode()
    name = f"addresses-{hashlib.blake2b(content, digest_size=16).hexdigest()}"  # two sets must not meet
    return AddressGroup(GroupName(name), addresses.prefixes)


def _name_groups(rule: Rule, named: Mapping[int, Addresses]) -> Rule:
    sides = {side: named[id(getattr(rule, side))] for side in SIDES if id(getattr(rule, side)) in named}
    return with_sides(rule, sides) if sides else rule


MOST_COMPARISONS = 500_000
"""So many boxes of a file are compared to see whether a loss costs anything; after that, every loss is taken to."""

_FRAGMENTS_REASON = "only its whole packets and first fragments are meant, and those cannot be told from later ones"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.:-]+")
_FIELDS = tuple(each.name for each in fields(Match))
_WITHOUT_DSCP = tuple(name for name in _FIELDS if name != DSCP.attribute)
_LONGEST_LABEL = 40
_LONGEST_TEXT = 200
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Doubt:
    """A condition of a line that cannot be evaluated here.

    With `only`, it matters for rules of that action alone.
    """

    line: int
    text: str
    reason: str
    only: Action | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """One line of a list, on one of the ways that lead to it.

    `label` starts the ids of its rules; `marker`, where the line brings one, is the id itself. A deny that `may_permit`
    stands for a line of which it is not known what it does.
    """

    action: Action
    sure: tuple[Box, ...]
    maybe: tuple[Box, ...]
    doubts: tuple[Doubt, ...]
    line: int
    text: str
    label: str
    marker: str | None = None
    description: str = ""
    log: bool = False
    expires: dt.datetime | None = None
    may_permit: bool = False

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The packets that its rules match."""
        return self.sure if self.action is Action.PERMIT else self.maybe

    @property
    def exact(self) -> bool:
        return self.sure == self.maybe


class Assembler:
    """Builds rules from clauses, one direction after the other, and collects the losses.

    One per file.
    """

    def __init__(self, file: str, notes: Notes, *, max_rules: int) -> None:
        self._file = file
        self._notes = notes
        self._max_rules = max_rules
        self._rules: list[Rule] = []
        self._ids: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._sides: dict[int, tuple[Addresses, str]] = {}
        self._blamed: dict[tuple[Doubt, Effect], int] = {}
        self._permits: list[Clause] = []
        self._comparisons = 0

    def add(self, clauses: Sequence[Clause], direction: Direction) -> None:
        """Add the rules of one direction.

        Packets that no clause decides are denied.
        """
        joined = _join_clauses(clauses)
        self._permits = [clause for clause in reversed(joined) if clause.action is Action.PERMIT]
        for clause in joined:
            if clause.action is Action.PERMIT:
                self._permits.pop()  # what is left is further down
            if not clause.exact and not self._costs_nothing(clause):
                self._blame_doubts(clause.doubts, clause.action)
            for box in clause.boxes:
                for match in self._make_matches(box, clause, direction):
                    if match.catches_fragments:
                        self._keep_fragments_out(box, clause)
                        if clause.action is Action.PERMIT:
                            self._add_rule(replace(match, fragments=True), Action.DENY, clause, direction)
                    self._add_rule(match, clause.action, clause, direction)
            if len(self._rules) > self._max_rules:
                raise TooLarge(f"it says more than {self._max_rules} rules once its chains are followed")

    def acl(self, *, ingress_default: Action = Action.DENY, egress_default: Action) -> Acl:
        """The list that the rules are."""
        return Acl(*with_groups(self._rules), ingress_default=ingress_default, egress_default=egress_default)

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses in the file's order, one for each doubt and effect."""
        found = []
        for (doubt, effect), count in self._blamed.items():
            reason = doubt.reason if count == 1 else f"{doubt.reason} ({count} rules hang on it)"
            found.append(Loss(self._file, doubt.line, shown(doubt.text), shown(reason, _LONGEST_REASON), effect))
        return tuple(sorted(found, key=lambda loss: (loss.line, loss.effect.value)))

    def _blame_doubts(self, doubts: Iterable[Doubt], action: Action) -> None:
        effect = Effect.NARROWER if action is Action.PERMIT else Effect.WIDER
        for doubt in doubts:
            if doubt.only not in (None, action):
                continue
            self._blamed[doubt, effect] = self._blamed.get((doubt, effect), 0) + 1

    def _costs_nothing(self, clause: Clause) -> bool:
        """Return whether what widening a deny adds is denied below in any case."""
        if clause.action is Action.PERMIT or clause.may_permit:
            return False
        return not self._may_pass(remaining(clause.maybe, clause.sure))

    def _may_pass(self, boxes: Sequence[Box]) -> bool:
        """Return whether a later clause may permit a packet of the boxes.

        Also True if that takes too long to decide.
        """
        for clause in self._permits:
            self._comparisons += len(boxes) * len(clause.maybe)
            if self._comparisons > MOST_COMPARISONS:
                return True
            if any(box.overlaps(other) for other in clause.maybe for box in boxes):
                return True
        return False

    def _make_matches(self, box: Box, clause: Clause, direction: Direction) -> tuple[Match, ...]:
        try:
            matches = matches_of(box, direction)
        except TooLarge as error:
            raise error.within(f"line {clause.line}") from None
        if not matches:
            self._notes.add("left out: no packet of this IP version has that protocol", clause.line)
        return matches

    def _keep_fragments_out(self, box: Box, clause: Clause) -> None:
        """Note that no single rule matches exactly whole packets and first fragments.

        A permit gets a deny of the later fragments in front; a deny takes them along. Both are exact if no later permit
        would have let those fragments pass.
        """
        if self._may_pass((box._replace(fragments=LATER),)):
            self._blame_doubts((Doubt(clause.line, clause.text, _FRAGMENTS_REASON),), clause.action)

    def _add_rule(self, match: Match, action: Action, clause: Clause, direction: Direction) -> None:
        self._rules.append(
            Rule(
                id=self._free_id(clause, action, match, direction),
                action=action,
                direction=direction,
                **match.rule_attributes(),
                description=clause.description,
                log=clause.log,
                expires=clause.expires,
            )
        )

    def _said(self, match: Match) -> str:
        """`repr(match)`, faster; without DSCP where it is not asked for.

        So ids stay what they were before there was DSCP.
        """
        names = _FIELDS if match.dscp is not None else _WITHOUT_DSCP
        return f"Match({', '.join(f'{name}={self._written(getattr(match, name))}' for name in names)})"

    def _written(self, value: object) -> str:
        """Return `repr(value)`, cached for each side that rules share.

        A side may name thousands of prefixes.
        """
        if not isinstance(value, Addresses):
            return repr(value)
        known = self._sides.get(id(value))
        if known is None:
            known = self._sides[id(value)] = value, repr(value)
        return known[1]

    def _free_id(self, clause: Clause, action: Action, match: Match, direction: Direction) -> RuleId:
        """Return the line's own marker, or an id made of the rule's content.

        It does not change when lines around it move.
        """
        wanted = clause.marker
        if wanted is None:
            content = f"({action!r}, {direction!r}, {self._said(match)})".encode()
            label = _NOT_IN_NAMES.sub("-", clause.label)[:_LONGEST_LABEL].strip("_.:-") or "rule"
            wanted = f"{label}-{hashlib.blake2b(content, digest_size=5).hexdigest()}"
        found = wanted
        while found in self._ids:
            self._repeats[wanted] = self._repeats.get(wanted, 1) + 1
            suffix = f".{self._repeats[wanted]}"
            found = wanted[: 64 - len(suffix)] + suffix
        self._ids.add(found)
        return RuleId(found)


def marker_in(text: str) -> tuple[str | None, str]:
    """Split ``[web-in] front ends`` into a rule's id and its description.

    Without a valid id, returns None and the whole text.
    """
    found = re.fullmatch(r"\[([^\]_][^\]]{,63})\]\s*(.*)", text)
    if found is None:
        return None, text
    try:
        check_name(found[1], "a rule id", place="id")
    except BadInput:
        return None, text
    return found[1], found[2]


def with_marker(rule: Rule) -> str:
    """The text that `marker_in` splits."""
    return f"[{rule.id}] {rule.description}".rstrip()


def shown(text: str, longest: int = _LONGEST_TEXT) -> str:
    """A line as a report quotes it."""
    short = text.strip()[: longest + 1].replace("\t", " ")
    clean = "".join(character if character.isprintable() else "?" for character in short)
    return clean if len(clean) <= longest else clean[: longest - 3] + "..."


def plain(text: str, longest: int = 1024) -> str:
    """Turn a foreign comment into a description: one printable line, cut to `longest` characters."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(clean.split())[:longest].rstrip()


def _join_clauses(clauses: Sequence[Clause]) -> list[Clause]:
    """Join neighbouring lines of one marker that together make up one box.

    It undoes what a writer split.
    """
    found: list[Clause] = []
    for _, group in itertools.groupby(clauses, key=_joint):
        members = list(group)
        found += members if len(members) == 1 else _merge_members(members)
    return found


def _joint(clause: Clause) -> tuple[object, ...]:
    """Return the key that neighbouring lines must share to be joined into one rule."""
    joinable = clause.marker is not None and all(doubt.only for doubt in clause.doubts)
    family = clause.maybe[0].family if clause.maybe else None
    said = clause.description, clause.log, clause.expires
    return clause.marker if joinable else id(clause), clause.action, family, *said


def _merge_members(members: list[Clause]) -> list[Clause]:
    sure = _product([box for clause in members for box in clause.sure])
    besides = [box for clause in members for box in clause.maybe if box not in clause.sure]
    hidden = _product(besides)
    if sure is None or (besides and hidden is None):
        return members
    return [replace(members[0], sure=(sure,), maybe=(sure,) if hidden is None else (sure, hidden))]


def _product(members: Sequence[Box]) -> Box | None:
    """Return the box that is the exact product of some boxes, or None."""
    boxes = set(members)
    if not boxes:
        return None
    axes = [set(values) for values in zip(*(box[1:] for box in boxes), strict=True)]
    if math.prod(map(len, axes)) != len(boxes):
        return None
    return Box._make((members[0].family, *map(_unite_axis, axes)))


def _unite_axis(values: set[object]) -> object:
    bits = 0
    spans: list[Span] = []
    for value in values:
        if isinstance(value, int):
            bits |= value
        elif isinstance(value, tuple):
            spans += value
    return union(spans) if spans else bits
