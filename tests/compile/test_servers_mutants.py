"""Bugs planted in the compiler of firewall servers: the laws notice every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compile import test_servers_law as laws
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import policies

from orchestrator.compile.nftables import served
from orchestrator.compile.servers import exactpairs
from orchestrator.policy.model import TenantId
from orchestrator.policy.prefilter import Share

whole_keys = exactpairs.pair_keys
whole_kinds = exactpairs.pairs_of_kind


def _all_protocols(rules: Any, kind: Any) -> Any:
    """A rule for TCP as a pair of hosts."""
    return whole_kinds(exactpairs.RuleTable(**{**rules.columns(), "protocol": np.full(len(rules), -1)}), kind)


def _later_too(rules: Any, kind: Any) -> Any:
    """A rule for later fragments only as a pair of hosts."""
    return whole_kinds(exactpairs.RuleTable(**{**rules.columns(), "frag": np.zeros(len(rules), np.uint8)}), kind)


def _turned(rules: Any, kind: Any) -> Any:
    """Source and destination the wrong way round."""
    keys, half = whole_keys(rules, kind), kind.family.bits // 8
    return np.concatenate([keys[:, half : 2 * half], keys[:, :half], keys[:, 2 * half :]], axis=1)


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "denies before a pair are not looked at": (exactpairs, "_unmet", lambda _rules, mine: mine),
    "protocols are not looked at": (exactpairs, "pairs_of_kind", _all_protocols),
    "fragments are not looked at": (exactpairs, "pairs_of_kind", _later_too),
    "a key the wrong way round": (exactpairs, "pair_keys", _turned),
    "established is not let through": (served, "_passing_rules", lambda _tenant, _family: []),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_it_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])

    @settings(max_examples=300, phases=[Phase.generate], database=None)
    @given(laws.pair_policies())
    def law(policy: Any) -> None:
        laws.check(policy, Share(frozenset({TenantId("t")})))

    with pytest.raises(AssertionError):
        law()


@pytest.mark.parametrize("misdirected", ["counter accept", "counter drop"])
def test_a_wrong_end_is_noticed(misdirected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_misdirected_rules", lambda _misdirect: [f'{misdirected} comment "misdirected 0"'])

    @settings(max_examples=100, phases=[Phase.generate], database=None)
    @given(policies(max_tenants=3, max_rules=2), st.data())
    def law(policy: Any, data: st.DataObject) -> None:
        laws.check(policy, data.draw(laws.shares(policy)))

    with pytest.raises(AssertionError):
        law()
