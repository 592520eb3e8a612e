"""Rules that are lifted change nothing: not one packet's fate, nor which line of the policy it counts for."""

from __future__ import annotations

from dataclasses import replace

from compiled_domain import check_policy, populated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from policy_edits import edits
from strategies import policies

from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy
from orchestrator.program.wire import encode_program

few = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))


def every_rule(policy: Policy) -> list[LiftedRule]:
    return [LiftedRule(tenant.id, rule.id) for tenant in policy.tenants for rule in tenant.acl.rules]


@few
@given(policies(max_tenants=2, max_rules=6), st.data())
def test_lifted_rules_change_nothing(policy: Policy, data: st.DataObject) -> None:
    names = every_rule(policy)
    chosen = data.draw(st.permutations(names))[: data.draw(st.integers(0, len(names)))]
    check_policy(policy, chosen)


@few
@given(policies(max_tenants=2, max_rules=5))
def test_all_rules_lifted_change_nothing(policy: Policy) -> None:
    check_policy(policy, every_rule(policy))


@few
@given(policies(max_tenants=2, max_rules=6).map(populated))
def test_lifted_programs_are_proven(policy: Policy) -> None:
    program = compile_host(policy, domain="d1", generation=1, lifted=every_rule(policy))
    prove(policy, program.flows)


@few
@given(policies(max_tenants=2, max_rules=6).map(populated), st.data())
def test_edits_one_by_one_lead_to_the_program_from_scratch_and_are_proven(policy: Policy, data: st.DataObject) -> None:
    """Lists change, rules are lifted and taken down; with what is kept from step to step it is the same."""
    cache = CompileCache()
    names = every_rule(policy)
    lifted = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    program = cache.compile_program(policy, domain="d1", generation=1, lifted=lifted)
    proof = prove(policy, program.flows)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(policy.tenants) - 1))
        edited = data.draw(edits(policy.tenants[place]))
        policy = replace(policy, tenants=(*policy.tenants[:place], edited, *policy.tenants[place + 1 :]))
        if names and data.draw(st.booleans()):
            lifted = data.draw(st.lists(st.sampled_from(names), unique=True))
        program = cache.compile_program(policy, domain="d1", generation=1, lifted=lifted)
        scratch = CompileCache()
        assert encode_program(program) == encode_program(
            scratch.compile_program(policy, domain="d1", generation=1, lifted=lifted)
        )
        assert [(lift.rule, lift.form, lift.because, lift.no_replies) for lift in cache.lifts] == [
            (lift.rule, lift.form, lift.because, lift.no_replies) for lift in scratch.lifts
        ]
        assert cache.change is not None
        proof = proof.after(policy, cache.change.removed, cache.change.added, program.blocks.of_tenant)
