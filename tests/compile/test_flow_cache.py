"""A flow cache decides and counts as the policy does, or leaves a packet to the packet filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from compiled_cache import check, every_rule, first, in_words
from compiled_filter import carried, counted_under
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters import flowcache
from orchestrator.compile.filters.cacherows import FLOWCACHE, CacheRow, Verdict, cache_table, read_table
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.compile.filters.filterrows import Filter, read_comment
from orchestrator.compile.filters.flowcache import CacheEntry, FlowCache, flow_cache, prove
from orchestrator.errors import BadInput
from orchestrator.placement.hoist import NotTheSame
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP
from orchestrator.policy.spans import Span
from orchestrator.program.delta import between
from orchestrator.program.program import Tier
from orchestrator.wire.firewalls import Plane

laws = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))


@laws
@given(policies(max_tenants=3, max_rules=8), st.data())
def test_it_agrees_with_the_oracle_or_defers(policy: Policy, data: st.DataObject) -> None:
    chosen = data.draw(st.permutations(every_rule(policy)))
    found = flow_cache(policy, chosen[: data.draw(st.integers(0, len(chosen)))])
    check(policy, found.rows, policy_packets(policy))


@laws
@given(policies(max_tenants=2, max_rules=6))
def test_a_rule_that_does_not_stay_has_its_own_packets_held(policy: Policy) -> None:
    for name in every_rule(policy):
        found = flow_cache(policy, [name])
        if found.stays:
            assert found.stays[0][0] == name
            assert found.stays[0][1]
            assert not found.entries
            continue
        for packet in filter(carried, policy_packets(policy)):
            steps = decide(policy, packet).steps
            if not packet.later_fragment and any((step.tenant, step.rule) == tuple(name) for step in steps):
                assert first(found.rows, packet), packet


@laws
@given(policies(max_tenants=2, max_rules=6))
def test_rows_survive_the_way_through_a_program(policy: Policy) -> None:
    rows = flow_cache(policy, every_rule(policy)).rows
    assert read_table(cache_table(rows)) == rows
    for row in rows:
        assert CacheRow.of(row.match, row.verdict, row.counts) == row


def rule(name: str, action: Action, source: str, port: int, **more: object) -> Rule:
    return Rule(
        RuleId(name), action, protocol=TCP, source=Addresses((Prefix.parse(source),)),
        destination_ports=(PortRange(port, port),), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def one_tenant(*rules: Rule, operator: tuple[Rule, ...] = ()) -> Policy:
    numbers: dict[str, int] = {rule.id: place for place, rule in enumerate(rules, 1)}
    shop = Tenant(TenantId("shop"), 7, (Prefix.parse("198.51.100.0/24"),), Acl(rules), numbers)
    operators: dict[str, int] = {rule.id: place for place, rule in enumerate(operator, 1)}
    return Policy((shop,), operator, operators, ReturnTraffic.ESTABLISHED)


WEB = rule("web", Action.PERMIT, "192.0.2.0/24", 80)
LAB = rule("lab", Action.DENY, "192.0.2.64/26", 80)


def told(found: FlowCache) -> list[str]:
    """Every entry's verdict and whom it counts for."""
    return [" ".join([each.verdict.name.lower(), *map(in_words, each.counts)]) for each in found.entries]


def test_a_rule_and_its_replies() -> None:
    found = flow_cache(one_tenant(LAB, WEB), [LiftedRule(TenantId("shop"), RuleId("web"))])
    assert set(told(found)) == {"permit rule 2", "permit egress-return 7"}
    assert not found.stays


def test_the_operators_rules_come_first() -> None:
    noisy = replace(rule("noisy", Action.DENY, "192.0.2.7", 80), destination_ports=(PortRange(0, 1023),))
    policy = one_tenant(WEB, operator=(noisy,))
    found = flow_cache(policy, [LiftedRule(TenantId("shop"), RuleId("web"))])
    assert told(found)[0] == "deny operator-rule 1"
    check(policy, found.rows, policy_packets(policy))


def test_a_rule_that_is_shadowed_or_unknown_stays() -> None:
    policy = one_tenant(replace(LAB, source=WEB.source), WEB)
    names = [LiftedRule(TenantId("shop"), RuleId(name)) for name in ("web", "none")]
    assert flow_cache(policy, names).stays == (
        (names[0], "the rules before it decide all its packets"),
        (names[1], "there is no such rule"),
    )


def test_what_does_not_fit_stays_and_the_next_one_goes() -> None:
    odd = tuple(PortRange(port, port) for port in range(1, 2 * flowcache.MOST_ROWS + 2, 2))
    policy = one_tenant(replace(WEB, id=RuleId("odd"), protocol=UDP, destination_ports=odd), WEB)
    found = flow_cache(policy, every_rule(policy))
    assert [str(name) for name, _ in found.stays] == ["shop/odd"]
    assert "rows, and 256 are left" in found.stays[0][1]
    assert found.entries


