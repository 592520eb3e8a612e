"""The firewall-filter suite measures what it says: the same decisions without counters, sets that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from strategies import policies

from orchestrator.bench import nft_cost
from orchestrator.bench.results import Results
from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.nftables import nftables_script, row_by_row
from orchestrator.enforce.drivers.nftables.fake import ruleset as nft_ruleset
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.model import Action, Policy


@given(policies(max_tenants=1, max_rules=12))
def test_every_way_decides_alike(policy: Policy) -> None:
    counting = nft_ruleset(nftables_script(policy))
    others = [
        nft_ruleset(nft_cost.drop_counters(nftables_script(policy))),
        nft_ruleset(nftables_script(policy, planned=row_by_row)),
    ]
    for packet in policy_packets(policy):
        if packet.protocol not in NO_PACKETS[packet.family]:
            accepted = counting.send(packet).accepted
            assert [each.send(packet).accepted for each in others] == [accepted, accepted]
    assert "counter" not in nft_cost.drop_counters(nftables_script(policy))


def test_sets_that_are_not_there_are_absent_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACLFLOW_DATA", str(tmp_path))
    results = Results("firewall-filter", {})
    assert [name for name, _ in nft_cost.sets(results)] == ["synthetic_1k", "synthetic_10k"]
    assert set(results.absent) == {f"{name}_filter_ns" for name in nft_cost.CLASSBENCH}


def test_every_packet_makes_the_whole_way() -> None:
    acl = nft_cost.permitting(synthetic(50))
    assert {rule.action for rule in acl.rules} == {Action.PERMIT} == {acl.ingress_default}
