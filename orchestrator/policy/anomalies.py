"""Relations of one direction's rules: dead rules, redundant rules, conflicts.

    rows of each IP version ──▶ cover: covered by earlier rows? ──▶ dead rules (duplicates, shadowed)
                                       │ without the dead
                                       └──▶ cover: crossings ──▶ redundant rules, conflicts

Rules, not rows: a rule that matches in both IP versions is dead if it is in both, and lies in another if it does in
both. Where connections are tracked, a stateless rule does something else than one of the same action that is not.
The rows of dead rules are left out of the second half, the dead rows of other rules are not (see `findings`).
Then of a rule that could go it is asked once more with the dead there: it may be what holds one down.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family
from orchestrator.policy.cover import (
    DEFAULT_LIMITS,
    EARLIER_INSIDE,
    FREE,
    HELD,
    LATER_INSIDE,
    MAY_MATTER,
    UNKNOWN,
    Bytes,
    Cover,
    Crossings,
    Limits,
    Points,
)
from orchestrator.policy.model import Packet, Rule, RuleId
from orchestrator.policy.ranks import Coordinates
from orchestrator.policy.rulelist import Row
from orchestrator.policy.space import Box

Told = Callable[[int], None]
_NEVER_ENDS = dt.datetime.max.replace(tzinfo=dt.UTC)


def end_of(rule: Rule) -> dt.datetime:
    """Return when a rule ends; the end of all times if it stays."""
    return rule.expires or _NEVER_ENDS


Indices = npt.NDArray[np.int64]

_PERMITS = 1
"""The bit of a row's answer that says whether packets pass."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A rule that decides nothing, and the packets it would match.

    `like`: an equal earlier rule that does not end before it; else `takers`: every rule that takes some of its packets,
    or None where these were not found within the limits.
    """

    rule: Rule
    witness: Packet
    like: RuleId | None
    takers: tuple[RuleId, ...] | None


@dataclass(frozen=True, slots=True)
class Idle:
    """A redundant rule, and a packet it decides.

    With the later rules (or the default) that decide the same without it; None where these were not found within the
    limits.
    """

    rule: Rule
    witness: Packet
    heirs: tuple[RuleId, ...] | None


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Pairs of rules whose order matters, in columns.

    Their positions, a packet's `points`, and whether the earlier permits. The later rules' positions ascend.
    """

    coordinates: Coordinates
    earlier: Indices
    later: Indices
    points: Points
    earlier_permits: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.later)

    def chosen(self, which: npt.NDArray[np.bool_]) -> Conflicts:
        """Select some of the conflicts."""
        return replace(
            self,
            earlier=self.earlier[which],
            later=self.later[which],
            points=self.points[which],
            earlier_permits=self.earlier_permits[which],
        )


