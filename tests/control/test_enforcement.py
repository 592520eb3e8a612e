"""Waiting until a generation is enforced: whoever waits is told what the database says, however the reports come."""

from __future__ import annotations

import asyncio
import datetime as dt
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from patience import PATIENCE_S, until
from raised import raise_generation

from orchestrator.control import enforcement
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.metrics import Metrics
from orchestrator.control.reports import Report
from orchestrator.errors import Busy, Conflict, NotFound
from orchestrator.stages import measuring
from orchestrator.store import Store, open_store
from orchestrator.store.points.pointrecords import EnforcedState, PointRecord, PointReport, Standing
from orchestrator.store.records import HostRecord
from orchestrator.store.sql.clock import utc_now
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import StoreSettings, Transaction
from orchestrator.wire.points import PointState

HOSTS = ("h1", "h2")
SOON_S = 5.0


class Site:
    """A domain at generation 9 with two hosts and one enforcer."""

    def __init__(self, store: Store, recheck_s: float | None = None, patience_s: float = PATIENCE_S) -> None:
        self.store = store
        self.enforcement = Enforcement(store, Metrics(), recheck_s=recheck_s, patience_s=patience_s)
        with store.write() as unit:
            unit.domains.create("pop")
            for number, name in enumerate(HOSTS, 1):
                unit.domains.add_host("pop", HostRecord(name, number, "up"))
            token = unit.enforcers.invite("pop", expires=unit.now.replace(year=unit.now.year + 1), author="x")
            self.enforcer = unit.enforcers.enrol(token, name="one", kind="openflow").enforcer.id
        with store.write() as unit:
            raise_generation(unit, "pop", 7)

    def report(self, host: str, generation: int, state: PointState = PointState.ENFORCED, **took: float) -> None:
        point = PointReport(host, generation, bytes(16), state)
        self.enforcement.report("pop", self.enforcer, Report((point,), took={host: took} if took else {}))

    def remove(self, host: str) -> None:
        with self.store.write() as unit:
            unit.domains.remove_host("pop", host)


@contextmanager
def site(
    recheck_s: float | None = None,
    clock: Callable[[], dt.datetime] = utc_now,
    of_store: StoreSettings | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'store.db'}", clock=clock, settings=of_store)
        try:
            yield Site(store, recheck_s, patience_s)
        finally:
            store.close()


steps = st.tuples(
    st.sampled_from(HOSTS), st.integers(7, 10), st.sampled_from([PointState.ENFORCED] * 3 + [PointState.DRIFTED])
)


async def is_let_go(site: Site, waiting: asyncio.Task[EnforcedState]) -> bool:
    """Whether the database says that it is done; who waits must then be let go, and else not."""
    for generation in range(7, 10):
        known = await site.enforcement.wait("pop", generation, 0.0, is_fresh=True)
        assert known == site.enforcement.enforced_state("pop", generation)
    if site.enforcement.enforced_state("pop", 9).done:
        assert (await asyncio.wait_for(waiting, SOON_S / 2)).done
        return True
    await asyncio.sleep(0.01)
    assert not waiting.done()
    return False


async def story(site: Site, reports: list[tuple[str, int, PointState]], removed_after: int) -> None:
    """One who waits for generation 9 is let go by exactly the first step after which the database says so."""
    waiting = asyncio.create_task(site.enforcement.wait("pop", 9, SOON_S))
    await asyncio.sleep(0.02)
    for index, (host, generation, state) in enumerate(reports):
        if index == removed_after:
            await asyncio.to_thread(site.remove, "h2")
            if await is_let_go(site, waiting):
                return
        await asyncio.to_thread(site.report, host, min(generation, 9), state)
        if await is_let_go(site, waiting):
            return
    waiting.cancel()


def check(reports: list[tuple[str, int, PointState]], removed_after: int) -> None:
    with site() as running:
        asyncio.run(story(running, reports, removed_after))


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=6), st.integers(0, 8))
def test_who_waits_is_let_go_when_the_database_says_so(
    reports: list[tuple[str, int, PointState]], removed_after: int
) -> None:
    check(reports, removed_after)


