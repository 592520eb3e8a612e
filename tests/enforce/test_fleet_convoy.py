"""Switches brought forward together: written before any is waited for, told in one report, and none waits for ever."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from enforce.loop_bench import is_of_a_program
from enforce.programs import change, program, rule
from patience import PATIENCE_S, until

from orchestrator.client import Host, PointReport
from orchestrator.enforce import changing
from orchestrator.enforce.changing import Work
from orchestrator.enforce.counting import Change
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.drivers.openflow.channel import HEADER, StreamChannel
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch
from orchestrator.enforce.drivers.openflow.fake.session import Session
from orchestrator.enforce.fleet import Fleet
from orchestrator.enforce.report import Reporter
from orchestrator.enforce.standing import Goal, Timing
from orchestrator.program.program import Program

QUIET = Timing(observe_every_s=3600, count_every_s=3600, absent_after_s=3600)


class Answer:
    """What somebody waits for."""

    def __init__(self, name: str, log: list[str], *, comes: bool = True) -> None:
        self.name, self.log, self.comes = name, log, comes

    def wait(self, timeout_s: float | None = None) -> bool:
        self.log.append(f"{self.name} is waited for")
        return self.comes or timeout_s is None


def work(name: str, log: list[str], *, comes: bool = True) -> Work:
    for turn in (1, 2):
        log.append(f"{name} {turn} is written")
        yield Answer(name, log, comes=comes)
    log.append(f"{name} is done")


def nobody(_: Work) -> None:
    raise AssertionError


def test_everybody_is_written_before_anybody_is_waited_for() -> None:
    log: list[str] = []
    changing.advance(changing.Member(work(name, log), nobody) for name in "ab")
    assert log == [
        "a 1 is written", "b 1 is written",
        "a is waited for", "a 2 is written", "b is waited for", "b 2 is written",
        "a is waited for", "a is done", "b is waited for", "b is done",
    ]  # fmt: skip


def test_what_is_to_be_done_meanwhile_is_done_while_all_are_at_their_first_and_none_at_its_second() -> None:
    log: list[str] = []
    changing.advance((changing.Member(work(name, log), nobody) for name in "ab"), lambda: log.append("meanwhile"))
    assert log[:4] == ["a 1 is written", "b 1 is written", "meanwhile", "a is waited for"]


def test_who_keeps_the_others_waiting_goes_on_elsewhere_from_where_it_was() -> None:
    log: list[str] = []
    handed: list[Work] = []
    members = [changing.Member(work("a", log, comes=False), handed.append), changing.Member(work("b", log), nobody)]
    changing.advance(members, patience_s=0.0)
    assert log[-1] == "b is done"
    assert "a 2 is written" not in log
    log.clear()
    (left,) = handed
    for waiting in left:
        assert waiting.wait()
    assert log == ["a is waited for", "a 2 is written", "a is waited for", "a is done"]


def test_what_was_begun_is_handed_over_where_something_fails() -> None:
    """Nobody else may begin a step of a device before the one under way has ended."""

    def members() -> Iterator[changing.Member]:
        yield changing.Member(work("a", log), handed.append)
        raise ValueError("the next member")

    def full() -> None:
        raise ValueError("the disk")

    for begin in (lambda: changing.advance(members()), lambda: changing.advance([next(members())], full)):
        log: list[str] = []
        handed: list[Work] = []
        with pytest.raises(ValueError, match=r"the (next member|disk)"):
            begin()
        (left,) = handed
        assert all(waiting.wait() for waiting in left)
        assert log[0] == "a 1 is written"
        assert log[-1] == "a is done"


class Slow:
    """A channel to a switch of our own that keeps its answers back for as long as it is told to."""

    def __init__(self, number: int) -> None:
        self.switch = FakeSwitch({"p1": 1, "p2": 2}, datapath_id=number)
        self.written_by: list[str] = []
        self.answers = threading.Event()
        self.answers.set()
        self._data: queue.Queue[bytes] = queue.Queue()
        self._session = Session(self.switch)
        self.channel = StreamChannel(number, self.switch.ports, self._send)
        threading.Thread(target=self._serve, name=f"switch-{number}", daemon=True).start()

    def _send(self, data: bytes) -> None:
        self.written_by.append(threading.current_thread().name)
        self._data.put(data)

    def _serve(self) -> None:
        while True:
            answers = self._session.feed(self._data.get())
            assert self.answers.wait(PATIENCE_S)
            at = 0
            while at < len(answers):
                length = HEADER.unpack_from(answers, at)[2]
                self.channel.deliver(answers[at : at + length])
                at += length


def held(slow: Slow) -> set[int]:
    """The cookies of what a switch holds."""
    return {entry.cookie for entry in slow.switch.entries()}


class Uncounted:
    """Nobody looks at counters here."""

    def note_poll(self, host: str, hits: Hits, took_s: float) -> None:
        pass

    def note_change(self, host: str, change: Callable[[], Change]) -> None:
        pass

    def forget(self, host: str) -> None:
        pass


class Bench:
    """Two hosts with switches, their fleet, and the reports about them."""

    def __init__(self) -> None:
        self.reports: queue.Queue[dict[str, tuple[int, str]]] = queue.Queue()
        self.reporter = Reporter(self, "pop1", 1, lambda: None)
        self.slow = [Slow(1), Slow(2)]
        self.fleet = Fleet(self.reporter.point, Uncounted(), lambda: None, QUIET, self.reporter.together)
        self.fleet.lead(1)
        self.fleet.set_hosts([Host("h1", 1, "p2"), Host("h2", 2, "p2")])
        self.reporter.start()
        for slow in self.slow:
            self.fleet.switch_connected(slow.channel)

    def report(self, _domain: str, _enforcer: int, *, points: Sequence[PointReport] = (), **_: object) -> None:
        self.reports.put({point.host: (point.generation, point.state) for point in points})

    def start_at(self, goal: Program) -> None:
        self.fleet.aim(Goal(goal))
        self.wait_for(goal.generation, "h1", "h2")
        while any(member.loop.is_acting for member in self.fleet.members.values()):
            threading.Event().wait(0.001)  # what was reported a moment ago is about to end
        for slow in self.slow:
            slow.written_by.clear()

    def wait_for(self, generation: int, *hosts: str) -> list[dict[str, tuple[int, str]]]:
        """The reports up to the one after which these hosts are told to be there."""
        told: list[dict[str, tuple[int, str]]] = []
        there: set[str] = set()
        while not there >= set(hosts):
            told.append(self.reports.get(timeout=PATIENCE_S))
            there |= {host for host, point in told[-1].items() if point == (generation, "enforced")}
        return told

    def close(self) -> None:
        for slow in self.slow:
            slow.answers.set()
        self.fleet.stop()
        self.reporter.stop()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


FIRST, SECOND = program([rule(1)]), program([rule(1), rule(2)], generation=2)


def test_one_rule_is_on_both_switches_when_the_call_returns_and_told_in_one_report(bench: Bench) -> None:
    bench.start_at(FIRST)
    bench.fleet.aim(Goal(FIRST).followed_by(SECOND, change(FIRST, SECOND)))
    for slow in bench.slow:
        assert {entry.cookie for entry in slow.switch.entries()} >= set(SECOND.flows.cookie.tolist())
        assert set(slow.written_by) == {threading.current_thread().name}
    assert bench.wait_for(2, "h1", "h2") == [{"h1": (2, "enforced"), "h2": (2, "enforced")}]


@pytest.mark.parametrize("rows", [1, 200])
def test_nothing_is_told_before_what_is_done_meanwhile(bench: Bench, rows: int) -> None:
    """A small change is not committed either; a large one is each switch's own business."""
    goal = program([rule(number) for number in range(1 + rows)], generation=2)
    new = set(goal.flows.cookie.tolist()) - set(FIRST.flows.cookie.tolist())
    seen: list[bool] = []

    def meanwhile() -> None:
        if rows > 1:  # however fast the switches are
            until(lambda: all(new <= held(slow) for slow in bench.slow))
        seen.append(rows == 1 and any(new & held(slow) for slow in bench.slow))
        seen.append(not bench.reports.empty())

    bench.start_at(FIRST)
    bench.fleet.aim(Goal(FIRST).followed_by(goal, change(FIRST, goal)), meanwhile)
    assert seen == [False, False]
    bench.wait_for(2, "h1", "h2")