def test_where_too_many_rows_meet_it_defers() -> None:
    many = tuple(rule(f"d{n}", Action.DENY, f"192.0.2.{n}", 80, source_ports=(PortRange(n, 60_000),))
                 for n in range(1, flowcache.MOST_PARTS + 5))  # fmt: skip
    policy = one_tenant(WEB, operator=many)
    found = flow_cache(policy, [LiftedRule(TenantId("shop"), RuleId("web"))])
    knock = Packet(Family.IPV4, 0xC0000201, 0xC6336401, TCP, 50_000, 80)
    assert [each.verdict for each in found.entries if each.box.holds(knock)] == [Verdict.DEFER]


def test_where_too_many_tenants_send_only_what_nobody_sends_is_decided() -> None:
    """Their addresses are deferred in a few spans, which may hold others too."""
    shop = one_tenant(replace(WEB, source=ANY))
    crowd = tuple(
        Tenant(TenantId(f"t{n}"), 100 + n, (Prefix(Family.IPV4, 0x0A000000 + (3 * n << 16), 16),))
        for n in range(flowcache.MOST_PARTS + 1)
    )
    policy = replace(shop, tenants=(*shop.tenants, *crowd))
    found = flow_cache(policy, [LiftedRule(TenantId("shop"), RuleId("web"))])
    assert not found.stays
    assert len(found.rows) < 64
    ours, between, outside = (Packet(Family.IPV4, source, 0xC6336401, TCP, 50_000, 80)
                              for source in (crowd[5].prefixes[0].network, 0x0A010000, 0xC0000201))  # fmt: skip
    assert first(found.rows, ours).verdict is Verdict.DEFER
    assert first(found.rows, between).verdict in Verdict
    assert first(found.rows, outside).verdict is Verdict.PERMIT
    check(policy, found.rows, policy_packets(policy))


def test_messages_about_path_mtu_are_left_to_the_filter_which_limits_them() -> None:
    """A lifted rule of the sender's would decide them together with the receiver's return traffic."""
    pinging = Rule(RuleId("icmp"), Action.PERMIT, Direction.EGRESS, protocol=ICMP)
    shop = one_tenant(pinging).tenants[0]
    bank = Tenant(TenantId("bank"), 8, (Prefix.parse("203.0.113.0/24"),), Acl(), {})
    policy = Policy((shop, bank), return_traffic=ReturnTraffic.PATH_MTU)
    found = flow_cache(policy, [LiftedRule(TenantId("shop"), RuleId("icmp"))])
    message = Packet(Family.IPV4, 0xC6336401, 0xCB007101, ICMP, icmp_type=3, icmp_code=4)
    assert decide(policy, message).permitted
    limited = next(each for each in found.entries if each.box.holds(message))
    assert limited.verdict is Verdict.DEFER
    check(policy, found.rows, policy_packets(policy))
    planted = replace(limited, verdict=Verdict.PERMIT, counts=tuple(_cookies(policy, message)))
    with pytest.raises(NotTheSame):
        prove(policy, [planted if each is limited else each for each in found.entries])


def _cookies(policy: Policy, packet: Packet) -> Iterator[int]:
    for text in counted_under(policy, decide(policy, packet)):
        owner = read_comment(text)
        assert owner is not None
        yield Cookie(Tier.SERVER, *owner).pack()


@pytest.mark.parametrize("plant", ["verdict", "count", "wider", "order"])
def test_the_proof_notices(plant: str) -> None:
    policy = one_tenant(LAB, WEB)
    found = list(flow_cache(policy, [LiftedRule(TenantId("shop"), RuleId("web"))]).entries)
    wrong = {
        "verdict": lambda: [replace(found[0], verdict=Verdict.DENY), *found[1:]],
        "count": lambda: [replace(found[0], counts=found[1].counts), *found[1:]],
        "wider": lambda: [replace(found[0], box=found[0].box._replace(source=WHOLE_NETWORK)), *found[1:]],
        "order": lambda: [CacheEntry(found[0].box, Verdict.DENY, found[0].counts), *found],
    }[plant]()  # fmt: skip
    with pytest.raises(NotTheSame, match="would decide packets that are decided otherwise"):
        prove(policy, wrong)


WHOLE_NETWORK = (Span(0xC0000200, 0xC00002FF),)


@pytest.mark.parametrize(
    ("match", "instructions"), [(b"short", b"\x01"), (bytes(28), b""), (bytes(28), b"\x09"), (bytes(28), b"\x01abc")]
)
def test_octets_that_are_no_row_are_refused(match: bytes, instructions: bytes) -> None:
    table = cache_table([flow_cache(one_tenant(WEB), [LiftedRule(TenantId("shop"), RuleId("web"))]).rows[0]])
    flow = replace(table.rows()[0], match=match, instructions=instructions)
    with pytest.raises(BadInput):
        read_table(type(table).of([flow]))


def test_lifted_rules_are_in_the_firewalls_program() -> None:
    policy = one_tenant(WEB)
    names = [LiftedRule(TenantId("shop"), RuleId("web"))]
    without = filter_program(policy, (Plane.NFTABLES,), domain="pop", generation=3)
    program = filter_program(policy, (Plane.NFTABLES,), domain="pop", generation=3, lifted=names)
    change = between(without, program)
    assert not len(change.removed)
    assert read_table(change.added) == flow_cache(policy, names).rows
    assert set(change.added.table.tolist()) == {FLOWCACHE}
    assert not {FLOWCACHE} & set(Filter)
