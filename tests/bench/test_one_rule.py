"""Where the time of one rule goes is told of all changes alike, also of those that lacked a stage; and how it grows."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.bench.control_plane import rest
from orchestrator.bench.control_plane.sizes import Sizes
from orchestrator.bench.results import Results
from orchestrator.client import Written
from orchestrator.policy.model import Acl

_CHANGES = 7
_SIZES = Sizes(rounds=2, changes=_CHANGES, slow_rounds=1, rules=1_000, scales=(1_000, 2_000))


class Service:
    """Takes 1, 4, 9, … seconds for each change of the lists that it gets. Every third insert is read back apart."""

    def __init__(self) -> None:
        self.now = 0.0
        self._turns = itertools.count()
        self._lists = 0
        self.acls = self

    def put(self, _tenant: str, _acl: Acl) -> Written:
        self._lists += 1
        return Written(generation=1, etag="", version=1, changed=True, enforced=True)

    def insert_rule(self, *_: object, position: int) -> Written:
        assert position >= 0
        apart = {"enforce.readback": 0.004} if next(self._turns) % 3 == 0 else {}
        return self._changed({"compile": 0.001, "enforce": 0.005, **apart})

    def move_rule(self, *_: object, position: int) -> Written:
        assert position >= 0
        return self._changed({})

    def put_rule(self, *_: object) -> Written:
        return self._changed({})

    delete_rule = put_rule

    def _changed(self, stages: dict[str, float]) -> Written:
        self.now += self._lists**2
        return Written(generation=1, etag="", version=1, changed=True, enforced=True, stages=stages)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> rest._Bench:
    service = Service()
    monkeypatch.setattr(rest.time, "perf_counter", lambda: service.now)
    return rest._Bench(
        cast("Any", SimpleNamespace()), cast("Any", service), Results("control-plane", {}), _SIZES, Path(), {}
    )


def test_a_stage_that_few_changes_have_takes_no_time_in_the_median(bench: rest._Bench) -> None:
    bench.changes(1_000, lambda _: None)
    assert {name: len(found) for name, found in bench.stages["one of 1k"].items()} == dict.fromkeys(
        ("compile", "enforce", "enforce.readback"), _CHANGES
    )
    heights = {name: height for name, (height,) in rest.stack_stages(bench.stages).parts.items()}
    assert heights == pytest.approx({"compile": 1, "enforce": 5, "enforce.readback": 0})


def test_what_one_rule_takes_is_told_in_milliseconds(bench: rest._Bench) -> None:
    for rules in (1_000, 2_000):
        bench.client.acls.put(rest.TENANT, Acl())
        bench.changes(rules, lambda _: None)
    medians = (bench.results.figures[f"one_rule_{size}_ms"].median for size in ("1k", "2k"))
    assert list(medians) == pytest.approx([1_000, 4_000])


def test_growth_is_told_of_what_was_measured_just_before_and_just_after(bench: rest._Bench) -> None:
    bench.growth(lambda _: None)
    growth = bench.results.figures["one_rule_2k_vs_1k"]
    assert growth.runs == _SIZES.rounds
    assert growth.median == pytest.approx((4 / ((1 + 9) / 2) + 16 / ((9 + 25) / 2)) / 2)