REAL_AFTER = Standing.after
PLANTED: dict[str, tuple[str, Callable[..., object]]] = {
    "hosts are lost": ("is_done", lambda self, generation: any(each >= generation for each in self.counts)),
    "reports are not counted": ("after", lambda self, _moves: self),
    "what was said before is counted still": (
        "after",
        lambda self, moves: REAL_AFTER(self, [(None, now) for _, now in moves]),
    ),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_the_law_notices_a_standing_that_lags(
    monkeypatch: pytest.MonkeyPatch, planted: tuple[str, Callable[..., object]]
) -> None:
    monkeypatch.setattr(Standing, *planted)

    @settings(max_examples=25, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.lists(steps, min_size=2, max_size=4))
    def law(reports: list[tuple[str, int, PointState]]) -> None:
        waited: list[bool] = []
        with site() as running:
            asyncio.run(first_answer(running, reports, waited))

    async def first_answer(running: Site, reports: list[tuple[str, int, PointState]], waited: list[bool]) -> None:
        waiting = asyncio.create_task(running.enforcement.wait("pop", 9, SOON_S))
        await asyncio.sleep(0.02)
        for host, generation, state in reports:
            await asyncio.to_thread(running.report, host, min(generation, 9), state)
            await asyncio.sleep(0.01)
            by_host = {point.report.host: point.report for point in running_points(running)}
            right = all(
                name in by_host and by_host[name].state is PointState.ENFORCED and by_host[name].generation >= 9
                for name in HOSTS
            )
            assert waiting.done() == right
            if right:
                return
        waiting.cancel()

    with pytest.raises(AssertionError):
        law()


def running_points(running: Site) -> tuple[PointRecord, ...]:
    with running.store.read() as unit:
        return unit.enforcers.points("pop")


def test_the_stages_of_the_slowest_host_are_told_to_who_waits() -> None:
    async def waits(running: Site) -> dict[str, float]:
        with measuring() as clock:
            waiting = asyncio.create_task(running.enforcement.wait("pop", 9, SOON_S))
            await asyncio.sleep(0.02)
            await asyncio.to_thread(running.report, "h1", 9, PointState.ENFORCED, copy=9.0)
            await asyncio.to_thread(running.report, "h2", 9, PointState.ENFORCED, copy=1.0, wire=2.0)
            assert (await waiting).done
        return clock.seconds

    with site() as running:
        assert asyncio.run(waits(running)) == {"enforce.copy": 1.0, "enforce.wire": 2.0}


def test_where_others_take_reports_too_only_the_database_is_believed() -> None:
    async def waits(running: Site, other: Enforcement) -> bool:
        waiting = asyncio.create_task(running.enforcement.wait("pop", 9, SOON_S))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(running.report, "h1", 9)
        point = PointReport("h2", 9, bytes(16), PointState.ENFORCED)
        await asyncio.to_thread(other.report, "pop", running.enforcer, Report((point,)))
        return (await asyncio.wait_for(waiting, SOON_S / 2)).done

    with site(recheck_s=0.05) as running:
        assert asyncio.run(waits(running, Enforcement(running.store, Metrics())))


def test_reports_wake_who_waits_for_their_domain_and_ask_the_database_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where others take reports, too: a report's own transaction has just counted theirs."""
    asked = Counter[str]()
    for name in ("enforced_state", "_read_standing"):
        plain = getattr(Enforcement, name)

        def counted(self: Enforcement, domain: str, *rest: int, plain: Callable[..., object] = plain) -> object:
            asked[domain] += 1
            return plain(self, domain, *rest)

        monkeypatch.setattr(Enforcement, name, counted)

    async def waits(running: Site) -> None:
        with running.store.write() as unit:
            unit.domains.create("west")
            unit.domains.add_host("west", HostRecord("w1", 77, "up"))
            newest = unit.domains.get("west").generation
        here, elsewhere = (
            [asyncio.create_task(running.enforcement.wait(*each, PATIENCE_S)) for _ in range(5)]
            for each in (("pop", 9), ("west", newest))
        )
        while asked != {"pop": 5, "west": 5}:
            await asyncio.sleep(0.005)
        for turn in range(20):
            await asyncio.to_thread(running.report, "h1", 7 + turn % 2)
        for host in HOSTS:
            await asyncio.to_thread(running.report, host, 9)
        assert all([(await each).done for each in here])
        assert not any(each.done() for each in elsewhere)
        for each in elsewhere:
            each.cancel()

    with site(recheck_s=PATIENCE_S) as running:
        asyncio.run(waits(running))
    assert asked == {"pop": 5, "west": 5}


@pytest.mark.parametrize("is_fresh", [False, True])
def test_who_waits_for_what_was_just_committed_need_not_ask_the_database(
    is_fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site() as running:
        running.report("h1", 9)
        running.report("h2", 9)
        looks: list[int] = []
        look = running.enforcement.enforced_state

        def counted(domain: str, generation: int) -> EnforcedState:
            looks.append(generation)
            return look(domain, generation)

        monkeypatch.setattr(running.enforcement, "enforced_state", counted)
        assert asyncio.run(running.enforcement.wait("pop", 9, 0, is_fresh=is_fresh)).done
        assert looks == ([] if is_fresh else [9])


def test_a_host_that_comes_is_waited_for() -> None:
    with site() as running:
        running.report("h1", 9)
        running.report("h2", 9)
        with running.store.write() as unit:
            unit.domains.add_host("pop", HostRecord("h3", 3, "wan0"))
        state = asyncio.run(running.enforcement.wait("pop", 9, 0, is_fresh=True))
        assert [each.host for each in state.laggards] == ["h3"]


def test_a_generation_that_is_still_to_come_cannot_be_waited_for() -> None:
    with site() as running, pytest.raises(NotFound):
        asyncio.run(running.enforcement.wait("pop", 10, 1))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(HOSTS), st.integers(1, 4), st.sampled_from(PointState)), max_size=8))
