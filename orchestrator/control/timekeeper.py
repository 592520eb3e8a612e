"""Do what time brings: expired rules, unconfirmed changes, announcements, silent enforcement points.

The control loop asks for a tick, does what is due, and sleeps until the next is. The wall clock may jump forwards (a
machine that slept, a corrected clock), and then a time is over sooner than was thought: so while anything has a time,
the clock is looked at every second. Backwards it never goes (`store.clock`). A jump that nobody can explain is told;
what waits for its end over it says `store.acls.steps.is_over`.

A change of a list that nobody confirmed in time is taken back here, by whichever service looks first: in the writer's
transaction it waits for one of them only. Its time is counted, not read from a clock (`Countdown`).

Rules that expire at a time are taken out together, domain by domain. Where that is refused, for the domain does not
compile any more or one list changes too often, it is done by halves: so whoever is in the way keeps nobody else's rules
in force, and is tried again by itself, later and later.
"""

from __future__ import annotations

import datetime as dt
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from orchestrator.control.pauses import Resting
from orchestrator.control.units import NO_DOMAIN, Units
from orchestrator.errors import NotFound, TooOften, TryAgain
from orchestrator.store.acls.lists import REVERT
from orchestrator.store.records import ExpiringRule, WaitingChange
from orchestrator.store.sql.clock import Ages, ticks_since_boot
from orchestrator.store.unit import Unit

log = structlog.get_logger()

LONGEST_SLEEP_S = 30.0
LOOK_AT_CLOCK_S = 1.0
SHORTEST_SLEEP_S = 0.05
_LOOKS_A_SILENCE = 4


class Countdown:
    """How long unconfirmed changes still wait, counted in seconds since the machine started.

    So a clock that jumps, forward or back, takes back no change early and none late. The deadline in the database is
    read once, when a change is seen first. A change that was not there at the look before was made since then: it waits
    for its whole time, less what has passed since that look, whatever the clock says. At a service's first look the
    clock is right, and a change waits for its whole time at most.
    """

    def __init__(self, uptime: Callable[[], float] = ticks_since_boot) -> None:
        self._uptime = uptime
        self._ends: dict[tuple[str, int, int], float] = {}
        self._looked = -math.inf

    def look(self, read: Callable[[], Sequence[WaitingChange]]) -> list[tuple[WaitingChange, float]]:
        """Return the changes that `read` finds, each with the seconds that it waits from now."""
        before, self._looked = self._looked, self._uptime()
        changes = read()
        now = self._uptime()
        self._ends = {key: self._ends.get(key, now + _left_s(each, now - before)) for key, each in _by_key(changes)}
        return [(each, self._ends[key] - now) for key, each in _by_key(changes)]


def _left_s(change: WaitingChange, since_look_s: float) -> float:
    """Return how long a change waits that was seen first now."""
    if change.lasts_s is None:
        return change.left_s
    return min(max(change.left_s, change.lasts_s - since_look_s), change.lasts_s)


def _by_key(changes: Sequence[WaitingChange]) -> Iterator[tuple[tuple[str, int, int], WaitingChange]]:
    return (((each.tenant, each.base, each.by_micros), each) for each in changes)


