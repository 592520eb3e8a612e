"""What a list takes at most and at least, held against what it is compiled to."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.compile import estimate
from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.compile.estimate import ENDS, Bounds, Estimate, Groups, rule_bounds, widest_rule
from orchestrator.compile.lists.alone import tenant_alone
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
    trusted_acl,
)
from orchestrator.policy.ports import EVERY_PORT, PortRange, normalise_ranges
from orchestrator.policy.protocols import TCP
from orchestrator.policy.stateless import view_of_tracking

_sizes = st.integers(1, 12)


def compiled(acl: Acl, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> TenantList:
    numbers = {rule.id: place + 1 for place, rule in enumerate(acl.rules)}
    return TenantList.of(Tenant(TenantId("t"), 7, (), acl, MappingProxyType(numbers)), returns)


def rows(acl: Acl) -> int:
    return sum(map(len, compiled(acl).rows))


@st.composite
def wide_rules(draw: st.DrawFn, name: str) -> Rule:
    """A rule of many prefixes and ports: the product of these is what costs."""

    def ports() -> tuple[PortRange, ...]:
        starts = draw(st.lists(st.integers(0, 200), min_size=0, max_size=12))
        return normalise_ranges(PortRange(5 * at, 5 * at + draw(st.integers(0, 3))) for at in starts) or EVERY_PORT

    def side(first: int) -> Addresses:
        four = [Prefix(Family.IPV4, (first << 24) + (each << 8), 24) for each in range(draw(_sizes) - 1)]
        six = [Prefix(Family.IPV6, (first << 120) + (each << 65), 64) for each in range(draw(_sizes) - 1)]
        return Addresses(tuple(four + six)) if draw(st.booleans()) else Addresses()

    rule = Rule(RuleId(name), Action.PERMIT, direction=draw(st.sampled_from(Direction)), protocol=TCP)
    found = replace(rule, source_ports=ports(), destination_ports=ports(), established=draw(st.booleans()))
    source, destination = side(10), side(20)
    if {each.family for each in source.prefixes} & {each.family for each in destination.prefixes}:
        return replace(found, source=source, destination=destination)
    return replace(found, source=source)


@given(acls(max_rules=6))
@settings(max_examples=examples(60))
def test_a_list_takes_what_was_estimated(acl: Acl) -> None:
    least, most = Estimate.of(acl).bounds
    assert least <= rows(acl) <= most


@given(
    st.lists(st.integers(), min_size=1, max_size=4).flatmap(
        lambda some: st.tuples(*[wide_rules(f"r{n}") for n in range(len(some))])
    )
)
@settings(max_examples=examples(60))
def test_a_list_of_wide_rules_takes_what_was_estimated(rules: tuple[Rule, ...]) -> None:
    acl = Acl(rules)
    least, most = Estimate.of(acl).bounds
    assert least <= rows(acl) <= most
    plain = compiled(acl).plain.pieces.how_many_atoms
    assert plain <= most + 2 * len(rules)


def marked(acl: Acl, places: set[int]) -> Acl:
    """The list with some of its rules stateless."""
    rules = tuple(replace(rule, stateless=True) if place in places else rule for place, rule in enumerate(acl.rules))
    return trusted_acl(rules, acl.groups, acl.ingress_default, acl.egress_default)


@given(acls(max_rules=6), st.sets(st.integers(0, 5)))
@settings(max_examples=examples(60))
def test_a_list_with_stateless_rules_takes_what_was_estimated(acl: Acl, places: set[int]) -> None:
    mixed = marked(acl, places)
    least, most = Estimate.of(mixed, is_tracked=True).bounds
    numbers = {rule.id: place + 1 for place, rule in enumerate(mixed.rules)}
    alone = tenant_alone(Tenant(TenantId("t"), 7, (), mixed, MappingProxyType(numbers)))
    taken = rows(view_of_tracking(mixed)) + (rows(alone.acl) if mixed.has_stateless else 0)
    assert least <= taken <= most
    was = Estimate.of(acl, is_tracked=True)
    now = was.after(mixed, is_tracked=True)
    assert now.bounds == Estimate.of(mixed, is_tracked=True).bounds
    assert now.bounds.most - was.bounds.most <= now.fresh
    assert now.after(mixed).bounds == Estimate.of(mixed).bounds, "where nothing is tracked any more"
    assert Estimate.of(mixed).after(mixed, is_tracked=True).bounds == now.bounds


@given(st.lists(acls(max_rules=5), min_size=2, max_size=3), st.data())
@settings(max_examples=examples(30))
def test_the_next_version_is_estimated_as_from_scratch(lists: list[Acl], data: st.DataObject) -> None:
    known = Estimate.of(lists[0])
    for acl in lists[1:]:
        rest = acl.listed
        if len(rest) and data.draw(st.booleans()):
            rest = rest.without(data.draw(st.integers(0, len(rest) - 1)))
        now = trusted_acl(rest, acl.groups, acl.ingress_default, acl.egress_default)
        known = known.after(now)
        assert known.bounds == Estimate.of(now).bounds


@given(st.lists(wide_rules("r"), min_size=2, max_size=12), st.data())
@settings(max_examples=examples(40))
def test_a_list_edited_rule_by_rule_is_estimated_as_from_scratch(wide: list[Rule], data: st.DataObject) -> None:
    """Every edit takes a rule out, puts one in, or puts one in another's place, with an address group or without."""
    group = AddressGroup("web", (Prefix.parse("192.0.2.0/24"), Prefix.parse("198.51.100.0/24")))
    first, *others = [replace(rule, id=RuleId(f"r{place}")) for place, rule in enumerate(wide)]
    known = Estimate.of(Acl((first,), {"web": group}))
    for rule in others:
        listed = known.acl.listed
        if len(listed) and data.draw(st.booleans()):
            listed = listed.without(data.draw(st.integers(0, len(listed) - 1)))
        if data.draw(st.booleans()):
            come = replace(rule, source=Addresses((), ("web",))) if data.draw(st.booleans()) else rule
            listed = listed.with_one(data.draw(st.integers(0, len(listed))), come)
        now = trusted_acl(listed, known.acl.groups, *_DEFAULTS)
        known = known.after(now)
        assert known.bounds == Estimate.of(now).bounds


