"""The suite `state-sync` with a handful of downloads: every setting runs, and each way of others is counted."""

from __future__ import annotations

import json
from itertools import product
from math import isfinite
from pathlib import Path

import pytest

from orchestrator.bench.state_sync import copies, losses, suite
from orchestrator.bench.state_sync.syncworld import AT_ONCE, MEMBERS, Sizes

_SIZES = Sizes(runs=1, downloads=100, failovers=1, connections=20)
_LINES_KEPT = 40
pytestmark = pytest.mark.timeout(900)
"""The first test waits for the whole suite, which takes five minutes beside others."""


def _quiet(*_: object, **__: object) -> None:
    pass


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite") / "journal"


@pytest.fixture(scope="module")
def results(journal: Path) -> suite.Results:
    return suite.measure_suite(_SIZES, _quiet, "sssuite-", journal=journal)


def test_every_setting_is_measured(results: suite.Results) -> None:
    assert not results.absent
    for members in (3, 6, 9):
        assert results.figures[f"full_sync_cpu_vs_none_{members}"].median > 0
        assert isfinite(results.figures[f"full_sync_added_us_{members}"].median)
    names = {line.name for line in results.series}
    assert len(names) == 9, "none, and two levels in two contexts with two confirmations"


def test_more_members_cost_more(results: suite.Results) -> None:
    owner = [results.figures[f"full_sync_owner_program_us_{members}"].median for members in (3, 9)]
    others = [results.figures[f"full_sync_members_program_us_{members}"].median for members in (3, 9)]
    assert others[1] > others[0]
    assert min(owner) > 0


def test_others_are_measured_in_the_same_run(results: suite.Results) -> None:
    for name in ("conntrack_alone", "conntrackd", "conntrackd_notrack", "redis"):
        assert results.figures[f"vs_{name}_cpu"].median > 0


def test_a_database_with_copies_is_measured_beside_us(results: suite.Results) -> None:
    """Its transactions wait for each other's locks, which is where the paper's oddities come from."""
    for look_up in copies.LOOK_UPS:
        for at_once in AT_ONCE:
            figures = {
                name.removeprefix(f"copies_by_{look_up}_{at_once}_"): figure.median
                for name, figure in results.figures.items()
                if name.startswith(f"copies_by_{look_up}_{at_once}_")
            }
            assert figures.keys() == {
                "sync_vs_async", "restarts_async", "restarts_sync", "established_vs_none", "6_members_vs_3",
                "9_members_vs_3",
            }  # fmt: skip
            assert min(figures[name] for name in figures if not name.startswith("restarts")) > 0
    assert results.figures["copies_by_attribute_25_restarts_sync"].median > 0, "the table is locked by nobody"


def test_causes_of_the_papers_oddities_are_put_in(results: suite.Results) -> None:
    """A lost SYN of a hundred takes ten milliseconds of each set-up's mean, and larger clusters have none."""
    for at_once, members in product(AT_ONCE, MEMBERS[1:]):
        with_lost, without = (
            results.figures[f"{name}_{at_once}_{members}_members_vs_3"].median for name in ("lost_syns", "no_lost_syns")
        )
        assert 0 < with_lost < without
    for name in ("swept", "unswept", "swept_dirty"):
        assert results.figures[f"copies_{name}_established_vs_none"].median > 0
    assert results.figures["copies_swept_restarts_none"].median > 0, "nothing locks the table"


def test_a_run_that_was_cut_off_goes_on_where_it_was(results: suite.Results, journal: Path) -> None:
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:_LINES_KEPT]) + lines[_LINES_KEPT][:9])
    again = suite.measure_suite(_SIZES, _quiet, "sssuite-", journal=journal)
    names = [json.loads(line)[0] for line in journal.read_text().splitlines()[1:]]
    assert journal.read_text().splitlines(keepends=True)[:_LINES_KEPT] == lines[:_LINES_KEPT]
    assert sorted(names) == sorted({*names}) == sorted(json.loads(line)[0] for line in lines[1:])
    assert again.figures.keys() == results.figures.keys()


def test_a_firewall_that_comes_and_goes_costs_no_connection(results: suite.Results) -> None:
    assert results.figures["scaling_connections_lost"].median == 0
    assert results.figures["scaling_new_connections_failed"].median == 0
    assert results.figures["scale_out_s"].median > 0
    assert results.figures["scale_in_s"].median > 0


def test_lists_cut_what_they_forbid_and_nothing_else(results: suite.Results) -> None:
    assert results.figures["cut_10k_cluster_ms"].median < 5_000
    assert results.figures["cut_10k_cluster_missed"].median == 0
    assert results.figures["cut_10k_cluster_lost"].median == 0


def test_each_setting_loses_what_it_may_and_no_more(results: suite.Results) -> None:
    """All of its messages were lost meanwhile, so what may be lost is."""
    told, untold = losses.count_connections(_SIZES)
    for setting in losses.SETTINGS:
        assert results.figures[setting.figure].median == setting.bound(told, untold), setting


def test_a_failover_loses_nothing(results: suite.Results) -> None:
    assert results.figures["connections_held"].median == _SIZES.connections
    assert results.figures["connections_lost"].median == 0
    assert results.figures["new_connections_failed"].median == 0
    assert results.figures["gap_ms"].median > results.figures["detect_ms"].median / 2 > 0
