"""Lists in which rules are conjunctions: they decide as the list does, and a change of them is what scratch gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from compiled_domain import check_policy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from laws.test_levels_update import stories
from strategies import policies

from orchestrator.compile.conjunctions import conjunctive
from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.compile.cookies import Kind
from orchestrator.compile.equivalence import prove
from orchestrator.compile.equivalence.conjunctions import is_conjunctive
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
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
from orchestrator.program.delta import difference
from orchestrator.program.flows import FlowTable

laws = settings(max_examples=examples(50), suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """Whatever can be a conjunction is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conjunctive, "WORTH", 2)
        patch.setattr(conjunctive, "GAIN", 0)
        patch.setattr(conjunctive, "PORTS_WORTH", 2)
        yield


@laws
@given(policies(max_tenants=2, max_rules=5))
def test_a_policy_of_conjunctions_decides_and_counts_as_the_oracle(policy: Policy) -> None:
    check_policy(policy)


def rows_of(compiled: TenantList) -> FlowTable:
    return FlowTable.join_tables(compiled.rows)


@laws
@given(stories(), st.sampled_from(list(ReturnTraffic)))
def test_updated_lists_are_what_scratch_gives(story: tuple[Tenant, ...], returns: ReturnTraffic) -> None:
    compiled = TenantList.of(story[0], returns)
    for tenant in story[1:]:
        before, compiled = compiled, compiled.update_list(tenant, returns)
        fresh = TenantList.of(tenant, returns)
        assert set(rows_of(compiled).rows()) == set(rows_of(fresh).rows())
        if compiled.change is not None:
            gone, come = difference(rows_of(before), rows_of(compiled))
            assert set(compiled.change.removed.rows()) == set(gone.rows())
            assert set(compiled.change.added.rows()) == set(come.rows())


@laws
@given(policies(max_tenants=2, max_rules=5))
def test_a_program_of_conjunctions_is_proven(policy: Policy) -> None:
    prove(policy, compile_host(policy, domain="d", generation=1).flows)


@laws
@given(stories())
def test_a_change_of_conjunctions_is_proven(story: tuple[Tenant, ...]) -> None:
    cache, proof = CompileCache(), None
    for generation, tenant in enumerate(story, 1):
        policy = Policy(tenants=(tenant,), return_traffic=ReturnTraffic.EXPLICIT)
        program = compile_host(policy, domain="d", generation=generation, cache=cache)
        if proof is None or cache.change is None:
            proof = prove(policy, program.flows)
        else:
            proof = proof.after(policy, cache.change.removed, cache.change.added, lambda whole=program: whole.flows)


def served() -> Policy:
    """A tenant whose clients may reach its servers, but for some, and a rule of the plain kind between."""
    groups = {
        name: AddressGroup(GroupName(name), tuple(Prefix.parse(each) for each in members))
        for name, members in {
            "clients": ("10.0.0.0/24", "10.0.2.0/24", "10.9.0.0/16", "2001:db8:c::/48", "2001:db8:e::/48"),
            "servers": ("192.0.2.1/32", "192.0.2.7/32", "192.0.2.9/32", "2001:db8:a::1/128", "2001:db8:a::7/128"),
            "banned": ("10.0.2.128/25", "10.9.9.9/32"),
        }.items()
    }
    web = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, source=Addresses(groups=("clients",)),
               destination=Addresses(groups=("servers",)),
               destination_ports=(PortRange(80, 80), PortRange(443, 443)))  # fmt: skip
    no = Rule(RuleId("no"), Action.DENY, source=Addresses(groups=("banned",)), destination=web.destination)
    ssh = replace(web, id=RuleId("ssh"), source=Addresses((Prefix.parse("10.0.0.5/32"),)), destination=Addresses(),
                  destination_ports=(PortRange(22, 22),))  # fmt: skip
    own = (Prefix.parse("192.0.2.0/24"), Prefix.parse("2001:db8:a::/48"))
    acl = Acl((no, ssh, web), groups)
    return Policy(tenants=(Tenant(TenantId("t"), 7, own, acl, {"no": 1, "ssh": 2, "web": 3}),))


def test_the_policy_that_is_spoiled_is_right_and_has_conjunctions() -> None:
    flows = compile_host(served(), domain="d", generation=1).flows
    assert is_conjunctive(flows).sum() > 12
    prove(served(), flows)


def with_row(flows: FlowTable, which: int, **changed: object) -> FlowTable:
    """The rows with one of them changed."""
    rows = flows.rows()
    rows[which] = replace(rows[which], **changed)
    return FlowTable.of(rows)


def clause(flows: FlowTable) -> int:
    """A row that names a clause."""
    return next(at for at, row in enumerate(flows.rows()) if row.cookie >> 48 & 0xF == Kind.CLAUSE)


def member(flows: FlowTable) -> int:
    """A row that names a clause for a prefix."""
    prefixes = ("ipv4_src", "ipv4_dst", "ipv6_src", "ipv6_dst")
    rows = [(at, row) for at, row in enumerate(flows.rows()) if row.cookie >> 48 & 0xF == Kind.CLAUSE]
    return next(at for at, row in rows if any(term.field.name in prefixes for term in oxm.unpack(row.match)))


