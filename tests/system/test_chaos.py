"""Chaos: a short run of each store is good, and planted bugs are found."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.errors import Missing
from orchestrator.lab.chaos.run import Report, Wishes, run
from orchestrator.lab.chaos.stage import POSTGRESQL, SQLITE
from orchestrator.lab.layout import Layout


def told(*_: object) -> None:
    """Nobody looks."""


def planted(bug: str) -> tuple[str, ...]:
    return sys.executable, str(Path(__file__).with_name("planted.py")), bug


def tried(layout: Layout, seed: int, store: str, seconds: float, **wishes: object) -> Report:
    return run(layout, Wishes(seed, seconds, store, **wishes), told)  # type: ignore[arg-type]


@pytest.mark.parametrize(("store", "only"), [(SQLITE, "commit"), (POSTGRESQL, "database")])
def test_a_short_run_is_good(layout: Layout, store: str, only: str) -> None:
    report = tried(layout, 1, store, 60.0, rounds=2, only=only)
    assert report.is_good, report.troubles
    assert report.rounds == 2
    assert json.loads(json.dumps(report.document()))["good"]
    assert report.acknowledged
    assert 0 < report.arrived < report.packets


@pytest.mark.parametrize("step", ["after observe", "before apply"])
def test_a_step_that_writes_alone_do_not_lead_to_is_reached(layout: Layout, step: str) -> None:
    report = tried(layout, 1, SQLITE, 60.0, rounds=1, only=f"controller killed {step}")
    assert report.is_good, report.troubles
    assert (report.faults, report.not_reached) == ({f"controller killed {step}": 1}, {})


def test_a_service_that_does_not_start_is_told_at_once(layout: Layout) -> None:
    command = sys.executable, "-c", "raise SystemExit('the store has another schema')"
    with pytest.raises(Missing, match="the store has another schema"):
        tried(layout, 1, SQLITE, 60.0, command=command)


def test_a_service_that_does_not_start_again_ends_the_run_and_nothing_goes_on(layout: Layout) -> None:
    report = tried(layout, 1, SQLITE, 60.0, only="killed: service", command=planted("ages"))
    assert report.rounds == 1
    assert "the store has another schema than this program" in report.troubles[0]
    assert "writer" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "fault"), [("forgets", "nothing"), ("hasty", "service killed before store"), ("two-steps", "nothing")]
)
def test_a_planted_bug_is_found(layout: Layout, bug: str, fault: str) -> None:
    report = tried(layout, 1, SQLITE, 120.0, only=fault, command=planted(bug), gives_up=1.0)
    assert not report.is_good
    assert report.lost_writes if bug == "forgets" else report.wrong, report.troubles
