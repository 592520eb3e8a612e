"""Findings on an edited list: only rules near the change are judged again.

    judged list ── change ──▶ touched: changed rules, and rules that may share a packet with one of them
                                 │ judged among all rules that may share a packet with a touched one
                                 ├─ does one that stayed decide packets now, or no more?
                                 │      then rules near it are touched, too: once more
                                 └─▶ findings on touched rules from here, all others from before

What is said of a rule depends on the rules that share a packet with it, and on which of those are dead. A rule that no
change came near has the same ones as before, and none of them came to life or died unless that one is touched; so what
was said of it holds. For the same reason whether a rule is dead is told right among those near it; only of the rules
around, whose own neighbours are not all there, it is taken from before (`Scope`).

Where much is touched, or something was left undecided, the whole list is judged. Law: the findings are those of a check
from scratch, but for the packets that show them.

Bounds of rules in columns, to find rules that may share packets, thousands at once.

A rule's hull is the least interval that holds what it names, on five axes and for each IP version: protocol, source,
destination, source port, destination port; of IPv6 addresses the upper 64 bits. Hulls may meet where the rules do not,
never the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.alignment import common
from orchestrator.policy.anomalies import Conflicts, Scope
from orchestrator.policy.findings import Checks, Finding, Findings, Kind, check, on_groups
from orchestrator.policy.model import Acl, AddressGroup, Rule, families, trusted_acl
from orchestrator.policy.space import side

Places = npt.NDArray[np.intp]
Bits = npt.NDArray[np.bool_]
_Ends = npt.NDArray[np.uint64]
_Groups = Mapping[str, AddressGroup]

_AXES = 5
_NOTHING = (1,) * _AXES, (0,) * _AXES
_ANY_PROTOCOL = 0, 255


@dataclass(frozen=True, slots=True, eq=False)
class Hulls:
    """Each rule's lowest and highest values: uint64[IP versions][axes][rules].

    Crossed where it has none.
    """

    low: _Ends
    high: _Ends

    @classmethod
    def of(cls, rules: Sequence[Rule], groups: _Groups) -> Hulls:
        """Return the hull of every rule, in columns."""
        ends = np.array([[_make_hull(rule, family, groups) for rule in rules] for family in Family], np.uint64)
        shaped = ends.reshape(len(Family), len(rules), 2, _AXES).transpose(2, 0, 3, 1)
        return cls(np.ascontiguousarray(shaped[0]), np.ascontiguousarray(shaped[1]))

    def edit_hulls(self, kept: Places, into: Places, count: int, fresh: Hulls, places: Places) -> Hulls:
        """Return the hulls of `count` rules after an edit.

        Of `kept` here, which are at `into` there, and of `fresh` at `places`.
        """
        shape = len(Family), _AXES, count
        low, high = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
        for made, old, new in ((low, self.low, fresh.low), (high, self.high, fresh.high)):
            made[:, :, into] = old[:, :, kept]
            made[:, :, places] = new
        return Hulls(low, high)

    def meeting(self, places: Places) -> Bits:
        """Which rules may share a packet with one of those in some places."""
        found = np.zeros(self.low.shape[-1], np.bool_)
        for place in places.tolist():
            for family in range(len(Family)):
                low, high = self.low[family], self.high[family]
                found |= ((low <= high[:, place, None]) & (high >= low[:, place, None])).all(axis=0)
        return found


def _make_hull(rule: Rule, family: Family, groups: _Groups) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if family not in families(rule, groups):
        return _NOTHING
    protocol = _ANY_PROTOCOL if rule.protocol is None else (rule.protocol, rule.protocol)
    source, destination = (_enclose_side(each, groups, family) for each in (rule.source, rule.destination))
    from_port, to_port = ((ports[0].low, ports[-1].high) for ports in (rule.source_ports, rule.destination_ports))
    low, high = zip(protocol, source, destination, from_port, to_port, strict=True)
    return low, high


def _enclose_side(addresses: Addresses, groups: _Groups, family: Family) -> tuple[int, int]:
    named = side(addresses, groups, family)
    shift = 64 if family is Family.IPV6 else 0
    return named[0].low >> shift, named[-1].high >> shift


MOST_CHANGED = 256
"""Of more changed rules than these the whole list is judged."""
_MOST_AROUND = 0.5
"""And if this share of it would be."""
_DEAD = (Kind.DUPLICATE, Kind.SHADOWED)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A list, what was checked, and the findings."""

    acl: Acl
    checks: Checks
    findings: Findings
    hulls: Hulls

    @classmethod
    def of(cls, acl: Acl, checks: Checks) -> Judged:
        """Judge a whole list."""
        return cls(acl, checks, check(acl, checks), Hulls.of(acl.rules, acl.groups))


