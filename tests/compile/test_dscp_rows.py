"""DSCP on data planes: what OpenFlow, nftables and iptables are asked, what is proven of it, and what leaves it be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.compile.filters.cacherows import Verdict
from orchestrator.compile.filters.filterlists import operator_list, tenant_lists
from orchestrator.compile.filters.flowcache import flow_cache
from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.lists.atoms import atoms, atoms_by_column
from orchestrator.compile.nftables import nftables_script
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.encoder import encode_few, encode_many, flow_counts
from orchestrator.compile.openflow.fewrules import few_counts
from orchestrator.compile.servers.generalrows import general_rows
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.dscp import of_precedence
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.spans import Span

EF = 1 << 46
VOICE = Rule(RuleId("voice"), Action.PERMIT, protocol=17, dscp=EF)
CRITICAL = Rule(RuleId("critical"), Action.PERMIT, protocol=6, established=True, dscp=of_precedence(5))


def policy(*rules: Rule, returns: ReturnTraffic = ReturnTraffic.EXPLICIT) -> Policy:
    numbers = {rule.id: number for number, rule in enumerate(rules, 1)}
    own = (Prefix.parse("198.51.100.0/24"), Prefix.parse("2001:db8:100::/48"))
    return Policy((Tenant(TenantId("shop"), 7, own, Acl(rules), numbers),), return_traffic=returns)


def asked(match: bytes) -> dict[str, int]:
    return {term.field.name: term.value for term in oxm.unpack(match)}


def test_openflow_is_asked_for_each_code_point_of_a_precedence() -> None:
    table = atoms((CRITICAL,), {})
    rows, match, length = encode_few(table, None)
    found = [asked(each.tobytes()[:size]) for each, size in zip(match, length.tolist(), strict=True)]
    assert len(found) == len(rows) == 2 * 2 * 8
    assert {row["ip_dscp"] for row in found} == set(range(40, 48))
    assert all(term.mask is None for each in match for term in oxm.unpack(each.tobytes()[: int(length[0])])
               if term.field is oxm.IP_DSCP)  # fmt: skip


@pytest.mark.parametrize("members", [EF, of_precedence(5), 0xFFFF, 1 << 63 | 1, EF | of_precedence(1)])
def test_few_rules_are_encoded_as_many(members: int) -> None:
    rules = (replace(VOICE, dscp=members), replace(CRITICAL, dscp=members), Rule(RuleId("all"), Action.DENY))
    table = atoms_by_column(rules, {}, 7, np.arange(1, 4, dtype=np.uint64))
    few, many = encode_few(table, None), encode_many(table, None)
    assert sorted(zip(few[0].tolist(), map(bytes, few[1]), strict=True)) == sorted(
        zip(many[0].tolist(), map(bytes, many[1]), strict=True)
    )
    counts = np.bincount(many[0], minlength=len(table))
    assert few_counts(table) == counts.tolist()
    assert flow_counts(table).tolist() == counts.tolist()


def test_packet_filters_are_asked_for_one_code_point_or_for_bits() -> None:
    script = nftables_script(policy(VOICE, CRITICAL))
    assert "ip dscp 0x2e" in script
    assert "ip6 dscp 0x28-0x2f" in script
    texts = iptables_texts(policy(VOICE, CRITICAL))
    for text in texts.values():
        assert "-p udp -m dscp --dscp 0x2e" in text
        assert "-m tos --tos 0xa0/0xe0" in text


def test_a_flow_cache_leaves_it_to_the_filter() -> None:
    every = Rule(RuleId("all"), Action.PERMIT, protocol=17)
    world = policy(VOICE, every)
    found = flow_cache(world, [LiftedRule(TenantId("shop"), VOICE.id)])
    assert (found.entries, [why for _, why in found.stays]) == (
        (), ["it looks at dscp, at which a flow cache does not look"],
    )  # fmt: skip
    denied = flow_cache(policy(replace(VOICE, action=Action.DENY), every), [LiftedRule(TenantId("shop"), every.id)])
    assert all(entry.box.dscp == (1 << 64) - 1 for entry in denied.entries)
    (tenant,) = policy().tenants
    own = {Span(prefix.network, prefix.last) for prefix in tenant.prefixes}
    arriving = [row for row in denied.rows if row.destination in own]
    assert {row.verdict for row in arriving if row.protocols == (17, 17)} <= {Verdict.DEFER}


def test_a_classifier_leaves_it_to_the_filter() -> None:
    world = policy(replace(VOICE, action=Action.DENY), Rule(RuleId("all"), Action.PERMIT))
    (tenant,) = world.tenants
    rows = general_rows(operator_list(world), tenant_lists(tenant, world.return_traffic)[1])
    of_udp = [row for row in rows if row.protocols == (17, 17)]
    assert {row.family for row in of_udp} == set(Family)
    assert {(row.verdict, row.flags, row.counts) for row in of_udp} == {(Verdict.DEFER, (0, 0), ())}