def test_an_edit_of_a_long_list_looks_at_the_edited_rules_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Rule] = []

    def counted(rule: Rule, groups: Groups) -> Bounds:
        looked.append(rule)
        return rule_bounds(rule, groups)

    rules = [
        Rule(RuleId(f"r{n}"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(n, n),)) for n in range(90)
    ]
    known = Estimate.of(Acl(tuple(rules)))
    other = replace(rules[40], destination_ports=(PortRange(7, 9),))
    listed = known.acl.listed.without(40).with_one(40, other)
    monkeypatch.setattr(estimate, "rule_bounds", counted)
    known.after(trusted_acl(listed, {}, *_DEFAULTS))
    assert {rule.id for rule in looked} == {"r40"}


def test_what_is_new_in_the_next_version_is_told() -> None:
    plain = [Rule(RuleId(f"r{n}"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(n, n),)) for n in range(9)]
    web, mail = AddressGroup("web", (Prefix.parse("192.0.2.0/24"),)), AddressGroup("mail", ())
    naming = [
        Rule(RuleId(name), Action.PERMIT, protocol=TCP, source=Addresses((), (name,)), destination_ports=odd)
        for name, odd in (("web", (PortRange(1, 1), PortRange(3, 3))), ("mail", (PortRange(5, 5),)))
    ]
    groups = {"web": web, "mail": mail}
    known = Estimate.of(Acl((*plain, *naming), groups))
    assert known.fresh == known.bounds.most
    without = known.after(trusted_acl(known.acl.listed.without(4), groups, *_DEFAULTS))
    assert without.fresh == 0
    other = replace(plain[4], destination_ports=(PortRange(1, 1), PortRange(3, 3), PortRange(5, 5)))
    edited = without.after(Acl((other, *without.acl.rules), groups))
    assert edited.fresh == rule_bounds(other, {}).most == 6
    more = replace(web, prefixes=(*web.prefixes, Prefix.parse("198.51.100.0/24")))
    grown = edited.after(trusted_acl(edited.acl.listed, {"web": more, "mail": mail}, *_DEFAULTS))
    assert grown.fresh == rule_bounds(naming[0], {"web": more}).most > 0
    assert grown.after(grown.acl).fresh == grown.fresh


_DEFAULTS = (Action.DENY, Action.PERMIT)


def test_ports_by_ports_are_told_without_being_compiled() -> None:
    odd = tuple(PortRange(2 * place + 1, 2 * place + 1) for place in range(300))
    rule = Rule(RuleId("wide"), Action.PERMIT, protocol=TCP, source_ports=odd, destination_ports=odd)
    half = replace(rule, source_ports=odd[:30], destination_ports=odd[:34])
    assert 2 * 601 < rule_bounds(rule, {}).most < 4 * 700
    assert rule_bounds(half, {}) == (2 * 30 * 34, 2 * 30 * 34)
    plain = Rule(RuleId("plain"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
    assert widest_rule(Acl((plain, rule)))[0] == 1


def test_an_empty_list_takes_what_ends_it() -> None:
    assert rows(Acl()) <= ENDS
