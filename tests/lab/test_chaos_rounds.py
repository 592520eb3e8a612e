"""A chaos run counts the faults that struck, and apart from them those that did not come about."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import Missing, Unreachable
from orchestrator.lab.chaos import faults, run
from orchestrator.lab.chaos.faults import Fault
from orchestrator.lab.chaos.ledger import Ledger
from orchestrator.lab.chaos.relay import Mode
from orchestrator.lab.chaos.run import Story, Wishes
from orchestrator.lab.chaos.world import FIRST, TENANTS, World
from orchestrator.lab.chaos.writer import Writer
from orchestrator.lab.service import CONTROLLER

AT_A_STEP = Fault("at a step", lambda _: None, (0.0, 0.0), "service")


def do_nothing(*_: object) -> None:
    """Stand in for what a round does to a lab."""


@pytest.mark.parametrize("ends", [True, False])
def test_a_process_that_does_not_come_to_its_step_is_counted_apart(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_STEP_PATIENCE_S", 0.05)
    monkeypatch.setattr(run.processes, "alive", lambda _: not ends)
    monkeypatch.setattr(run.faults, "matrix", lambda: (AT_A_STEP,))
    monkeypatch.setattr(run, "Burst", lambda *_: SimpleNamespace(start=do_nothing, join=do_nothing, error=None))
    monkeypatch.setattr(Story, "_settle", do_nothing)
    lab = SimpleNamespace(state=SimpleNamespace(process=str))
    stage, prober = SimpleNamespace(lab=lab, heal=do_nothing), SimpleNamespace(sent=0, is_alive=True)
    parts: Any = (stage, World(1), None, prober, None)
    story = Story(*parts, Wishes(1, 60.0, rounds=3))
    report = story.tell(do_nothing)
    struck = {AT_A_STEP.name: 3}
    assert (report.faults, report.not_reached) == ((struck, {}) if ends else ({}, struck))


def test_a_service_that_does_not_come_back_ends_the_run_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that have no answer would be tried for minutes."""

    def fail(*_: object) -> None:
        raise Missing("the store has schema 0001, this program needs another")

    stage, world = SimpleNamespace(heal=fail), World(1)
    prober, ledger = SimpleNamespace(sent=0, is_alive=True), Ledger(world.permits(dict.fromkeys(TENANTS, FIRST)), 1)
    parts: Any = (stage, world, ledger, prober, None)
    writer = Writer(lambda: nullcontext(NobodyAnswers()), world, ledger, 0.0)  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(run, "Writer", lambda *_: writer)
    story = Story(*parts, Wishes(1, 60.0, only="nothing"))
    report = story.tell(do_nothing)
    assert [each.partition(": ")[2] for each in report.troubles] == [
        "the lab cannot go on: the store has schema 0001, this program needs another"
    ]
    assert "writer" not in {thread.name for thread in threading.enumerate()}


class NobodyAnswers:
    """A client of a service that is away."""

    def __getattr__(self, _: str) -> Any:
        raise Unreachable("nobody answers")


def test_switches_connect_anew_where_a_controller_ends_as_it_observes_or_applies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change of a few rows leads to neither, so writes alone did not come to them in time."""
    monkeypatch.setattr(faults, "_CUT_S", 0.0)
    for fault in faults.matrix():
        seen: list[object] = []
        lab = SimpleNamespace(redial=partial(seen.append, "redial"))
        stage: Any = SimpleNamespace(to_controller="switches", set=lambda *at: seen.append(at), lab=lab)  # noqa: B023
        fault.lead(stage)
        anew = [("switches", Mode.CUT), ("switches", Mode.CARRY), "redial"]
        is_seldom = fault.victim == CONTROLLER and fault.name.rpartition(" ")[2] in ("observe", "apply")
        assert seen == (anew if is_seldom else []), fault.name
