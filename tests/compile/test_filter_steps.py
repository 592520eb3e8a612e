"""Programs of firewalls that follow on one another: the same as from scratch, and made of what changed alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from policy_edits import edits
from strategies import policies

from orchestrator.compile.filters import filterlists, filterprogram
from orchestrator.compile.filters.filterlists import Part
from orchestrator.compile.filters.filterprogram import FilterProgram
from orchestrator.compile.filters.filterrows import named_row
from orchestrator.errors import AclflowError
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.program.wire import encode_program
from orchestrator.wire.firewalls import Plane

LAWS = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
KINDS = ("list", "list", "list", "gone", "back", "prefixes", "operator", "returns", "limits", "log")


@st.composite
def steps(draw: st.DrawFn, policy: Policy, pool: tuple[Tenant, ...]) -> Policy:
    """A policy of which one thing changed; all else are the same objects."""
    kind = draw(st.sampled_from(KINDS))
    if kind == "returns":
        return replace(policy, return_traffic=draw(st.sampled_from(ReturnTraffic)))
    if kind == "limits":
        return replace(
            policy, path_mtu_rate=draw(st.sampled_from((100, 7))), log_limit=LogLimit(draw(st.integers(1, 2)), 9)
        )
    if kind == "operator":
        return replace(policy, operator=policy.operator[: draw(st.integers(0, 2))])
    if kind == "back":
        away = [each for each in pool if each.id not in {known.id for known in policy.tenants}]
        return replace(policy, tenants=(*policy.tenants, *away[:1]))
    if not policy.tenants:
        return policy
    at = draw(st.integers(0, len(policy.tenants) - 1))
    tenant = policy.tenants[at]
    if kind == "gone":
        changed: tuple[Tenant, ...] = ()
    elif kind == "prefixes":
        own = Prefix.parse(f"10.25{tenant.number}.0.0/24")
        changed = (
            replace(
                tenant, prefixes=pool[tenant.number - 1].prefixes if own in tenant.prefixes else (*tenant.prefixes, own)
            ),
        )
    elif kind == "log":
        rules = tuple(replace(rule, log=not rule.log) for rule in tenant.acl.rules)
        changed = (replace(tenant, acl=replace(tenant.acl, rules=rules)),)
    else:
        changed = (draw(edits(tenant)),)
    return replace(policy, tenants=(*policy.tenants[:at], *changed, *policy.tenants[at + 1 :]))


@LAWS
@given(policies(max_tenants=3, max_rules=4), st.data())
def test_steps_lead_to_the_program_from_scratch(policy: Policy, data: st.DataObject) -> None:
    made: FilterProgram | None = None
    pool, shares = policy.tenants, data.draw(st.booleans())
    planes = data.draw(st.sets(st.sampled_from(Plane), min_size=1))
    for generation in range(1, 2 + data.draw(st.integers(1, 8))):
        lifted = [LiftedRule(each.id, each.acl.rules[0].id) for each in policy.tenants[:1] if each.acl.rules]
        lifted = lifted if data.draw(st.booleans()) else []
        lists = policy if shares else None
        try:
            right = FilterProgram.of(policy, planes, domain="d", generation=generation, lifted=lifted, lists=lists)
        except AclflowError as refused:  # some lists cannot be had on some planes
            if made is not None:
                with pytest.raises(type(refused)):
                    made.after(policy, planes, generation=generation, lifted=lifted, lists=lists)
        else:
            if made is not None:
                made = made.after(policy, planes, generation=generation, lifted=lifted, lists=lists)
                assert encode_program(made.program) == encode_program(right.program)
            made = made or right
        policy, shares = data.draw(steps(policy, pool)), shares ^ (data.draw(st.integers(0, 5)) == 5)


@pytest.mark.parametrize("returns", ReturnTraffic)
@pytest.mark.parametrize("plane", Plane)
def test_parts_have_no_object_in_common_and_are_the_whole(plane: Plane, returns: ReturnTraffic) -> None:
    policy = replace(crowd(3), return_traffic=returns)
    rows = {
        part: {(row.table, row.match): row for row in filterprogram.make_rows(policy, frozenset({plane}), part)}
        for part in (Part.FRAME, Part.LISTS, Part.WHOLE)
    }
    assert not rows[Part.FRAME].keys() & rows[Part.LISTS].keys()
    assert rows[Part.FRAME] | rows[Part.LISTS] == rows[Part.WHOLE]
    alone = [
        {
            (row.table, row.match)
            for row in filterprogram.make_rows(replace(policy, tenants=(each,)), frozenset({plane}), Part.LISTS)
        }
        for each in policy.tenants
    ]
    assert set().union(*alone) == rows[Part.LISTS].keys()
    assert sum(map(len, alone)) == len(rows[Part.LISTS])


def crowd(size: int) -> Policy:
    """A policy of tenants with a few rules each, one of which logs."""
    tenants = tuple(
        Tenant(
            TenantId(f"t{number}"),
            number,
            (Prefix.parse(f"10.{number >> 8}.{number & 255}.0/24"), Prefix.parse(f"2001:db8:{number:x}::/48")),
            Acl(tuple(Rule(RuleId(f"r{at}"), Action.PERMIT, protocol=6, log=at == 1) for at in range(3))),
            {RuleId(f"r{at}"): 10 * number + at for at in range(3)},
        )
        for number in range(1, size + 1)
    )
    operator = (Rule(RuleId("first"), Action.DENY, protocol=17),)
    return Policy(tenants, operator, {RuleId("first"): 9000})


_OTHER = dict(zip(ReturnTraffic, [*ReturnTraffic][1:] + [*ReturnTraffic][:1], strict=True))


def _marked(tenant: Tenant) -> Tenant:
    """A tenant whose first rule is stateless."""
    first, *rest = tenant.acl.rules
    return replace(tenant, acl=replace(tenant.acl, rules=(replace(first, stateless=True), *rest)))


@pytest.mark.parametrize("returns", ReturnTraffic)
def test_each_change_there_and_back_leads_to_the_program_from_scratch(returns: ReturnTraffic) -> None:
    policy = replace(crowd(4), return_traffic=returns)
    one, two, *rest = policy.tenants
    wider = replace(two, prefixes=(*two.prefixes, Prefix.parse("172.16.0.0/24")))
    ways = [
        replace(policy, tenants=(one, wider, *rest)),
        replace(policy, tenants=(one, replace(two, number=99), *rest)),
        replace(policy, tenants=(one, _marked(two), *rest)),
        replace(policy, tenants=(_marked(one), _marked(two), *rest)),
        replace(policy, tenants=tuple(rest)),
        replace(policy, tenants=()),
        replace(policy, operator=()),
        replace(policy, log_limit=LogLimit(3, 3)),
        replace(policy, path_mtu_rate=7),
        replace(policy, return_traffic=_OTHER[returns]),
    ]

    def scratch(of: Policy) -> FilterProgram:
        return FilterProgram.of(of, [Plane.NFTABLES, Plane.QUEUE], domain="d", generation=1, lists=None)

    first, right = scratch(policy), [scratch(other).program for other in ways]
    for other, expected in zip(ways, right, strict=True):
        there = first.after(other, first.planes, generation=1)
        assert encode_program(there.program) == encode_program(expected)
        back = there.after(policy, first.planes, generation=1)
        assert encode_program(back.program) == encode_program(first.program)
        for further in (0, 2):
            assert there.after(ways[further], first.planes, generation=1).program.digest == right[further].digest


@pytest.mark.parametrize("returns", [ReturnTraffic.ESTABLISHED, ReturnTraffic.TRACKED])
def test_only_lists_that_changed_are_compiled(returns: ReturnTraffic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by lists that are expanded: those that changed or are new, and none for the operator's rules."""
    looked: list[str] = []
    plain = filterlists.tenant_lists

    def counted(tenant: Tenant, returns: ReturnTraffic) -> object:
        looked.append(tenant.id)
        return plain(tenant, returns)

    policy = replace(crowd(40), return_traffic=returns)
    first = FilterProgram.of(policy, [Plane.NFTABLES, Plane.IPTABLES], domain="d", generation=1)
    monkeypatch.setattr(filterlists, "tenant_lists", counted)
    less = replace(policy.tenants[6], acl=Acl(policy.tenants[6].acl.rules[:2]))
    new = replace(policy.tenants[0], id=TenantId("new"), number=77, prefixes=(Prefix.parse("172.16.0.0/24"),))
    for tenants, operator, expected in (
        ((*policy.tenants[:6], less, *policy.tenants[7:]), policy.operator, ["t7", "t7"]),
        ((*policy.tenants, new), policy.operator, ["new", "new"]),
        (policy.tenants[1:], policy.operator, []),
        (policy.tenants, (), []),
    ):
        looked.clear()
        after = first.after(replace(policy, tenants=tenants, operator=operator), first.planes, generation=2)
        assert looked == expected
        assert after.program.digest != first.program.digest


def test_rows_of_a_list_that_went_die() -> None:
    """Also those that do not bear its tenant's number, as chains of ICMP errors, limits and lists of a cluster."""
    policy = replace(crowd(3), return_traffic=ReturnTraffic.TRACKED)
    first = FilterProgram.of(policy, [Plane.NFTABLES, Plane.IPTABLES], domain="d", generation=1, lists=policy)
    smaller = replace(policy, tenants=policy.tenants[1:])
    left = first.after(smaller, first.planes, generation=2, lists=smaller).program.flows.rows()
    names = [row.match.decode() for row in left]
    assert not [name for name in names if name.endswith(("_1", "tenant t1")) or "_1_" in name]
    assert named_row(14, "tenant t2", "").match.decode() in names
