"""What meets some packets is always found: by the compiler's bounds, from list to list, and by the proof's own."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.compile.equivalence import prove
from orchestrator.compile.equivalence.chain import RULE
from orchestrator.compile.equivalence.conjunctions import is_conjunctive
from orchestrator.compile.equivalence.lines import Lines
from orchestrator.compile.equivalence.rowdecoder import decode
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lists.edits import hunks
from orchestrator.compile.lists.nearby import Bounds
from orchestrator.policy.model import Acl, Direction, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.space import Box, boxes_of


def meeting(acl: Acl, box: Box, direction: Direction) -> set[int]:
    """The places of the direction's rules that share a packet with a box."""
    return {
        place
        for place, rule in enumerate(acl.rules)
        if rule.direction is direction and any(own.overlaps(box) for own in boxes_of(rule, acl.groups))
    }


@settings(max_examples=examples(60), deadline=None)
@given(acls(max_rules=8, min_rules=1), st.data())
def test_nothing_that_meets_is_missed(acl: Acl, data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(acl.rules))), unique=True).map(sorted))
    after = replace(acl, rules=tuple(acl.rules[place] for place in kept))
    bounds = Bounds.of(acl.rules)
    followed = bounds.after(after.rules, hunks(acl.rules, after.rules))
    assert followed.rows.tolist() == Bounds.of(after.rules).rows.tolist()
    tenant = Tenant(TenantId("t"), 7, (), acl, {rule.id: number for number, rule in enumerate(acl.rules, 1)})
    for rule in acl.rules:
        for box in boxes_of(rule, acl.groups):
            for direction in Direction:
                wanted = meeting(acl, box, direction)
                assert set(bounds.near(box, direction)) >= wanted
                lines = Lines.of(Policy((tenant,)), tenant, direction, [box])
                assert {line.name for line in lines.near} >= {acl.rules[place].id for place in wanted}


UNTRACKED = (ReturnTraffic.ESTABLISHED, ReturnTraffic.EXPLICIT)
"""Where connections are tracked, lists that look at flags or fragments are refused; rows are told apart alike."""


@settings(max_examples=examples(40), deadline=None)
@given(acls(max_rules=8, min_rules=1), st.data(), st.sampled_from(UNTRACKED))
def test_a_proven_list_knows_whose_rows_meet(acl: Acl, data: st.DataObject, returns: ReturnTraffic) -> None:
    """Also after rules went and others came, in the order of the list, and nothing that is no rule of it."""
    numbers = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    kept = data.draw(st.lists(st.sampled_from(range(len(acl.rules))), unique=True).map(sorted))
    lists = (acl, replace(acl, rules=tuple(acl.rules[place] for place in kept)), acl)
    policies = [Policy((Tenant(TenantId("t"), 7, (), each, numbers),), return_traffic=returns) for each in lists]
    cache = CompileCache()
    program = cache.compile_program(policies[0], domain="d", generation=1)
    proof = prove(policies[0], program.flows)
    for generation, policy in enumerate(policies[1:], 2):
        program = cache.compile_program(policy, domain="d", generation=generation)
        assert cache.change is not None
        proof = proof.after(policy, cache.change.removed, cache.change.added, program.blocks.of_tenant)
        (tenant,) = policy.tenants
        for rule in tenant.acl.rules:
            rows = program.flows.take(program.flows.cookie == RULE + numbers[rule.id])
            if is_conjunctive(rows).any():
                continue
            items = decode(rows).items
            met = proof.lists["t"].met_by(items)
            wanted = {place for box in boxes_of(rule, acl.groups) for place in meeting(tenant.acl, box, rule.direction)}
            assert [tenant.acl.rules.index(each) for each in met] == sorted({*map(tenant.acl.rules.index, met)})
            assert {tenant.acl.rules.index(each) for each in met} >= wanted