def test_a_standing_is_the_same_report_by_report_as_counted_anew(told: list[tuple[str, int, PointState]]) -> None:
    hosts: dict[str, int | None] = dict.fromkeys(HOSTS)
    standing = Standing(len(hosts), {})
    for name, generation, state in told:
        now = generation if state is PointState.ENFORCED else None
        standing = standing.after([(hosts[name], now)])
        hosts[name] = now
        held = [each for each in hosts.values() if each is not None]
        assert standing == Standing(len(hosts), Counter(held))
        everywhere = min(held, default=0) if len(held) == len(hosts) else 0
        assert [standing.is_done(each) for each in range(1, 6)] == [each <= everywhere for each in range(1, 6)]
        assert standing.reached == (everywhere or None)


def rows_of_a_report(monkeypatch: pytest.MonkeyPatch, hosts: int, recheck_s: float | None) -> int:
    """How many rows are read for a report about one of many hosts, all of which have reported before."""
    found = [0]
    plain = Transaction.rows

    def counted(self: Transaction, statement: Prepared, /, **parameters: object) -> list[Any]:
        rows = plain(self, statement, **parameters)
        found[0] += len(rows)
        return rows

    with site(recheck_s=recheck_s) as running:
        with running.store.write() as unit:
            for number in range(len(HOSTS) + 1, hosts + 1):
                unit.domains.add_host("pop", HostRecord(f"h{number}", number, "up"))
        for number in range(1, hosts + 1):
            running.report(f"h{number}", 8)
        with monkeypatch.context() as patched:
            patched.setattr(Transaction, "rows", counted)
            running.report("h2", 9)
        assert not running.enforcement.enforced_state("pop", 9).done
        assert running.enforcement.enforced_state("pop", 8).hosts == hosts
    return found[0]


@pytest.mark.parametrize("recheck_s", [None, 1.0], ids=["one service", "several services"])
def test_a_report_is_counted_and_not_searched_for(monkeypatch: pytest.MonkeyPatch, recheck_s: float | None) -> None:
    few, many = (rows_of_a_report(monkeypatch, hosts, recheck_s) for hosts in (10, 100))
    assert 0 < many <= few


def test_what_an_enforcer_read_back_goes_with_it() -> None:
    with site() as running:
        running.report("h1", 9)
        running.report("h2", 9)
        assert asyncio.run(running.enforcement.wait("pop", 9, 0, is_fresh=True)).done
        with running.store.write() as unit:
            unit.enforcers.remove(running.enforcer)
        state = asyncio.run(running.enforcement.wait("pop", 9, 0, is_fresh=True))
        assert [each.host for each in state.laggards] == list(HOSTS)


class Ahead:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ahead = dt.timedelta()

    def __call__(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self.ahead


def seen(site: Site) -> tuple[dt.datetime | None, dt.datetime]:
    """When the enforcer was heard last, and since when it says of a host what it says."""
    with site.store.read() as unit:
        return unit.enforcers.list("pop")[0].last_seen, unit.enforcers.points("pop")[0].reported


def test_a_report_that_says_nothing_new_writes_when_it_was_heard_and_nothing_else() -> None:
    clock = Ahead()
    with site(clock=clock) as running:
        running.report("h1", 9)
        first, since = seen(running)
        with running.store.read() as unit:
            events = unit.events.last_id()
        clock.ahead = dt.timedelta(seconds=5)
        running.report("h1", 9)
        again, still = seen(running)
        assert first is not None
        assert again is not None
        assert again - first >= dt.timedelta(seconds=5)
        assert still == since
        running.report("h1", 9, PointState.DRIFTED)
        assert seen(running)[1] > since
        with running.store.read() as unit:
            assert unit.events.last_id() > events


def test_what_enforcers_said_last_is_not_remembered_of_all_that_ever_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforcement, "MOST_SAID", 2)
    with site() as running:
        named = [running.enforcer]
        for name in ("two", "three"):
            with running.store.write() as unit:
                token = unit.enforcers.invite("pop", expires=unit.now.replace(year=unit.now.year + 1), author="x")
                named.append(unit.enforcers.enrol(token, name=name, kind="openflow").enforcer.id)
        for each in named:
            point = PointReport("h1", 8, bytes(16), PointState.ENFORCED)
            running.enforcement.report("pop", each, Report((point,)))
        assert list(running.enforcement._said) == named[1:]
        assert running_points(running)[0].enforcer == named[-1]


