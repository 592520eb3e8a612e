"""Intersection first: decide which program may be published towards the newest policy.

Switches follow at different moments. Where a mix of what they may hold and the newest policy could let through what no
policy permits (`policy/intersection.py`), the newest policy is published narrowed to the intersection, as the
generation before its own; when every host was read back to hold that, the policy itself follows.

    what hosts may hold ──┬── read back at a generation: that program, or any that was published since
                          ├── read back before this service started: the lists of that generation, or of any since
                          ├── not read back yet: any since it came, or since it was read back last if it was there
                          │   before
                          └── not read back since the store was put back to an earlier state: any list whatever
    held_back(newest) ── none of these, mixed with the newest, leaks ──▶ nothing: the newest, as generation g
                      └─ some does ──▶ the newest narrowed, as generation g - 1; asked again at every report

The service that commits a change decides, and what is held back is kept with the change: every publisher, another
process of the same database or this one after a restart, publishes the same intersection, or the change at once. Each
service decides for itself when the target may follow, from what was read back where and from the history of the lists,
both in the store. Where other processes commit too, what they did between two programs of ours is looked up.

A host that does not answer keeps the domain at the intersection (everything else of the newest policy is in force)
until it answers or is taken out of the domain. A read-back counts half a second later: so long may a switch's cache
still decide by its old flows.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import structlog

from orchestrator.compile.cookies import HIGHEST_NUMBER
from orchestrator.control.policychanges import BOTH_WAYS, NOTHING, Touched, compare_policies, could_leak
from orchestrator.policy.intersection import find_step, withheld
from orchestrator.policy.listmoves import Comparisons
from orchestrator.policy.model import Acl, Action, Direction, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.narrowing import Narrowings, Withheld, narrow
from orchestrator.policy.policystep import PolicyStep
from orchestrator.policy.stateless import is_mixed
from orchestrator.program.program import Program
from orchestrator.store.points.pointrecords import HeldRecord
from orchestrator.store.records import UNWRITTEN, PolicySnapshot
from orchestrator.store.sql.clock import Ages
from orchestrator.store.unit import Unit

log = structlog.get_logger()

CACHE_FOLLOWS_S = 0.5
"""How long a switch may go on deciding by its cache after its flows have changed; Open vSwitch looks through its cache
twice a second at the latest."""

_MOST_KNOWN = 256
_LOOK_EVERY = 128
"""The database is asked once in so many programs what hosts hold, which takes two looks some time apart to forget what
they do not: where it was first asked at the most, each change would ask until that time is over."""
_MOST_STATES = 32
"""When lists changed more often than so while a host may have followed, those that did are taken for anything."""
_MOST_STRIDE = 2
"""How far a change moves the generation."""
_MOST_APART = 2
"""When more programs than so many may be held, or so many that have little in common with the one before and so need
their own memory, the database is asked which are."""


@dataclass(frozen=True, slots=True)
class _Published:
    """A published program, and its change from the one before."""

    generation: int
    digest: bytes
    policy: Policy
    touched: Touched


class _History:
    """The published programs of a domain that hosts may still hold.

    The changes from each to the next are summed up as it grows: most changes are judged by that, however many there
    were.
    """

    def __init__(self, programs: Iterable[_Published] = ()) -> None:
        self.programs: list[_Published] = []
        self.unclear = 0
        """How many changes are not told apart."""
        self._ways: frozenset[Direction] = frozenset()
        for program in programs:
            self.append(program)

    def append(self, program: _Published) -> None:
        """Note that a program was published."""
        if self.programs:  # how the oldest came about does not matter any more
            self._ways |= program.touched.ways
            self.unclear += program.touched.rules is None
        self.programs.append(program)

    def changes(self, last: Touched) -> list[Touched]:
        """Return the changes since the oldest, with one more.

        None where all are of one direction, for these leak nothing.
        """
        if self._ways | last.ways != BOTH_WAYS:
            return []
        return [*(each.touched for each in self.programs[1:]), last]


@dataclass(frozen=True, slots=True)
class _Passed:
    """Since when no host holds anything older than a generation."""

    generation: int
    at_s: float


@dataclass(frozen=True, slots=True)
class _Memory:
    """The state of a domain that is remembered while an intersection goes first.

    It is kept from one question to the next.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    comparisons: Comparisons = field(default_factory=Comparisons)
    narrowings: Narrowings = field(default_factory=Narrowings)


