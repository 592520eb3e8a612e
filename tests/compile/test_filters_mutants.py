"""The filters' law notices bugs: each planted one must give a counterexample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled_filter import check_iptables, check_nftables
from hypothesis import HealthCheck, Phase, given, settings
from strategies import policies

from orchestrator.compile.filters import filterlists, iptables
from orchestrator.compile.filters.filterlists import FilterList, Line, Stage
from orchestrator.compile.nftables import plan, script, words, write
from orchestrator.errors import Refused
from orchestrator.policy.model import Action, Policy
from orchestrator.program.rules import FRAG_ANY

FEW = settings(
    max_examples=120, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@FEW
@given(policies(max_tenants=2, max_rules=8))
def iptables_law(policy: Policy) -> None:
    check_iptables(policy)


@FEW
@given(policies(max_tenants=2, max_rules=8))
def nftables_law(policy: Policy) -> None:
    check_nftables(policy)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a few rules are planned like lists of thousands."""
    for name, value in (("FEW_ROWS", 1), ("TABLE_ROWS", 2), ("SPLIT_ROWS", 2), ("LOOKUP", 0)):
        monkeypatch.setattr(plan, name, value)


def reversed_lines(self: FilterList) -> Any:
    return reversed(list(_lines(self)))


def one_line_fewer(self: FilterList) -> Any:
    return list(_lines(self))[1:]


def fragments_not_looked_at(self: FilterList, world: filterlists.World) -> FilterList:
    blind = replace(self.rules, frag=np.full(len(self.rules), FRAG_ANY, np.uint8))
    return _rows(replace(self, rules=blind), world)


def shifted_comments(self: FilterList) -> Any:
    found = list(_lines(self))
    return [line._replace(comment=other.comment) for line, other in zip(found, found[1:] + found[:1], strict=True)]


def silent_lines(self: FilterList) -> Any:
    return _lines(self.silent_permits())


def reports_always(self: Any, line: Line) -> str:
    return _verdict(replace(self, counted=True), line)


def swapped_directions(tenant: Any, returns: Any) -> tuple[FilterList, FilterList]:
    egress, ingress = _tenant_lists(tenant, returns)
    return (
        replace(egress, stage=Stage.INGRESS),
        replace(ingress, stage=Stage.EGRESS),
    )


def defaults_that_permit(tenant: Any, returns: Any) -> tuple[FilterList, FilterList]:
    egress, ingress = _tenant_lists(tenant, returns)
    return egress, replace(ingress, default=Action.PERMIT)


def one_bit_short(axis: Any, family: Any, low: int, high: int) -> str:
    return _interval(axis, family, low, high - 1 if high > low else high)


def no_order(space: Any, rows: Any, kinds: Any) -> list[plan.Wave]:
    return [plan.Wave(int(kind), rows[kinds == kind]) for kind in np.unique(kinds)]


def wider_shape(space: Any, row: int) -> plan.Shape | None:
    shape = _shape_of(space, row)
    return shape and shape._replace(source=max(shape.source - 1, 0))


def nobody_is_certain(self: Any, rows: Any, cut: Any) -> Any:
    found = up_to_certain(self, rows, cut)
    return found[:-1] if len(found) > 1 else found


def without_flags(line: Line, family: Any, *, first: bool = False) -> list[tuple[Any, str]]:
    return [(axis, text) for axis, text in _conditions(line, family, first=first) if not text.startswith("tcp flags")]


_lines, _rows, _tenant_lists = FilterList.lines, FilterList.rows, filterlists.tenant_lists
_interval, _conditions, _shape_of = words.interval, words.conditions, plan.shape_of
up_to_certain, _verdict = plan.Planner.up_to_certain, write.PlanWriter.verdict

BOTH: list[tuple[str, Any, str, Any]] = [
    ("reversed order", FilterList, "lines", reversed_lines),
    ("a missing line", FilterList, "lines", one_line_fewer),
    ("fragments not looked at", FilterList, "rows", fragments_not_looked_at),
    ("shifted comments", FilterList, "lines", shifted_comments),
    ("swapped directions", filterlists, "tenant_lists", swapped_directions),
    ("whoever permits does not report", FilterList, "lines", silent_lines),
    ("a default that permits", filterlists, "tenant_lists", defaults_that_permit),
]
IPTABLES: list[tuple[str, Any, str, Any]] = [
    ("addresses not looked at", iptables, "_match_address", lambda option, prefix: ()),
    ("flags not looked at", iptables, "_match_flags", lambda value, mask: ()),
    ("egress permits for good", iptables, "_TARGETS", dict.fromkeys(Stage, ("ACCEPT", "DROP"))),
    ("later fragments among the others", iptables, "_FIRST_RULES", dict.fromkeys((4, 6), ("-g whole",))),
]
NFTABLES: list[tuple[str, Any, str, Any]] = [
    ("an interval one short", words, "interval", one_bit_short),
    ("waves in any order", plan, "waves", no_order),
    ("a mask one bit short", plan, "shape_of", wider_shape),
    ("certain rows left out", plan.Planner, "up_to_certain", nobody_is_certain),
    ("flags not looked at", words, "conditions", without_flags),
    ("deny permits", write.PlanWriter, "verdict", lambda self, line: "accept"),
    ("the operator's rules report twice", write.PlanWriter, "verdict", reports_always),
    ("swapped sides", script, "_HOOKS", {s: (*h[:2], "daddr" if h[2] == "saddr" else "saddr")
                                          for s, h in script._HOOKS.items()}),
]  # fmt: skip
MUTANTS = [(f"{plane}: {name}", law, *rest) for plane, law, planted in (
    ("iptables", iptables_law, BOTH + IPTABLES), ("nftables", nftables_law, BOTH + NFTABLES)
) for name, *rest in planted]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "where", "name", "mutant"), [each[1:] for each in MUTANTS], ids=[m[0] for m in MUTANTS]
)
def test_the_law_kills(
    monkeypatch: pytest.MonkeyPatch, law: Callable[[], None], where: Any, name: str, mutant: Any
) -> None:
    monkeypatch.setattr(where, name, mutant)
    with pytest.raises((AssertionError, Refused)):
        law()


@pytest.mark.parametrize("law", [iptables_law, nftables_law])
def test_the_law_holds_without_a_bug(law: Callable[[], None]) -> None:
    law()
