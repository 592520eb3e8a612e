"""Tenants, prefixes and endpoints that come and go one by one: the same program and the same proof as from scratch."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from compiled_domain import populated
from flow_tables import content, rows_by_tenant
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies

from orchestrator.compile.equivalence import prove
from orchestrator.compile.equivalence.chain import DECIDING
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.openflow.symbols import PortTable, symbols
from orchestrator.errors import BadPolicy, NotEquivalent
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Endpoint, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.program.delta import between
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import UPLINK
from orchestrator.program.wire import encode_program

LAWS = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
NAMES = tuple(f"vm{number}" for number in range(40))


@st.composite
def steps(draw: st.DrawFn, policy: Policy, pool: tuple[Tenant, ...]) -> Policy:
    """A policy with a tenant, an endpoint or a setting more, less or changed; all others are the same objects."""
    kind = draw(st.sampled_from(("tenant", "endpoint", "moved", "less", "returns")))
    if kind == "tenant":
        tenant = draw(st.sampled_from(pool))
        others = tuple(each for each in policy.tenants if each.id != tenant.id)
        if len(others) == len(policy.tenants):
            at = draw(st.integers(0, len(others)))
            return replace(policy, tenants=(*others[:at], tenant, *others[at:]))
        stay = tuple(each for each in policy.endpoints if each.tenant != tenant.id)
        return replace(policy, tenants=others, endpoints=stay)
    if kind == "returns":
        return replace(policy, return_traffic=draw(st.sampled_from(ReturnTraffic)))
    if kind == "endpoint" and policy.tenants:
        name = draw(st.sampled_from(NAMES))
        number = 1 + NAMES.index(name)
        owner = draw(st.sampled_from(policy.tenants)).id
        new = Endpoint(f"e-{name}", owner, name, number, (Prefix.parse(f"10.250.0.{number}/32"),))
        return replace(policy, endpoints=(*(each for each in policy.endpoints if each.port != name), new))
    if kind == "moved" and policy.tenants:
        at = draw(st.integers(0, len(policy.tenants) - 1))
        moved = replace(policy.tenants[at], prefixes=(Prefix.parse("10.251.0.0/24"),))
        return replace(policy, tenants=(*policy.tenants[:at], moved, *policy.tenants[at + 1 :]))
    if kind == "less" and policy.endpoints:
        at = draw(st.integers(0, len(policy.endpoints) - 1))
        return replace(policy, endpoints=(*policy.endpoints[:at], *policy.endpoints[at + 1 :]))
    return policy


@LAWS
@given(policies(max_tenants=3, max_rules=4).map(populated), st.data())
def test_structural_steps_lead_to_the_program_from_scratch_and_are_proven(policy: Policy, data: st.DataObject) -> None:
    pool, cache = policy.tenants, CompileCache()
    before = cache.compile_program(policy, domain="d", generation=1)
    proof = prove(policy, before.flows)
    for generation in range(2, 2 + data.draw(st.integers(1, 8))):
        following = data.draw(steps(policy, pool))
        try:
            scratch = compile_host(following, domain="d", generation=generation)
        except BadPolicy as refused:  # some lists cannot be had together with tracked connections
            with pytest.raises(BadPolicy, match=re.escape(refused.reason)):
                cache.compile_program(following, domain="d", generation=generation)
            continue
        policy = following
        after = cache.compile_program(policy, domain="d", generation=generation)
        assert encode_program(after) == encode_program(scratch)
        assert cache.change is not None
        right = between(before, scratch)
        assert content(cache.change.removed) == content(right.removed)
        assert content(cache.change.added) == content(right.added)
        rows = cache.change.removed, cache.change.added
        if proof.must_begin_anew(policy, *rows):
            proof = prove(policy, after.flows)
        else:
            proof = proof.after(policy, *rows, after.blocks.of_tenant)
        assert proof.lists.keys() == prove(policy, scratch.flows).lists.keys()
        before = after


def world() -> Policy:
    """Three tenants with an endpoint each."""
    tenants = tuple(
        Tenant(TenantId(f"t{number}"), number, (Prefix.parse(f"10.{number}.0.0/16"),)) for number in (1, 2, 3)
    )
    ends = tuple(
        Endpoint(f"e{each.number}", each.id, f"p{each.number}", each.number, each.prefixes) for each in tenants
    )
    return Policy(tenants, endpoints=ends)


def without(policy: Policy, number: int) -> Policy:
    """The policy without a tenant and its endpoint."""
    tenants = tuple(each for each in policy.tenants if each.number != number)
    return replace(policy, tenants=tenants, endpoints=tuple(e for e in policy.endpoints if e.tenant != f"t{number}"))


def test_rows_that_are_left_of_a_tenant_that_went_die() -> None:
    policy = world()
    whole = compile_host(policy, domain="d", generation=1).flows
    smaller = without(policy, 2)
    right = compile_host(smaller, domain="d", generation=2).flows
    gone = whole.take(whole.tenant == 2)
    proof = prove(policy, whole)
    proof.after(smaller, gone, FlowTable.of(()), rows_by_tenant(right))
    for kept in range(len(gone)):
        left = gone.row(kept)
        removed = FlowTable.of(row for row in gone.rows() if row != left)
        following = FlowTable.of((*right.rows(), left))
        if not _is_proven(left.table):
            continue
        with pytest.raises(NotEquivalent, match="number 2, whom the policy does not have"):
            proof.after(smaller, removed, FlowTable.of(()), rows_by_tenant(following))


def test_rows_of_a_tenant_that_nobody_knows_die() -> None:
    policy = world()
    whole = compile_host(policy, domain="d", generation=1).flows
    ends = [row for row in whole.rows() if row.tenant == 2 and _is_proven(row.table)]
    strange = FlowTable.of(replace(row, tenant=9) for row in ends)
    following = FlowTable.join_tables((whole, strange))
    with pytest.raises(NotEquivalent, match="number 9"):
        prove(policy, whole).after(policy, FlowTable.of(()), strange, rows_by_tenant(following))


def test_a_new_tenant_without_all_of_its_rows_dies() -> None:
    policy = world()
    smaller = without(policy, 2)
    whole, before = (compile_host(each, domain="d", generation=1).flows for each in (policy, smaller))
    rows = [row for row in whole.rows() if row.tenant == 2 and _is_proven(row.table)]
    proof = prove(smaller, before)
    proof.after(policy, FlowTable.of(()), FlowTable.of(rows), rows_by_tenant(whole))
    assert rows
    for lost in rows:
        following = FlowTable.of(row for row in whole.rows() if row != lost)
        added = FlowTable.of(row for row in rows if row != lost)
        with pytest.raises(NotEquivalent):
            proof.after(policy, FlowTable.of(()), added, rows_by_tenant(following))


def _is_proven(table: int) -> bool:
    return table in DECIDING


def test_contradictions_are_found_in_a_step_as_from_scratch() -> None:
    policy = world()
    spare = Prefix.parse("10.1.0.7/32")
    wrong = (
        Endpoint("x", TenantId("t9"), "p9", 9, (spare,)),
        Endpoint("x", TenantId("t1"), "p1", 9, (spare,)),
        Endpoint("x", TenantId("t1"), UPLINK, 9, (spare,)),
        Endpoint("x", TenantId("t1"), "", 9, (spare,)),
        Endpoint("x", TenantId("t1"), "p9", 9, policy.endpoints[0].prefixes),
    )
    cache = CompileCache()
    first = cache.compile_program(policy, domain="d", generation=1)
    for each in wrong:
        spoilt = replace(policy, endpoints=(*policy.endpoints, each))
        with pytest.raises(BadPolicy) as told:
            cache.compile_program(spoilt, domain="d", generation=2)
        with pytest.raises(BadPolicy) as right:
            compile_host(spoilt, domain="d", generation=2)
        assert (told.value.place, told.value.reason) == (right.value.place, right.value.reason)
    gone = replace(policy, tenants=policy.tenants[1:])
    with pytest.raises(BadPolicy, match="there is no tenant 't1'"):
        cache.compile_program(gone, domain="d", generation=2)
    assert cache.compile_program(policy, domain="d", generation=3).digest == first.digest


@given(st.lists(st.sampled_from(NAMES), unique=True), st.data())
def test_a_port_table_is_the_same_whatever_way_led_to_it(names: list[str], data: st.DataObject) -> None:
    table = PortTable.of(names)
    held = set(names)
    for _ in range(data.draw(st.integers(1, 6))):
        gone = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True, max_size=3)) if held else []
        free = sorted(set(NAMES) - held | set(gone))
        come = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=3)) if free else []
        before = table.symbols()
        table, moved = table.after(gone, come)
        held = held - set(gone) | set(come)
        assert table == PortTable.of(held)
        now = symbols(table.ports)
        assert {name: table.symbol(name) for name in held} == {name: now[name] for name in held}
        stayed = held - set(come) - set(moved)
        assert {name: now[name] for name in stayed} == {name: before[name] for name in stayed}


@given(st.lists(st.integers(0, 20), max_size=12), st.lists(st.integers(0, 20), max_size=12))
def test_replaced_objects_are_those_that_one_side_alone_holds(one: list[int], other: list[int]) -> None:
    objects = [object() for _ in range(21)]
    old, new = (tuple(objects[number] for number in dict.fromkeys(each)) for each in (one, other))
    gone, come = find_replaced(old, new)
    assert list(gone) == [each for each in old if each not in new]
    assert list(come) == [each for each in new if each not in old]
