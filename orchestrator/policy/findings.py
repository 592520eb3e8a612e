"""Find exactly the faults of an access list: every finding holds, none is missed.

    kind        said of a rule r                                              rules
    never       no packet can match it (an empty group, a contradiction)      r
    duplicate   an earlier rule has the same packets and the same action,     r, the first such rule
                and does not end before r
    shadowed    earlier rules together take all its packets                   r, every rule that takes some
    redundant   it decides packets, but without it they would fare the same   r, later rules that suffice for that
    conflict    an earlier rule with the other action overlaps it in part,    the earlier, the later
                and for some packet the order of these two decides
    wide        it permits a large part of the world a large part of ports    r
    expired     its time is over                                              r
    group       an address group names some addresses twice, or takes more    every rule that uses the group
                prefixes than it needs
    undecided   the limits of work ended before a question was answered       r, and the rules it was about

Rules count until they are taken out, so what a rule decides is said of now. Where rules that shadow another, or make it
redundant, end before it does, the finding is a note and says when: from then on the rule decides.

A rule is at most one of never, duplicate, shadowed and redundant, in this order. Redundancy and conflicts are judged on
the list without its never, duplicate and shadowed rules, which decide nothing. But a redundant rule may go while they
still stand: one that holds down a shadowed rule with the other answer is not called so. *Redundant* is said of each
rule alone: when two rules make each other redundant, both are reported, and only one may go; so remove one and check
again.

Each finding has a severity, with the reason for it (`_WEIGHTS` and the functions below):

    error       the list does not do what a rule of it says: a rule shadowed by one with the other action or mark
    warning     a rule decides nothing, or lets in more than it seems: look at it
    note        ordinary: a deny before a permit, a rule that could go, a wide permit of egress

Each finding but never and undecided carries a witness: a packet to try it with. For a shadowed or duplicate rule it is
one that the rule would have matched; for a group one to or from an address that it names needlessly, where a rule uses
it; else one that the rule decides.

The kinds follow Al-Shaer and Hamed, "Discovery of Policy Anomalies in Distributed Firewalls" (INFOCOM 2004), but are
decided on unions of rules and not on pairs, as Liu and Gouda do in "Complete Redundancy Detection in Firewalls" (DBSec
2005): there by decision diagrams, here by looking for a packet (`cover`).
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import overload

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.anomalies import Anomalies, Conflicts, Dead, Idle, Scope, Unknown, end_of
from orchestrator.policy.cover import DEFAULT_LIMITS, Limits
from orchestrator.policy.model import Acl, Action, Direction, GroupName, Packet, ReturnTraffic, Rule, RuleId
from orchestrator.policy.rulelist import DEFAULT_ID, Row, rule_rows
from orchestrator.policy.suspects import Remark, Wide, find_expired, why_never, wide, wordy

Told = Callable[[int, int], None]


class Kind(enum.Enum):
    """The kind of a finding; the table above tells when it is reported."""

    NEVER = "never"
    DUPLICATE = "duplicate"
    SHADOWED = "shadowed"
    REDUNDANT = "redundant"
    CONFLICT = "conflict"
    WIDE = "wide"
    EXPIRED = "expired"
    GROUP = "group"
    UNDECIDED = "undecided"


class Severity(enum.Enum):
    """How much a finding matters, the least first."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    def is_at_least(self, other: Severity) -> bool:
        """Whether it matters as much as another, or more."""
        order = list(Severity)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class Weight:
    """How much a finding matters, and why."""

    severity: Severity
    reason: str


