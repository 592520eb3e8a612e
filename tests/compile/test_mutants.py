"""The laws notice bugs: each planted one must give a counterexample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_domain import check_policy
from hypothesis import HealthCheck, Phase, given, settings
from strategies import policies

from orchestrator.compile import hostprogram
from orchestrator.compile.lists import atoms, levels, lists
from orchestrator.compile.openflow import encoder as openflow
from orchestrator.compile.openflow import fewrules
from orchestrator.compile.pipelines import structure
from orchestrator.compile.pipelines.host import STATIC_PRIORITY
from orchestrator.policy.model import Policy
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.rules import FRAG_ANY, RuleTable

FEW = settings(
    max_examples=30, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@FEW
@given(policies(max_tenants=2, max_rules=5))
def oracle_law(policy: Policy) -> None:
    check_policy(policy)


def by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rules there are."""
    for module in (atoms, openflow):
        monkeypatch.setattr(module, "FEW", -1)


def test_the_law_holds_without_a_bug() -> None:
    oracle_law()


def test_it_holds_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    by_column(monkeypatch)
    oracle_law()


def reversed_levels(table: RuleTable) -> levels.Levels:
    found = levels.levels(table)
    return found.max(initial=0) - found


def all_levels_equal(table: RuleTable) -> levels.Levels:
    return np.zeros(len(table), np.int32)


def one_bit_short(length: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    right = np.left_shift(np.uint64(0xFFFFFFFFFFFFFFFF), (64 - np.maximum(length, 1)).astype(np.uint64))
    return np.where(length == 0, np.uint64(0), np.where(length == 24, right << np.uint64(1), right))


def exact_for_masked(field: Any, value: int, mask: int) -> bytes:
    return fewrules.exact_term(field, value) if mask else b""


def shifted_cookies(
    rules: RuleTable, stage: openflow.RuleStage, priority: Any, cookie: Any, meter: int = 0
) -> FlowTable:
    return openflow.rule_flows(rules, stage, priority, np.roll(cookie, 1), meter)


def blind_to_fragments(*arguments: Any, **named: Any) -> RuleTable:
    table = _atoms(*arguments, **named)
    return RuleTable(**table.columns() | {"frag": np.full(len(table), FRAG_ANY, np.uint8)})


def swapped_stages() -> Any:
    (ingress, first, one), (egress, second, other) = lists._STAGES
    return (egress, first, one), (ingress, second, other)


def permits_for_denies() -> openflow.RuleStage:
    stage = lists.INGRESS_STAGE
    return openflow.RuleStage(stage.table, stage.register, stage.permit, stage.permit)


def no_way_past_the_lists(*given: Any) -> list[Flow]:
    return [row for row in _thoroughfares(*given) if row.priority != STATIC_PRIORITY]


_atoms = lists.atoms
_thoroughfares = structure.thoroughfares

BY_COLUMN = "wrong mask by column"

MUTANTS: list[tuple[str, Any, str, Callable[[], Any]]] = [
    ("reversed levels", lists, "levels", lambda: reversed_levels),
    ("one level for all", lists, "levels", lambda: all_levels_equal),
    (BY_COLUMN, openflow, "_leading", lambda: one_bit_short),
    ("wrong mask", fewrules, "_masked_field", lambda: exact_for_masked),
    ("shifted cookies", lists, "rule_flows", lambda: shifted_cookies),
    ("fragments not looked at", lists, "atoms", lambda: blind_to_fragments),
    ("swapped directions", lists, "_STAGES", swapped_stages),
    ("denies that permit", lists, "_STAGES", lambda: ((0, permits_for_denies(), lists.Kind.INGRESS_RETURN),
                                                      lists._STAGES[1])),
    ("no way past the lists", structure, "thoroughfares", lambda: no_way_past_the_lists),
    ("no default", hostprogram, "default_rows", lambda: lambda tenant: []),
    ("nested endpoints forgotten", hostprogram, "elsewhere_rows", lambda: lambda endpoints, tenant: []),
]  # fmt: skip


@pytest.mark.parametrize(("what", "module", "name", "mutant"), MUTANTS, ids=[each[0] for each in MUTANTS])
def test_the_oracle_law_kills(
    monkeypatch: pytest.MonkeyPatch, what: str, module: Any, name: str, mutant: Callable[[], Any]
) -> None:
    if what == BY_COLUMN:
        by_column(monkeypatch)
    monkeypatch.setattr(module, name, mutant())
    with pytest.raises(AssertionError):
        oracle_law()
