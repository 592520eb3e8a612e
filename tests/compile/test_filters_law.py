"""iptables and nftables decide what the oracle decides, and count it for the rule that the oracle names."""

from __future__ import annotations

import pytest
from compiled_filter import check_iptables, check_nftables
from hypothesis import given, settings
from law_examples import examples
from strategies import policies

from orchestrator.compile.nftables import plan
from orchestrator.policy.model import Policy


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a few rules are planned like lists of thousands: tables, cuts and sequences all appear."""
    monkeypatch.setattr(plan, "FEW_ROWS", 1)
    monkeypatch.setattr(plan, "TABLE_ROWS", 2)
    monkeypatch.setattr(plan, "SPLIT_ROWS", 2)
    monkeypatch.setattr(plan, "LOOKUP", 0)


@given(policies(max_tenants=3, max_rules=6))
def test_iptables_does_what_the_oracle_says(policy: Policy) -> None:
    check_iptables(policy)


@given(policies(max_tenants=3, max_rules=6))
def test_nftables_does_what_the_oracle_says(policy: Policy) -> None:
    check_nftables(policy)


@pytest.mark.usefixtures("eager")
class TestEager:
    @settings(max_examples=examples(150))
    @given(policies(max_tenants=1, max_rules=12))
    def test_nftables_with_maps_for_everything(self, policy: Policy) -> None:
        check_nftables(policy)
