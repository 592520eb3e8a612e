"""A policy compiled for packet filters, and the law that they must obey.

The law: whatever the oracle decides for a packet, iptables and nftables do; what the packet was counted under are, one
by one, the comments of the rules, defaults and return-traffic rules that the oracle names; and it was reported under
those of the rules that log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.compile.filters.iptables import iptables_texts
from orchestrator.compile.nftables import nftables_script
from orchestrator.enforce.drivers.iptables.fake import table_of as iptables_table
from orchestrator.enforce.drivers.nftables.fake import ruleset as nft_ruleset
from orchestrator.errors import NotExpressible
from orchestrator.policy.addresses import Family
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.model import RETURN_RULE_ID, Action, Direction, Packet, Policy, ReturnTraffic, Tenant
from orchestrator.policy.oracle import PATH_MTU_RULES, RETURN_RULES, Decision, Step, ask, decide, matches

TCP, UDP = 6, 17


def carried(packet: Packet) -> bool:
    """Whether a packet can be: no IPv6 packet's upper layer is an extension header."""
    return packet.family is Family.IPV4 or packet.protocol not in NO_PACKETS[Family.IPV6]


def check_spent_limits(policy: Policy, packets: Iterable[Packet] | None = None) -> int:
    """The law while no limit lets anything through: messages about path MTU alone are denied.

    Returns how many these are.
    """
    nftables = nft_ruleset(nftables_script(policy))
    nftables.spent = True
    try:
        tables = {family: iptables_table(text) for family, text in iptables_texts(policy).items()}
    except NotExpressible:
        tables = {}
    for table in tables.values():
        table.spent = True
    denied = 0
    for packet in filter(carried, policy_packets(policy) if packets is None else packets):
        decision = decide(policy, packet)
        limited = limits(decision, packet)
        denied += limited
        wanted = decision.permitted and not limited, counted_under(policy, decision)
        for filtering in (nftables, tables.get(packet.family)):
            if filtering is not None:
                journey = filtering.send(packet)
                assert (journey.accepted, journey.comments) == wanted, f"{packet}: {decision}"
    return denied


def limits(decision: Decision, packet: Packet) -> bool:
    """Whether a packet is a message about path MTU that return traffic permits."""
    last = decision.steps[-1] if decision.steps else None
    if last is None or (last.rule, last.direction) != (RETURN_RULE_ID, Direction.INGRESS):
        return False
    return any(matches(rule, packet, {}) for rule in PATH_MTU_RULES)


def check_nftables(policy: Policy, packets: Iterable[Packet] | None = None) -> None:
    ruleset = nft_ruleset(nftables_script(policy))
    for packet in filter(carried, policy_packets(policy) if packets is None else packets):
        for hidden in (UDP, TCP) if packet.later_fragment and packet.family is Family.IPV6 else (UDP,):
            journey = ruleset.send(packet, hidden)
            _check(policy, packet, journey.accepted, journey.comments, journey.reported)


def check_iptables(policy: Policy, packets: Iterable[Packet] | None = None) -> None:
    """The law; policies that cannot be expressed are refused, which is right, and not looked at."""
    try:
        texts = iptables_texts(policy)
    except NotExpressible:
        return
    rulesets = {family: iptables_table(text) for family, text in texts.items()}
    for packet in filter(carried, policy_packets(policy) if packets is None else packets):
        for hidden in (UDP, TCP) if packet.later_fragment and packet.family is Family.IPV6 else (UDP,):
            journey = rulesets[packet.family].send(packet, hidden)
            _check(policy, packet, journey.accepted, journey.comments, journey.reported)


def _check(policy: Policy, packet: Packet, accepted: bool, comments: list[str], reported: list[str]) -> None:
    decision = decide(policy, packet)
    assert (accepted, comments) == (decision.permitted, counted_under(policy, decision)), f"{packet}: {decision}"
    logging = [_comment(policy, step) for step in decision.steps if logs(policy, step)]
    assert reported == logging, f"{packet}: {decision}"


def logs(policy: Policy, step: Step) -> bool:
    """Whether the rule that decided a step asks for a report."""
    if step.rule is None or step.rule == RETURN_RULE_ID:
        return False
    tenant = next((each for each in policy.tenants if each.id == step.tenant), None)
    rules = policy.operator if tenant is None else tenant.acl.rules
    return next(rule.log for rule in rules if rule.id == step.rule)


def hangs_on_dscp(policy: Policy, tenant: Tenant, packet: Packet) -> bool:
    """Whether a rule would match the packet if it had another DSCP."""
    rules = (*policy.operator, *(rule for rule in tenant.acl.rules if rule.direction is Direction.INGRESS))
    asked = (replace(rule, dscp=None) for rule in rules if rule.dscp is not None)
    return any(matches(rule, packet, tenant.acl.groups) for rule in asked)


def reported_denial(policy: Policy, tenant: Tenant, packet: Packet) -> list[str]:
    """The comment of the rule that denies a packet to a tenant at a firewall server, if it logs."""
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    if operator is not None or any(matches(rule, packet, {}) for rule in (*RETURN_RULES, *PATH_MTU_RULES)):
        step = Step(None, None, operator.action, operator.id) if operator is not None else None
    else:
        step = ask(tenant.acl, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT, tenant.id)
    denied = step is not None and step.action is Action.DENY and logs(policy, step)
    return [_comment(policy, step)] if step is not None and denied else []


def counted_under(policy: Policy, decision: Decision) -> list[str]:
    """The comments that a decision's steps have."""
    return [_comment(policy, step) for step in decision.steps]


def _comment(policy: Policy, step: Step) -> str:
    if step.tenant is None:
        assert step.rule is not None
        return f"operator-rule {policy.operator_numbers[step.rule]}"
    tenant = next(each for each in policy.tenants if each.id == step.tenant)
    side = "ingress" if step.direction is Direction.INGRESS else "egress"
    if step.rule is None:
        return f"{side}-default {tenant.number}"
    if step.rule == RETURN_RULE_ID:
        return f"{side}-return {tenant.number}"
    return f"rule {tenant.rule_numbers[step.rule]}"
