"""What time brings: told once, in time, whatever the clock does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from patience import until

from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.control.control import Control
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.timekeeper import LONGEST_SLEEP_S, LOOK_AT_CLOCK_S, Countdown, Timekeeper
from orchestrator.enforce.report import SIGN_OF_LIFE_S
from orchestrator.errors import Busy, NotEquivalent, TooOften
from orchestrator.policy.addresses import EVERY_IPV4, Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store
from orchestrator.store.records import PolicySnapshot, WaitingChange
from orchestrator.store.unit import Unit

T = TypeVar("T")
START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


class Wall:
    """A wall clock that only a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> dt.datetime:
        return self.now


class Plant:
    """A control whose loop does not run: the test asks for its ticks."""

    def __init__(self, store: Store, wall: Wall) -> None:
        self.store, self.wall = store, wall
        self.control = Control(store, Compiler(Metrics()), Publisher())
        self.ticks = 0.0
        self.jumped = dt.timedelta()
        self.timekeeper = Timekeeper(expiry_lead=HOUR, silence_s=60, ticks=lambda: self.ticks, uptime=self.uptime)

    def uptime(self) -> float:
        """The seconds that passed by the wall clock, but for those by which it jumped."""
        return (self.wall.now - START - self.jumped).total_seconds()

    def jump(self, by: dt.timedelta) -> None:
        """Set the wall clock forward or back while no time passes."""
        self.wall.now += by
        self.jumped += by

    def tick(self) -> float:
        return self.timekeeper.tick(self.control)

    def put(self, **expires: dt.datetime) -> int:
        rules = [{"id": name, "action": "permit", "expires": until.isoformat()} for name, until in expires.items()]
        acl = acl_from_json({"rules": [*rules, {"id": "lasting", "action": "permit", "protocol": "tcp"}]})
        return self.control.write(lambda unit: unit.acls.replace("all", acl, author="test")).version

    def rules(self) -> list[str]:
        with self.store.read() as unit:
            return [rule.id for rule in unit.acls.current("all").acl.rules]

    def told(self, *kinds: str) -> list[tuple[str, object]]:
        with self.store.read() as unit:
            events = unit.events.since(0, limit=1000).events
        return [(each.kind, each.detail.get("rule", each.detail.get("rules"))) for each in events if each.kind in kinds]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    wall = Wall()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=wall)

    def found(unit: Unit) -> None:
        unit.domains.create("pop")
        unit.tenants.create("all", name="", domain="pop", prefixes=[EVERY_IPV4])

    plant = Plant(store, wall)
    plant.control.write(found)
    yield plant
    store.close()


def test_a_jump_of_the_clock_is_told_once_and_denies_end_when_their_time_has_passed(plant: Plant) -> None:
    ends = (START + HOUR).isoformat()
    rules = [{"id": action, "action": action, "expires": ends} for action in ("deny", "permit")]
    acl = acl_from_json({"rules": [*rules, {"id": "lasting", "action": "permit", "protocol": "tcp"}]})
    plant.control.write(lambda unit: unit.acls.replace("all", acl, author="test"))
    plant.tick()
    plant.wall.now += 2 * HOUR
    for _ in range(3):
        plant.tick()
    assert plant.rules() == ["deny", "lasting"]
    assert len(plant.told("clock.jumped")) == 1
    plant.store.close()
    plant.store = open_store(str(plant.store.engine.url), clock=plant.wall)
    plant.control = Control(plant.store, Compiler(Metrics()), Publisher())
    plant.tick()
    assert plant.rules() == ["lasting"], "a service that is started anew takes the clock as right"


def test_a_rule_is_announced_once_and_taken_out_in_time(plant: Plant) -> None:
    plant.put(a=START + 2 * HOUR, b=START + 5 * HOUR)
    assert plant.tick() == LOOK_AT_CLOCK_S
    assert plant.told("rule.expiring", "acl.expired") == []
    plant.wall.now += HOUR
    for _ in range(3):
        plant.tick()
    assert plant.told("rule.expiring", "acl.expired") == [("rule.expiring", "a")]
    assert plant.rules() == ["a", "b", "lasting"]
    plant.wall.now += HOUR
    plant.tick()
    assert plant.rules() == ["b", "lasting"]
    assert plant.told("rule.expiring", "acl.expired") == [("rule.expiring", "a"), ("acl.expired", ["a"])]


def test_a_rule_that_is_edited_is_not_announced_again_but_for_another_time(plant: Plant) -> None:
    plant.put(a=START + HOUR / 2)
    plant.tick()
    plant.put(b=START + 9 * HOUR, a=START + HOUR / 2)  # its row is another, its time is not
    plant.tick()
    assert plant.told("rule.expiring") == [("rule.expiring", "a")]
    plant.put(a=START + HOUR / 3)
    plant.tick()
    assert plant.told("rule.expiring") == [("rule.expiring", "a")] * 2


