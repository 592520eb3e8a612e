"""Intersection first: which program may be published now on the way to a domain's newest policy.

Switches follow at different moments. Where a mix of what they may hold and the newest policy could let through what no
policy permits (`policy/intersection.py`), the newest policy is published narrowed to the intersection, as the
generation before its own; when every host was read back to hold that, the policy itself follows.

    what hosts may hold ──┬── read back at a generation: that program, or any that was published since
                          └── read back before this service started: the lists of that generation, from the store
    next(newest) ── none of these, mixed with the newest, leaks ──▶ the newest, as generation g
                 └─ some does ──▶ the newest narrowed, as generation g - 1; asked again at every report

Nothing of this is kept but in memory: what is to be held back follows from what was read back where, and from the
history of the lists, both in the store. So a restart in the middle comes to the same intersection and goes on to the
target. A host that does not answer keeps the domain at the intersection (everything else of the newest policy is in
force) until it answers or is taken out of the domain. A host that was never read back counts as empty. What was read
back counts half a second later: so long may a switch's cache still decide by its old flows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import structlog

from orchestrator.compile.cookies import HIGHEST_NUMBER
from orchestrator.compile.equivalence.edits import edits_of
from orchestrator.policy.intersection import narrowed, withheld
from orchestrator.policy.model import Acl, Action, Direction, Policy, Rule, Tenant
from orchestrator.policy.space import Box, boxes_of
from orchestrator.program.program import Program
from orchestrator.store.records import UNWRITTEN, PolicySnapshot
from orchestrator.store.unit import Unit

log = structlog.get_logger()

CACHE_FOLLOWS_S = 0.5
"""How long a switch may go on deciding by its cache after its flows have changed; Open vSwitch looks through its cache
twice a second at the latest."""

_MOST_STEPS = 64
_MOST_PAIRS = 4096
_MOST_KNOWN = 256
_MOST_APART = 2
"""When more programs than so many may be held, or so many that have little in common with the one before and so need
their own memory, the database is asked which are."""


@dataclass(frozen=True, slots=True)
class _Published:
    """What hosts may hold since it was published, and how it came from what was published before."""

    generation: int
    digest: bytes
    policy: Policy
    touched: _Touched


@dataclass(frozen=True, slots=True)
class _Passed:
    """Since when no host holds anything older than a generation."""

    generation: int
    at_s: float


class Staging:
    """Remembers what was published of each domain, as far back as a host may still hold it. Safe between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._published: dict[str, tuple[_Published, ...]] = {}
        self._complete: set[str] = set()
        self._passed: dict[str, tuple[_Passed, ...]] = {}
        self._staged: dict[str, int] = {}
        self._looked_at: dict[str, tuple[Policy, Policy, _Touched]] = {}

    @property
    def staged(self) -> tuple[str, ...]:
        """The domains that are held at an intersection."""
        return tuple(self._staged)

    def due(self, domain: str, stored_generation: int) -> int:
        """The generation to be given out when the store is at one: the one before where that is staged."""
        return stored_generation - (self._staged.get(domain) == stored_generation)

    def next(self, unit: Unit, domain: str, newest: PolicySnapshot) -> PolicySnapshot:
        """What may be published now: `newest`, or what of it may follow already."""
        if self._is_plain(domain, newest.policy):
            return newest
        older, known = self._held(unit, domain, newest)
        suspects = [*older, *self._suspects(domain, known, newest.policy)]
        held = [policy for policy in suspects if _could_leak([_apart(policy, newest.policy)])]
        held_back = withheld(held, newest.policy) if held else {}
        if not held_back:
            return newest
        policy = narrowed(newest.policy, held_back, highest_number=HIGHEST_NUMBER)
        return replace(newest, policy=policy, generation=newest.generation - 1)

    def published(self, target: int, snapshot: PolicySnapshot, program: Program) -> None:
        """A program was published on the way to generation `target`."""
        domain, is_staged = program.domain, snapshot.generation < target
        with self._lock:
            known = self._published.get(domain, ())
            if known and known[-1].generation >= program.generation:
                return
            touched = self._touched(domain, known[-1].policy, snapshot.policy) if known else _NOTHING
            new = _Published(program.generation, program.digest, snapshot.policy, touched)
            self._published[domain] = (*known, new)
            self._looked_at.pop(domain, None)
            if is_staged and domain not in self._staged:
                log.info("intersection first", domain=domain, generation=snapshot.generation, target=target)
            if is_staged:
                self._staged[domain] = target
            else:
                self._staged.pop(domain, None)

    def reported(self, domain: str, generation: int) -> None:
        """A host of a domain was read back at a generation. An old one is looked for in the store next time."""
        with self._lock:
            known = self._published.get(domain, ())
            if not known or generation < known[0].generation:
                self._complete.discard(domain)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain that is no more."""
        with self._lock:
            self._published.pop(domain, None)
            self._staged.pop(domain, None)
            self._complete.discard(domain)
            self._passed.pop(domain, None)
            self._looked_at.pop(domain, None)

    def _is_plain(self, domain: str, newest: Policy) -> bool:
        """Whether nothing that any host may hold could leak, as far as that is known without asking the database.

        What lies between any of these and the newest is among the changes since the oldest, so one look is enough.
        """
        with self._lock:
            known = self._published.get(domain, ())
            apart = sum(each.touched.boxes is None for each in known[1:])
            if domain not in self._complete or not 0 < len(known) <= _MOST_KNOWN or apart > _MOST_APART:
                return False
            last = self._touched(domain, known[-1].policy, newest)
        return not _could_leak([*(each.touched for each in known[1:]), last])

    def _suspects(self, domain: str, known: Sequence[_Published], newest: Policy) -> list[Policy]:
        """Of the policies that hosts may hold those that are apart from the newest by changes that could leak."""
        if not known:
            return []
        changes = [self._touched(domain, known[-1].policy, newest)]
        for place in range(len(known) - 1, -1, -1):
            if _could_leak(changes):
                return [each.policy for each in known[: place + 1]]
            changes.append(known[place].touched)
        return []

    def _touched(self, domain: str, before: Policy, after: Policy) -> _Touched:
        """Where two policies differ; remembered from looking at a policy until it is published."""
        looked = self._looked_at.get(domain)
        if looked is None or looked[0] is not before or looked[1] is not after:
            self._looked_at[domain] = looked = (before, after, _apart(before, after))
        return looked[2]

    def _held(self, unit: Unit, domain: str, newest: PolicySnapshot) -> tuple[Iterable[Policy], Sequence[_Published]]:
        """What hosts may hold: policies from before this service started, and what was published since.

        What none can hold any more is forgotten.
        """
        records = unit.enforcers.switches(domain)  # others each enforce a whole policy by themselves: no mix can leak
        reports = [record.report for record in records]
        age_s = min(((unit.now - record.reported).total_seconds() for record in records), default=0.0)
        with self._lock:
            known = self._published.get(domain, ())
            place = {(each.generation, each.digest): number for number, each in enumerate(known)}
            since = [place.get((report.generation, report.digest), -1) for report in reports]
            first = max(min(since, default=len(known) - 1), 0)
            self._published[domain] = known = known[min(first, self._settled(domain, known, first, age_s)) :]
        before = {report.generation for report, number in zip(reports, since, strict=True) if number < 0}
        if before:
            self._complete.discard(domain)
        else:
            self._complete.add(domain)
        if not reports:
            return (), ()
        return [policy for generation in sorted(before) for policy in _policies_at(unit, newest, generation)], known

    def _settled(self, domain: str, known: tuple[_Published, ...], first: int, age_s: float) -> int:
        """The oldest program that may still decide packets: hosts hold the one at `first` or later, as they have said
        `age_s` ago, but a switch's cache follows its flows a little later."""
        if not known:
            return 0
        now, passed = self._clock(), self._passed.get(domain, ())
        if not passed or passed[-1].generation != known[first].generation:
            passed = (*passed, _Passed(known[first].generation, now - max(age_s, 0.0)))
        done = [place for place, each in enumerate(passed) if now - each.at_s >= CACHE_FOLLOWS_S]
        self._passed[domain] = passed = passed[done[-1] if done else 0 :]
        oldest = passed[0].generation if done else 0
        return next((place for place, each in enumerate(known) if each.generation >= oldest), first)


