"""The two lines of programs of a domain whose newest policy waits for an intersection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.compile.hostprogram import compile_host
from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.control.metrics import Metrics
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.intersection import withheld
from orchestrator.policy.model import Acl, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.narrowing import narrow
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.store.records import PolicySnapshot


def list_of(*rules: tuple[str, str, int]) -> Acl:
    made = [
        {"id": f"{way}{port}", "action": action, "direction": way, "protocol": "tcp", "destination_ports": port}
        for way, action, port in rules
    ]
    return acl_from_json({"rules": [*made, {"id": "all", "action": "permit"}]})


def tenant(name: str, number: int, acl: Acl) -> Tenant:
    numbers = RuleNumbers({rule.id: 100 * number + place for place, rule in enumerate(acl.rules, 1)})
    return Tenant(TenantId(name), number, (Prefix.parse(f"10.{number}.0.0/16"),), acl, numbers)


def policy(*tenants: Tenant) -> Policy:
    return Policy(tenants, return_traffic=ReturnTraffic.EXPLICIT)


RED_BEFORE, RED = (tenant("red", 1, list_of((way, "deny", 80))) for way in ("egress", "ingress"))
BLUES = [tenant("blue", 2, list_of(*(("ingress", "deny", 1 + each) for each in range(count)))) for count in range(4)]
BACK = withheld([policy(RED_BEFORE, BLUES[0])], policy(RED, BLUES[0]))


def compiled_both(compiler: Compiler, generation: int, blue: Tenant) -> tuple[Compiled, Compiled]:
    """Compile the newest policy, and the intersection that goes first, as a write does."""
    newest = PolicySnapshot(policy(RED, blue), generation)
    middle = replace(newest, policy=held_back(blue), generation=generation - 1)
    return compiler.compile("pop", newest), compiler.compile("pop", middle, is_intersection=True)


def held_back(blue: Tenant) -> Policy:
    return narrow(policy(RED, blue), BACK, highest_number=10**6)


def test_both_lines_are_what_they_would_be_from_scratch() -> None:
    assert BACK
    compiler = Compiler(Metrics())
    compiler.compile("pop", PolicySnapshot(policy(RED_BEFORE, BLUES[0]), 1))
    for step, blue in enumerate([*BLUES, *BLUES]):
        newest, middle = compiled_both(compiler, 3 + 2 * step, blue)
        for found, wanted in ((newest, policy(RED, blue)), (middle, held_back(blue))):
            scratch = compile_host(wanted, domain="pop", generation=found.program.generation)
            assert found.program.digest == scratch.digest
        if step == len(BLUES) - 1:
            compiler.follow("pop")


def test_a_list_that_is_held_back_is_not_compiled_for_writes_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(Metrics())
    compiler.compile("pop", PolicySnapshot(policy(RED_BEFORE, BLUES[0]), 1))
    compiled_both(compiler, 3, BLUES[0])
    rows: list[int] = []
    update = TenantList.update_list

    def counted(self: TenantList, tenant: Tenant, returns: ReturnTraffic) -> TenantList:
        found = update(self, tenant, returns)
        if tenant.id == "red":
            rows.append(0 if found.change is None else len(found.change.removed) + len(found.change.added))
        return found

    monkeypatch.setattr(TenantList, "update_list", counted)
    newest, middle = compiled_both(compiler, 5, BLUES[1])
    assert not any(rows), "nothing of that list comes or goes"
    for each in (newest, middle):
        assert each.change is not None
        assert {*each.change.added.tenant.tolist(), *each.change.removed.tenant.tolist()} == {2}