@pytest.mark.parametrize("error", [TooOften("its list changes too often"), NotEquivalent("a fault of ours")])
def test_whose_rules_cannot_be_taken_out_keeps_nobody_elses_in_force(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One domain that does not compile, or one list in the way, is tried again by itself, later and later."""
    ends = START + HOUR
    once = {"rules": [{"id": "once", "action": "permit", "destination": "any", "expires": ends.isoformat()}]}

    def found(unit: Unit) -> None:
        unit.domains.create("broken")
        for number, domain in enumerate(("pop", "broken", "pop")):
            prefixes = [Prefix.parse(f"2001:db8:{number}::/48")]
            unit.tenants.create(f"t{number}", name="", domain=domain, prefixes=prefixes)
            unit.acls.replace(f"t{number}", acl_from_json(once), author="test")

    plant.control.write(found)
    plant.put(a=ends)
    compile_one, tried = Compiler.compile, []

    def refuses(self: Compiler, domain: str, snapshot: PolicySnapshot, **named: bool) -> Compiled:
        if domain == "broken":
            tried.append(plant.ticks)
            raise error
        return compile_one(self, domain, snapshot, **named)

    plant.wall.now += HOUR
    with monkeypatch.context() as until_mended:
        until_mended.setattr(Compiler, "compile", refuses)
        plant.tick()
        assert plant.told("acl.expired") == [
            ("acl.expired", ["a"]),
            ("acl.expired", ["once"]),
            ("acl.expired", ["once"]),
        ]
        assert plant.rules() == ["lasting"]
        tried.clear()
        for _ in range(32):
            plant.ticks += 0.25
            assert plant.tick() > 0
        assert tried == [1.0, 3.0, 7.0]
        plant.put(b=ends + HOUR)
        plant.wall.now += HOUR
        plant.tick()
        assert plant.rules() == ["lasting"], "what is due later is taken out beside it"
    plant.ticks += 60.0
    plant.tick()
    assert len(plant.told("acl.expired")) == 5
    assert plant.tick() == min(LONGEST_SLEEP_S, 60 / 4), "nothing is left to expire"


class Held:
    """Units of work of a control, whose domain `pop` another writer holds."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def read(self, work: Callable[[Unit], T]) -> T:
        return self._control.read(work)

    def write(self, work: Callable[[Unit], T], *, domain: str | None = None) -> T:
        if domain == "pop":
            raise Busy("other writers hold it")
        return self._control.write(work, domain=domain)


def test_a_domain_that_another_writer_holds_keeps_rules_of_no_other_in_force(plant: Plant) -> None:
    ends = START + HOUR
    once = {"rules": [{"id": "once", "action": "permit", "destination": "any", "expires": ends.isoformat()}]}

    def found(unit: Unit) -> None:
        for number, domain in enumerate(("west", "north")):
            unit.domains.create(domain)
            prefixes = [Prefix.parse(f"2001:db8:{number}::/48")]
            unit.tenants.create(f"of-{domain}", name="", domain=domain, prefixes=prefixes)
            unit.acls.replace(f"of-{domain}", acl_from_json(once), author="test")

    plant.control.write(found)
    plant.put(a=ends)  # of the tenant that comes first
    plant.wall.now += HOUR
    for _ in range(2):
        with pytest.raises(Busy):
            plant.timekeeper.tick(Held(plant.control))
    assert plant.told("acl.expired") == [("acl.expired", ["once"])] * 2
    assert plant.rules() == ["a", "lasting"]
    plant.tick()
    assert plant.rules() == ["lasting"]


def test_the_clock_jumps_forwards(plant: Plant) -> None:
    """What was hours ahead is over: everything due goes at the next look, a second later at most."""
    plant.put(a=START + 2 * HOUR, b=START + 5 * HOUR, c=START + 100 * HOUR)
    assert plant.tick() <= LOOK_AT_CLOCK_S
    plant.wall.now += 24 * HOUR
    plant.tick()
    assert plant.rules() == ["c", "lasting"]
    assert plant.told("acl.expired") == [("acl.expired", ["a", "b"])]


def test_the_clock_jumps_backwards(plant: Plant) -> None:
    """Time goes on from where it was: no rule that is out comes back, and none lives longer for it."""
    plant.put(a=START + HOUR, b=START + 3 * HOUR)
    plant.wall.now += HOUR
    plant.tick()
    plant.wall.now -= 48 * HOUR
    plant.tick()
    assert plant.rules() == ["b", "lasting"]
    with plant.store.read() as unit:
        assert unit.now >= START + HOUR


def test_without_times_it_sleeps_long(plant: Plant) -> None:
    plant.put()
    assert plant.tick() == min(LONGEST_SLEEP_S, 60 / 4)


def test_the_loop_notices_a_jump(tmp_path: Path) -> None:
    wall = Wall()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=wall)
    plant = Plant(store, wall)
    plant.control.write(lambda unit: unit.domains.create("pop"))
    plant.control.write(lambda unit: unit.tenants.create("all", name="", domain="pop", prefixes=[EVERY_IPV4]))
    plant.control.start()
    try:
        plant.put(a=START + 10 * HOUR)
        wall.now += 11 * HOUR
        until(lambda: plant.rules() == ["lasting"])
    finally:
        plant.control.stop()
        store.close()