def _policies_at(unit: Unit, newest: PolicySnapshot, generation: int) -> Iterable[Policy]:
    """The policy as the lists were at a generation. Where one is not known any more, those at both its extremes."""
    if generation >= newest.generation:
        return (newest.policy,)
    lists = {tenant.id: _list_at(unit, tenant, generation) for tenant in newest.policy.tenants}
    extremes = (Action.PERMIT, Action.DENY), (Action.DENY, Action.PERMIT)
    unknown = [Acl(ingress_default=ingress, egress_default=egress) for ingress, egress in extremes]
    return tuple(
        replace(
            newest.policy,
            tenants=tuple(replace(tenant, acl=lists[tenant.id] or extreme) for tenant in newest.policy.tenants),
        )
        for extreme in (unknown if None in lists.values() else unknown[:1])
    )


def _list_at(unit: Unit, tenant: Tenant, generation: int) -> Acl | None:
    version = unit.acls.in_force(tenant.id, generation)
    if version is None or version == unit.acls.version(tenant.id):
        return None if version is None else tenant.acl
    return Acl() if version == UNWRITTEN else unit.acls.at(tenant.id, version).acl


# -------------------------------------------------------------------------------------- the short way for most changes


@dataclass(frozen=True, slots=True)
class _Touched:
    """Where two policies differ: in which directions and rules; None where these are not told apart."""

    ways: frozenset[Direction]
    boxes: tuple[tuple[Direction, Box], ...] | None