def test_a_slow_switch_is_reached_without_the_others_waiting_for_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.start_at(FIRST)
    hurried(monkeypatch)
    bench.slow[0].answers.clear()
    bench.fleet.aim(Goal(FIRST).followed_by(SECOND, change(FIRST, SECOND)))
    assert "h1" not in bench.wait_for(2, "h2")[-1]
    bench.slow[0].answers.set()
    bench.wait_for(2, "h1")
    assert {entry.cookie for entry in bench.slow[0].switch.entries()} >= set(SECOND.flows.cookie.tolist())


def test_a_goal_that_comes_while_a_switch_is_slow_is_reached_after_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = program([rule(2), rule(3)], generation=3)
    bench.start_at(FIRST)
    hurried(monkeypatch)
    bench.slow[0].answers.clear()
    goal = Goal(FIRST).followed_by(SECOND, change(FIRST, SECOND))
    bench.fleet.aim(goal)
    bench.fleet.aim(goal.followed_by(third, change(SECOND, third)))
    bench.slow[0].answers.set()
    bench.wait_for(3, "h1", "h2")
    for slow in bench.slow:
        cookies = {entry.cookie for entry in slow.switch.entries() if is_of_a_program(entry.cookie)}
        assert cookies == set(third.flows.cookie.tolist())