def decider(flows: FlowTable) -> int:
    """A row that decides a conjunction."""
    return next(at for at, row in enumerate(flows.rows()) if row.match.startswith(bytes.fromhex("00014a04")))


def renamed(flows: FlowTable, at: int, value: int) -> FlowTable:
    """A clause that names something else: byte `at` of its first action is `value`."""
    row = clause(flows)
    octets = bytearray(flows.row(row).instructions)
    octets[8 + at] = value if octets[8 + at] != value else value ^ 1
    return with_row(flows, row, instructions=bytes(octets))


def without(flows: FlowTable, which: int) -> FlowTable:
    return flows.take(np.arange(len(flows)) != which)


SPOILT: dict[str, Callable[[FlowTable], FlowTable]] = {
    "a clause's entry is missing": lambda flows: without(flows, clause(flows)),
    "a deciding entry is missing": lambda flows: without(flows, decider(flows)),
    "a clause at another priority": lambda flows: with_row(flows, clause(flows), priority=20_000),
    "a decision at another priority": lambda flows: with_row(flows, decider(flows), priority=20_000),
    "another clause": lambda flows: renamed(flows, 10, 1),
    "another number of clauses": lambda flows: renamed(flows, 11, 4),
    "another conjunction": lambda flows: renamed(flows, 15, 99),
    "a clause that also decides": lambda flows: with_row(flows, clause(flows), instructions=instructions(goto=60)),
    "a wider clause": lambda flows: with_row(flows, member(flows), match=widened(flows.row(member(flows)).match)),
    "the other verdict": lambda flows: with_row(flows, decider(flows), instructions=instructions(goto=60)),
    "another rule's cookie": lambda flows: with_row(
        flows, decider(flows), cookie=flows.row(decider(flows)).cookie + 1
    ),
}  # fmt: skip


def widened(match: bytes) -> bytes:
    """A match with the lowest bit of its first prefix no longer looked at."""
    terms = list(oxm.unpack(match))
    at = next(place for place, term in enumerate(terms) if term.field.name.startswith("ip") and term.field.size >= 4)
    field, mask = terms[at].field, terms[at].full_mask
    mask &= mask << 1 & field.ones
    terms[at] = oxm.Term(field, terms[at].value & mask, mask)
    return oxm.pack(terms)


@pytest.mark.parametrize("how", SPOILT)
def test_the_proof_finds_out(how: str) -> None:
    flows = compile_host(served(), domain="d", generation=1).flows
    with pytest.raises(NotEquivalent):
        prove(served(), SPOILT[how](flows))


def hulls_of_first_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conjunctive, "_around", lambda prefixes: prefixes[0])


def test_a_hull_that_is_too_small_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hulls_of_first_members(monkeypatch)
    with pytest.raises(NotEquivalent):
        prove(served(), compile_host(served(), domain="d", generation=1).flows)


def test_a_member_that_comes_changes_one_entry_for_each_priority() -> None:
    cache, policy = CompileCache(), served()
    compile_host(policy, domain="d", generation=1, cache=cache)
    (tenant,) = policy.tenants
    group = tenant.acl.groups["clients"]
    more = replace(group, prefixes=(*group.prefixes, Prefix.parse("10.77.0.0/24")))
    changed = replace(tenant, acl=replace(tenant.acl, groups={**tenant.acl.groups, "clients": more}))
    compile_host(replace(policy, tenants=(changed,)), domain="d", generation=2, cache=cache)
    assert cache.change is not None
    assert (len(cache.change.removed), len(cache.change.added)) == (0, 1)


def ported() -> Policy:
    """A rule of some source ports and some destination ports, which is a conjunction of these."""
    ports = tuple(PortRange(each, each) for each in (21, 53, 90))
    rule = Rule(RuleId("ports"), Action.PERMIT, protocol=TCP, source_ports=ports, destination_ports=ports[:2])
    acl = Acl((replace(rule, id=RuleId("no"), action=Action.DENY, source_ports=(PortRange(7, 7),)), rule))
    return Policy(tenants=(Tenant(TenantId("t"), 7, (), acl, {"no": 1, "ports": 2}),))


def test_no_row_of_a_conjunction_of_ports_can_be_left_out() -> None:
    flows = compile_host(ported(), domain="d", generation=1).flows
    prove(ported(), flows)
    mine = np.flatnonzero(is_conjunctive(flows))
    assert len(mine) == 2 * (2 + 3 + 1 + 2)  # two that decide, their source ports, and what both ask for
    for row in mine.tolist():
        with pytest.raises(NotEquivalent):
            prove(ported(), without(flows, row))


def test_no_port_of_a_conjunction_of_ports_can_be_another() -> None:
    flows = compile_host(ported(), domain="d", generation=1).flows
    for row in np.flatnonzero(is_conjunctive(flows)).tolist():
        terms = list(oxm.unpack(flows.row(row).match))
        places = [place for place, term in enumerate(terms) if term.field.name in ("tcp_src", "tcp_dst")]
        for place in places:
            spoilt = list(terms)
            spoilt[place] = replace_value(terms[place], terms[place].value ^ 1)
            with pytest.raises(NotEquivalent):
                prove(ported(), with_row(flows, row, match=oxm.pack(spoilt)))


def replace_value(term: oxm.Term, value: int) -> oxm.Term:
    return oxm.Term(term.field, value, term.mask)