@dataclass(frozen=True, slots=True)
class Unknown:
    """The undecided part of a rule, because of limits.

    Whether it is dead or redundant, whether any earlier one conflicts (no `earlier`), or whether these do.
    """

    rule: RuleId
    earlier: tuple[RuleId, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a list to judge.

    It has the rules to judge with all their neighbours, and the other rules known to be dead.
    """

    judged: frozenset[str]
    dead: frozenset[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rule stands in the list of one IP version."""

    version: Version
    row: int


class Version:
    """The list of one IP version: its rows, and the results so far."""

    def __init__(self, rows: Sequence[Row], limits: Limits) -> None:
        self.rows = rows
        self.cover = Cover([row.box for row in rows], limits)
        self.answers: Bytes = np.array([row.answer for row in rows], np.uint8)
        self.listed = np.array([not row.id.startswith("_") for row in rows], np.bool_)
        self.positions: Indices = np.array([row.position for row in rows], np.int64)
        self.state: Bytes = np.zeros(len(rows), np.uint8)
        self.points: Points = np.zeros((len(rows), 0), np.uint32)
        self.counts: Bytes = np.ones(len(rows), np.uint8)
        self.matters: Bytes = np.zeros(len(rows), np.uint8)
        self._dead_answers: set[int] = set()

    def leave_out(self, row: int) -> None:
        """Leave out the row of a dead rule."""
        self.counts[row] = 0
        self._dead_answers.add(int(self.answers[row]))

    def wakes(self, row: int) -> bool | None:
        """Return whether a dead rule would decide otherwise without this row, which crosses none.

        None: undecided.
        """
        if self.state[row] == HELD or not self._dead_answers - {int(self.answers[row])}:
            return False
        before_and_after: Bytes = np.full(len(self.rows), 3, np.uint8)
        before_and_after[row] = 1
        found = self.cover.changes(self.answers, before_and_after, row)
        return None if found is None else bool(found)

    def packet(self, row: int) -> Packet:
        """A packet that a row decides; it must not be covered."""
        return self.cover.coordinates.packet(self.points[row].tolist())


class Anomalies:
    """The rules of one direction, judged.

    `told` is called with the number of rows done; each is done twice.

    With a `scope` it speaks of the rules to judge alone, and of conflicts that one of them is in.
    """

    def __init__(
        self,
        rows: dict[Family, tuple[Row, ...]],
        limits: Limits = DEFAULT_LIMITS,
        told: Told = lambda _: None,
        scope: Scope | None = None,
    ) -> None:
        self._scope = scope
        self._versions = [Version(listed, limits) for listed in rows.values()]
        self._told = told
        self._done = 0
        self.places: dict[RuleId, list[Place]] = {}
        for version in self._versions:
            for number, row in enumerate(version.rows):
                self.places.setdefault(row.id, []).append(Place(version, number))
            version.state, version.points = version.cover.find_covered(self._tell_progress())
            self._done += len(version.rows)
        self._rules = self._in_order()
        self.dead = tuple(self._find_dead())
        self._leave_rules_out({dead.rule.id for dead in self.dead})
        if scope is not None:
            self._leave_rules_out({rule.id for rule in self._rules if rule.id in scope.dead})
        self.conflicts: list[Conflicts] = []
        self._open: list[Unknown] = []
        self._crowded: dict[RuleId, None] = {}
        for version in self._versions:
            self._cross(version)

    def _tell_progress(self) -> Told:
        before = self._done
        return lambda rows: self._told(before + rows)

    def _in_order(self) -> list[Rule]:
        """The rules that the list itself has, without return traffic and default."""
        rules = {row.position: row.rule for version in self._versions for row in version.rows if row.rule is not None}
        return [rule for _, rule in sorted(rules.items()) if not rule.id.startswith("_")]

    def _find_dead(self) -> Iterator[Dead]:
        alike: dict[tuple[object, ...], list[Rule]] = {}
        for rule in self._rules:
            here = self.places[rule.id]
            earlier = alike.setdefault((_answer(here), *(_row_at(place).box for place in here)), [])  # later ends last
            place = bisect_left(earlier, end_of(rule), key=end_of)
            like = earlier[place].id if place < len(earlier) else None
            if like is None:
                earlier.append(rule)
            if not self.speaks_of(rule.id):
                continue
            if like is not None:
                yield Dead(rule, _row_at(here[0]).box.witness(), like, (like,))
            elif all(place.version.state[place.row] == HELD for place in here):
                yield Dead(rule, _row_at(here[0]).box.witness(), None, _name_rules(here, _find_deciders))

    def speaks_of(self, rule: RuleId) -> bool:
        """Whether the rule is to be judged."""
        return self._scope is None or rule in self._scope.judged

    def boxes(self, rule: RuleId) -> list[Box]:
        """Return a rule's boxes in each IP version; empty if it matches nothing."""
        return [_row_at(place).box for place in self.places.get(rule, ())]

    def _leave_rules_out(self, names: set[RuleId]) -> None:
        for name in names:
            for place in self.places[name]:
                place.version.leave_out(place.row)

    def _cross(self, version: Version) -> None:
        """Keep one IP version's new conflicts and undecided pairs."""
        alone = np.array([len(self.places[row.id]) == 1 for row in version.rows], np.uint8)
        seen = np.concatenate([np.zeros(0, np.int64), *(each.earlier << 32 | each.later for each in self.conflicts)])
        parts = version.cover.crossings(version.answers, version.counts, alone, version.matters, self._tell_progress())
        for part in parts:
            chosen = self._of_rules(version, part)
            undecided = (part.flags.take(chosen) & UNKNOWN) > 0
            if undecided.any():
                self._open += _list_undecided(version, part, chosen[undecided])
                chosen = chosen[~undecided]
            if len(seen):
                rows = part.earlier.take(chosen), part.later.take(chosen)
                chosen = chosen[~np.isin(version.positions[rows[0]] << 32 | version.positions[rows[1]], seen)]
            if len(chosen):
                self.conflicts.append(_make_conflicts(version, part, chosen))
        crowded = (row for row in version.cover.untold if version.listed[row] and version.counts[row])
        self._crowded.update(dict.fromkeys(version.rows[row].id for row in crowded))
        self._done += len(version.rows)

    def _of_rules(self, version: Version, crossings: Crossings) -> npt.NDArray[np.intp]:
        """Return crossings of rules with other actions, neither of which lies in the other."""
        keep = version.listed[crossings.earlier] & version.listed[crossings.later]
        keep &= (version.answers[crossings.earlier] ^ version.answers[crossings.later]) & _PERMITS > 0
        if self._scope is not None:
            judged = np.array([self.speaks_of(row.id) for row in version.rows], np.bool_)
            keep &= judged[crossings.earlier] | judged[crossings.later]
        for index in np.flatnonzero(keep & ((crossings.flags & (EARLIER_INSIDE | LATER_INSIDE)) > 0)).tolist():
            earlier, later = (self.places[version.rows[row[index]].id] for row in (crossings.earlier, crossings.later))
            flags = crossings.flags[index]
            keep[index] = not (
                (flags & EARLIER_INSIDE and _is_inside(earlier, later))
                or (flags & LATER_INSIDE and _is_inside(later, earlier))
            )
        return np.flatnonzero(keep)

    def idle(self) -> Iterator[Idle]:
        """Every redundant rule, in order."""
        for rule in self._list_alive():
            here = self.places[rule.id]
            if self._matters(here):
                continue
            free = next((place for place in here if place.version.state[place.row] == FREE), None)
            if free is None:
                continue
            wakes = [place.version.wakes(place.row) for place in here]
            if None in wakes:
                self._open.append(Unknown(rule.id, (), "is redundant"))
            elif True not in wakes:
                yield Idle(rule, free.version.packet(free.row), _name_rules(here, _find_heirs))

    def _list_alive(self) -> Iterator[Rule]:
        return (rule for rule in self._rules if self.speaks_of(rule.id) and _counts(self.places[rule.id]))

    def _matters(self, here: Sequence[Place]) -> int:
        """Return MATTERS and MAY_MATTER of a rule, in either IP version."""
        found = 0
        for place in here:
            found |= int(place.version.matters[place.row])
        return found

    def unknown(self) -> Iterator[Unknown]:
        """Yield everything undecided within the limits."""
        for rule in self._list_alive():
            here = self.places[rule.id]
            if all(place.version.state[place.row] != FREE for place in here):
                yield Unknown(rule.id, (), "is shadowed")
            elif self._matters(here) == MAY_MATTER:
                yield Unknown(rule.id, (), "is redundant")
        yield from self._open
        yield from (Unknown(rule, (), "conflicts with rules before it") for rule in self._crowded)


def _make_conflicts(version: Version, crossings: Crossings, chosen: npt.NDArray[np.intp]) -> Conflicts:
    earlier = crossings.earlier.take(chosen)
    return Conflicts(
        version.cover.coordinates,
        version.positions[earlier],
        version.positions[crossings.later.take(chosen)],
        crossings.points.take(chosen, axis=0),
        (version.answers[earlier] & _PERMITS).view(np.bool_),
    )


def _list_undecided(version: Version, crossings: Crossings, chosen: npt.NDArray[np.intp]) -> Iterator[Unknown]:
    pairs: dict[int, list[int]] = {}
    for index in chosen.tolist():
        pairs.setdefault(int(crossings.later[index]), []).append(int(crossings.earlier[index]))
    for later, earlier in pairs.items():
        yield Unknown(version.rows[later].id, tuple(version.rows[row].id for row in earlier), "conflicts")


def _counts(here: Sequence[Place]) -> bool:
    """Whether a rule was not found dead."""
    return all(place.version.counts[place.row] for place in here)


def _answer(here: Sequence[Place]) -> int:
    """Return what a rule does to its packets, the same in both IP versions."""
    return _row_at(here[0]).answer


def _row_at(place: Place) -> Row:
    return place.version.rows[place.row]


def _is_inside(inner: Sequence[Place], outer: Sequence[Place]) -> bool:
    return all(any(_row_at(big).box.contains(_row_at(small).box) for big in outer) for small in inner)


def _find_deciders(place: Place) -> list[int] | None:
    """Return the earlier rows that decide part of a row's packets; None: undecided."""
    return place.version.cover.deciders(place.version.counts, place.row)


def _find_heirs(place: Place) -> list[int] | None:
    """Return later rows that suffice when a row goes; None: undecided."""
    if place.version.state[place.row] == HELD:
        return []
    return place.version.cover.heirs(place.version.answers, place.version.counts, place.row)


def _name_rules(here: Sequence[Place], ask: Callable[[Place], list[int] | None]) -> tuple[RuleId, ...] | None:
    """Return the ids of rows for all places of a rule.

    Each once, in the order of the list.
    """
    found: dict[int, RuleId] = {}
    for place in here:
        rows = ask(place)
        if rows is None:
            return None
        found.update((place.version.rows[row].position, place.version.rows[row].id) for row in rows)
    return tuple(found[position] for position in sorted(found))