def test_an_enforcer_that_was_lost_is_back_although_it_says_nothing_new() -> None:
    clock = Ahead()
    with site(clock=clock) as running:
        running.report("h1", 9)
        clock.ahead = dt.timedelta(seconds=60)
        with running.store.write() as unit:
            assert unit.enforcers.lose_silent(8.0) == (running.enforcer,)
        running.report("h1", 9)
        with running.store.read() as unit:
            assert not unit.enforcers.has_silent(8.0)
            assert unit.events.newest(limit=1).events[0].kind == "enforcer.up"


def test_reports_that_wait_for_each_other_are_few_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 20
    turns = list[None]()
    write = Store.write
    monkeypatch.setattr(Store, "write", lambda self, **more: (turns.append(None), write(self, **more))[1])
    with site() as running, ThreadPoolExecutor(1) as beside:
        turns.clear()
        with running.store.turn():  # nobody else can write meanwhile
            first = beside.submit(running.report, "h1", 8, PointState.APPLYING)
            until(lambda: turns)
            told = [begin(running, HOSTS[number % 2], PointState.APPLYING) for number in range(1, many)]
        for each in (first, *told):
            each.result(PATIENCE_S)
        assert len(turns) == 2
        assert running.enforcement.enforced_state("pop", 8).hosts == len(HOSTS)


def begin(running: Site, host: str, state: PointState = PointState.ENFORCED) -> Future[None]:
    """Bring a report while others wait, which needs no thread to wait on."""
    point = PointReport(host, 8, bytes(16), state)
    return running.enforcement.begin("pop", running.enforcer, Report((point,)))


def test_reports_outwait_a_store_that_is_held_for_longer_than_its_patience() -> None:
    """As by a large list: each look for a turn ends with Busy, and no report does."""
    hasty = StoreSettings(busy_timeout_s=0.05)
    with site(of_store=hasty) as running, ThreadPoolExecutor(1) as threads:
        with running.store.turn():
            told = [threads.submit(begin, running, host).result(PATIENCE_S) for host in HOSTS * 50]
            assert not any(each.done() for each in told)
        for each in told:
            each.result(PATIENCE_S)
        assert running.enforcement.enforced_state("pop", 8).done


def test_a_report_that_outlasts_its_patience_is_answered_busy() -> None:
    hasty = StoreSettings(busy_timeout_s=0.01)
    with site(of_store=hasty, patience_s=0.1) as running, running.store.turn():
        for each in [begin(running, host) for host in HOSTS]:
            with pytest.raises(Busy):
                each.result(PATIENCE_S)


def test_reports_that_wait_when_the_service_stops_are_answered() -> None:
    with site(of_store=StoreSettings(busy_timeout_s=0.01)) as running, running.store.turn():
        told = [begin(running, host) for host in HOSTS]
        running.enforcement.close()
        for each in told:
            with pytest.raises(Busy):
                each.result(PATIENCE_S)


def test_an_enforcer_whose_report_waits_for_the_store_is_not_silent() -> None:
    clock = Ahead()
    with site(clock=clock, of_store=StoreSettings(busy_timeout_s=0.05)) as running:
        running.report("h1", 7)
        clock.ahead = dt.timedelta(seconds=60)
        with running.store.turn() as turn:  # whoever looks for silent ones comes first when the list is stored
            waiting = begin(running, "h1")
            running.enforcement.note_heard(turn.unit)
            assert turn.unit.enforcers.lose_silent(8.0) == ()
            turn.commit()
        waiting.result(PATIENCE_S)


def test_a_report_that_nobody_waits_for_any_more_is_kept() -> None:
    with site(of_store=StoreSettings(busy_timeout_s=0.01)) as running:
        with running.store.turn():
            gone = begin(running, "h1")
            assert not gone.cancel()
        gone.result(PATIENCE_S)
        running.report("h2", 8)
        assert running.enforcement.enforced_state("pop", 8).done


def test_a_report_that_is_refused_takes_no_other_with_it() -> None:
    with site() as running, ThreadPoolExecutor(8) as threads:
        wrong = Report((PointReport("h1", 8, bytes(16), PointState.ENFORCED),), epoch=77)
        with running.store.turn():
            refused = [threads.submit(running.enforcement.report, "pop", running.enforcer, wrong) for _ in range(4)]
            taken = [threads.submit(running.report, host, 8) for host in HOSTS]
        for each in refused:
            with pytest.raises(Conflict, match="was never given 77"):
                each.result()
        for each in taken:
            each.result()
        assert running.enforcement.enforced_state("pop", 8).done
