"""The loop of fleets: VNFs step on, fleets keep their size, leftovers are removed.

    a look:   the cloud's list ─▶ the rows (in this order, so that what the list has was wanted when it was made)
              ─▶ what is due of the cloud: create, delete         effects, each may be repeated; after the list only
              ─▶ what has come about: steps, health               one transaction a fleet
              ─▶ who carries traffic from now on                  the switch's program
              ─▶ how many there should be                         decided now and then, with its reason

Between any two of these the process may be killed: whoever comes next begins with a look, and does again whatever is
not seen to be done. Of several replicas one works on fleets, by a lease that is renewed with every look; who lost it
writes nothing more, for each of its transactions asks first. On SQLite there is one process, and it is the same holder
each time.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from orchestrator.compile.spreadprogram import Member as SpreadMember
from orchestrator.control.fleet import sizing
from orchestrator.control.fleet.effects import AUTHOR, CloudHand, Sweep
from orchestrator.control.fleet.news import Known, News, View, carriers, known_fleets, news_of, note_changes
from orchestrator.control.fleet.vnfinputs import Lookout, Sky, Wait
from orchestrator.control.pauses import Resting
from orchestrator.control.units import NO_DOMAIN, Units
from orchestrator.errors import AclflowError, Busy, TryAgain
from orchestrator.scaling.decide import Decision
from orchestrator.scaling.lifecycle import CARRYING, ENDING, MemberState, Sight
from orchestrator.store.firewalls.fleetrecords import FleetRecord
from orchestrator.store.sql.clock import Ages
from orchestrator.store.unit import Unit

log = structlog.get_logger()

BUSY_LOOK_S, STEADY_LOOK_S, IDLE_LOOK_S = 0.05, 0.25, 1.0
"""How often is looked at the rows while VNFs come or go; while all serve, for one that falls sick; while there is none.
The cloud is looked at by its own pace (`Lookout`): in between nothing is known of it, and nothing concluded."""
LEASE_S = 30.0


class Spreading(Protocol):
    """Gives VNFs their traffic: `orchestrator.control.spreading.Spreading`."""

    def set_members(self, domain: str, members: Sequence[SpreadMember], *, stateful: bool = False) -> int:
        """Have these members carry the traffic; return the generation that says so."""
        ...


class FleetKeeper:
    """Keeps every fleet of an installation in one cloud.

    `tick` does what is due; `start` has a thread do so.
    """

    def __init__(
        self,
        units: Units,
        hand: CloudHand,
        spreading: Spreading,
        *,
        holder: str,
        lease_s: float = LEASE_S,
        sweep_after_s: float = 30.0,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._units = units
        self._hand = hand
        self._spreading = spreading
        self._holder = holder
        self._lease_s = lease_s
        self._ticks = ticks
        self._sweep = Sweep(hand, sweep_after_s, ticks)
        self._lookout = Lookout(hand.cloud.pace, ticks)
        self._resting = Resting(ticks)
        """Fleets that what is wrong with them keeps from being looked after."""
        self._sky: Sky | None = None
        self._held_until = 0.0
        self._ages = Ages(ticks)
        self._listens_since: dt.datetime | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    # ---------------------------------------------------------------------------------------------------- the loop

    def start(self) -> None:
        """Start on a thread of its own: a slow cloud holds nobody up."""
        self._thread.start()

    def close(self) -> None:
        """Stop after work under way, release the lease, and close the cloud's connections."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
            try:
                self._units.write(lambda unit: unit.fleets.resign(self._holder), domain=NO_DOMAIN)
            except AclflowError as error:
                log.warning("fleet.not_resigned", error=str(error))
        self._hand.cloud.close()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            try:
                wait_s = self.tick()
            except TryAgain as error:
                log.warning("fleet.tries_again", error=str(error))
                wait_s = IDLE_LOOK_S
            except Exception:
                log.exception("fleet.failed")  # a defect in one turn must not end the only loop
                wait_s = IDLE_LOOK_S

    def tick(self) -> float:
        """Do everything due; return the seconds to sleep."""
        if not self._may_work():
            return min(IDLE_LOOK_S, self._lease_s / 3)
        self._look_at_cloud()
        found, now = self._units.read(lambda unit: (known_fleets(unit), unit.now))
        if self._ages.look(now) or self._listens_since is None:  # over a jump of the clock nobody had the time to speak
            self._listens_since = now
        moved = [self._keep_fleet(known) for known in found if known.domain not in self._resting]
        due = frozenset(known.look.record.domain for known in found if sizing.is_due(known.look, now))
        moved.append(bool(due) and self._decide(due))
        if self._sky is not None:
            self._sweep.swept(self._units, self._sky)
        waited = _waits_of(found)
        self._lookout.waits_for(waited, hurry=any(moved))
        if any(moved):
            return BUSY_LOOK_S
        if waited:
            return max(BUSY_LOOK_S, min(self._hand.cloud.pace.first_s, STEADY_LOOK_S))
        return STEADY_LOOK_S if any(known.look.members for known in found) else IDLE_LOOK_S

    def _may_work(self) -> bool:
        """Whether this process works on fleets: it has the lease, and renews it in time."""
        now_s = self._ticks()
        if now_s < self._held_until:
            return True
        if not self._units.write(lambda unit: unit.fleets.keep(self._holder, self._lease_s), domain=NO_DOMAIN):
            self._listens_since = None  # what is known of who is silent is the other replica's
            return False
        self._held_until = now_s + self._lease_s / 3
        return True

    def _write(self, work: Callable[[Unit], None], domain: str) -> None:
        """Write to a fleet's domain, if this process still may.

        Raises Busy where its lease is over: the next look takes a new one.
        """

        def write_guarded(unit: Unit) -> None:
            if not unit.fleets.is_keeper(self._holder):
                self._held_until = 0.0
                raise Busy("the lease on the fleets is over")
            work(unit)

        self._units.write(write_guarded, domain=domain)

    def _look_at_cloud(self) -> None:
        """Read the cloud where it is time to; None: not now."""
        self._sky = None
        if not self._lookout.is_due():
            return
        try:
            self._sky = Sky({(vnf.fleet, vnf.name): vnf for vnf in self._hand.cloud.list()})
        except AclflowError as error:
            log.warning("fleet.cloud_unseen", error=str(error))
            self._sky = Sky(None)
        self._lookout.note_look(self._sky)

    # ------------------------------------------------------------------------------------------------- a fleet's turn

    def _keep_fleet(self, known: Known) -> bool:
        """Do what is due for one fleet; return whether to look again at once."""
        refused: Mapping[str, str] = {}
        try:
            if self._sky is not None:
                if self._adopt_strangers(known, self._sky):
                    return True
                refused = self._effects(known, self._sky)
            view = View(self._sky or Sky(None), self._listens_since, refused)
            news = self._units.read(lambda unit: news_of(unit, known, view))
            if news:
                self._write(lambda unit: note_changes(unit, news), known.domain)
            self._give_traffic(known, news)
        except TryAgain as error:  # the others have their turn all the same
            log.info("fleet.tries_again", fleet=known.domain, error=str(error))
            return True
        except Exception:  # as above; and this one is left alone for a while
            log.exception("fleet.note_failure", fleet=known.domain, again_in_s=self._resting.note_failure(known.domain))
            return False
        self._resting.over(known.domain)
        for member, taken in news.steps:
            log.info("vnf.step", fleet=member.domain, name=member.name, to=taken.state.value, because=taken.because)
        return bool(news.steps)

    def _adopt_strangers(self, known: Known, sky: Sky) -> bool:
        """Take in VNFs that the cloud made by itself; return whether there were any."""
        record = known.look.record
        here = {each.member.name for each in known.look.members}
        strange = sky.autonomous(record.domain) - here if record.settings.alarms else frozenset()
        if not strange:
            return False
        new = self._units.read(lambda unit: unit.fleets.unknown(record.domain, sorted(strange)))
        if new:
            self._write(lambda unit: _adopt_members(unit, record, new), record.domain)
            log.info("fleet.adopted", fleet=record.domain, vnfs=new)
        return bool(new)

    def _effects(self, known: Known, sky: Sky) -> Mapping[str, str]:
        """Order missing VNFs and remove others; return refused ones with reasons."""
        domain = known.look.record.domain
        wanted, unwanted = [], []
        for look in known.look.members:
            sight, _ = sky.of(look.member)
            if look.member.state is MemberState.REQUESTED and sight is Sight.ABSENT:
                wanted.append(look.member)
            elif look.member.state in ENDING and sight not in (Sight.ABSENT, Sight.LEAVING):
                unwanted.append(look.member.name)
        if unwanted:
            self._hand.delete(domain, unwanted)
        if not wanted:
            return {}
        refused = self._hand.create(self._units, wanted)
        if refused is None:
            return {}
        self._write(lambda unit: _tell_refused(unit, domain, refused), domain)
        return dict.fromkeys((member.name for member in wanted), refused)

    def _give_traffic(self, known: Known, news: News) -> None:
        """Have those carry the traffic who should from now on, unless they do."""
        record = known.look.record
        if not record.settings.spread:
            return
        members = carriers(known.look, news)
        stateful = record.settings.stateful
        before: tuple[Sequence[SpreadMember], bool] = ((), stateful)
        if known.spread is not None:
            before = (known.spread.spread.members, known.spread.spread.stateful)
        if (members, stateful) == before:
            return
        generation = self._spreading.set_members(record.domain, members, stateful=stateful)
        log.info("fleet.spread", fleet=record.domain, generation=generation, carry=[each.name for each in members])

    # ----------------------------------------------------------------------------------------------------- decisions

    def _decide(self, due: frozenset[str]) -> bool:
        """Decide on some fleets; whether any is to change."""
        grounds = self._units.read(
            lambda unit: sizing.grounds(unit, [look for look in unit.fleets.looks() if look.record.domain in due])
        )
        made = [(ground, sizing.decide_size(ground)) for ground in grounds]
        changes = [each for each in made if each[1].size != each[0].fleet.size]
        for ground, decision in made:
            if decision.size == ground.fleet.size:
                self._write(partial(_keep_decision, ground, decision), ground.look.record.domain)
        for ground, decision in changes:  # apart, for each may be refused by what the domain's lists say
            self._resize_by_decision(ground, decision)
        return bool(changes)

    def _resize_by_decision(self, ground: sizing.Ground, decision: Decision) -> None:
        domain = ground.look.record.domain
        try:
            self._write(lambda unit: _resize_fleet(unit, ground, decision), domain)
        except TryAgain:
            raise
        except AclflowError as error:
            log.warning("fleet.not_resized", fleet=domain, error=str(error))
            said = Decision(ground.fleet.size, f"cannot be {decision.size}: {error}")
            self._write(partial(_keep_decision, ground, said), domain)
            return
        log.info("fleet.resized", fleet=domain, size=decision.size, because=decision.because)


