"""A suite that knows how long it is says how far it is."""

from __future__ import annotations

import os
import signal
import time

import pytest
import structlog
from command_line import aclflow

from orchestrator.bench import suites
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results
from orchestrator.cli.exitcodes import INTERRUPTED


def test_steps_are_counted_from_those_that_are_behind() -> None:
    told: list[tuple[str, int, int]] = []
    steps = Steps(lambda text, *, done=0, total=0: told.append((text, done, total)), 2)
    steps.next("first")
    steps.next("second")
    assert told == [("first", 0, 2), ("second", 1, 2)]


def test_without_a_terminal_each_step_is_a_line_beside_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def suite(*, quick: bool, progress: Progress) -> Results:
        progress("somewhere")
        structlog.get_logger().info("what a measured part says")
        Steps(progress, 3).next("the beginning")
        results = Results("demo", {"quick": quick})
        results.figures["answer"] = Figure.of([42.0], "1")
        return results

    monkeypatch.setattr(suites, "SUITES", {"demo": suite})
    ended = aclflow("bench", "demo", "--quick", "--json")
    assert (ended.code, ended.err.splitlines()) == (0, ["somewhere", "the beginning (1 of 3)"])
    assert ended.json()["figures"]["answer"]["median"] == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_suite_that_is_ended_takes_down_what_it_set_up(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    taken_down = []

    def suite(*, quick: bool, progress: Progress) -> Results:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            taken_down.append(True)
        return Results("demo", {})

    monkeypatch.setattr(suites, "SUITES", {"demo": suite})
    ended = aclflow("bench", "demo", "--quick")
    assert (ended.code, taken_down) == (INTERRUPTED, [True])
