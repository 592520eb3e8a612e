"""The abuse figure: its search ends at lists that pass the ceiling, and rounds without and with abuse are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bench.control_plane import abuse
from orchestrator.bench.control_plane.worstlists import SLOW, Kind, Shape, find_worst
from orchestrator.control.control import Control
from orchestrator.errors import Busy, TooLarge


def test_the_known_slow_lists_pass_the_ceiling() -> None:
    assert all(shape.passes for shape in SLOW)
    assert {shape.kind for shape in SLOW} == {*Kind}
    assert max(len(shape.lists()[0].rules) for shape in SLOW) == 4_000


def test_a_list_and_its_opposite_decide_otherwise() -> None:
    for shape in SLOW:
        one, other = shape.lists()
        actions = {rule.id: rule.action for rule in one.rules}
        assert [rule.id for rule in other.rules] == [rule.id for rule in one.rules][::-1]
        assert all(actions[rule.id] is not rule.action for rule in other.rules)


def test_a_search_follows_what_is_slow_and_keeps_below_the_ceiling() -> None:
    tried: list[Shape] = []

    def seconds(shape: Shape) -> float:
        tried.append(shape)
        return float(shape.rules * shape.ports * (shape.kind is Kind.CROSSING))

    worst = find_worst(seconds, trials=8)
    assert len(tried) == len({*tried}) == 8
    assert all(shape.passes for shape in tried)
    slowest = next(iter(worst))
    assert slowest.kind is Kind.CROSSING
    assert slowest.rules * slowest.ports > max(each.rules * each.ports for each in SLOW if each.kind is Kind.CROSSING)


def test_a_list_that_compiling_finds_too_large_is_timed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = abuse._World(tmp_path)
    carry_out = Control.carry_out

    def refuse(control: Control, *arguments: object, **named: object) -> object:
        if named.get("puts") is not None and named["puts"].acl.rules:  # type: ignore[attr-defined]
            raise TooLarge("there are no priorities left")
        return carry_out(control, *arguments, **named)  # type: ignore[arg-type]

    try:
        monkeypatch.setattr(Control, "carry_out", refuse)
        assert all(took_s > 0 for took_s in abuse.find_worst_lists(world, 2).values())
    finally:
        monkeypatch.undo()
        world.close()


def test_a_write_that_is_answered_busy_first_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = iter((True, False, True, True))
    carry_out = Control.carry_out

    def be_busy(control: Control, *arguments: object, **named: object) -> object:
        if next(answers, False):
            raise Busy("others hold the store")
        return carry_out(control, *arguments, **named)  # type: ignore[arg-type]

    world = abuse._World(tmp_path)
    try:
        monkeypatch.setattr(Control, "carry_out", be_busy)
        assert len(world.change_rules(2, 0)) == 2
        assert world.refused == 3
    finally:
        monkeypatch.undo()
        world.close()


def test_a_few_rules_under_abuse_are_measured() -> None:
    found = abuse.cost(1, 1, changes=4)
    assert [len(each) for each in (*found.quiet, *found.abused)] == [4, 4]
    assert min(*found.quiet[0], *found.abused[0]) > 0
    assert len(found.refused) == 1
    assert len(found.worst) == 1
