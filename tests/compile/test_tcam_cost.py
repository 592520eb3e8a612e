"""TCAM entries against counting them rule by rule, as the page says."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from law_examples import examples
from strategies import acls

from orchestrator.compile.cost import cost
from orchestrator.policy.addresses import Family, aggregate
from orchestrator.policy.dscp import code_point_masks
from orchestrator.policy.model import Acl, ReturnTraffic, Rule, families
from orchestrator.policy.ports import masks
from orchestrator.policy.tcpflags import ESTABLISHED


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(max_rules=8))
def test_entries_are_prefixes_times_port_blocks(acl: Acl) -> None:
    counted = {family: 2 + sum(entries(acl, rule, family) for rule in acl.rules) for family in Family}
    bare = cost(acl, ReturnTraffic.EXPLICIT).tcam
    assert (bare.ipv4_entries, bare.ipv6_entries) == (counted[Family.IPV4], counted[Family.IPV6])
    assert bare.slots == counted[Family.IPV4] + 4 * counted[Family.IPV6]
    with_returns = cost(acl, ReturnTraffic.ESTABLISHED).tcam
    assert with_returns.ipv4_entries - bare.ipv4_entries == 2 * len(ESTABLISHED)


def entries(acl: Acl, rule: Rule, family: Family) -> int:
    if family not in families(rule, acl.groups):
        return 0
    sides = (aggregate(acl.prefixes(each, family)) for each in (rule.source, rule.destination))
    ports = (sum(len(masks(each)) for each in ranges) for ranges in (rule.source_ports, rule.destination_ports))
    found = max(len(rule.flag_matches), 1) * len(code_point_masks(rule.dscp))
    for side in sides:
        found *= len(side)
    for blocks in ports:
        found *= blocks
    return found