_WEIGHTS: Mapping[Kind, Weight] = MappingProxyType(
    {
        Kind.NEVER: Weight(Severity.WARNING, "it decides nothing, whatever it is meant to do"),
        Kind.DUPLICATE: Weight(Severity.WARNING, "it decides nothing: the earlier rule says all of it"),
        Kind.SHADOWED: Weight(Severity.WARNING, "it decides nothing; its packets fare as it says all the same"),
        Kind.REDUNDANT: Weight(Severity.NOTE, "no packet fares otherwise without it; it may stand for its counts"),
        Kind.CONFLICT: Weight(Severity.NOTE, "a deny before a permit is how exceptions are written"),
        Kind.WIDE: Weight(Severity.WARNING, "it opens much: is that meant?"),
        Kind.EXPIRED: Weight(Severity.WARNING, "its time is over, and it still stands in the list"),
        Kind.GROUP: Weight(Severity.NOTE, "it costs entries and decides nothing otherwise"),
        Kind.UNDECIDED: Weight(Severity.WARNING, "nobody knows: the limits of work ended before the answer"),
    }
)
_CONTRADICTED = Weight(Severity.ERROR, "what it says does not happen: rules with the other action come first")
_OTHER_MARK = Weight(Severity.ERROR, "what it says does not happen: rules before it are stateless, or only it is")
_PERHAPS_CONTRADICTED = Weight(Severity.ERROR, "what it says may not happen: which rules take its packets is unknown")
_PERMITTED_FIRST = Weight(Severity.WARNING, "packets that the later rule denies are permitted before")
_FOR_NOW = Weight(Severity.NOTE, "it decides when rules before it have ended: keep it if that is meant")
_WIDE_OUT = Weight(Severity.NOTE, "most lists let their own side reach everything")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at.

    `rules` names the rule it is said of first (for a conflict: the earlier one); `group` the address group, where one
    is meant.
    """

    kind: Kind
    rules: tuple[RuleId, ...]
    witness: Packet | None
    explanation: str
    weight: Weight
    group: GroupName | None = None

    @property
    def severity(self) -> Severity:
        return self.weight.severity

    @property
    def subject(self) -> Subject:
        """The subject of the finding: the same after an edit of other rules."""
        about = self.rules if self.kind is Kind.CONFLICT else () if self.group else self.rules[:1]
        return Subject(self.kind, about, self.group)


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind of finding with its rule, a conflict's two rules, or its group."""

    kind: Kind
    rules: tuple[RuleId, ...] = ()
    group: GroupName | None = None

    @classmethod
    def subject_named(cls, kind: str, rules: Iterable[str], group: str | None) -> Subject:
        """The subject that documents name so. Raises ValueError for a kind that there is not."""
        return cls(Kind(kind), tuple(map(RuleId, rules)), None if group is None else GroupName(group))


@dataclass(frozen=True, slots=True)
class Checks:
    """The settings of a check beside the list.

    `own`: the tenant's prefixes, if known; then `any` on its own side means these. `returns`: the domain's return
    traffic; EXPLICIT judges the list by itself. `now`: for expiry; None checks none.
    """

    own: tuple[Prefix, ...] = ()
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT
    now: dt.datetime | None = None
    wide: Wide | None = field(default_factory=Wide)
    limits: Limits = DEFAULT_LIMITS


