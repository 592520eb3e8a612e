"""A chaos run counts the faults that struck, and apart from them those that did not come about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.lab.chaos import run
from orchestrator.lab.chaos.faults import Fault
from orchestrator.lab.chaos.run import Story, Wishes
from orchestrator.lab.chaos.world import World

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
