"""Looking at access lists without changing them: dry runs and traces."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice

from api.context import Services
from api.reviews import Reviewed
from api.schemas.acl import RuleDocument
from api.schemas.cost import CostBody, WrittenList
from api.schemas.inspection import ChangeBody, FindingBody, KindWord, ReviewBody, StandingBody, StepBody, TraceBody
from api.tiers import Settled, settled
from orchestrator.compile.cost import cost
from orchestrator.compile.firewall import firewall_cost
from orchestrator.errors import TooLarge
from orchestrator.policy.difference import difference
from orchestrator.policy.findings import Checks, Kind, check
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.model import Acl, Packet, Policy, ReturnTraffic, Rule, check_ownership
from orchestrator.policy.oracle import RETURN_RULES, Decision, Step, decide
from orchestrator.store.records import AclRecord, Change, DomainRecord, TenantRecord
from orchestrator.store.unit import Unit

MOST_FINDINGS = 1000
"""Of a dry run; the counts are of all."""
MOST_OF_A_KIND = 200
"""Findings of a kind that are told of the list as it is; the counts are of all."""


def review(services: Services, tenant: str, candidate: Acl, *, against: int | None = None) -> ReviewBody:
    """A dry run of a list, compared with the current one or that of a version.

    Raises BadPolicy for prefixes that are not the tenant's, NotFound (version), TooLarge when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord]:
        record = unit.tenants.get(tenant)
        current = unit.acls.current(tenant) if against is None else unit.acls.at(tenant, against)
        return record, current, unit.domains.get(record.domain)

    owner, current, domain = services.control.read(read)
    check_ownership(candidate, owner.prefixes)
    checks = Checks(own=owner.prefixes, returns=domain.return_traffic, now=services.clock())
    found = services.workbench.run(services.review_limit_s, check, candidate, checks)
    soon = [FindingBody.expiring(rule) for rule in candidate.rules if _expires_soon(services, rule)]
    return ReviewBody(
        cost=_cost(services, candidate, domain.return_traffic),
        findings=[*soon, *map(FindingBody.of, islice(found, MOST_FINDINGS))][:MOST_FINDINGS],
        counts={kind.value: count for kind, count in found.counts.items()} | ({"expiring": len(soon)} if soon else {}),
        difference=_changes(services, current.acl, candidate, checks),
    )


def standing(services: Services, tenant: str) -> StandingBody:
    """What is odd about the list as it is, and what it costs; looked for once a version.

    Raises TooLarge when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord]:
        record = unit.tenants.get(tenant)
        return record, unit.acls.current(tenant), unit.domains.get(record.domain)

    owner, current, domain = services.control.read(read)

    def look() -> Reviewed:
        checks = Checks(own=owner.prefixes, returns=domain.return_traffic, now=services.clock())
        found = services.workbench.run(services.review_limit_s, check, current.acl, checks)
        first = [finding for kind in Kind for finding in found.of([kind])[:MOST_OF_A_KIND]]
        counts: dict[KindWord, int] = {kind.value: count for kind, count in found.counts.items()}
        return Reviewed(tuple(map(FindingBody.of, first)), counts, _cost(services, current.acl, domain.return_traffic))

    state = (current.version, owner.prefixes, domain.return_traffic)
    known = services.reviews.of(tenant, state, look)
    soon = [FindingBody.expiring(rule) for rule in current.acl.rules if _expires_soon(services, rule)]
    return StandingBody(
        version=current.version,
        findings=[*soon[:MOST_OF_A_KIND], *known.findings],
        counts=known.counts | ({"expiring": len(soon)} if soon else {}),
        cost=known.cost,
    )


def _expires_soon(services: Services, rule: Rule) -> bool:
    return rule.expires is not None and timedelta() < rule.expires - services.clock() <= services.expiry_lead


def _cost(services: Services, acl: Acl, returns: ReturnTraffic) -> CostBody:
    """What a list costs on each kind of device; what takes too long to tell is left out."""
    try:
        firewall = services.workbench.run(services.review_limit_s, firewall_cost, acl, returns)
    except TooLarge:
        firewall = None
    return CostBody.of(cost(acl, returns), firewall)


def written_list(unit: Unit, tenant: str, change: Change, *, with_cost: bool) -> WrittenList:
    """The answer to a change of a list. Raises TooLarge where its cost is asked for and it cannot be expanded."""
    told = None
    if with_cost:
        returns = unit.domains.get(unit.tenants.get(tenant).domain).return_traffic
        told = CostBody.of(cost(unit.acls.current(tenant).acl, returns))
    return WrittenList(version=change.version, generation=change.generation, changed=change.changed, cost=told)


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

    def read(unit: Unit) -> tuple[Policy, Decision, Settled]:
        domain = unit.tenants.get(tenant).domain
        policy = unit.domains.policy(domain).policy
        if not whole_domain:
            policy = replace(policy, tenants=tuple(each for each in policy.tenants if each.id == tenant), endpoints=())
        decision = decide(policy, packet)
        return policy, decision, settled(unit, domain, policy, packet, decision)

    policy, decision, where = services.control.read(read)
    rule = _rule_of(policy, decision.steps[-1]) if decision.steps else None
    return TraceBody(
        scope="domain" if whole_domain else "tenant",
        action=decision.action.value,
        steps=[StepBody.of(step) for step in decision.steps],
        rule=RuleDocument.model_validate(rule_to_json(rule)) if rule else None,
        tier=where.tier,
        server=where.server if whole_domain else None,
        lifted=where.lifted,
        heavy=where.heavy,
    )


def _rule_of(policy: Policy, step: Step) -> Rule | None:
    """The rule that a step names."""
    acl = next((each.acl for each in policy.tenants if each.id == step.tenant), Acl())
    rules = policy.operator if step.tenant is None else (*acl.rules, *RETURN_RULES)
    return next(
        (rule for rule in rules if rule.id == step.rule and step.direction in (None, rule.direction)),
        None,
    )