def test_a_change_of_many_rows_is_each_switchs_own_business(bench: Bench) -> None:
    many = program([rule(number) for number in range(200)], generation=2)
    bench.start_at(FIRST)
    bench.fleet.aim(Goal(FIRST).followed_by(many, change(FIRST, many)))
    bench.wait_for(2, "h1", "h2")
    assert [set(slow.written_by) for slow in bench.slow] == [{"loop-h1"}, {"loop-h2"}]


def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the others for long."""
    advance: Callable[..., None] = changing.advance
    monkeypatch.setattr(changing, "advance", lambda *asked: advance(*asked, patience_s=0.01))


def test_a_switch_that_proves_to_be_another_host_takes_nobodys_place(bench: Bench) -> None:
    """Its datapath id is only said; the certificate tells."""
    bench.start_at(program([]))
    impostor = StreamChannel(1, {}, lambda _: pytest.fail("it was written to"), hosts=frozenset({"h2"}))
    bench.fleet.switch_connected(impostor)
    bench.fleet.aim(Goal(program([rule(1)], generation=2)))
    bench.wait_for(2, "h1", "h2")
    bench.fleet.switch_disconnected(impostor)
    bench.fleet.switch_disconnected(bench.slow[0].channel)
    bench.fleet.switch_connected(impostor)
    assert set(bench.fleet.devices) == {2}, "nor the place that the true one left"
    bench.fleet.switch_disconnected(impostor)
    bench.fleet.set_hosts([Host("h2", 2, "p2")])
    bench.fleet.switch_connected(impostor)
    bench.fleet.set_hosts([Host("h1", 1, "p2"), Host("h2", 2, "p2")])  # it was there before its host was known
    bench.fleet.aim(Goal(program([rule(2)], generation=3)))
    told = bench.wait_for(3, "h2")
    assert all(report["h1"][0] != 3 for report in told if "h1" in report)


def test_a_device_goes_on_where_another_could_not_be_asked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.start_at(FIRST)
    (_, second) = bench.fleet.members.values()

    def fails(_: Goal) -> Work:
        raise ValueError("the second")

    with monkeypatch.context() as patched:
        patched.setattr(second.loop, "take", fails)
        with pytest.raises(ValueError, match="the second"):
            bench.fleet.aim(Goal(FIRST).followed_by(SECOND, change(FIRST, SECOND)))
    bench.wait_for(2, "h1")
    bench.fleet.aim(Goal(SECOND))
    bench.wait_for(2, "h2")


def test_hosts_that_are_told_after_the_end_get_no_loop() -> None:
    """The list of hosts may have been asked for before."""
    fleet = Fleet(lambda _: None, Uncounted(), lambda: None, QUIET)
    fleet.stop()
    before = threading.active_count()
    fleet.set_hosts((Host("h1", 0x11, "p2"),))
    assert threading.active_count() == before