def _waits_of(found: Sequence[Known]) -> frozenset[Wait]:
    """Return what the cloud is waited for: members that come, and those that end."""
    members = [each.member for known in found for each in known.look.members]
    return frozenset((each.domain, each.name, each.state) for each in members if each.state not in CARRYING)


def _adopt_members(unit: Unit, record: FleetRecord, names: Sequence[str]) -> None:
    unit.fleets.adopt(record.domain, names, record.settings.plane)


def _tell_refused(unit: Unit, domain: str, because: str) -> None:
    unit.events.append("fleet.refused", domain, {"because": because})


def _keep_decision(ground: sizing.Ground, decision: Decision, unit: Unit) -> None:
    """Note a decision that changes nothing, and what it was made on."""
    record = ground.look.record
    unit.fleets.sample(record.domain, ground.samples[-1], sizing.KEEP_SAMPLES_S)
    held, was_held = (each.startswith(sizing.HELD) for each in (decision.because, record.because))
    if held and not was_held:
        unit.events.append("fleet.held", record.domain, {"because": decision.because})
    model = None if ground.model is None else ground.model.version
    unit.fleets.note_decision(record.domain, decision.size, decision.because, model=model)


def _resize_fleet(unit: Unit, ground: sizing.Ground, decision: Decision) -> None:
    """Carry a decision out: rows for new VNFs, the end of service for others."""
    domain, settings = ground.look.record.domain, ground.look.record.settings
    _keep_decision(ground, decision, unit)
    more = decision.size - ground.fleet.size
    if more > 0:
        unit.fleets.ask(domain, more, settings.plane, decision.because)
    for name in sizing.leaving(ground.look, -more):
        unit.fleets.drain(domain, name, decision.because)
    unit.fleets.record(domain, ground.fleet.size, decision.size, decision.because, by=AUTHOR)