def recheck(before: Judged, acl: Acl, checks: Checks) -> Judged:
    """The findings on a list that is much like one that was judged."""
    change = _Change.between(before, acl, checks)
    found = change.findings(checks) if change is not None else None
    if change is None or found is None:
        return Judged.of(acl, checks)
    return Judged(acl, checks, found, change.hulls)


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A judged list and another.

    `old` and `new`: the places of the rules that both keep; `hulls`: of the other's.
    """

    before: Judged
    acl: Acl
    old: Places
    new: Places
    hulls: Hulls

    @classmethod
    def between(cls, before: Judged, acl: Acl, checks: Checks) -> _Change | None:
        """None where the lists have too little in common."""
        if _take_besides_rules(before.acl, before.checks) != _take_besides_rules(acl, checks):
            return None
        pairs = np.array(common(before.acl.rules, acl.rules), np.intp).reshape(-1, 2)
        old, new = pairs[:, 0], pairs[:, 1]
        if len(before.acl.rules) + len(acl.rules) - 2 * len(pairs) > MOST_CHANGED:
            return None
        come = _others(len(acl.rules), new)
        fresh = Hulls.of([acl.rules[place] for place in come.tolist()], acl.groups)
        return cls(before, acl, old, new, before.hulls.edit_hulls(old, new, len(acl.rules), fresh, come))

    def findings(self, checks: Checks) -> Findings | None:
        """Return the other list's findings; None if judging all of it is better."""
        dead = self._list_dead_before()
        touched = self._touched_rules()
        again = self._judge(touched, dead, checks)
        if again is None:
            return None
        turned = self._turned_rules(touched, dead, again)
        if len(turned):
            touched |= self.hulls.meeting(turned)
            again = self._judge(touched, dead, checks)
        return None if again is None else self._merge_findings(touched, again)

    def _touched_rules(self) -> Bits:
        """The rules that a change came near, and those about which the time decides."""
        gone = _others(len(self.before.acl.rules), self.old)
        come = _others(len(self.acl.rules), self.new)
        touched = self.hulls.meeting(come)
        touched[come] = True
        touched[self.new] |= self.before.hulls.meeting(gone)[self.old]
        return touched | np.array([rule.expires is not None for rule in self.acl.rules], np.bool_)

    def _list_dead_before(self) -> set[str]:
        return {finding.rules[0] for _, finding in self.before.findings.placed if finding.kind in _DEAD}

    def _judge(self, touched: Bits, dead: set[str], checks: Checks) -> Findings | None:
        """Findings on the touched rules, in their places in the whole list."""
        chosen = np.flatnonzero(touched)
        if len(chosen) > _MOST_AROUND * len(touched):
            return None
        places = np.flatnonzero(touched | self.hulls.meeting(chosen))
        if len(places) > _MOST_AROUND * len(touched):
            return None
        part = _select_rules(self.acl, places)
        judged = frozenset(self.acl.rules[place].id for place in chosen.tolist())
        found = check(part, checks, scope=Scope(judged, frozenset(dead - judged)))
        if Kind.UNDECIDED in found.counts or Kind.UNDECIDED in self.before.findings.counts:
            return None
        return found.placed_in(tuple(rule.id for rule in self.acl.rules), places)

    def _turned_rules(self, touched: Bits, dead: set[str], again: Findings) -> Places:
        """Return kept rules that began or ceased to decide packets."""
        now = {finding.rules[0] for _, finding in again.placed if finding.kind in _DEAD}
        stayed = self.new[touched[self.new]]
        names = (self.acl.rules[place].id for place in stayed.tolist())
        return stayed[np.array([(name in now) != (name in dead) for name in names], np.bool_)]

    def _merge_findings(self, touched: Bits, again: Findings) -> Findings:
        where = np.full(len(self.before.acl.rules), -1, np.intp)
        where[self.old] = self.new
        where[where >= 0] = np.where(touched[where[where >= 0]], -1, where[where >= 0])
        singles = [*_staying(self.before.findings, where), *again.placed]
        singles += [(len(self.acl.rules), finding) for finding in on_groups(self.acl)]
        kept = [_of_staying(each, where) for each in self.before.findings.conflicts]
        conflicts = [each for each in (*kept, *again.conflicts) if len(each)]
        return Findings(tuple(rule.id for rule in self.acl.rules), singles, conflicts)


def _staying(findings: Findings, where: Places) -> Iterator[tuple[int, Finding]]:
    """Yield findings on untouched rules, in their new places (-1: the rule is gone)."""
    for place, finding in findings.placed:
        if place < len(where) and where[place] >= 0:
            yield int(where[place]), finding


def _of_staying(conflicts: Conflicts, where: Places) -> Conflicts:
    """The conflicts of two rules that nothing came near."""
    earlier, later = where[conflicts.earlier], where[conflicts.later]
    return replace(conflicts, earlier=earlier, later=later).chosen((earlier >= 0) & (later >= 0))


def _others(count: int, places: Places) -> Places:
    """The places below `count` that are not among some."""
    chosen = np.ones(count, np.bool_)
    chosen[places] = False
    return np.flatnonzero(chosen)


def _take_besides_rules(acl: Acl, checks: Checks) -> tuple[object, ...]:
    return acl.groups, acl.ingress_default, acl.egress_default, replace(checks, now=None)


def _select_rules(acl: Acl, places: Places) -> Acl:
    rules: tuple[Rule, ...] = tuple(acl.rules[place] for place in places.tolist())
    return trusted_acl(rules, acl.groups, acl.ingress_default, acl.egress_default)


def brought(before: Findings, after: Findings) -> Findings:
    """Return the findings that the earlier list did not have.

    Same means same severity and same rule, group or pair.
    """
    known = {(finding.subject, finding.severity) for _, finding in before.placed}
    singles = [placed for placed in after.placed if (placed[1].subject, placed[1].severity) not in known]
    numbers = {name: number for number, name in enumerate(dict.fromkeys((*before.rules, *after.rules)))}
    pairs = [_pairs(each, np.array([numbers[name] for name in before.rules], np.int64)) for each in before.conflicts]
    seen = np.concatenate([np.zeros(0, np.int64), *pairs])
    those = np.array([numbers[name] for name in after.rules], np.int64)
    conflicts = [each.chosen(~np.isin(_pairs(each, those), seen)) for each in after.conflicts]
    return Findings(after.rules, singles, conflicts)


def _pairs(conflicts: Conflicts, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Number conflicts: equal for the same two rules in the same order."""
    pairs: npt.NDArray[np.int64] = numbers[conflicts.earlier] << 32 | numbers[conflicts.later] << 1
    return pairs | conflicts.earlier_permits