_BOTH_WAYS = frozenset(Direction)
_NOTHING = _Touched(frozenset(), ())


def _could_leak(changes: Sequence[_Touched]) -> bool:
    """Whether lists changed in both directions, and perhaps for the same packets. Most changes are told at once."""
    if frozenset[Direction]().union(*(each.ways for each in changes)) != _BOTH_WAYS:
        return False
    boxes = [pair for each in changes for pair in each.boxes or ()]
    leaving, arriving = (
        [box for way, box in boxes if way is wanted] for wanted in (Direction.EGRESS, Direction.INGRESS)
    )
    if any(each.boxes is None for each in changes) or len(leaving) * len(arriving) > _MOST_PAIRS:
        return True
    return any(one.overlaps(other) for one in leaving for other in arriving)


def _apart(old: Policy, new: Policy) -> _Touched:
    """Where two policies differ."""
    if old is new:
        return _NOTHING
    olds = {tenant.id: tenant for tenant in old.tenants}
    if olds.keys() != {tenant.id for tenant in new.tenants} or old.return_traffic is not new.return_traffic:
        return _Touched(_BOTH_WAYS, None)
    pairs = ((olds[tenant.id], tenant) for tenant in new.tenants)
    touched = [
        _lists_apart(*pair) for pair in pairs if pair[0].acl is not pair[1].acl or pair[0].prefixes != pair[1].prefixes
    ]
    unclear = any(each.boxes is None for each in touched)
    boxes = None if unclear else tuple(pair for each in touched for pair in each.boxes or ())
    return _Touched(frozenset(way for each in touched for way in each.ways), boxes)


def _lists_apart(before: Tenant, after: Tenant) -> _Touched:
    """What a list opens or closes lies in the rules that came, went or moved, and in those of changed groups."""
    old, new = before.acl, after.acl
    if before.prefixes != after.prefixes:
        return _Touched(_BOTH_WAYS, None)
    ways = {way for way in Direction if old.default(way) is not new.default(way)}
    groups = frozenset(name for name in {**old.groups, **new.groups} if old.groups.get(name) != new.groups.get(name))
    steps = edits_of(old.listed, new.listed, _MOST_STEPS)
    if steps is None or ways or groups:
        ways |= {way for way in Direction if _one_way(old, way) != _one_way(new, way)}
        ways |= {
            rule.direction for rule in new.rules if groups.intersection(rule.source.groups + rule.destination.groups)
        }
        return _Touched(frozenset(ways), None)
    changed = [new.listed[step.new] if step.is_insert else old.listed[step.old] for step in steps]
    boxes = tuple((rule.direction, box) for rule in changed for box in boxes_of(rule, new.groups))
    return _Touched(frozenset(rule.direction for rule in changed), boxes)


def _one_way(acl: Acl, way: Direction) -> list[Rule]:
    return [rule for rule in acl.rules if rule.direction is way]
