"""Counts on their way to the service: each once, whatever happens to requests and to those who send them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from patience import until

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.enforce import countreport
from orchestrator.enforce.bookmark import Marks, replay_chunks
from orchestrator.enforce.counting import Change
from orchestrator.enforce.countreport import CountReporter
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.watch import Patience
from orchestrator.errors import BadInput, Conflict, Unreachable
from orchestrator.program.countframes import CountClaim, CountFrame, decode_frames
from orchestrator.program.program import Tier

RULE = Cookie(Tier.HOST, Kind.RULE, 1).pack()


def hits(*packets: int) -> Hits:
    """Entries 0, 1, ... of one rule."""
    column = np.array(packets, np.uint64)
    keys = np.arange(len(packets), dtype=np.uint64) + np.uint64(70)
    cookies, idle = np.full(len(packets), RULE, np.uint64), np.zeros(len(packets), np.uint32)
    return Hits(keys, cookies, column, column * np.uint64(100), idle, np.full(len(packets), np.nan))


class Sink:
    """A service that takes counts, or does not; it keeps what a service keeps of one host."""

    def __init__(self) -> None:
        self.sequence = 0
        self.chunks: list[bytes] | None = None
        self.packets = 0
        self.claims = 0
        self.frames: queue.Queue[CountFrame] = queue.Queue()
        self.before: list[Callable[[], None]] = []
        self.after: list[Callable[[], None]] = []
        self.refuses = False

    def claim_counts(self, domain: str, enforcer: int, host: str) -> CountClaim:
        assert (domain, enforcer, host) == ("pop1", 3, "host1")
        _run(self.before)
        self.claims += 1
        return CountClaim(self.sequence, 0.0, None if self.chunks is None else tuple(self.chunks))

    def report_counts(self, domain: str, enforcer: int, frames: bytes) -> Sequence[str]:
        _run(self.before)
        (frame,) = decode_frames(frames, 0)
        refused = self.refuses or frame.sequence > self.sequence + 1
        self.refuses = False
        if not refused and frame.sequence == self.sequence + 1:
            self.sequence = frame.sequence
            self.packets += int(frame.counts.packets.sum())
            self.chunks = [frame.chunk] if frame.whole else [*(self.chunks or []), frame.chunk]
        self.frames.put(frame)
        _run(self.after)
        return [frame.host] if refused else []


def _run(hooks: list[Callable[[], None]]) -> None:
    if hooks:
        hooks.pop(0)()


def fail(error: Exception) -> Callable[[], None]:
    def hook() -> None:
        raise error

    return hook


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(countreport, "LINGER_S", 0.0)
    monkeypatch.setattr(countreport, "PATIENCE", Patience(0.01, 0.02))


@pytest.fixture
def sink() -> Sink:
    return Sink()


def started(sink: Sink) -> CountReporter:
    reporter = CountReporter(sink, "pop1", 3, lambda: None)
    reporter.start()
    return reporter


@pytest.fixture
def reporter(sink: Sink) -> Iterator[CountReporter]:
    found = started(sink)
    yield found
    found.stop()


def begin(sink: Sink, reporter: CountReporter, *packets: int) -> None:
    """Have a device claimed, whose entries we put there."""
    fresh = Marks.new_marks(hits(*packets).key, hits(*packets).cookie)
    reporter.note_change("host1", lambda: Change(None, np.empty(0, np.uint64), fresh))
    reporter.note_poll("host1", hits(*packets), 0.0)
    until(lambda: sink.claims > 0)
    reporter.note_poll("host1", hits(*packets), 0.0)


def test_what_devices_count_arrives_once(sink: Sink, reporter: CountReporter) -> None:
    begin(sink, reporter, 5, 0)
    until(lambda: sink.packets == 5)
    reporter.note_poll("host1", hits(5, 0), 0.0)
    reporter.note_poll("host1", hits(6, 3), 0.0)
    until(lambda: sink.packets == 9)
    assert sink.frames.qsize() == 2, "nothing is sent where nothing moved"


@pytest.mark.parametrize("error", [Unreachable("gone"), Unreachable("timed out")])
def test_a_lost_request_is_sent_again(sink: Sink, reporter: CountReporter, error: Exception) -> None:
    begin(sink, reporter, 5)
    until(lambda: sink.packets == 5)
    sink.before = [fail(error)] * 3
    reporter.note_poll("host1", hits(7), 0.0)
    until(lambda: sink.packets == 7)


def test_a_lost_answer_counts_nothing_twice_and_newer_counts_wait(sink: Sink, reporter: CountReporter) -> None:
    begin(sink, reporter, 5)
    until(lambda: sink.packets == 5)

    def lose_the_answer() -> None:
        reporter.note_poll("host1", hits(9), 0.0)
        raise Unreachable("the answer was lost")

    sink.after = [lose_the_answer]
    reporter.note_poll("host1", hits(7), 0.0)
    until(lambda: sink.packets == 9)
    sequences = [sink.frames.get().sequence for _ in range(4)]
    assert sequences == [1, 2, 2, 3]


@pytest.mark.parametrize("trouble", ["refused", "not understood"])
def test_who_is_refused_goes_on_from_the_bookmark(sink: Sink, reporter: CountReporter, trouble: str) -> None:
    begin(sink, reporter, 5)
    until(lambda: sink.packets == 5)
    if trouble == "refused":
        sink.refuses = True
    else:
        sink.before = [fail(BadInput("no"))]
    reporter.note_poll("host1", hits(8), 0.0)
    until(lambda: not sink.refuses and not sink.before)
    until(lambda: (reporter.note_poll("host1", hits(9), 0.0), sink.packets == 9)[1])
    assert sink.claims == 2


def test_somebody_else_counts(sink: Sink, reporter: CountReporter) -> None:
    sink.before = [fail(Conflict("a later one"))]
    reporter.note_poll("host1", hits(5), 0.0)
    until(lambda: not sink.before)
    assert sink.claims == 0
    reporter.note_poll("host1", hits(5), 0.0)
    until(lambda: sink.claims == 1)


def test_a_successor_goes_on_where_the_sums_are(sink: Sink) -> None:
    first = started(sink)
    begin(sink, first, 5, 1)
    until(lambda: sink.packets == 6)
    first.stop()
    second = started(sink)
    second.note_poll("host1", hits(8, 1), 0.0)
    until(lambda: sink.claims == 2)
    second.note_poll("host1", hits(8, 4), 0.0)
    until(lambda: sink.packets == 12)
    second.stop()


def test_the_service_keeps_a_bookmark_that_says_what_was_counted(sink: Sink, reporter: CountReporter) -> None:
    begin(sink, reporter, 5, 1, 0)
    for turn in range(3):
        reporter.note_poll("host1", hits(5 + turn, 1, 0), 0.0)
        until(lambda wanted=6 + turn: sink.packets == wanted)  # type: ignore[misc]
    marks = replay_chunks(sink.chunks or [])
    assert dict(zip(marks.key.tolist(), marks.packets.tolist(), strict=True)) == {70: 7, 71: 1}


def test_a_host_that_left_is_forgotten(sink: Sink, reporter: CountReporter) -> None:
    begin(sink, reporter, 5)
    until(lambda: sink.packets == 5)
    reporter.forget("host1")
    reporter.note_poll("host1", hits(6), 0.0)
    until(lambda: sink.claims == 2)


def test_what_is_due_at_the_end_still_goes_out(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(countreport, "LINGER_S", 5.0)
    reporter = started(sink)
    fresh = Marks.new_marks(hits(0).key, hits(0).cookie)
    reporter.note_change("host1", lambda: Change(None, np.empty(0, np.uint64), fresh))
    reporter.note_poll("host1", hits(5), 0.0)
    reporter.stop()
    assert sink.claims == 1
