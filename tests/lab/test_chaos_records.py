"""The page about chaos runs says what the reports beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.chaos.faults import matrix

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = sorted((DOCS / "chaos").glob("*.json"))
PACKETS = 1_000_000


def test_there_is_a_report_for_each_database() -> None:
    assert {json.loads(path.read_text())["store"] for path in REPORTS} == {"postgresql", "sqlite"}


def test_the_reports_together_have_every_kind_of_fault() -> None:
    """With a million packets on the wire; a step that was not reached is none."""
    struck = {name for path in REPORTS for name in json.loads(path.read_text())["faults"]}
    kinds = {fault.name for fault in matrix()}
    assert kinds - struck == set(), "run them (`make chaos ONLY=...`), and keep the report"
    assert f"all of the deck's {len(kinds)} kinds" in (DOCS / "chaos.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_million_packets_met_no_wrong_verdict_and_no_write_was_lost(path: Path) -> None:
    report: dict[str, Any] = json.loads(path.read_text())
    assert report["good"]
    assert report["packets"] >= PACKETS
    assert (report["wrong"], report["missing"], report["lost_writes"], report["troubles"]) == (0, 0, 0, [])
    numbers = (report["packets"], report["arrived"], report["wrong"], report["missing"], report["acknowledged"],
               report["lost_writes"], report["rounds"], len(report["faults"]))  # fmt: skip
    run = f"[{report['store']}](chaos/{path.name}), seed {report['seed']}"
    row = f"| {run} | {' | '.join(f'{each:,}' for each in numbers)} |"
    assert row in (DOCS / "chaos.md").read_text(encoding="utf-8").splitlines()
