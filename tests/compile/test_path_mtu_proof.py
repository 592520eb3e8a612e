"""The proof refuses rows about path MTU that are not limited, limited by another tenant's meter, or missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.compile.equivalence import prove
from orchestrator.compile.host import compile_host
from orchestrator.compile.lists import lists
from orchestrator.compile.openflow.encoder import RuleStage, path_mtu_meter_of
from orchestrator.compile.openflow.instructions import limiting
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.oracle import return_rules

TENANT = Tenant(TenantId("shop"), 1, (Prefix.parse("192.0.2.0/24"),), Acl())
POLICY = Policy((TENANT,), return_traffic=ReturnTraffic.PATH_MTU)


def another_meter(stage: RuleStage, tenant: int) -> RuleStage:
    return replace(stage, permit=limiting(stage.permit, path_mtu_meter_of(tenant + 1)))


def test_what_is_compiled_is_proven() -> None:
    prove(POLICY, compile_host(POLICY, domain="pop1", generation=1).flows)


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("limited_stage", lambda stage, _: stage),
        ("limited_stage", another_meter),
        ("return_rules", lambda _: return_rules(ReturnTraffic.ESTABLISHED)),
    ],
    ids=["not limited", "another's meter", "missing"],
)
def test_planted_bugs_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, planted: Callable[..., object]) -> None:
    monkeypatch.setattr(lists, name, planted)
    program = compile_host(POLICY, domain="pop1", generation=1)
    with pytest.raises(NotEquivalent):
        prove(POLICY, program.flows)
