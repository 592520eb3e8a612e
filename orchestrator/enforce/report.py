"""Tells the service what was read back.

Points go out the moment they change: somebody waits for them. A point is the latest word about its host, so one that
could not be sent yet is replaced by the next, but that a device had drifted is told even when it is repaired by then:
somebody else writes there. Counts go another way (`countreport.py`), so that thousands of them never delay a point.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import structlog

from orchestrator.client import PointReport
from orchestrator.client.backoff import shorten_wait
from orchestrator.enforce.standing import Point
from orchestrator.enforce.watch import Patience
from orchestrator.errors import AclflowError, TryAgain, Unauthenticated
from orchestrator.wire.points import PointState

log = structlog.get_logger()

Letter = TypeVar("Letter")

PATIENCE = Patience()

SIGN_OF_LIFE_S = 2.5
"""After this time without news an empty report goes out, which costs the service a millisecond of a processor. Three of
them fit into the time after which the service calls a point down. Points are repeated by whoever leads a device, see
`Loop`."""


LINGER_S = 0.004
"""How long a report waits for other hosts' that are about to come: sending one costs about as much."""

MOST_NAMES, _OF_A_POINT = 1 << 16, 16
"""So many ports are named in one report, some 1.2 MB; a point counts as much as 16. The service takes 4 MiB."""


class ReportSink(Protocol):
    """Where reports go: the service's client."""

    def report(
        self,
        domain: str,
        enforcer: int,
        *,
        points: Sequence[PointReport] = (),
        sequence: int | None = None,
    ) -> None:
        """Tell what was read back."""
        ...


def point_report(point: Point) -> PointReport:
    """A point as the service is told it."""
    return PointReport(
        point.host,
        point.generation,
        point.digest,
        point.state.value,
        point.error,
        point.flows,
        point.took,
        None if point.ports is None else tuple(sorted(point.ports)),
    )


def _with_ports(earlier: Point, later: Point) -> Point:
    """Return the later point, with the ports of the earlier one by default.

    They are taken where the later one did not report any.
    """
    return later if later.ports is not None else replace(later, ports=earlier.ports)


def _take_later(_earlier: Letter, later: Letter) -> Letter:
    return later


class Mailbox(Generic[Letter]):
    """Sends each host's latest report in its own thread, after the latest that `must_go`.

    `send` gets what is due at the moment, by host. When it raises something that may pass, the letters stay, unless
    newer ones came meanwhile; what the service will never take is dropped. After `idle_s` without a letter an empty
    mapping goes out. While `more_coming` says so, the first letter waits a moment for others to go with it. `join`
    makes the letter that takes the place of an earlier one which was not sent.
    """

    def __init__(
        self,
        name: str,
        send: Callable[[Mapping[str, Letter]], None],
        *,
        idle_s: float | None = None,
        more_coming: Callable[[], bool] = lambda: False,
        must_go: Callable[[Letter], bool] = lambda _: False,
        join: Callable[[Letter, Letter], Letter] = _take_later,
    ) -> None:
        self._join = join
        self._send = send
        self._idle_s = idle_s
        self._more_coming = more_coming
        self._must_go = must_go
        self._due: dict[str, Letter] = {}
        self._before: dict[str, Letter] = {}  # that must go ahead of those due
        self._gathering = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Send what is due, if that succeeds at once, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def put(self, host: str, letter: Letter) -> None:
        """Send a report.

        It replaces an earlier one about the same host, or follows it if that must go.
        """
        with self._changed:
            self._place(host, letter, self._due.get(host))
            if not self._gathering:
                self._changed.notify()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send the reports put within the block together at its end."""
        with self._changed:
            self._gathering += 1
        try:
            yield
        finally:
            with self._changed:
                self._gathering -= 1
                self._changed.notify()

    def _run(self) -> None:
        failures = 0
        while (letters := self._next()) is not None:
            try:
                self._send(letters)
                failures = 0
            except (TryAgain, Unauthenticated) as error:
                failures += 1
                log.warning("report.failed", error=str(error), failures=failures)
                self._put_back(letters)
                self._pause(PATIENCE.delay_s(failures, error))
            except AclflowError as error:
                log.warning("report.not_taken", error=str(error), hosts=sorted(letters))
            except Exception:
                log.exception("report.fault", hosts=sorted(letters))  # of ours; the next report may fare better

    def _next(self) -> Mapping[str, Letter] | None:
        """Wait for due reports; None when all are sent and it is time to stop."""
        with self._changed:
            self._changed.wait_for(self._is_awake, None if self._idle_s is None else shorten_wait(self._idle_s))
            if self._stopping and not self._due:
                return None
            self._changed.wait_for(self._is_complete, LINGER_S)
            letters = {**self._due, **self._before}
            self._due = {host: self._due[host] for host in self._before}
            self._before = {}
            return letters

    def _is_awake(self) -> bool:
        return (bool(self._due) and not self._gathering) or self._stopping

    def _is_complete(self) -> bool:
        return self._stopping or not self._due or not self._more_coming()

    def _put_back(self, letters: Mapping[str, Letter]) -> None:
        with self._changed:
            if not self._stopping:
                for host, letter in letters.items():
                    self._place(host, self._due.get(host, letter), letter)

    def _place(self, host: str, latest: Letter, earlier: Letter | None) -> None:
        """Schedule a host's latest report, after an earlier one if that must go."""
        if self._must_go(latest):
            self._before.pop(host, None)
        elif earlier is not None and self._must_go(earlier):
            self._before.setdefault(host, earlier)
        self._due[host] = latest if earlier is None else self._join(earlier, latest)

    def _pause(self, seconds: float) -> None:
        """Wait so many seconds, or until stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)


class Reporter:
    """Reports of one enforcement point.

    `take_over` runs before points are sent, and makes the service's numbering of our reports begin anew; once it has
    succeeded it has nothing to do. `more_coming` tells whether other hosts' points are about to come.
    """

    def __init__(
        self,
        sink: ReportSink,
        domain: str,
        enforcer: int,
        take_over: Callable[[], None],
        more_coming: Callable[[], bool] = lambda: False,
        *,
        sign_of_life_s: float = SIGN_OF_LIFE_S,
    ) -> None:
        self._sink = sink
        self._domain = domain
        self._enforcer = enforcer
        self._take_over = take_over
        self._sequence = 0
        self._points: Mailbox[Point] = Mailbox(
            "report-points",
            self._send_points,
            idle_s=sign_of_life_s,
            more_coming=more_coming,
            must_go=lambda point: point.state is PointState.DRIFTED,
            join=_with_ports,
        )

    def start(self) -> None:
        """Begin to send."""
        self._points.start()

    def stop(self) -> None:
        """Send what is due, if that succeeds at once, and end."""
        self._points.stop()

    def point(self, point: Point) -> None:
        """Tell what is known of a device; returns at once."""
        self._points.put(point.host, point)

    def together(self) -> AbstractContextManager[None]:
        """Points told within the block go out at its end, in one report."""
        return self._points.together()

    def _send_points(self, points: Mapping[str, Point]) -> None:
        self._take_over()
        for some in _share_out(tuple(points.values())):
            self._sequence += 1
            reports = tuple(map(point_report, some))
            self._sink.report(self._domain, self._enforcer, points=reports, sequence=self._sequence)


def _share_out(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    """Yield points in reports that the service takes; an empty one where there are none."""
    names = itertools.accumulate(_OF_A_POINT + len(point.ports or ()) for point in points)
    for _, some in itertools.groupby(zip(points, names, strict=True), lambda each: each[1] // MOST_NAMES):
        yield [point for point, _ in some]
    if not points:
        yield ()
