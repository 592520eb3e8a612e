"""Enrolment, epochs, reports, and when a generation counts as enforced."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from raised import raise_generation
from sqlalchemy import text
from store.conftest import FakeWall
from store.scenes import populate

from orchestrator.errors import BadInput, NotFound, Unauthenticated
from orchestrator.program.program import Tier
from orchestrator.store import Store
from orchestrator.store.points.pointrecords import Enrolled, HeldRecord, PointReport
from orchestrator.store.records import Bearing, FirewallRecord, HostRecord, NewToken, Principal, Role, TokenRecord
from orchestrator.store.tokens import is_due
from orchestrator.store.transaction import StoreSettings
from orchestrator.wire.firewalls import Plane
from orchestrator.wire.points import Leading, PointState


def invite(store: Store, wall: FakeWall, hours: float = 1) -> str:
    with store.write() as unit:
        return unit.enforcers.invite("pop", expires=wall.now + dt.timedelta(hours=hours), author="ann")


def enrol(store: Store, secret: str, name: str = "c1") -> Enrolled:
    with store.write() as unit:
        return unit.enforcers.enrol(secret, name=name, kind="openflow")


def test_an_invitation_is_used_once(store: Store, wall: FakeWall) -> None:
    populate(store)
    secret = invite(store, wall)
    with pytest.raises(BadInput):
        enrol(store, secret, name="not a name")
    first = enrol(store, secret)
    assert (first.enforcer.domain, first.enforcer.name, first.enforcer.epoch) == ("pop", "c1", 1)
    with pytest.raises(Unauthenticated):
        enrol(store, secret, name="c2")
    with pytest.raises(Unauthenticated):
        enrol(store, "aclflow_guessed")
    with store.read() as unit:
        principal = unit.tokens.check(first.secret)
        assert (principal.role, principal.domain, principal.enforcer) == (Role.ENFORCER, "pop", first.enforcer.id)
        assert unit.enforcers.list("pop") == (first.enforcer,)


def test_an_invitation_expires_and_a_clock_set_back_does_not_revive_it(store: Store, wall: FakeWall) -> None:
    populate(store)
    secret = invite(store, wall)
    wall.move(hours=1)
    with pytest.raises(Unauthenticated):
        enrol(store, secret)
    wall.move(hours=-5)
    with pytest.raises(Unauthenticated):
        enrol(store, secret)
    with pytest.raises(BadInput, match="passed"):
        invite(store, wall, hours=2)  # for the store it is later than that


def test_secrets_are_nowhere_in_the_database(store: Store, wall: FakeWall) -> None:
    populate(store)
    secrets = [invite(store, wall), invite(store, wall)]
    secrets.append(enrol(store, secrets[0]).secret)
    with store.engine.connect() as connection:
        for table in ("invitations", "tokens", "enforcers"):
            dump = repr(connection.execute(text(f"SELECT * FROM {table}")).all())
            assert not any(secret in dump for secret in secrets)


def test_the_same_name_enrols_anew_with_a_higher_epoch(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
    first = enrol(store, invite(store, wall))
    with store.write() as unit:
        unit.enforcers.report(first.enforcer.id, [PointReport("host1", 2, b"d", PointState.ENFORCED)])
    second = enrol(store, invite(store, wall))
    other = enrol(store, invite(store, wall), name="c2")
    assert first.enforcer.epoch < second.enforcer.epoch < other.enforcer.epoch
    with store.write() as unit:
        with pytest.raises(Unauthenticated):
            unit.tokens.check(first.secret)
        assert unit.enforcers.new_epoch(second.enforcer.id) == other.enforcer.epoch + 1
        assert [found.name for found in unit.enforcers.list("pop")] == ["c1", "c2"]
        assert unit.enforcers.points("pop") == ()
        unit.enforcers.remove(second.enforcer.id)
        with pytest.raises(NotFound):
            unit.enforcers.get(second.enforcer.id)
        with pytest.raises(Unauthenticated):
            unit.tokens.check(second.secret)


def test_of_racing_enrolments_exactly_one_wins(
    store: Store, open_another: Callable[..., Store], wall: FakeWall
) -> None:
    populate(store)
    secret = invite(store, wall)
    stores = [store, open_another(), open_another()]
    start = threading.Barrier(len(stores) * 2)
    outcomes: list[str] = []

    def race(runner: Store, name: str) -> None:
        start.wait()
        try:
            outcomes.append(enrol(runner, secret, name=name).enforcer.name)
        except Unauthenticated:
            outcomes.append("refused")

    threads = [
        threading.Thread(target=race, args=(runner, f"c{index}-{copy}"))
        for index, runner in enumerate(stores)
        for copy in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes)[1:] == ["refused"] * 5 or outcomes.count("refused") == 5
    with store.read() as unit:
        assert [found.epoch for found in unit.enforcers.list("pop")] == [1]


def test_enforced_means_read_back_everywhere(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        assert unit.enforcers.enforced_state("pop", 1).done  # no hosts: nobody lags
        for number in (1, 2, 3):
            unit.domains.add_host("pop", HostRecord(f"host{number}", number, "eth0"))
    enforcer = enrol(store, invite(store, wall)).enforcer.id
    reports = [
        PointReport("host1", 7, b"\x01" * 16, PointState.ENFORCED, flows=12),
        PointReport("host2", 6, b"\x02" * 16, PointState.ENFORCED),
        PointReport("host3", 9, b"", PointState.REFUSED, error="table\nfull\0"),
        PointReport("gone", 9, b"", PointState.ENFORCED),
    ]
    with store.write() as unit:
        raise_generation(unit, "pop", 6)
    with store.write() as unit:
        assert unit.enforcers.report(enforcer, reports[:2])
        state = unit.enforcers.enforced_state("pop", 7)
        assert [lag.host for lag in state.laggards] == ["host2", "host3"]
        assert state.laggards[1].point is None
        assert unit.enforcers.report(enforcer, reports)
    with store.read() as unit:
        state = unit.enforcers.enforced_state("pop", 6)
        assert (state.done, state.hosts, [lag.host for lag in state.laggards]) == (False, 3, ["host3"])
        point = state.laggards[0].point
        assert point is not None
        assert (point.report.state, point.report.error) == (PointState.REFUSED, "table?full?")
        assert unit.enforcers.points("pop")[0].report == reports[0]
        assert unit.enforcers.get(enforcer).last_seen == unit.enforcers.points("pop")[0].reported
    with store.write() as unit:
        unit.enforcers.report(enforcer, [PointReport("host3", 6, b"", PointState.ENFORCED)])
        assert unit.enforcers.enforced_state("pop", 6).done
        unit.domains.remove_host("pop", "host2")
        assert [lag.host for lag in unit.enforcers.enforced_state("pop", 7).laggards] == ["host3"]
        with pytest.raises(NotFound):
            unit.enforcers.report(999, [])


def test_what_switches_may_hold_is_told_once_for_all_that_hold_alike(store: Store, wall: FakeWall) -> None:
    """Every change asks for it where several services share a store, and a domain may have a thousand hosts."""
    populate(store)
    with store.write() as unit:
        for number in range(1, 8):
            unit.domains.add_host("pop", HostRecord(f"host{number}", number, "eth0"))
        came = unit.domains.get("pop").generation
    enforcer = enrol(store, invite(store, wall)).enforcer.id

    def held() -> set[HeldRecord]:
        with store.read() as unit:
            found = unit.enforcers.switches("pop")
            assert len(set(found)) == len(found)
            return set(found)

    def report(digest: bytes, state: PointState, *numbers: int) -> dt.datetime:
        with store.write() as unit:
            unit.enforcers.report(enforcer, [PointReport(f"host{each}", came, digest, state) for each in numbers])
            return unit.now

    nothing = HeldRecord(came, None, None, is_strange=False)
    assert held() == {nothing}
    report(b"1" * 16, PointState.ENFORCED, 1, 2, 3)
    wall.move(seconds=1)
    last = report(b"1" * 16, PointState.ENFORCED, 2)
    refused = report(b"", PointState.REFUSED, 4)
    same = HeldRecord(came, b"1" * 16, last, is_strange=False)
    assert held() == {nothing, same, HeldRecord(came, None, refused, is_strange=False)}
    with store.write() as unit:
        assert raise_generation(unit, "pop", came + 7)
    assert {each.is_strange for each in held()} == {True}


def test_a_host_that_is_vouched_for_holds_what_it_was_read_back_with(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        for number in (1, 2, 3):
            unit.domains.add_host("pop", HostRecord(f"host{number}", number, "eth0"))
    enforcer, other = (enrol(store, invite(store, wall), name).enforcer.id for name in ("c1", "c2"))
    mine, theirs = b"\x01" * 16, b"\x02" * 16

    def report(who: int, generation: int, point: PointReport, *vouched: PointReport) -> None:
        with store.write() as unit:
            unit.enforcers.report(who, [point], vouched=vouched)

    def at(host: str) -> int:
        with store.read() as unit:
            return next(each.report.generation for each in unit.enforcers.points("pop") if each.report.host == host)

    def enforced(host: str, generation: int, digest: bytes) -> PointReport:
        return PointReport(host, generation, digest, PointState.ENFORCED)

    report(enforcer, 3, enforced("host1", 3, mine))
    report(other, 3, enforced("host2", 3, theirs))
    report(enforcer, 4, enforced("host1", 4, mine), enforced("host2", 4, mine), enforced("host3", 4, theirs))
    assert at("host2") == 3  # with another digest; and who never reported holds nothing
    report(enforcer, 5, enforced("host1", 5, mine), enforced("host2", 5, theirs), enforced("host1", 9, theirs))
    assert (at("host1"), at("host2")) == (5, 5)
    report(other, 3, enforced("host2", 3, theirs))  # its own word is of before, and of the same program
    assert at("host2") == 5
    report(other, 4, enforced("host2", 4, mine))  # of another
    assert at("host2") == 4
    report(other, 4, replace(enforced("host2", 4, theirs), state=PointState.DRIFTED))
    report(enforcer, 6, enforced("host1", 6, mine), enforced("host2", 6, theirs))
    assert at("host2") == 4
    report(other, 4, enforced("host2", 4, theirs))
    wall.move(minutes=5)
    with store.write() as unit:
        assert other in unit.enforcers.lose_silent(60)
    report(enforcer, 7, enforced("host1", 7, mine), enforced("host2", 7, theirs))
    assert at("host2") == 4  # nobody has heard of it for a while
    report(other, 4, enforced("host2", 4, theirs), enforced("host2", 7, theirs))
    assert at("host2") == 7  # here it is again: nobody else need say anything
    report(other, 4, replace(enforced("host2", 4, theirs), state=PointState.DRIFTED), enforced("host2", 7, theirs))
    assert at("host2") == 4
    report(other, 4, enforced("host2", 4, theirs), enforced("host2", 7, theirs))
    assert at("host2") == 7


def test_reports_that_come_late_or_twice_change_nothing(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("host1", 1, "eth0"))
    enforcer = enrol(store, invite(store, wall)).enforcer.id

    def report(generation: int, sequence: int | None) -> bool:
        with store.write() as unit:
            point = PointReport("host1", generation, b"", PointState.ENFORCED)
            return unit.enforcers.report(enforcer, [point], sequence=sequence)

    def generation() -> int:
        with store.read() as unit:
            return unit.enforcers.points("pop")[0].report.generation

    assert report(1, 5)
    assert not report(2, 5)
    assert not report(2, 4)
    assert generation() == 1
    assert report(3, None)
    assert not report(4, 5)
    assert report(5, 6)
    assert generation() == 5
    with store.write() as unit:
        unit.enforcers.new_epoch(enforcer)
    assert report(6, 1)
    assert generation() == 6


@pytest.mark.parametrize("report", [{"generation": -1}, {"generation": 1 << 63}, {"flows": -1}, {"digest": b"x" * 65}])
def test_reports_are_valid_from_birth(report: dict[str, object]) -> None:
    values: dict[str, object] = {"host": "h", "generation": 1, "digest": b"", "state": PointState.ENFORCED, **report}
    with pytest.raises(BadInput):
        PointReport(**values)  # type: ignore[arg-type]


def renew(store: Store, enrolled: Enrolled, secret: str) -> NewToken:
    with store.write() as unit:
        return unit.enforcers.renew_token(enrolled.enforcer.id, unit.tokens.check(secret).token_id)


def knows(store: Store, secret: str) -> bool:
    with store.read() as unit:
        try:
            unit.tokens.check(secret)
        except Unauthenticated:
            return False
        return True


def test_a_token_of_an_enforcement_point_ends_when_tokens_do(store: Store, wall: FakeWall) -> None:
    populate(store)
    enrolled = enrol(store, invite(store, wall))
    lasts = StoreSettings().token_lasts
    assert enrolled.ends is not None
    assert lasts <= enrolled.ends - wall.now < lasts + dt.timedelta(seconds=1)
    with store.read() as unit:
        assert unit.tokens.get(unit.tokens.check(enrolled.secret).token_id).expires == enrolled.ends
    wall.move(days=lasts.days - 1)
    assert knows(store, enrolled.secret)
    wall.move(days=1, seconds=1)
    assert not knows(store, enrolled.secret)


def test_a_token_of_an_enforcement_point_is_renewed_with_an_overlap(store: Store, wall: FakeWall) -> None:
    populate(store)
    enrolled, other = (enrol(store, invite(store, wall), name) for name in ("c1", "c2"))
    lost = renew(store, enrolled, enrolled.secret)
    made = renew(store, enrolled, enrolled.secret)
    assert [knows(store, each) for each in (enrolled.secret, lost.secret, made.secret)] == [True, False, True]
    following = renew(store, enrolled, made.secret)
    assert [knows(store, each) for each in (enrolled.secret, made.secret, following.secret)] == [False, True, True]
    assert knows(store, other.secret)


@pytest.mark.parametrize(("lasts_days", "after_days"), [(365.0, 20.0), (3.0, 2.0)])
def test_a_token_of_an_enforcement_point_is_due_long_before_its_end(lasts_days: float, after_days: float) -> None:
    created, lasts, day = dt.datetime(2030, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=lasts_days), dt.timedelta(days=1)
    bearer = Principal(1, Role.ENFORCER, None, "pop", 1)
    record = TokenRecord(1, bearer, "", created, created + lasts, Bearing("", None))
    assert not is_due(record, created + after_days * day - dt.timedelta(seconds=1))
    assert is_due(record, created + after_days * day)
    assert is_due(replace(record, expires=None), created), "as one of an older version"


def test_nobody_leads_what_somebody_silent_reported_or_found_disconnected(store: Store, wall: FakeWall) -> None:
    """Of the switches that an enforcer may lead; firewall VNFs and edges are other ones."""
    populate(store)
    with store.write() as unit:
        for number in range(1, 6):
            unit.domains.add_host("pop", HostRecord(f"h{number}", number, "eth0"))
        unit.firewalls.add("pop", FirewallRecord("f1", Plane.NFTABLES))
        ends = wall.now + dt.timedelta(hours=1)
        bound = unit.enforcers.invite("pop", expires=ends, author="ann", kind="openflow", hosts=("h1", "h5"))
    first, second = (enrol(store, invite(store, wall), name).enforcer.id for name in ("c1", "c2"))
    third = enrol(store, bound, "c3").enforcer.id

    def say(enforcer: int, *hosts: str, state: PointState = PointState.ENFORCED) -> None:
        with store.write() as unit:
            unit.enforcers.new_epoch(enforcer)
            unit.enforcers.report(enforcer, [PointReport(host, 0, bytes(16), state) for host in hosts])

    def seen(enforcer: int, tier: Tier = Tier.HOST, *, begins: bool = False) -> Leading:
        with store.read() as unit:
            return unit.enforcers.leading(enforcer, tier, silence_s=250.0, begins=begins)

    assert seen(first) == Leading((), ("h1", "h2", "h3", "h4", "h5"))
    say(first, "h1", "h2")
    say(second, "h3")
    say(second, "h4", state=PointState.DISCONNECTED)
    assert seen(first) == Leading((first, second), ("h4", "h5"))
    assert seen(third) == Leading((first, second), ("h5",))
    assert seen(first, begins=True) == Leading((first, second), ("h1", "h2", "h4", "h5"), ("h3",))
    assert seen(second, begins=True) == Leading((first, second), ("h3", "h4", "h5"), ("h1", "h2"))
    assert seen(first, Tier.EDGE) == Leading((), ())
    wall.move(seconds=200)
    with store.write() as unit:
        unit.enforcers.report(second, [])
    wall.move(seconds=100)
    assert seen(second) == Leading((second,), ("h1", "h2", "h4", "h5"))
    assert seen(third) == Leading((second,), ("h1", "h5"))
    say(second, "h1")
    assert seen(second) == Leading((second,), ("h2", "h4", "h5"))
    with pytest.raises(NotFound):
        seen(99)