class Staging:
    """Remembers each domain's published programs, while hosts may hold them.

    Safe between threads.

    `is_alone`: no other process commits.
    """

    def __init__(self, *, is_alone: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_alone = is_alone
        self._clock = clock
        self._ages = Ages(clock)
        self._lock = threading.Lock()
        self.histories: defaultdict[str, _History] = defaultdict(_History)
        self._complete: set[str] = set()
        self._passed: dict[str, tuple[_Passed, ...]] = {}
        self._staged: dict[str, int] = {}
        self._looked_at: dict[str, tuple[Policy, Policy, Touched]] = {}
        self._memories: defaultdict[str, _Memory] = defaultdict(_Memory)
        self._looked_from: dict[str, int] = {}
        """The oldest generation that any host was read back at, when that was asked last."""
        self._decided_from: dict[str, int] = {}
        """The same of the decision about the program that was published last."""

    @property
    def staged(self) -> tuple[str, ...]:
        """The domains that are held at an intersection."""
        return tuple(self._staged)

    def is_staged(self, domain: str) -> bool:
        """Return whether a domain is held at an intersection."""
        return domain in self._staged

    def due(self, domain: str, stored_generation: int) -> int:
        """Return the generation to publish for the store's: the one before if staged."""
        return stored_generation - (self._staged.get(domain) == stored_generation)

    def held_back(self, unit: Unit, domain: str, newest: PolicySnapshot) -> Withheld:
        """Return what must be held back of a policy for now; empty: nothing."""
        if not unit.moves_hosts and self._is_plain(domain, newest):
            return Withheld()
        return self._held_back(unit, domain, newest)

    def decide(self, unit: Unit, domain: str, newest: PolicySnapshot) -> None:
        """Store what is held back before a policy that no single change led to."""
        held_back = self._held_back(unit, domain, newest, whole=True)
        if held_back:
            unit.intersections.keep(domain, newest.generation, held_back)
        else:
            unit.intersections.drop(domain)

    def _held_back(self, unit: Unit, domain: str, newest: PolicySnapshot, *, whole: bool = False) -> Withheld:
        """Return what must be held back, as the database says what hosts hold.

        `whole`: nobody has decided yet about the program that was published last.
        """
        hosts = unit.enforcers.switches(domain)  # others each enforce a whole policy by themselves: no mix can leak
        is_decided = not (whole or unit.moves_hosts)
        find_latest = cache(lambda: self._latest_step(unit, domain, newest, hosts) if is_decided else None)
        older, known = self._policies_held(unit, domain, newest, hosts, find_latest)
        self._looked_from[domain] = min((host.generation for host in hosts), default=0)
        suspects = [*older, *self._suspects(domain, known, newest.policy)]
        held = [policy for policy in suspects if could_leak([compare_policies(policy, newest.policy)])]
        if not held:
            return Withheld()
        step, memory = find_latest(), self._memories[domain]
        with memory.lock:
            return withheld(held, newest.policy, memory.comparisons, step)

    def _latest_step(
        self, unit: Unit, domain: str, newest: PolicySnapshot, hosts: Sequence[HeldRecord]
    ) -> PolicyStep | None:
        """Return the step from the last published program, if only that is undecided.

        None where hosts may hold what they could not when that was decided, or other services may have published since.
        """
        with self._lock:
            history = self.histories.get(domain)
            decided_from = self._decided_from.get(domain, 0)
        if history is None or any(host.is_strange or host.generation < decided_from for host in hosts):
            return None
        last, policy = history.programs[-1], newest.policy
        if not self._is_alone and last.generation < newest.generation - unit.stride:
            return None
        if last.policy.return_traffic is not policy.return_traffic or last.policy.holds_replies:
            return None
        if is_mixed(last.policy) or is_mixed(policy):  # then a step holds back all that it opens, in any list
            return None
        memory = self._memories[domain]
        with memory.lock:
            return find_step(last.policy, policy, memory.comparisons)

    def following(self, unit: Unit, domain: str, newest: PolicySnapshot) -> PolicySnapshot:
        """Return the policy to publish for a committed one: itself, or the intersection."""
        kept = unit.intersections.before(domain, newest.generation)
        if kept is None or not self.held_back(unit, domain, newest):
            return newest
        return self.intersection_of(domain, newest, kept)

    def intersection_of(self, domain: str, newest: PolicySnapshot, held_back: Withheld) -> PolicySnapshot:
        """Return the newest policy without what is held back, one generation earlier."""
        memory = self._memories[domain]
        with memory.lock:
            policy = narrow(newest.policy, held_back, highest_number=HIGHEST_NUMBER, known=memory.narrowings)
        return replace(newest, policy=policy, generation=newest.generation - 1)

    def note_published(self, target: int, snapshot: PolicySnapshot, program: Program) -> None:
        """Note what was published on the way to generation `target`."""
        domain, is_staged = program.domain, snapshot.generation < target
        with self._lock:
            history = self.histories[domain]
            last = history.programs[-1] if history.programs else None
            if last is not None and last.generation >= program.generation:
                return
            touched = NOTHING if last is None else self._find_touched(domain, last.policy, snapshot.policy)
            history.append(_Published(program.generation, program.digest, snapshot.policy, touched))
            self._looked_at.pop(domain, None)
            if domain in self._looked_from:
                self._decided_from[domain] = self._looked_from.pop(domain)
            if is_staged and domain not in self._staged:
                log.info("intersection first", domain=domain, generation=snapshot.generation, target=target)
            if is_staged:
                self._staged[domain] = target
            else:
                self._staged.pop(domain, None)
                self._memories.pop(domain, None)

    def note_report(self, domain: str, generation: int) -> None:
        """Take note of a host's read-back.

        An old generation is looked for in the store next time.
        """
        with self._lock:
            history = self.histories.get(domain)
            if history is None or generation < history.programs[0].generation:
                self._complete.discard(domain)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain that is no more."""
        with self._lock:
            self.histories.pop(domain, None)
            self._staged.pop(domain, None)
            self._complete.discard(domain)
            self._passed.pop(domain, None)
            self._looked_at.pop(domain, None)
            self._memories.pop(domain, None)
            self._looked_from.pop(domain, None)
            self._decided_from.pop(domain, None)

    def _is_plain(self, domain: str, newest: PolicySnapshot) -> bool:
        """Return whether no host can leak, as far as known without the database.

        Changes between any of these and the newest are among the changes since the oldest, so one look is enough.
        """
        with self._lock:
            history = self.histories.get(domain)
            if history is None or domain not in self._complete or history.unclear > _MOST_APART:
                return False
            if len(history.programs) > _MOST_KNOWN or len(history.programs) % _LOOK_EVERY == 0:
                return False
            last = history.programs[-1]
            if newest.generation - last.generation > _MOST_STRIDE:  # it was raised, by what a host holds
                return False
            changes = history.changes(self._find_touched(domain, last.policy, newest.policy))
        return not could_leak(changes)

    def _suspects(self, domain: str, known: Sequence[_Published], newest: Policy) -> list[Policy]:
        """Return the policies that hosts may hold with changes that could leak."""
        if not known:
            return []
        changes = [self._find_touched(domain, known[-1].policy, newest)]
        for place in range(len(known) - 1, -1, -1):
            if could_leak(changes):
                return [each.policy for each in known[: place + 1]]
            changes.append(known[place].touched)
        return []

    def _find_touched(self, domain: str, before: Policy, after: Policy) -> Touched:
        """Where two policies differ; remembered from looking at a policy until it is published."""
        looked = self._looked_at.get(domain)
        if looked is None or looked[0] is not before or looked[1] is not after:
            self._looked_at[domain] = looked = (before, after, compare_policies(before, after))
        return looked[2]

    def _policies_held(
        self,
        unit: Unit,
        domain: str,
        newest: PolicySnapshot,
        hosts: Sequence[HeldRecord],
        find_latest: Callable[[], PolicyStep | None],
    ) -> tuple[Iterable[Policy], Sequence[_Published]]:
        """Return what hosts may hold: policies from before the start, and published programs.

        Programs that no host can hold any more are forgotten. Lists that the latest step does not concern are the
        newest; it is looked for only where old lists are read, for that compares the lists.
        """
        ages = [self._ages.since(host.reported, unit.now) for host in hosts if host.reported is not None]
        with self._lock:
            history = self.histories.get(domain)
            known = () if history is None else tuple(history.programs)
            places, before = _places(known, hosts)
            oldest = min((host.generation for host in hosts), default=known[-1].generation if known else 0)
            first = min(*places, self._oldest_deciding(domain, known, oldest, min(ages, default=0.0)))
            if known:
                self.histories[domain] = _History(known[min(first, len(known) - 1) :])
        if hosts and known and not self._is_alone and known[-1].generation < newest.generation - 1:
            before.append(known[-1].generation)  # others may have published what came since
        if before or not self._is_alone:
            self._complete.discard(domain)
        else:
            self._complete.add(domain)
        if not hosts:
            return (), ()
        if any(host.is_strange for host in hosts):
            any_list: dict[TenantId, Acl | None] = dict.fromkeys(each.id for each in newest.policy.tenants)
            return _with_lists(newest.policy, any_list), known[first:]
        if not before:
            return (), known[first:]
        return _policies_since(unit, domain, newest, min(before), find_latest()), known[first:]

    def _oldest_deciding(self, domain: str, known: Sequence[_Published], generation: int, age_s: float) -> int:
        """Return the oldest program that may still decide packets.

        Hosts hold those of `generation` or later, as they have said `age_s` ago, but a switch's cache follows its flows
        a little later.
        """
        now, passed = self._clock(), self._passed.get(domain, ())
        if not passed or passed[-1].generation != generation:
            passed = (*passed, _Passed(generation, now - max(age_s, 0.0)))
        done = [place for place, each in enumerate(passed) if now - each.at_s >= CACHE_FOLLOWS_S]
        self._passed[domain] = passed = passed[done[-1] if done else 0 :]
        return _place(known, passed[0].generation) if done else 0


def _place(known: Sequence[_Published], generation: int) -> int:
    """Return the place of the first program of a generation or later."""
    return bisect_left(known, generation, key=lambda each: each.generation)


def _places(known: Sequence[_Published], hosts: Sequence[HeldRecord]) -> tuple[list[int], list[int]]:
    """Return each host's first possible program, and since when others are possible."""
    places, before = [len(known)], []
    ours = {(each.generation, each.digest) for each in known}
    for host in hosts:
        places.append(_place(known, host.generation))
        if host.digest is None:
            is_known = bool(known) and known[0].generation <= host.generation
        else:
            is_known = (host.generation, host.digest) in ours
        if not is_known or host.is_strange:
            before.append(host.generation)
    return places, before


def _policies_since(
    unit: Unit, domain: str, newest: PolicySnapshot, generation: int, step: PolicyStep | None
) -> Iterable[Policy]:
    """Return the policies of a generation and later, without the newest.

    Lists that changed too often for that: any. Where the domain let replies in otherwise meanwhile: with each setting.
    """
    found = _lists_since(unit, domain, newest, generation, step)
    if unit.domains.returns_since(domain) <= generation:
        return found
    return [replace(policy, return_traffic=setting) for policy in found for setting in ReturnTraffic]


def _lists_since(
    unit: Unit, domain: str, newest: PolicySnapshot, generation: int, step: PolicyStep | None
) -> Iterable[Policy]:
    """Return these policies as the domain lets replies in now."""
    asked = [tenant for tenant in newest.policy.tenants if step is None or step.concerns(tenant)]
    changed = unit.acls.changed_between(domain, generation, newest.generation, most=_MOST_STATES)
    if changed is not None:
        return [policy for each in (generation, *changed) for policy in _policies_at(unit, newest, each, asked)]
    now = {tenant.id: tenant.acl for tenant in asked}
    return _with_lists(
        newest.policy,
        {
            name: acl if unit.acls.in_force(name, generation) == unit.acls.version(name) else None
            for name, acl in now.items()
        },
    )


def _policies_at(unit: Unit, newest: PolicySnapshot, generation: int, asked: Iterable[Tenant]) -> Iterable[Policy]:
    """The policy as some tenants' lists were at a generation."""
    if generation >= newest.generation:
        return (newest.policy,)
    return _with_lists(newest.policy, {tenant.id: _read_list_at(unit, tenant, generation) for tenant in asked})


def _with_lists(policy: Policy, lists: Mapping[TenantId, Acl | None]) -> Iterable[Policy]:
    """Return a policy with some other lists; unknown ones at both extremes."""
    extremes = (Action.PERMIT, Action.DENY), (Action.DENY, Action.PERMIT)
    unknown = [Acl(ingress_default=ingress, egress_default=egress) for ingress, egress in extremes]
    return tuple(
        replace(
            policy,
            tenants=tuple(
                replace(tenant, acl=lists[tenant.id] or extreme) if tenant.id in lists else tenant
                for tenant in policy.tenants
            ),
        )
        for extreme in (unknown if None in lists.values() else unknown[:1])
    )


def _read_list_at(unit: Unit, tenant: Tenant, generation: int) -> Acl | None:
    version = unit.acls.in_force(tenant.id, generation)
    if version is None or version == unit.acls.version(tenant.id):
        return None if version is None else tenant.acl
    return Acl() if version == UNWRITTEN else unit.acls.at(tenant.id, version).acl
