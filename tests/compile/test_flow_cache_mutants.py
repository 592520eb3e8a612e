"""The flow cache's law and its proof notice bugs: each planted one must give a counterexample to both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from compiled_cache import check, every_rule
from hypothesis import HealthCheck, Phase, given, settings
from strategies import policies

from orchestrator.compile.filters import flowcache
from orchestrator.compile.filters.cacherows import Verdict
from orchestrator.compile.filters.flowcache import _Lists
from orchestrator.placement.hoist import NotTheSame
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Policy, Tenant
from orchestrator.policy.rulelist import Row

FEW = settings(
    max_examples=150, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@FEW
@given(policies(max_tenants=2, max_rules=6))
def law(policy: Policy) -> None:
    check(policy, flowcache.flow_cache(policy, every_rule(policy)).rows, policy_packets(policy))


def senders_only(self: _Lists, sender: Tenant | None, receiver: Tenant | None, box: Any) -> Any:
    return _between(self, sender, None if sender is not None else receiver, box)


def receivers_only(self: _Lists, sender: Tenant | None, receiver: Tenant | None, box: Any) -> Any:
    return _between(self, None if receiver is not None else sender, receiver, box)


def nobody_first(self: _Lists, family: Any, addresses: Any) -> Any:
    return tuple(reversed(_owners(self, family, addresses)))


def flipped(row: Row) -> Verdict:
    return Verdict.DENY if row.permit else Verdict.PERMIT


def another_cookie(self: _Lists, tenant: Any, direction: Any, row: Any) -> int:
    return _cookie(self, tenant, direction, row) ^ 1


def no_order(rows: Any, box: Any, *, most_entries: int) -> Any:
    found = _parts(rows, box, most_entries=most_entries)
    return found and tuple(reversed(found))


def operator_not_asked(rows: Any, box: Any, *, most_entries: int) -> Any:
    found = _parts(rows, box, most_entries=most_entries)
    return found and found[-1:]


_between, _owners, _cookie, _parts = _Lists.between, _Lists.owners, _Lists.cookie, flowcache.parts

MUTANTS: Sequence[tuple[str, Any, str, Any]] = [
    ("the receiver is not asked", _Lists, "between", senders_only),
    ("the sender is not asked", _Lists, "between", receivers_only),
    ("nobody is asked before owners", _Lists, "owners", nobody_first),
    ("rows in reverse", flowcache, "parts", no_order),
    ("only the last row", flowcache, "parts", operator_not_asked),
]
HIDDEN: Sequence[tuple[str, Any, str, Any]] = [
    ("permit and deny swapped", flowcache, "_decide_row", flipped),
    ("another's count", _Lists, "cookie", another_cookie),
]
"""Bugs in what the proof is made of as well: the law alone can find them."""


@pytest.mark.parametrize(("where", "name", "mutant"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS])
def test_the_proof_kills(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(where, name, mutant)
    with pytest.raises(NotTheSame):
        law()


@pytest.mark.parametrize(
    ("where", "name", "mutant"), [m[1:] for m in (*MUTANTS, *HIDDEN)], ids=[m[0] for m in (*MUTANTS, *HIDDEN)]
)
def test_the_law_kills(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(where, name, mutant)
    monkeypatch.setattr(flowcache, "_prove_entries", lambda _lists, _entries: None)
    with pytest.raises(AssertionError):
        law()


def test_both_hold_without_a_bug() -> None:
    law()
