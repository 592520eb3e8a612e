"""The page about chaos runs says what the reports beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = sorted((DOCS / "chaos").glob("*.json"))
PACKETS = 1_000_000


def test_there_is_a_report_for_each_database() -> None:
    assert {json.loads(path.read_text())["store"] for path in REPORTS} == {"postgresql", "sqlite"}


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
