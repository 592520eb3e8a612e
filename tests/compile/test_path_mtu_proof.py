"""The proof refuses rows about path MTU that are not limited, limited by another tenant's meter, or missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.lists import lists
from orchestrator.compile.lists.atoms import return_atoms
from orchestrator.compile.openflow.encoder import RuleStage, path_mtu_meter_of
from orchestrator.compile.openflow.instructions import limiting
from orchestrator.compile.openflow.meters import Meter, meter_in
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.program.program import Program

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
        ("return_atoms", lambda tenant, _: return_atoms(tenant, ReturnTraffic.ESTABLISHED)),
    ],
    ids=["not limited", "another's meter", "missing"],
)
def test_planted_bugs_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, planted: Callable[..., object]) -> None:
    monkeypatch.setattr(lists, name, planted)
    program = compile_host(POLICY, domain="pop1", generation=1)
    with pytest.raises(NotEquivalent):
        prove(POLICY, program.flows)


def meters(program: Program) -> set[Meter | None]:
    return {meter_in(row.match) for row in program.flows.rows() if row.table == Table.METERS}


def test_a_changed_rate_changes_each_tenants_meter_and_nothing_else() -> None:
    cache = CompileCache()
    first = cache.compile_program(POLICY, domain="pop1", generation=1)
    assert meters(first) == {Meter(path_mtu_meter_of(1), 100, 100)}
    slower = cache.compile_program(replace(POLICY, path_mtu_rate=7), domain="pop1", generation=2)
    assert meters(slower) == {Meter(path_mtu_meter_of(1), 7, 7)}
    assert cache.change is not None
    assert (len(cache.change.removed), len(cache.change.added)) == (1, 1)
    scratch = compile_host(replace(POLICY, path_mtu_rate=7), domain="pop1", generation=2)
    assert slower.digest == scratch.digest
    closed = replace(POLICY, return_traffic=ReturnTraffic.EXPLICIT)
    assert not meters(cache.compile_program(closed, domain="pop1", generation=3))
