"""Reports: the latest word about each host goes out."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from patience import PATIENCE_S

from orchestrator.client import PointReport
from orchestrator.enforce.report import MOST_NAMES, Mailbox, Reporter
from orchestrator.enforce.standing import Point
from orchestrator.errors import NotFound, Unreachable
from orchestrator.wire.points import PointState


class Sink:
    """A service that takes reports, or does not."""

    def __init__(self) -> None:
        self.points: queue.Queue[tuple[int | None, tuple[PointReport, ...]]] = queue.Queue()
        self.failures: list[Exception] = []

    def report(
        self,
        domain: str,
        enforcer: int,
        *,
        points: Sequence[PointReport] = (),
        sequence: int | None = None,
    ) -> None:
        assert (domain, enforcer) == ("pop1", 3)
        if self.failures:
            raise self.failures.pop(0)
        self.points.put((sequence, tuple(points)))


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def reporter(sink: Sink) -> Iterator[Reporter]:
    reporter = Reporter(sink, "pop1", 3, lambda: None)
    reporter.start()
    yield reporter
    reporter.stop()


def point(host: str, generation: int) -> Point:
    return Point(host, PointState.ENFORCED, generation, bytes(16), 5)


def told_meanwhile(sink: Sink, newer: Point) -> Reporter:
    """A reporter that hears of a newer point while its first report is on its way."""
    to_come = [newer]

    def news() -> None:
        if to_come:
            reporter.point(to_come.pop())

    reporter = Reporter(sink, "pop1", 3, news)
    return reporter


def test_a_point_goes_out_as_it_is(sink: Sink, reporter: Reporter) -> None:
    reporter.point(Point("host1", PointState.REFUSED, 3, b"\x07" * 16, 5, "full"))
    sequence, reports = sink.points.get(timeout=PATIENCE_S)
    assert (sequence, reports) == (1, (PointReport("host1", 3, b"\x07" * 16, "refused", "full", 5),))


def test_reports_are_numbered_in_the_order_in_which_they_go_out(sink: Sink, reporter: Reporter) -> None:
    for generation in range(1, 4):
        reporter.point(point("host1", generation))
        assert sink.points.get(timeout=PATIENCE_S)[0] == generation


def test_what_could_not_be_sent_goes_out_later_unless_there_is_newer_word(sink: Sink) -> None:
    sink.failures = [Unreachable("away")]
    reporter = told_meanwhile(sink, point("host1", 2))
    reporter.point(point("host1", 1))
    reporter.point(point("host2", 1))
    reporter.start()
    _, reports = sink.points.get(timeout=PATIENCE_S)
    assert {(each.host, each.generation) for each in reports} == {("host1", 2), ("host2", 1)}
    reporter.stop()


def drifted(generation: int) -> Point:
    return Point("host1", PointState.DRIFTED, generation, bytes(16), 5, "1 flow is missing")


@pytest.mark.parametrize(
    ("told", "sent"),
    [
        ((drifted(1), point("host1", 1)), ["drifted", "enforced"]),
        ((drifted(1), point("host1", 1), point("host1", 2)), ["drifted", "enforced"]),
        ((drifted(1), point("host1", 1), drifted(1)), ["drifted"]),
        ((point("host1", 1), drifted(1), drifted(1), point("host1", 1)), ["drifted", "enforced"]),
    ],
)
@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_drift_is_told_even_when_it_is_repaired_by_then(
    sink: Sink, told: Sequence[Point], sent: list[str], fails: int
) -> None:
    sink.failures = [Unreachable("away") for _ in range(fails)]
    reporter = Reporter(sink, "pop1", 3, lambda: None)
    for each in told:
        reporter.point(each)
    reporter.point(point("host2", 1))
    reporter.start()
    found: list[PointReport] = []
    while [each.state for each in found if each.host == "host1"] != sent:
        found += sink.points.get(timeout=PATIENCE_S)[1]
    reporter.stop()
    assert sink.points.empty()
    assert [each.generation for each in found if each.host == "host1"][-1] == told[-1].generation
    assert sum(each.host == "host2" for each in found) == 1


def test_a_drift_that_could_not_be_told_goes_before_what_came_meanwhile(sink: Sink) -> None:
    sink.failures = [Unreachable("away")]
    reporter = told_meanwhile(sink, point("host1", 2))
    reporter.point(drifted(1))
    reporter.start()
    found = [sink.points.get(timeout=PATIENCE_S)[1] for _ in range(2)]
    assert [(each.state, each.generation) for (each,) in found] == [("drifted", 1), ("enforced", 2)]
    reporter.stop()


def test_nothing_is_told_before_the_take_over(sink: Sink) -> None:
    attempts: list[int] = []

    def take_over() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise Unreachable("away")

    reporter = Reporter(sink, "pop1", 3, take_over)
    reporter.start()
    reporter.point(point("host1", 1))
    assert sink.points.get(timeout=PATIENCE_S)[0] == 1
    assert len(attempts) == 3
    reporter.stop()


def test_what_the_service_will_never_take_is_dropped(sink: Sink, reporter: Reporter) -> None:
    sink.failures = [NotFound("no such enforcer")]
    reporter.point(point("host1", 1))
    while sink.failures:
        threading.Event().wait(0.005)
    reporter.point(point("host2", 1))
    _, reports = sink.points.get(timeout=PATIENCE_S)
    assert [each.host for each in reports] == ["host2"]


def test_without_news_there_is_a_sign_of_life() -> None:
    sent: queue.Queue[Mapping[str, int]] = queue.Queue()
    box: Mailbox[int] = Mailbox("test", sent.put, idle_s=0.01)
    box.start()
    assert sent.get(timeout=PATIENCE_S) == {}
    box.put("host1", 1)
    while sent.get(timeout=PATIENCE_S) != {"host1": 1}:
        pass
    box.stop()


def test_a_report_waits_a_moment_for_those_about_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.enforce.report.LINGER_S", 0.3)
    sent: queue.Queue[Mapping[str, int]] = queue.Queue()
    coming = [True]
    box: Mailbox[int] = Mailbox("test", sent.put, more_coming=lambda: coming[0])
    box.start()
    box.put("host1", 1)
    coming[0] = False
    box.put("host2", 1)
    assert sent.get(timeout=PATIENCE_S) == {"host1": 1, "host2": 1}
    coming[0] = True
    box.put("host1", 2)
    assert sent.get(timeout=PATIENCE_S) == {"host1": 2}, "but not for ever"
    box.stop()


def test_what_is_due_at_the_end_still_goes_out() -> None:
    sent: list[Mapping[str, int]] = []
    box: Mailbox[int] = Mailbox("test", sent.append)
    box.put("host1", 1)
    box.start()
    box.stop()
    assert sent == [{"host1": 1}]


@pytest.mark.parametrize(("newer", "sent"), [(None, ("tap1",)), (frozenset({"tap2"}), ("tap2",))])
def test_interfaces_that_could_not_be_told_go_out_with_the_next_word(
    sink: Sink, newer: frozenset[str] | None, sent: tuple[str, ...]
) -> None:
    sink.failures = [Unreachable("away")]
    reporter = told_meanwhile(sink, replace(point("host1", 2), ports=newer))
    reporter.point(replace(point("host1", 1), ports=frozenset({"tap1"})))
    reporter.start()
    _, (report,) = sink.points.get(timeout=PATIENCE_S)
    assert (report.generation, report.ports) == (2, sent)
    reporter.stop()


def test_what_is_too_much_for_one_report_goes_out_in_several(sink: Sink) -> None:
    """As after the service was away, for a thousand hosts with many ports."""
    reporter = Reporter(sink, "pop1", 3, lambda: None)
    ports = frozenset(f"port{number}" for number in range(500))
    with reporter.together():
        for number in range(1_000):
            reporter.point(replace(point(f"host{number}", 7), ports=ports))
    reporter.start()
    told: list[PointReport] = []
    numbers: list[int | None] = []
    while len(told) < 1_000:
        number, reports = sink.points.get(timeout=PATIENCE_S)
        assert sum(len(each.ports or ()) for each in reports) <= MOST_NAMES
        numbers.append(number)
        told += reports
    reporter.stop()
    assert len({each.host for each in told}) == len(told)
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(numbers) > 1


def test_a_thousand_hosts_are_told_in_one_report(sink: Sink) -> None:
    reporter = Reporter(sink, "pop1", 3, lambda: None)
    with reporter.together():
        for number in range(1_000):
            reporter.point(point(f"host{number}", 7))
    reporter.start()
    assert len(sink.points.get(timeout=PATIENCE_S)[1]) == 1_000
    reporter.stop()
