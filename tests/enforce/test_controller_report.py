"""Reports: the latest word about each host goes out, and counters never stand in its way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client.records import HitsReport, PointReport
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.report import Mailbox, Reporter, moved
from orchestrator.enforce.standing import Point, PointState
from orchestrator.errors import NotFound, Unreachable

counters = st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8)


def hits(of: Mapping[int, tuple[int, int]]) -> Hits:
    """Counters by cookie."""
    cookies = sorted(of)
    packets, volume = ([of[cookie][column] for cookie in cookies] for column in (0, 1))
    return Hits(
        np.array(cookies, np.uint64),
        np.array(packets, np.uint64),
        np.array(volume, np.uint64),
        np.zeros(len(cookies), np.uint32),
    )


@given(st.none() | counters, counters)
def test_counters_that_moved_are_those_that_are_not_what_they_were(
    before: dict[int, tuple[int, int]] | None, now: dict[int, tuple[int, int]]
) -> None:
    found = moved(hits(before) if before is not None else None, hits(now))
    expected = {cookie: counts for cookie, counts in now.items() if (before or {}).get(cookie) != counts}
    counts = zip(found.packets.tolist(), found.bytes.tolist(), strict=True)
    assert dict(zip(found.cookie.tolist(), counts, strict=True)) == expected


class Sink:
    """A service that takes reports, or does not."""

    def __init__(self) -> None:
        self.points: queue.Queue[tuple[int | None, tuple[PointReport, ...]]] = queue.Queue()
        self.hits: queue.Queue[tuple[HitsReport, ...]] = queue.Queue()
        self.failures: list[Exception] = []
        self.held = threading.Event()
        self.held.set()

    def report(
        self,
        domain: str,
        enforcer: int,
        *,
        points: Sequence[PointReport] = (),
        hits: Sequence[HitsReport] = (),
        sequence: int | None = None,
    ) -> None:
        assert (domain, enforcer) == ("pop1", 3)
        if hits:
            assert self.held.wait(5)
            self.hits.put(tuple(hits))
            return
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


def test_a_point_goes_out_as_it_is(sink: Sink, reporter: Reporter) -> None:
    reporter.point(Point("host1", PointState.REFUSED, 3, b"\x07" * 16, 5, "full"))
    sequence, reports = sink.points.get(timeout=5)
    assert (sequence, reports) == (1, (PointReport("host1", 3, b"\x07" * 16, "refused", "full", 5),))


def test_reports_are_numbered_in_the_order_in_which_they_go_out(sink: Sink, reporter: Reporter) -> None:
    for generation in range(1, 4):
        reporter.point(point("host1", generation))
        assert sink.points.get(timeout=5)[0] == generation


def test_what_could_not_be_sent_goes_out_later_unless_there_is_newer_word(sink: Sink) -> None:
    sink.failures = [Unreachable("away")]
    newer = [point("host1", 2)]

    def news() -> None:
        """While the first report is on its way."""
        if newer:
            reporter.point(newer.pop())

    reporter = Reporter(sink, "pop1", 3, news)
    reporter.point(point("host1", 1))
    reporter.point(point("host2", 1))
    reporter.start()
    _, reports = sink.points.get(timeout=5)
    assert {(each.host, each.generation) for each in reports} == {("host1", 2), ("host2", 1)}
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
    assert sink.points.get(timeout=5)[0] == 1
    assert len(attempts) == 3
    reporter.stop()


def test_what_the_service_will_never_take_is_dropped(sink: Sink, reporter: Reporter) -> None:
    sink.failures = [NotFound("no such enforcer")]
    reporter.point(point("host1", 1))
    while sink.failures:
        threading.Event().wait(0.005)
    reporter.point(point("host2", 1))
    _, reports = sink.points.get(timeout=5)
    assert [each.host for each in reports] == ["host2"]


def test_only_counters_that_moved_are_sent(sink: Sink, reporter: Reporter) -> None:
    reporter.hits("host1", hits({1: (5, 50), 2: (0, 0)}))
    assert sink.hits.get(timeout=5)[0].cookies == [1, 2]
    reporter.hits("host1", hits({1: (6, 60), 2: (0, 0)}))
    (second,) = sink.hits.get(timeout=5)
    assert (second.cookies, second.packets, second.bytes, second.idle_s) == ([1], [6], [60], [0])


def test_counters_do_not_delay_points(sink: Sink, reporter: Reporter) -> None:
    sink.held.clear()
    reporter.hits("host1", hits({1: (5, 50)}))
    reporter.point(point("host1", 1))
    assert sink.points.get(timeout=5)[0] == 1
    sink.held.set()
    sink.hits.get(timeout=5)


def test_without_news_there_is_a_sign_of_life() -> None:
    sent: queue.Queue[Mapping[str, int]] = queue.Queue()
    box: Mailbox[int] = Mailbox("test", sent.put, idle_s=0.01)
    box.start()
    assert sent.get(timeout=5) == {}
    box.put("host1", 1)
    while sent.get(timeout=5) != {"host1": 1}:
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
    assert sent.get(timeout=5) == {"host1": 1, "host2": 1}
    coming[0] = True
    box.put("host1", 2)
    assert sent.get(timeout=5) == {"host1": 2}, "but not for ever"
    box.stop()


def test_what_is_due_at_the_end_still_goes_out() -> None:
    sent: list[Mapping[str, int]] = []
    box: Mailbox[int] = Mailbox("test", sent.append)
    box.put("host1", 1)
    box.start()
    box.stop()
    assert sent == [{"host1": 1}]
