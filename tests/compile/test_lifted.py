"""Lifted rules by hand: the forms, their rows, what comes along, and why some stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lifted_shop import RULES, SHOP, WEB, named, policy, rule

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lifting.lifts import Lift
from orchestrator.compile.pipelines.host import LIFTED_PRIORITY, MISS_PRIORITY, Table
from orchestrator.placement.hoist import Form
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Action, Direction, Policy, ReturnTraffic, RuleId, TenantId
from orchestrator.program.flows import Flow
from orchestrator.program.program import Program


def lifted(world: Policy, *names: str) -> tuple[list[Flow], dict[str, Lift], Program]:
    """The rows of table `lifted`, the highest first, and what became of every rule. It is proven, too."""
    cache = CompileCache()
    program = cache.compile_program(world, domain="d1", generation=1, lifted=named(*names))
    prove(world, program.flows)
    rows = [row for row in program.flows.rows() if row.table == Table.LIFTED and row.priority != MISS_PRIORITY]
    found = {lift.rule.rule: lift for lift in cache.lifts}
    return sorted(rows, key=lambda row: -row.priority), found, program


def whose(row: Flow) -> tuple[str, int]:
    cookie = Cookie.unpack(row.cookie)
    assert cookie is not None
    return cookie.kind.name, cookie.number


def test_a_rule_that_nothing_before_it_meets_goes_alone_and_above() -> None:
    rows, lifts, _ = lifted(policy(operator=()), "dns")
    assert (lifts["dns"].form, lifts["dns"].replies) == (Form.ALONE, True)
    arriving = [row for row in rows if whose(row) == ("RULE", 4)]
    assert [row.priority for row in arriving] == [LIFTED_PRIORITY]


def test_a_rule_behind_a_deny_is_narrowed_or_brings_it_along() -> None:
    rows, lifts, _ = lifted(policy(), "web")
    assert lifts["web"].form in (Form.NARROWED, Form.TOGETHER)
    assert lifts["web"].replies
    if lifts["web"].form is Form.TOGETHER:
        assert {whose(row) for row in rows} >= {("RULE", 1), ("RULE", 3), ("OPERATOR_RULE", 900)}


def test_replies_go_by_the_line_that_decides_them() -> None:
    """TCP replies are return traffic; those to the network that the shop keeps quiet to are denied as before."""
    rows, lifts, _ = lifted(policy(operator=()), "web")
    leaving = [part for part in lifts["web"].parts if part.direction is Direction.EGRESS]
    assert {whose(row) for row in rows if whose(row)[0] != "RULE"} == {("EGRESS_RETURN", 7)}
    assert len(leaving) == 2  # what `quiet` denies of them, and the rest; `updates` is of no client's port
    assert ("RULE", 7) in {whose(row) for row in rows}


def test_replies_stay_where_the_other_list_permits_none() -> None:
    listed = (rule("web", "permit", "", WEB, 80), rule("mute", "deny", protocol=None, direction=Direction.EGRESS))
    _, lifts, _ = lifted(policy(*listed, operator=()), "web")
    assert (lifts["web"].form, lifts["web"].replies) == (Form.ALONE, False)
    assert lifts["web"].no_replies == "the egress list permits none"


def test_explicit_replies_are_the_defaults() -> None:
    listed = (rule("web", "permit", "", WEB, 80),)
    rows, lifts, _ = lifted(policy(*listed, operator=(), returns=ReturnTraffic.EXPLICIT), "web")
    assert lifts["web"].replies
    assert ("EGRESS_DEFAULT", 7) in {whose(row) for row in rows}


def test_own_side_only_stands_above_what_looks_at_the_other() -> None:
    """Else a packet of the first would be remembered by bits that only the second asks for."""
    rows, _, _ = lifted(policy(operator=()), "partners", "dns")
    of = {whose(row): row.priority for row in rows}
    assert of["RULE", 4] == LIFTED_PRIORITY
    assert of["RULE", 5] < LIFTED_PRIORITY - 900


def test_nobodys_quota_pays_for_lifted_rows() -> None:
    rows, _, _ = lifted(policy(), "web", "dns", "partners")
    assert {row.tenant for row in rows} == {0}


@pytest.mark.parametrize(
    ("world", "name", "because"),
    [
        (policy(rule("all", "deny", protocol=None), rule("web", "permit", "", WEB, 80)), "web",
         "the rules before it decide all its packets"),
        (policy(), "nothing", "the list has no such rule"),
        (policy(rule("far", "permit", "", "10.29.4.9/32", 80)), "far",
         "no endpoint of the tenant has an address that it speaks of"),
    ],
)  # fmt: skip
def test_what_has_no_form_stays_with_the_reason(world: Policy, name: str, because: str) -> None:
    rows, lifts, _ = lifted(world, name)
    assert (rows, lifts[name].form, lifts[name].because) == ([], None, because)


def test_too_many_companions_stay() -> None:
    denies = tuple(
        replace(rule(f"d{index}", "deny", f"10.{index}.0.0/16", WEB, 80), source_ports=RULES[0].destination_ports)
        for index in range(1, 80)
    )
    rows, lifts, _ = lifted(policy(*denies, rule("web", "permit", "", WEB, 80), operator=()), "web")
    assert rows == []
    assert lifts["web"].because == "80 entries would have to stand above the list, over 64"


def test_a_tenant_that_is_not_there_and_rules_named_twice() -> None:
    cache = CompileCache()
    nobody = LiftedRule(TenantId("nobody"), RuleId("web"))
    names = [*named("dns", "dns"), nobody]
    cache.compile_program(policy(), domain="d1", generation=1, lifted=names)
    assert [(lift.rule, lift.because) for lift in cache.lifts] == [
        (LiftedRule(SHOP, RuleId("dns")), ""), (nobody, "there is no such tenant")
    ]  # fmt: skip


def test_an_edit_in_front_of_a_lifted_rule_changes_its_rows_with_the_same_step() -> None:
    """The deny comes into its list and above the lifted rule in one delta, or the rule comes down in it."""
    world, cache = policy(*RULES[2:4], operator=()), CompileCache()
    before = cache.compile_program(world, domain="d1", generation=1, lifted=named("web"))
    proof = prove(world, before.flows)
    shop = world.tenants[1]
    acl = replace(shop.acl, rules=(rule("lab", "deny", "10.9.0.0/16", WEB, 80), *shop.acl.rules))
    edited = replace(
        world, tenants=(world.tenants[0], replace(shop, acl=acl, rule_numbers={**shop.rule_numbers, "lab": 9}))
    )
    after = cache.compile_program(edited, domain="d1", generation=2, lifted=named("web"))
    assert cache.change is not None
    assert {row.table for row in cache.change.added.rows()} >= {Table.LIFTED, Table.INGRESS}
    proof.after(edited, cache.change.removed, cache.change.added, lambda: after.flows)


def test_an_edit_far_from_a_lifted_rule_leaves_its_rows() -> None:
    world, cache = policy(*RULES[2:4], operator=()), CompileCache()
    cache.compile_program(world, domain="d1", generation=1, lifted=named("web"))
    shop = world.tenants[1]
    acl = replace(shop.acl, rules=(rule("ssh", "permit", "192.0.2.0/24", WEB, 22), *shop.acl.rules))
    edited = replace(
        world, tenants=(world.tenants[0], replace(shop, acl=acl, rule_numbers={**shop.rule_numbers, "ssh": 9}))
    )
    cache.compile_program(edited, domain="d1", generation=2, lifted=named("web"))
    assert cache.change is not None
    assert Table.LIFTED not in {row.table for row in (*cache.change.added.rows(), *cache.change.removed.rows())}


def test_an_endpoint_that_goes_takes_the_lift_with_it() -> None:
    world, cache = policy(), CompileCache()
    cache.compile_program(world, domain="d1", generation=1, lifted=named("web"))
    moved = replace(world.endpoints[0], prefixes=(Prefix.parse("10.29.4.77/32"),))
    after = replace(world, endpoints=(moved, world.endpoints[1]))
    program = cache.compile_program(after, domain="d1", generation=2, lifted=named("web"))
    prove(after, program.flows)
    assert cache.lifts[0].form is None


def test_a_deny_that_is_lifted_has_no_replies() -> None:
    rows, lifts, _ = lifted(policy(operator=()), "lab")
    assert lifts["lab"].no_replies == "it has no replies"
    assert [row.instructions for row in rows] == [b""]
    assert RULES[0].action is Action.DENY


def test_the_example_of_the_document() -> None:
    """docs/lifting.md, worked by hand there."""
    listed = (rule("lab", "deny", "10.9.0.0/16", WEB, 80), rule("web", "permit", "", WEB, 80))
    rows, lifts, _ = lifted(policy(*listed, operator=()), "web")
    assert [(row.priority, *whose(row)) for row in rows] == [
        (65001, "EGRESS_RETURN", 7), (65001, "EGRESS_RETURN", 7), (64001, "RULE", 1), (64000, "RULE", 2),
    ]  # fmt: skip
    assert lifts["web"].form is Form.TOGETHER