class Timekeeper:
    """Does what is due.

    `expiry_lead` is how long before its end a rule is announced to expire; `silence_s` is after how many seconds
    without a report an enforcement point counts as down. Nothing counts as down before that time has passed since the
    first tick, and since the clock jumped: while the service was away nobody could report, and over a jump nobody had
    the time.
    """

    def __init__(
        self,
        *,
        expiry_lead: dt.timedelta = dt.timedelta(days=1),
        silence_s: float = 8.0,
        note_heard: Callable[[Unit], None] = lambda _: None,
        ticks: Callable[[], float] = time.monotonic,
        uptime: Callable[[], float] = ticks_since_boot,
    ) -> None:
        self._note_heard = note_heard
        self._lead = expiry_lead
        self._silence_s = silence_s
        self._ticks = ticks
        self._ages = Ages(ticks)
        self._listen_at: float | None = None
        self._jumped = dt.timedelta()
        """How far the clock has jumped in all, as was told."""
        self._resting = Resting(ticks)
        """Tenants whose rules cannot be taken out."""
        self._countdown = Countdown(uptime)
        self._kept_waiting: str | None = None
        """The domain that did not come to its turn last."""
        self._unconfirmed = Resting(ticks)
        """Tenants whose list cannot be taken back."""

    def tick(self, units: Units) -> float:
        """Do what is due; how many seconds to sleep until something may be."""
        left, soon, silent, jumped = units.read(self._look)
        if jumped > self._jumped:
            units.write(partial(self._tell_jump, jumped), domain=NO_DOMAIN)
        if soon:
            units.write(self._announce, domain=NO_DOMAIN)
        if silent:
            units.write(self._lose_silent, domain=NO_DOMAIN)
        deadline = self._take_back(units)
        if deadline is not None:
            left = deadline if left is None else min(left, deadline)
        if left is not None and left <= 0:
            due = [each for each in units.read(_read_overdue) if each.tenant not in self._resting]
            if due:
                self._take_out_by_domain(units, due)
                return SHORTEST_SLEEP_S
            left = LOOK_AT_CLOCK_S  # nobody knows when the next is due behind those that cannot be taken out
        most = LONGEST_SLEEP_S if left is None else LOOK_AT_CLOCK_S
        return max(SHORTEST_SLEEP_S, min(most, self._silence_s / _LOOKS_A_SILENCE, left if left is not None else most))

    def _tell_jump(self, jumped: dt.timedelta, unit: Unit) -> None:
        seconds = round((jumped - self._jumped).total_seconds())
        unit.events.append("clock.jumped", "clock", {"seconds": seconds})
        log.critical("the clock jumped: rules that deny end later, until this service is started anew", seconds=seconds)
        self._jumped = jumped

    def _lose_silent(self, unit: Unit) -> None:
        """Log silent enforcers as down, but not those heard while the store was held."""
        self._note_heard(unit)
        unit.enforcers.lose_silent(self._silence_s)

    def _take_back(self, units: Units) -> float | None:
        """Take back changes not confirmed in time; return seconds until the next look.

        None where no change waits to be confirmed.
        """
        waiting = self._countdown.look(lambda: units.read(lambda unit: unit.acls.list_unconfirmed()))
        for change in [change for change, left_s in waiting if left_s <= 0]:
            tenant = change.tenant
            if tenant in self._unconfirmed:
                continue
            try:
                units.write(partial(_revert, change), domain=units.read(partial(_find_domain, tenant)))
            except Exception as error:
                if isinstance(error, TryAgain) and not isinstance(error, TooOften):
                    raise
                log.exception("is not taken back", tenant=tenant, again_in_s=self._unconfirmed.note_failure(tenant))
            else:
                self._unconfirmed.over(tenant)
        return min((left_s if left_s > 0 else LOOK_AT_CLOCK_S for _, left_s in waiting), default=None)

    def _take_out_by_domain(self, units: Units, due: Sequence[_Overdue]) -> None:
        """Remove expired rules, domain by domain.

        So a long write keeps those of no other domain in force. A domain that did not come to its turn is the last one
        at the next look. Raises what kept it from that.
        """
        tenants: defaultdict[str, list[str]] = defaultdict(list)
        for each in due:
            tenants[each.domain].append(each.tenant)
        for domain in sorted(tenants, key=lambda domain: domain == self._kept_waiting):
            try:
                self._take_out(units, domain, tenants[domain])
            except TryAgain:
                self._kept_waiting = domain
                raise

    def _take_out(self, units: Units, domain: str, tenants: Sequence[str]) -> None:
        """Remove expired rules of a domain's tenants: together, and by halves where that is refused."""
        try:
            units.write(lambda unit: _expire(unit, tenants), domain=domain)
        except Exception as error:
            if isinstance(error, TryAgain) and not isinstance(error, TooOften):  # the store is away, for all of them
                raise
            if len(tenants) == 1:
                log.exception("does not expire", tenant=tenants[0], again_in_s=self._resting.note_failure(tenants[0]))
                return
            middle = len(tenants) // 2
            self._take_out(units, domain, tenants[:middle])
            self._take_out(units, domain, tenants[middle:])
        else:
            for tenant in tenants:
                self._resting.over(tenant)

    def _look(self, unit: Unit) -> tuple[float | None, tuple[ExpiringRule, ...], bool, dt.timedelta]:
        """Return seconds to the next expiry, rules to announce, silence, and clock jumps."""
        due = unit.expiry.next_due()
        left = None if due is None else (due - unit.now).total_seconds()
        soon = unit.expiry.expiring(self._lead) if left is not None and left <= self._lead.total_seconds() else ()
        is_silent = self._listens(unit.now) and unit.enforcers.has_silent(self._silence_s)
        return left, soon, is_silent, unit.clock_jumped

    def _listens(self, time_now: dt.datetime) -> bool:
        """Return whether to look for silent points.

        First when all had the time to speak, then now and then.
        """
        now = self._ticks()
        if self._listen_at is None or self._ages.look(time_now) >= self._silence_s / _LOOKS_A_SILENCE:
            self._listen_at = now + self._silence_s
        if now < self._listen_at:
            return False
        self._listen_at = now + self._silence_s / _LOOKS_A_SILENCE
        return True

    def _announce(self, unit: Unit) -> None:
        """Log an event for each rule that will expire soon."""
        rules = unit.expiry.expiring(self._lead)
        unit.expiry.announce(rules)
        for each in rules:
            unit.events.append("rule.expiring", each.tenant, {"rule": each.rule, "expires": each.expires.isoformat()})


@dataclass(frozen=True, slots=True)
class _Overdue:
    """A tenant with rules whose time is over, and its domain."""

    domain: str
    tenant: str


def _read_overdue(unit: Unit) -> tuple[_Overdue, ...]:
    return tuple(_Overdue(unit.tenants.domain(tenant), tenant) for tenant in unit.expiry.overdue())


def _find_domain(tenant: str, unit: Unit) -> str | None:
    try:
        return unit.tenants.domain(tenant)
    except NotFound:
        return None


def _expire(unit: Unit, tenants: Sequence[str]) -> None:
    """Take out the rules of some tenants whose time is over, and say so."""
    for gone in unit.expiry.expire(tenants):
        change = gone.change
        detail = {"rules": list(gone.rules), "version": change.version, "generation": change.generation}
        unit.events.append("acl.expired", gone.tenant, detail)
        log.info("expired", tenant=gone.tenant, rules=list(gone.rules), generation=change.generation)


def _revert(waiting: WaitingChange, unit: Unit) -> None:
    """Take a list back, unless it was settled since it was looked for."""
    if not unit.acls.is_unconfirmed(waiting):
        return
    tenant = waiting.tenant
    change = unit.acls.revert(tenant, author=REVERT)
    unit.events.append("acl.reverted", tenant, {"version": change.version, "generation": change.generation})
    log.info("taken back unconfirmed", tenant=tenant, version=change.version, generation=change.generation)