class Findings(Sequence[Finding]):
    """All findings on a list in rule order, then those on groups.

    A conflict stands with its later rule.

    There may be a million conflicts: they are kept in columns (`conflicts`), and made into values when looked at. All
    others are in `placed`, with the position of the rule each stands with.
    """

    def __init__(
        self, rules: tuple[RuleId, ...], singles: Sequence[tuple[int, Finding]], conflicts: Sequence[Conflicts]
    ) -> None:
        """`singles`: as `placed`. Positions in conflicts are of `rules`."""
        self.rules = rules
        self.placed = tuple(singles)
        self.conflicts = tuple(conflicts)
        starts = np.cumsum([len(singles), *map(len, conflicts)])
        self._starts: list[int] = starts.tolist()

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        places = np.array([place for place, _ in self.placed], np.int64)
        standing = np.concatenate([places, *(each.later for each in self.conflicts)])
        others = np.concatenate([np.full(len(places), -1), *(each.earlier for each in self.conflicts)])
        return np.lexsort((others, standing))

    @property
    def counts(self) -> Mapping[Kind, int]:
        """How many there are of each kind, of those that there are."""
        found = dict.fromkeys(Kind, 0)
        for _, finding in self.placed:
            found[finding.kind] += 1
        found[Kind.CONFLICT] = sum(map(len, self.conflicts))
        return {kind: count for kind, count in found.items() if count}

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        if isinstance(index, slice):
            return tuple(map(self._find_at, self._order[index].tolist()))
        return self._find_at(int(self._order[index]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Findings):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compared, not kept in sets

    def __iter__(self) -> Iterator[Finding]:
        return map(self._find_at, self._order.tolist())

    @property
    def severities(self) -> Mapping[Severity, int]:
        """How many there are of each severity, the worst first, of those that there are."""
        found = dict.fromkeys(reversed(Severity), 0)
        for _, finding in self.placed:
            found[finding.severity] += 1
        for each in self.conflicts:
            permitted = int(np.count_nonzero(each.earlier_permits))
            found[_PERMITTED_FIRST.severity] += permitted
            found[_WEIGHTS[Kind.CONFLICT].severity] += len(each) - permitted
        return {severity: count for severity, count in found.items() if count}

    def of(self, kinds: Sequence[Kind]) -> Findings:
        """Select the findings of some kinds."""
        kept = [placed for placed in self.placed if placed[1].kind in kinds]
        return Findings(self.rules, kept, self.conflicts if Kind.CONFLICT in kinds else ())

    def at_least(self, severity: Severity) -> Findings:
        """Select the findings of a severity, or more severe ones."""
        kept = [placed for placed in self.placed if placed[1].severity.is_at_least(severity)]
        conflicts = self.conflicts
        if not _WEIGHTS[Kind.CONFLICT].severity.is_at_least(severity):
            conflicts = tuple(each.chosen(each.earlier_permits.astype(bool)) for each in self.conflicts)
        if not _PERMITTED_FIRST.severity.is_at_least(severity):
            conflicts = ()
        return Findings(self.rules, kept, conflicts)

    def split(self, subjects: Collection[Subject]) -> tuple[Findings, Findings]:
        """Split off the findings that are about one of some subjects."""
        chosen = frozenset(subjects)
        inside = [placed[1].subject in chosen for placed in self.placed]
        numbers = {name: number for number, name in enumerate(self.rules)}
        pairs = [
            numbers[each.rules[0]] << 32 | numbers[each.rules[1]]
            for each in chosen
            if each.kind is Kind.CONFLICT and all(name in numbers for name in each.rules)
        ]
        masks = [np.isin(each.earlier << 32 | each.later, np.array(pairs, np.int64)) for each in self.conflicts]
        outer, inner = (
            Findings(
                self.rules,
                [placed for placed, within in zip(self.placed, inside, strict=True) if within is wanted],
                [each.chosen(mask == wanted) for each, mask in zip(self.conflicts, masks, strict=True)],
            )
            for wanted in (False, True)
        )
        return outer, inner

    def placed_in(self, rules: tuple[RuleId, ...], places: npt.NDArray[np.intp]) -> Findings:
        """Return the findings for a list that has this one's rules in some places."""
        conflicts = [replace(each, earlier=places[each.earlier], later=places[each.later]) for each in self.conflicts]
        return Findings(rules, [(int(places[place]), finding) for place, finding in self.placed], conflicts)

    def _find_at(self, number: int) -> Finding:
        if number < len(self.placed):
            return self.placed[number][1]
        part = next(index for index, conflicts in enumerate(self.conflicts) if number < self._starts[index + 1])
        return self._describe_conflict(self.conflicts[part], number - self._starts[part])

    def _describe_conflict(self, of: Conflicts, index: int) -> Finding:
        earlier, later = self.rules[of.earlier[index]], self.rules[of.later[index]]
        witness = of.coordinates.packet(of.points[index].tolist())
        first, second = ("permits", "denies") if of.earlier_permits[index] else ("denies", "permits")
        text = (
            f"'{earlier}' {first} and '{later}' {second} some packets in common, and neither contains the other: their "
            f"order decides"
        )
        weight = _PERMITTED_FIRST if of.earlier_permits[index] else _WEIGHTS[Kind.CONFLICT]
        return Finding(Kind.CONFLICT, (earlier, later), witness, text, weight)


@dataclass(slots=True)
class _Progress:
    """How many rows were done, of all; each is done twice."""

    told: Told
    total: int
    done: int = 0

    def tell_more(self, rows: int) -> None:
        self.told(self.done + rows, self.total)


def _estimate_work(versions: Mapping[Family, Sequence[Row]]) -> int:
    return 2 * sum(map(len, versions.values()))


def check(
    acl: Acl,
    checks: Checks = Checks(),
    told: Told = lambda _done, _total: None,
    scope: Scope | None = None,
) -> Findings:
    """Every finding on a list.

    `told` hears now and then how much is done, and of how much.

    With a `scope` the list is a part of another, and what is found is about the rules to judge alone; not on groups.
    """
    places = {rule.id: place for place, rule in enumerate(acl.rules)}
    rows = {
        direction: rule_rows(acl, direction, own=checks.own, returns=checks.returns)
        for direction in Direction
        if any(rule.direction is direction for rule in acl.rules)
    }
    progress = _Progress(told, sum(map(_estimate_work, rows.values())))
    found: list[Finding] = []
    conflicts: list[Conflicts] = []
    for direction, versions in rows.items():
        anomalies = Anomalies(versions, checks.limits, progress.tell_more, scope)
        progress.done += _estimate_work(versions)
        found += _among_rules(acl, direction, anomalies, checks.returns)
        found += _judge_single_rules(acl, direction, anomalies, checks)
        if len(rows) == 1:  # places among these are places in the list
            conflicts += anomalies.conflicts
            continue
        own = np.array([place for place, rule in enumerate(acl.rules) if rule.direction is direction], np.int64)
        conflicts += [replace(each, earlier=own[each.earlier], later=own[each.later]) for each in anomalies.conflicts]
    placed = [(places[finding.rules[0]], finding) for finding in found]
    if scope is None:
        placed += [(len(acl.rules), finding) for finding in on_groups(acl)]
    return Findings(tuple(places), placed, conflicts)


def _among_rules(acl: Acl, direction: Direction, anomalies: Anomalies, returns: ReturnTraffic) -> Iterator[Finding]:
    """Yield findings that follow from other rules, except conflicts."""
    for rule in acl.rules:
        if rule.direction is direction and rule.id not in anomalies.places and anomalies.speaks_of(rule.id):
            yield Finding(Kind.NEVER, (rule.id,), None, why_never(rule, acl), _WEIGHTS[Kind.NEVER])
    rules = {rule.id: rule for rule in acl.rules}
    for dead in anomalies.dead:
        yield _describe_dead(dead, rules, tracked=returns is ReturnTraffic.TRACKED)
    for idle in anomalies.idle():
        yield _describe_redundant(idle, rules)
    for unknown in anomalies.unknown():
        yield _report_undecided(unknown)


def _judge_single_rules(acl: Acl, direction: Direction, anomalies: Anomalies, checks: Checks) -> Iterator[Finding]:
    for rule in acl.rules:
        if rule.direction is direction and anomalies.speaks_of(rule.id):
            boxes = anomalies.boxes(rule.id)
            yield from _make_finding(Kind.EXPIRED, (rule.id,), find_expired(rule, boxes, checks.now))
            weight = _WIDE_OUT if direction is Direction.EGRESS else _WEIGHTS[Kind.WIDE]
            yield from _make_finding(Kind.WIDE, (rule.id,), wide(rule, boxes, acl, checks.wide), weight)


def on_groups(acl: Acl) -> Iterator[Finding]:
    """Yield findings on address groups."""
    users: dict[str, list[Rule]] = {}
    for rule in acl.rules:
        for name in dict.fromkeys((*rule.source.groups, *rule.destination.groups)):
            users.setdefault(name, []).append(rule)
    for group in acl.groups.values():
        named_by = users.get(group.name, [])
        for finding in _make_finding(Kind.GROUP, tuple(rule.id for rule in named_by), wordy(group, named_by, acl)):
            yield replace(finding, group=group.name)


def _make_finding(
    kind: Kind, rules: tuple[RuleId, ...], remark: Remark | None, weight: Weight | None = None
) -> Iterator[Finding]:
    if remark is not None:
        yield Finding(kind, rules, remark.witness, remark.text, weight or _WEIGHTS[kind])


def _first_to_end(rule: Rule, others: Iterable[RuleId], rules: Mapping[RuleId, Rule]) -> str:
    """Say which rule ends first, and when, if any ends before this one."""
    ending = min((rules[name] for name in others if name in rules), key=end_of, default=rule)
    if end_of(ending) >= end_of(rule):
        return ""
    return f", until '{ending.id}' ends on {end_of(ending).astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def _describe_dead(dead: Dead, rules: Mapping[RuleId, Rule], *, tracked: bool) -> Finding:
    name = dead.rule.id
    if dead.like is not None:
        text = f"'{name}' says the same as '{dead.like}' before it"
        return Finding(Kind.DUPLICATE, (name, dead.like), dead.witness, text, _WEIGHTS[Kind.DUPLICATE])
    if dead.takers is None:
        text = f"'{name}' never decides a packet: rules before it take all; which ones was not found within the limits"
        return Finding(Kind.SHADOWED, (name,), dead.witness, text, _PERHAPS_CONTRADICTED)
    take = "take" if len(dead.takers) > 1 else "takes"
    until = _first_to_end(dead.rule, dead.takers, rules)
    text = f"'{name}' {'' if until else 'never '}decides {'no' if until else 'a'} packet: {_list_names(dead.takers)} "
    text += f"before it {take} all{until}"
    actions, marks = ({getattr(rules[name], what) for name in dead.takers} for what in ("action", "stateless"))
    otherwise = _OTHER_MARK if tracked and marks - {dead.rule.stateless} else _WEIGHTS[Kind.SHADOWED]
    weight = _FOR_NOW if until else _CONTRADICTED if actions - {dead.rule.action} else otherwise
    return Finding(Kind.SHADOWED, (name, *dead.takers), dead.witness, text, weight)


def _describe_redundant(idle: Idle, listed: Mapping[RuleId, Rule]) -> Finding:
    does = "permitted" if idle.rule.action is Action.PERMIT else "denied"
    by = "others" if idle.heirs is None else _list_names(idle.heirs)
    rules = tuple(name for name in idle.heirs or () if name != DEFAULT_ID)
    until = _first_to_end(idle.rule, rules, listed)
    text = f"without '{idle.rule.id}' its packets are {does} all the same, by {by}{until}"
    return Finding(Kind.REDUNDANT, (idle.rule.id, *rules), idle.witness, text, _WEIGHTS[Kind.REDUNDANT])


def _report_undecided(unknown: Unknown) -> Finding:
    about = f" with {_list_names(unknown.earlier)}" if unknown.earlier else ""
    text = f"whether '{unknown.rule}' {unknown.what}{about} was not decided within the limits of work"
    return Finding(Kind.UNDECIDED, (unknown.rule, *unknown.earlier), None, text, _WEIGHTS[Kind.UNDECIDED])


def _list_names(names: Sequence[RuleId]) -> str:
    """A few rule ids for reading; more than five are counted."""
    words = ["the default" if name == DEFAULT_ID else f"'{name}'" for name in names]
    if len(words) > 5:
        words = [*words[:4], f"{len(words) - 4} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def soon_over(acl: Acl, checks: Checks, lead: dt.timedelta) -> tuple[Rule, ...]:
    """The rules that expire within `lead`."""
    ends = ((rule, rule.expires) for rule in acl.rules if rule.expires is not None)
    return tuple(rule for rule, end in ends if checks.now and dt.timedelta() < end - checks.now <= lead)
