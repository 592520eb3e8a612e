"""Looking at access lists without changing them: dry runs and traces."""

from __future__ import annotations

from dataclasses import replace

from api.context import Services
from api.schemas.acl import RuleDocument
from api.schemas.inspection import ChangeBody, CostBody, FindingBody, ReviewBody, StepBody, TraceBody
from orchestrator.compile.cost import cost
from orchestrator.errors import TooLarge
from orchestrator.policy.difference import difference
from orchestrator.policy.findings import Checks, check
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.model import Acl, Packet, Policy, Rule, check_ownership
from orchestrator.policy.oracle import RETURN_RULES, Step, decide
from orchestrator.store.records import AclRecord, DomainRecord, TenantRecord
from orchestrator.store.unit import Unit


def review(services: Services, tenant: str, candidate: Acl) -> ReviewBody:
    """A dry run of a list. Raises BadPolicy for prefixes that are not the tenant's, TooLarge when it takes too long."""

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord]:
        record = unit.tenants.get(tenant)
        return record, unit.acls.current(tenant), unit.domains.get(record.domain)

    owner, current, domain = services.control.read(read)
    check_ownership(candidate, owner.prefixes)
    checks = Checks(own=owner.prefixes, returns=domain.return_traffic, now=services.clock())
    limit_s, bench = services.review_limit_s, services.workbench
    return ReviewBody(
        cost=CostBody.of(cost(candidate, domain.return_traffic)),
        findings=[FindingBody.of(finding) for finding in bench.run(limit_s, check, candidate, checks)],
        difference=_changes(services, current.acl, candidate, checks),
    )


def _changes(services: Services, before: Acl, after: Acl, checks: Checks) -> list[ChangeBody] | None:
    try:
        found = services.workbench.run(
            services.review_limit_s, difference, before, after, own=checks.own, returns=checks.returns
        )
    except TooLarge:  # the lists have next to nothing in common: the list itself says more
        return None
    return ChangeBody.all_of(found)


def trace(services: Services, tenant: str, packet: Packet, *, whole_domain: bool) -> TraceBody:
    """What decides a packet: in the whole domain, or as far as one tenant's lists and the operator's rules go."""

    def read(unit: Unit) -> Policy:
        return unit.domains.policy(unit.tenants.get(tenant).domain).policy

    policy = services.control.read(read)
    if not whole_domain:
        policy = replace(policy, tenants=tuple(each for each in policy.tenants if each.id == tenant), endpoints=())
    decision = decide(policy, packet)
    rule = _rule_of(policy, decision.steps[-1]) if decision.steps else None
    return TraceBody(
        scope="domain" if whole_domain else "tenant",
        action=decision.action.value,
        steps=[StepBody.of(step) for step in decision.steps],
        rule=RuleDocument.model_validate(rule_to_json(rule)) if rule else None,
    )


def _rule_of(policy: Policy, step: Step) -> Rule | None:
    """The rule that a step names."""
    acl = next((each.acl for each in policy.tenants if each.id == step.tenant), Acl())
    rules = policy.operator if step.tenant is None else (*acl.rules, *RETURN_RULES)
    return next(
        (rule for rule in rules if rule.id == step.rule and step.direction in (None, rule.direction)),
        None,
    )
