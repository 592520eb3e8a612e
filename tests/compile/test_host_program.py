"""Programs as values: same policy, same bytes, with a cache or without; what changes is what must; limits are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from compiled_domain import populated
from flow_tables import check_change, content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from policy_edits import edits
from strategies import policies

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.openflow.symbols import port_table, symbols
from orchestrator.errors import AclflowError, BadPolicy, TooLarge
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    Endpoint,
    GroupName,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.blocks import digest
from orchestrator.program.delta import difference
from orchestrator.program.flows import SYMBOL_BASE
from orchestrator.program.program import UPLINK, Program
from orchestrator.program.wire import encode_program


def compiled(policy: Policy, cache: CompileCache | None = None) -> Program:
    return compile_host(policy, domain="d1", generation=1, cache=cache)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=3, max_rules=5))
def test_same_policy_same_bytes(policy: Policy) -> None:
    program = compiled(populated(policy))
    assert encode_program(program) == encode_program(compiled(populated(policy)))
    assert program.digest == digest(program.flows, program.ports)
    keys = program.flows.keys()
    assert len(set(keys)) == len(keys)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(policies(max_tenants=3, max_rules=5).map(populated), min_size=1, max_size=4))
def test_a_cache_changes_nothing(story: list[Policy]) -> None:
    cache, before = CompileCache(), None
    for policy in story:
        program = compiled(policy, cache)
        assert encode_program(program) == encode_program(compiled(policy))
        check_change(before, program, cache.change)
        before = program


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=2, max_rules=6).map(populated), st.data())
def test_edits_one_by_one_lead_to_the_program_from_scratch(policy: Policy, data: st.DataObject) -> None:
    cache = CompileCache()
    before = compiled(policy, cache)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(policy.tenants) - 1))
        edited = data.draw(edits(policy.tenants[place]))
        policy = replace(policy, tenants=(*policy.tenants[:place], edited, *policy.tenants[place + 1 :]))
        after = compiled(policy, cache)
        assert encode_program(after) == encode_program(compiled(policy))
        check_change(before, after, cache.change)
        before = after


def rule(name: str, source: str = "", **named: object) -> Rule:
    side = Addresses((Prefix.parse(source),)) if source else ANY
    return Rule(RuleId(name), Action.PERMIT, source=side, **named)  # type: ignore[arg-type]


def tenant(number: int, rules: Sequence[Rule], groups: Sequence[AddressGroup] = ()) -> Tenant:
    acl = Acl(tuple(rules), {group.name: group for group in groups})
    owned = (Prefix.parse(f"10.{number}.0.0/16"),)
    return Tenant(TenantId(f"t{number}"), number, owned, acl, {each.id: i for i, each in enumerate(rules, 1)})


def endpoint(name: str, owner: int, *prefixes: str, port: str = "") -> Endpoint:
    return Endpoint(name, TenantId(f"t{owner}"), port or name, 2, tuple(map(Prefix.parse, prefixes)))


def test_one_rule_changed_changes_its_rows_alone() -> None:
    rules = [rule(f"r{i}", f"192.0.2.{i}") for i in range(100)]
    before = compiled(Policy((tenant(1, rules), tenant(2, rules))))
    changed = [*rules[:50], replace(rules[50], action=Action.DENY), *rules[51:]]
    after = compiled(Policy((tenant(1, changed), tenant(2, rules))))
    removed, added = difference(before.flows, after.flows)
    assert len(removed) == len(added) == 1
    cookie = Cookie.unpack(int(added.cookie[0]))
    assert cookie is not None
    assert (cookie.kind, cookie.number) == (Kind.RULE, 51)


def test_an_endpoint_come_or_gone_leaves_the_others_rows() -> None:
    ends = [endpoint(f"vm{i}", 1, f"10.1.0.{i}") for i in range(40)]
    before = compiled(Policy((tenant(1, ()),), endpoints=tuple(ends[:39])))
    after = compiled(Policy((tenant(1, ()),), endpoints=tuple(ends)))
    removed, added = difference(before.flows, after.flows)
    assert len(removed) == 0
    assert len(added) == 7, "two of them are what its host answers"


def test_return_traffic_is_a_setting() -> None:
    policy = Policy((tenant(1, ()),))
    kinds = {int(each) >> 48 & 0xF for each in compiled(policy).flows.cookie}
    explicit = replace(policy, return_traffic=ReturnTraffic.EXPLICIT)
    without = {int(each) >> 48 & 0xF for each in compiled(explicit).flows.cookie}
    assert kinds - without == {Kind.INGRESS_RETURN, Kind.EGRESS_RETURN}


def chain(length: int) -> list[Rule]:
    """Rules that each overlap all others."""
    return [rule(f"r{i}", "10.0.0.0/8") for i in range(length)]


@pytest.mark.parametrize(("returns", "most"), [(ReturnTraffic.ESTABLISHED, 29699), (ReturnTraffic.EXPLICIT, 29700)])
def test_levels_run_out_at_the_lowest_priority(returns: ReturnTraffic, most: int) -> None:
    rules = chain(most + 1)
    policy = Policy((tenant(1, rules[:most]),), return_traffic=returns)
    rows = compiled(policy).flows
    assert min(rows.priority[rows.table == 50][rows.priority[rows.table == 50] > 300]) == 301
    with pytest.raises(TooLarge) as caught:
        compiled(replace(policy, tenants=(tenant(1, rules),)))
    assert caught.value.place == f"tenants[t1].acl.rules[{most}]"
    assert f"'r{most}'" in caught.value.reason


def test_rules_that_would_fill_the_memory_are_refused_and_the_largest_is_named() -> None:
    def ports(count: int) -> tuple[PortRange, ...]:
        return tuple(PortRange(2 * place, 2 * place) for place in range(count))

    def deny(name: str, sources: int, destinations: int) -> Rule:
        sides = {"source_ports": ports(sources), "destination_ports": ports(destinations)}
        return Rule(RuleId(name), Action.DENY, Direction.INGRESS, TCP, **sides)  # type: ignore[arg-type]

    many = [deny(f"r{place}", 31, 32) for place in range(2050)]
    with pytest.raises(TooLarge) as caught:
        compiled(Policy((tenant(1, [many[0], deny("widest", 31, 33), *many[1:]]),)))
    assert caught.value.place == "tenants[t1].acl.rules[1]"


def test_a_rule_over_a_large_group_takes_the_sum_of_its_sides() -> None:
    many = tuple(Prefix.parse(f"10.{i // 256}.{i % 256}.1") for i in range(1500))
    group = AddressGroup(GroupName("many"), many)
    ports = tuple(PortRange(2 * i, 2 * i) for i in range(2000))
    wide = Rule(RuleId("wide"), Action.DENY, Direction.INGRESS, TCP, Addresses((), ("many",)), destination_ports=ports)
    alone, beside = (compiled(Policy((tenant(1, rules, [group]),))) for rules in ([rule("r0")], [rule("r0"), wide]))
    assert len(beside.flows) - len(alone.flows) == 1500 + 2000 + 1


@pytest.mark.parametrize(
    ("endpoints", "place"),
    [
        ((endpoint("a", 1, "10.1.0.1"), endpoint("b", 1, "10.1.0.2", port="a")), "endpoints[1].port"),
        ((endpoint("a", 1, "10.1.0.1"), endpoint("b", 1, "10.1.0.1")), "endpoints[1].prefixes"),
        ((endpoint("a", 9, "10.9.0.1"),), "endpoints[0].tenant"),
        ((endpoint("a", 1, "10.1.0.1", port=UPLINK),), "endpoints[0].port"),
        ((endpoint("a", 1, "10.1.0.1", port="x\0y"),), "endpoints[0].port"),
    ],
)
def test_endpoints_that_contradict_are_refused(endpoints: tuple[Endpoint, ...], place: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        compiled(Policy((tenant(1, ()),), endpoints=endpoints))
    assert caught.value.place == place


@pytest.mark.parametrize("numbers", [{"r0": 1}, {"r0": 1, "r1": 0}, {"r0": 1, "r1": 1 << 40}])
def test_rules_need_numbers(numbers: dict[str, int]) -> None:
    policy = Policy((replace(tenant(1, [rule("r0"), rule("r1")]), rule_numbers=numbers),))
    with pytest.raises(BadPolicy) as caught:
        compiled(policy)
    assert caught.value.place == "tenants[t1].acl.rules[1].id"
    with pytest.raises(AclflowError) as caught_too:
        compiled(Policy(operator=(rule("dns"),)))
    assert caught_too.value.place == "operator.rules[0].id"


def test_a_failed_compilation_leaves_the_cache_usable() -> None:
    cache = CompileCache()
    good = Policy((tenant(1, [rule("r0")]), tenant(2, [rule("r0")])))
    compiled(good, cache)
    with pytest.raises(BadPolicy):
        compiled(replace(good, tenants=(good.tenants[0], replace(good.tenants[1], rule_numbers={}))), cache)
    assert content(compiled(good, cache).flows) == content(compiled(good).flows)


@given(st.sets(st.text("abc0123", min_size=1, max_size=4)), st.text("abc0123", min_size=1, max_size=4))
def test_ports_have_stable_symbols(names: set[str], one: str) -> None:
    ports = port_table(names)
    assert ports[0] == UPLINK
    numbers = symbols(ports)
    assert set(numbers) == names | {UPLINK}
    assert all(ports[number - SYMBOL_BASE] == name for name, number in numbers.items())
    more = symbols(port_table(names | {one}))
    if len(port_table(names | {one})) == len(ports):
        moved = [name for name in names if numbers[name] != more[name]]
        assert len(moved) < len(names) or not names or len(names) < 4
