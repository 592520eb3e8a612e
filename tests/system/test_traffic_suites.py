"""The traffic suites at their smallest, with real tools and switches: they measure, and tidy up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from system.leftovers import leftovers

from orchestrator.bench.acl_size import suite as acl_size
from orchestrator.bench.acl_size.suite import Sizes as AclSizes
from orchestrator.bench.benchlab import PREFIX
from orchestrator.bench.control_plane import cuts, restarts
from orchestrator.bench.fw_vnf import suite as fw_vnf
from orchestrator.bench.fw_vnf.manyfirewalls import Sizes as FwVnfSizes
from orchestrator.bench.packet_log import suite as packet_log
from orchestrator.bench.promotion import suite as promotion
from orchestrator.bench.promotion.drift import Drift
from orchestrator.bench.promotion.suite import Sizes as PromotionSizes
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.gauges import Load
from orchestrator.bench.traffic.measured import Metric
from orchestrator.lab.layout import Layout

LOAD = Load(connections=64, at_once=16, seconds=1, trips=3, sources=2)
RULES = 20
CUT_AFTER = 5


def quiet(_text: str, *, done: int = 0, total: int = 0) -> None:
    assert 0 <= done <= total


class CutOffError(Exception):
    """What ends a run in its middle."""


def test_acl_size_measures_every_way_and_goes_on_where_it_was_cut_off(layout: Layout, tmp_path: Path) -> None:
    sizes, kept = AclSizes((RULES,), rounds=1, pairs=1, libc_pairs=1, load=LOAD, step_s=1), tmp_path / "journal"

    def cut(text: str, *, done: int = 0, total: int = 0) -> None:
        quiet(text, done=done, total=total)
        if done == CUT_AFTER:
            raise CutOffError

    with pytest.raises(CutOffError):
        acl_size.measure(sizes, cut, layout, journal=kept)
    assert leftovers(layout) == []
    begun = kept.read_text()
    assert len(begun.splitlines()) == 1 + CUT_AFTER
    results = acl_size.measure(sizes, quiet, layout, journal=kept)
    assert kept.read_text().startswith(begun)
    names = [json.loads(line)[0] for line in kept.read_text().splitlines()[1:]]
    assert len(set(names)) == len(names) > CUT_AFTER  # nothing was measured again
    assert {f"vnf_acl_pps_{RULES}_vs_{RULES}", f"vnf_acl_vs_iptables_last_{RULES}"} <= results.figures.keys()
    ways = {line.name for line in results.series if line.y_label == Metric.PACKETS.value}
    assert len(ways - {"VNF-ACL on AF_XDP"}) == 8
    assert ("VNF-ACL on AF_XDP" in ways) is not bool(results.absent)
    _positive(results)


def test_promotion_measures_with_and_without_the_lift(layout: Layout) -> None:
    drift = Drift(services=5, budget=1, rounds=3, connections=320, rules=2_000, exchanges=0)
    sizes = PromotionSizes((RULES,), rounds=1, lifts=2, load=LOAD, drift=drift, step_s=1)
    results = promotion.measure(sizes, quiet, layout)
    for name in ("requests", "rtt", "cpu"):
        assert {f"{name}_lifted_vs_not", f"{name}_lifted_vs_not_stateful"} <= results.figures.keys()
    lifted, unlifted = (results.figures[f"upcalls_per_connection_{word}"].median for word in ("lifted", "unlifted"))
    assert 0 < lifted <= 3 / LOAD.connections
    assert unlifted > 2 * lifted
    nothing, loop, best = (
        results.figures[f"{way}_upcalls_per_connection"].median for way in ("nothing_lifted", "loop", "best_placement")
    )
    assert loop == pytest.approx(best, abs=0.02)  # popularity stays, so the loop's choice is the best one
    assert nothing > loop + 0.2
    assert results.figures.pop("loop_moves_an_hour").median == 0
    assert results.figures.pop("paper_loop_moves_an_hour").median == 0
    _positive(results)


def test_a_switch_that_forgets_cuts_or_resumes_or_has_nothing_to_remember(layout: Layout) -> None:
    results = Results("control-plane", {})
    restarts.measure(results, 1, lambda _: None, layout)
    found = {name: figure.median for name, figure in results.figures.items()}
    for event in ("restart", "moved"):
        kept = {way: (found[f"{event}_{way}_kept"], found[f"{event}_{way}_kept_answering"]) for way in restarts.WAYS}
        assert kept == {"cut": (0, 0), "resume": (1, 0), "stateless": (1, 1)}
        strays = {way: (found[f"{event}_{way}_strays"], found[f"{event}_{way}_strays_after"]) for way in restarts.WAYS}
        assert strays == {"cut": (0, 0), "resume": (3, 0), "stateless": (3, 3)}
        assert all(found[f"{event}_{way}_new_ms"] > 0 for way in restarts.WAYS)
        assert f"{event}_cut_gap_ms" not in found


@pytest.mark.parametrize("name", [pytest.param("cut_10k", marks=pytest.mark.long), "cut_10k_nftables"])
def test_an_edit_cuts_the_tenth_that_it_forbids(layout: Layout, name: str) -> None:
    results = Results("control-plane", {})
    cuts.measure(results, 1, lambda _: None, layout, connections=300, names=[name])
    assert not results.absent
    found = {kind: results.figures[f"{name}_{kind}"].median for kind in ("ms", "missed", "lost")}
    assert found["ms"] > 0, "forbidden connections talk until they are cut"
    assert (found["missed"], found["lost"]) == (0, 0)


def test_packet_log_measures_beside_both_floods(layout: Layout) -> None:
    sizes = packet_log.Sizes(rounds=1, seconds=1, rules=RULES, per_s=500, sources=4)
    results = packet_log.measure(sizes, quiet, layout)
    assert {"permitted_logged_vs_unlogged_flood", "switch_cpu_logged_vs_unlogged_flood"} <= results.figures.keys()
    assert results.figures["flood_logged"].median > 250
    _positive(results)


def test_fw_vnf_measures_one_and_several(layout: Layout) -> None:
    sizes = FwVnfSizes((0, RULES), (64, 1024), (10,), (1, 5), cap=5, offered=(5,), rounds=1, seconds=1)
    results = fw_vnf.measure(sizes, quiet, layout)
    assert {"five_vnfs_vs_one", f"reception_{RULES}_rules_vs_none", "capacity_base_ns"} <= results.figures.keys()
    assert results.figures["five_vnfs_vs_one"].median > 2
    assert len({line.y_label for line in results.series}) == 4


def test_a_suite_that_is_interrupted_leaves_nothing_behind() -> None:
    place = Layout(PREFIX)
    suite = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli", "bench", "acl-size", "--quick"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    assert suite.stderr is not None
    try:
        assert any("round 1" in line for line in suite.stderr)
        time.sleep(1.5)  # in the middle of something
        suite.send_signal(signal.SIGINT)
        suite.stderr.read()
        assert suite.wait(30) == 130
    finally:
        suite.kill()
        suite.stderr.close()
        suite.wait()
    assert leftovers(place) == []


def _positive(results: Results) -> None:
    assert results.figures
    assert all(figure.median > 0 for figure in results.figures.values() if figure.unit != "1")
    assert all(value >= 0 for line in results.series for value in line.y)