def test_silence_is_told_within_ten_seconds_and_not_for_two_signs_that_are_lost(plant: Plant) -> None:
    """By the settings as they are: the service sleeps as long as it may between its looks."""
    silence_s = Settings().enforcer_silence_s
    assert silence_s > 3 * SIGN_OF_LIFE_S
    plant.timekeeper = Timekeeper(silence_s=silence_s, ticks=lambda: plant.ticks)
    with plant.store.write() as unit:
        secret = unit.enforcers.invite("pop", expires=START + HOUR, author="test")
        enforcer = unit.enforcers.enrol(secret, name="c1", kind="openflow").enforcer.id
    told_after: float | None = None
    for quiet_s in (SIGN_OF_LIFE_S, 3 * SIGN_OF_LIFE_S, 60.0):
        with plant.store.write() as unit:
            unit.enforcers.report(enforcer, [])
        passed = 0.0
        while passed < quiet_s and told_after is None:
            step = min(plant.tick(), quiet_s - passed)
            passed += step
            plant.ticks += step
            plant.wall.now += dt.timedelta(seconds=step)
            plant.tick()
            told_after = passed if plant.told("enforcer.down") else None
        assert (told_after is not None) == (quiet_s == 60.0)
    assert told_after is not None
    assert told_after <= 10.0


def test_a_clock_that_jumps_takes_nobody_for_down(plant: Plant) -> None:
    with plant.store.write() as unit:
        token = unit.enforcers.invite("pop", expires=unit.now + HOUR, author="test")
        enforcer = unit.enforcers.enrol(token, name="c", kind="openflow").enforcer.id
    for seconds in (61, 61):
        plant.tick()
        plant.ticks += seconds
        plant.wall.now += dt.timedelta(seconds=seconds)
        with plant.store.write() as unit:
            unit.enforcers.report(enforcer, [])
    plant.tick()
    plant.wall.now += HOUR
    for _ in range(59):  # it speaks again in time, and only then is looked for
        plant.tick()
        plant.ticks += 1
        plant.wall.now += dt.timedelta(seconds=1)
    with plant.store.write() as unit:
        unit.enforcers.report(enforcer, [])
    plant.ticks += 1
    plant.wall.now += dt.timedelta(seconds=1)
    plant.tick()
    assert plant.told("enforcer.down") == []


def test_nobody_is_down_before_all_had_the_time_to_speak(plant: Plant) -> None:
    with plant.store.write() as unit:
        token = unit.enforcers.invite("pop", expires=unit.now + HOUR, author="test")
        enforcer = unit.enforcers.enrol(token, name="c", kind="openflow").enforcer.id
        unit.enforcers.report(enforcer, [])
    plant.wall.now += HOUR  # the service was away, and so nobody could report
    plant.tick()
    plant.ticks += 59
    plant.tick()
    assert plant.told("enforcer.down") == []
    plant.ticks += 1
    plant.tick()
    plant.ticks += 60
    plant.tick()
    assert len(plant.told("enforcer.down")) == 1
    with plant.store.write() as unit:
        unit.enforcers.report(enforcer, [])
    assert len(plant.told("enforcer.up")) == 2


def test_a_change_waits_for_its_whole_time_from_its_commit() -> None:
    """Its deadline was written before its list was compiled, six seconds ago; a service that starts goes by that."""
    uptime = 100.0
    countdown, change = Countdown(lambda: uptime), WaitingChange("shop", base=1, by_micros=0, lasts_s=10, left_s=4.0)
    assert countdown.look(tuple) == []
    uptime = 100.5
    assert countdown.look(lambda: [change]) == [(change, 9.5)]
    uptime = 105.0
    assert countdown.look(lambda: [change]) == [(change, 5.0)]
    assert Countdown(lambda: uptime).look(lambda: [change]) == [(change, 4.0)]
