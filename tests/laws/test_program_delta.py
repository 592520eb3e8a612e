"""Differences and deltas: what is taken away and added turns one table into the other."""

from __future__ import annotations

import pytest
from flow_tables import content, programs, tables
from hypothesis import Phase, given, settings
from law_examples import examples

from orchestrator.errors import Stale
from orchestrator.program import delta as module
from orchestrator.program.blocks import digest
from orchestrator.program.delta import Delta, apply, between, difference
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program


@settings(max_examples=examples(120), deadline=None)
@given(tables(), tables())
def test_difference_is_set_difference(old: FlowTable, new: FlowTable) -> None:
    removed, added = difference(old, new)
    assert content(removed) == content(old) - content(new)
    assert content(added) == content(new) - content(old)


@settings(max_examples=examples(120), deadline=None)
@given(programs(), programs())
def test_a_delta_leads_to_its_target(old: Program, new: Program) -> None:
    check_delta(old, new)


def check_delta(old: Program, new: Program) -> None:
    reached = apply(old, between(old, new))
    assert content(reached.flows) == content(new.flows)
    assert (reached.digest, reached.generation, reached.ports) == (new.digest, new.generation, new.ports)
    assert digest(reached.flows, reached.ports) == new.digest


@settings(max_examples=examples(120), deadline=None)
@given(programs(), programs(), programs())
def test_a_delta_fits_only_its_base(old: Program, new: Program, other: Program) -> None:
    if other.digest != old.digest:
        with pytest.raises(Stale):
            apply(other, between(old, new))


@settings(max_examples=examples(100), deadline=None)
@given(programs())
def test_nothing_changed_is_an_empty_delta(program: Program) -> None:
    assert between(program, program).is_empty


def test_a_changed_cookie_is_remove_and_add() -> None:
    old, new = Flow(1, 2, b"match", b"", cookie=1), Flow(1, 2, b"match", b"", cookie=2)
    removed, added = difference(FlowTable.of([old]), FlowTable.of([new]))
    assert (removed.rows(), added.rows()) == ([old], [new])


def test_the_law_notices_a_forgotten_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(old: Program, new: Program) -> Delta:
        right = module.between(old, new)
        return Delta(right.base, right.target, right.generation, FlowTable.of(()), right.added, right.ports)

    monkeypatch.setitem(globals(), "between", forgetful)

    @settings(max_examples=100, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(programs(), programs())
    def law(old: Program, new: Program) -> None:
        check_delta(old, new)

    with pytest.raises(AssertionError):
        law()
