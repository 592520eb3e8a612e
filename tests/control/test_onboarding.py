"""Machines become hosts and are given back: cut off at every step and begun again, refused with what to change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from orchestrator.control.onboarding import Onboarder
from orchestrator.errors import Conflict, NotFound, Refused, TryAgain, Unreachable
from orchestrator.hosts.installer import Installers, Tell
from orchestrator.hosts.request import Machine, Onboarding
from orchestrator.hosts.switch import Wanted
from orchestrator.store import Store, open_store
from orchestrator.store.points.onboardings import OnboardingRecord, OnboardingState
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState

DOMAIN, HOST = "pop1", "host1"
ASKED = Onboarding(
    Machine("192.0.2.11"),
    Wanted(DOMAIN, HOST, "eth1", ("tcp:192.0.2.1:6653",)),
    Machine("192.0.2.1"),
    {"dns": ("192.0.2.53",), "ntp": ("2001:db8::123",)},
)


class Killed(BaseException):
    """The process ends here, without a chance to tidy up."""


@dataclass
class Fake:
    """A machine that remembers what was done to it, and dies where it is told to."""

    prepared: list[Mapping[str, str]] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """The secrets that are good."""
    closed: int = 0
    fails: Exception | None = None
    joins: Callable[[], None] = lambda: None

    def prepare(self, asked: Onboarding, secrets: Mapping[str, str], tell: Tell) -> None:
        tell("installing Open vSwitch")
        if self.fails:
            raise self.fails
        assert self.held == [secrets["token"]], "one is good, and it is this"
        self.prepared.append(dict(secrets))
        self.joins()

    def release(self, asked: Onboarding, tell: Tell) -> None:
        tell("closing")
        self.closed += 1


class Units:
    """Units of work of a store, of which the n-th write is the last, or finds the store `away`."""

    def __init__(self, store: Store, writes: int | None = None, away: Exception | None = None) -> None:
        self._store = store
        self.left = writes
        self._away = away
        self.held: list[str | None] = []
        """The domains that writes held; None: all of them."""

    def read(self, work: Callable[[Unit], object]) -> object:
        with self._store.read() as unit:
            return work(unit)

    def write(self, work: Callable[[Unit], object], *, domain: str | None = None) -> object:
        self.held.append(domain)
        if self.left is not None:
            if self.left == 0 and self._away is None:
                raise Killed
            self.left -= 1
            if self.left == -1 and self._away is not None:
                raise self._away
        with self._store.write() as unit:
            return work(unit)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(f"sqlite:///{tmp_path / 'aclflow.db'}")
    with found.write() as unit:
        unit.domains.create(DOMAIN)
        secret = unit.enforcers.invite(DOMAIN, expires=unit.now.replace(year=2100), author="test")
        unit.enforcers.enrol(secret, name="controller", kind="openflow")
    yield found
    found.close()


def onboarder(store: Store, machine: Fake, writes: int | None = None, away: Exception | None = None) -> Onboarder:
    def invite(unit: Unit, asked: Onboarding) -> dict[str, str]:
        machine.held.append(secret := f"for {asked.switch.domain}")
        return {"token": secret}

    def withdraw(unit: Unit, asked: Onboarding) -> None:
        machine.held.clear()

    return Onboarder(Units(store, writes, away), Installers(None, machine), invite, withdraw)


def ask(store: Store, asked: Onboarding = ASKED) -> OnboardingRecord:
    with store.write() as unit:
        return unit.onboardings.ask(asked)


def seen(store: Store) -> OnboardingRecord:
    with store.read() as unit:
        return unit.onboardings.get(DOMAIN, HOST)


def read_back(store: Store) -> None:
    """The controller reports that every switch of the domain holds the newest generation."""
    with store.write() as unit:
        generation = unit.domains.get(DOMAIN).generation
        (enforcer,) = unit.enforcers.list(DOMAIN)
        names = [host.name for host in unit.domains.hosts(DOMAIN)]
        reports = [PointReport(name, generation, bytes(16), PointState.ENFORCED) for name in names]
        unit.enforcers.report(enforcer.id, reports, epoch=enforcer.epoch)


def eventually_read_back(store: Store, name: str = HOST) -> Callable[[], None]:
    """A controller that reports as soon as the domain has the host."""

    def joins() -> None:
        def run() -> None:
            for _ in range(2000):
                with store.read() as unit:
                    if name in {host.name for host in unit.domains.hosts(DOMAIN)}:
                        break
                threading.Event().wait(0.005)
            read_back(store)

        threading.Thread(target=run, daemon=True).start()

    return joins


def test_a_machine_becomes_a_host_with_its_essential_services(store: Store) -> None:
    machine = Fake(joins=eventually_read_back(store))
    ask(store)
    begun = onboarder(store, machine)
    assert begun.turn()
    assert seen(store).state is OnboardingState.DONE
    claim, *steps = cast("Units", begun.units).held
    assert claim is None
    assert set(steps) == {DOMAIN}, "only the claim holds other domains"
    assert machine.prepared == [{"token": "for pop1"}]
    assert not machine.held, "what it was given is good no more"
    with store.read() as unit:
        (host,) = unit.domains.hosts(DOMAIN)
        rules = unit.domains.operator_rules(DOMAIN).rules
        kinds = [event.kind for event in unit.events.since(0).events]
    assert (host.name, host.datapath_id, host.uplink) == (HOST, ASKED.switch.datapath_id, "eth1")
    assert {"essential-dns-192.0.2.53", "essential-ntp-2001:db8::123-answers"} <= {rule.id for rule in rules}
    assert kinds[-1] == "onboarding.done"
    assert "onboarding.step" in kinds
    assert not onboarder(store, machine).turn()


def test_cut_off_at_every_write_it_is_made_good_by_the_next(store: Store) -> None:
    for writes in range(100):
        name = f"cut-{writes}"
        ask(store, replace(ASKED, switch=replace(ASKED.switch, host=name, datapath_id=writes + 1)))
        machine = Fake(joins=eventually_read_back(store, name))
        try:
            onboarder(store, machine, writes).turn()
            is_whole = True
        except Killed:
            is_whole = False
            with store.read() as unit:
                joined = name in {host.name for host in unit.domains.hosts(DOMAIN)}
            assert not joined or machine.prepared, "the domain waits for a machine that was never closed"
            assert onboarder(store, machine).turn(), f"nobody went on after {writes} writes"
        with store.read() as unit:
            assert unit.onboardings.get(DOMAIN, name).state is OnboardingState.DONE, writes
            assert [host.name for host in unit.domains.hosts(DOMAIN)].count(name) == 1
        assert not machine.held
        if is_whole:
            break
    assert writes > 4


def test_what_cannot_be_says_why_and_is_tried_again_when_asked_again(store: Store) -> None:
    machine = Fake(fails=Refused("Open vSwitch 2.13.0 is too old: 3.1 or later is needed"))
    ask(store)
    onboarder(store, machine).turn()
    assert seen(store).state is OnboardingState.FAILED
    assert "too old" in (seen(store).error or "")
    with store.read() as unit:
        assert unit.domains.hosts(DOMAIN) == ()
        failed = unit.events.newest(limit=1).events[0]
    assert failed.kind == "onboarding.failed"
    assert failed.detail["error"] == seen(store).error
    assert not machine.held
    machine.fails, machine.joins = None, eventually_read_back(store)
    ask(store)
    onboarder(store, machine).turn()
    assert seen(store).state is OnboardingState.DONE


@pytest.mark.parametrize("away", [Unreachable("the database does not answer"), TryAgain("the disk is full")])
def test_a_store_that_is_away_for_a_moment_costs_a_retry(store: Store, away: Exception) -> None:
    for writes in range(100):
        name = f"away-{writes}"
        ask(store, replace(ASKED, switch=replace(ASKED.switch, host=name, datapath_id=writes + 1)))
        machine = Fake(joins=eventually_read_back(store, name))
        loop = onboarder(store, machine, writes, away)
        for _ in range(2):
            with suppress(TryAgain):
                while loop.turn():
                    pass
        with store.read() as unit:
            found = unit.onboardings.get(DOMAIN, name)
        assert (found.state, found.error) == (OnboardingState.DONE, None), writes
        if loop.units.left > 0:  # type: ignore[attr-defined]
            break
    assert writes > 4


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unreachable("192.0.2.11 does not answer"), "192.0.2.11 does not answer"),
        (KeyError("uplink"), "a fault of the service, whose log says more: KeyError: 'uplink'"),
    ],
)
def test_a_machine_that_does_not_answer_has_failed(store: Store, error: Exception, told: str) -> None:
    """And so has one that we fail at: it can be asked for again, or given back."""
    ask(store)
    onboarder(store, Fake(fails=error)).turn()
    assert (seen(store).state, seen(store).error) == (OnboardingState.FAILED, told)
    with store.write() as unit:
        assert unit.onboardings.ask_back(DOMAIN, HOST).state is OnboardingState.REMOVING


def test_given_back_closed_before_the_domain_forgets_it(store: Store) -> None:
    machine = Fake(joins=eventually_read_back(store))
    ask(store)
    onboarder(store, machine).turn()
    for writes in range(4):
        with store.write() as unit:
            unit.onboardings.ask_back(DOMAIN, HOST)
        before = machine.closed
        try:
            onboarder(store, machine, writes).turn()
        except Killed:
            with store.read() as unit:
                gone = not unit.domains.hosts(DOMAIN)
            assert not gone or machine.closed > before
        else:
            break
    onboarder(store, machine).turn()
    with store.read() as unit:
        assert unit.domains.hosts(DOMAIN) == ()
        with pytest.raises(NotFound):
            unit.onboardings.get(DOMAIN, HOST)
    assert machine.closed


def test_two_processes_do_not_work_on_the_same_machine(store: Store) -> None:
    ask(store)
    with store.write() as unit:
        assert unit.onboardings.claim("one", 60.0) is not None
    with store.write() as unit:
        assert unit.onboardings.claim("other", 60.0) is None
        assert unit.onboardings.claim("one", -1.0) is not None
    with store.write() as unit:
        assert unit.onboardings.claim("other", 60.0) is not None, "a claim that ran out is another's"


def test_what_is_under_way_is_not_asked_for_otherwise(store: Store) -> None:
    ask(store)
    assert ask(store).state is OnboardingState.ADDING, "the same again is fine"
    with pytest.raises(Conflict, match="under way"):
        ask(store, replace(ASKED, machine=Machine("192.0.2.12")))
    with store.write() as unit, pytest.raises(Conflict, match="being added"):
        unit.onboardings.ask_back(DOMAIN, HOST)


def test_a_service_logs_in_nowhere_unless_it_is_told_with_what(store: Store) -> None:
    ask(store)
    Onboarder(Units(store), Installers(None, None), lambda *_: {}, lambda *_: None).turn()
    assert "ACLFLOW_ANSIBLE" in (seen(store).error or "")


def test_what_is_kept_is_read_back() -> None:
    assert Onboarding.from_json(ASKED.to_json()) == ASKED
