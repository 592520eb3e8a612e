"""Looking at access lists without changing them: dry runs and traces."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from api.context import Services
from api.schemas.acl import RuleDocument
from api.schemas.inspection import (
    ChangeBody,
    FindingBody,
    KindWord,
    PartWord,
    ReviewBody,
    SeverityCounts,
    StandingBody,
    StepBody,
    ToldBody,
    TraceBody,
)
from orchestrator.compile.cost import cost
from orchestrator.compile.filters.filtercost import firewall_cost
from orchestrator.control.drafttraffic import Sampled, tried_traffic
from orchestrator.control.dryruns import (
    Told,
    findings_now,
    tried_cost,
    tried_difference,
    tried_findings,
    tried_firewall_cost,
)
from orchestrator.errors import AclflowError, TooLarge, TryAgain
from orchestrator.interpreter import give_back
from orchestrator.policy.findings import Checks, Subject, soon_over
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.model import Acl, Packet, Policy, Rule
from orchestrator.policy.oracle import RETURN_RULES, Decision, Step, decide, owner
from orchestrator.policy.ownership import check_ownership
from orchestrator.policy.prefilter import DROPPED, Share, verdict
from orchestrator.store.pops.poprecords import Pop
from orchestrator.store.records import AclRecord, DomainRecord, TenantRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.costs import Cost, FirewallCost
from orchestrator.wire.lists import DraftTraffic, Waiver

MOST_FINDINGS = 1000
"""Of a dry run; the counts are of all."""
MOST_OF_A_KIND = 200
"""Findings of a kind that are told of the list as it is; the counts are of all."""
Waived = Mapping[Subject, Waiver]
_COSTS = frozenset({"cost", "firewall"})


def review(
    services: Services, tenant: str, text: bytes, parts: Collection[PartWord], *, against: int | None = None
) -> ReviewBody:
    """Review a list in its native form against the current one or a version's.

    Nothing is changed. Raises BadInput, BadPolicy for prefixes that are not the tenant's, NotFound (version), TooLarge
    when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord, Waived]:
        record = unit.tenants.get(tenant)
        current = unit.acls.current(tenant) if against is None else unit.acls.at(tenant, against)
        return record, current, unit.domains.get(record.domain), waived_now(unit, tenant)

    owner, current, domain, waived = services.control.read(read)
    checks = Checks(own=owner.prefixes, returns=domain.return_traffic, now=services.clock())
    bench, within_s = services.workbench, services.review_limit_s
    changes, told, priced = None, ToldBody(), None
    if "difference" in parts:
        changes = _changes(services, current.acl, text, checks)
    if "findings" in parts:
        told = _judge_list(services, tenant, current.acl, text, checks, waived)
    if not _COSTS.isdisjoint(parts):
        firewall = functools.partial(bench.run, within_s, tried_firewall_cost, text, checks)
        priced = _price_list(bench.run(within_s, tried_cost, text, checks), firewall if "firewall" in parts else None)
    return ReviewBody(**dict(told), cost=priced, difference=changes)


def draft_traffic(services: Services, tenant: str, text: bytes, hours: int) -> DraftTraffic:
    """Run a tenant's packets recorded in some hours through a list in native form.

    Raises BadInput, BadPolicy for prefixes that are not the tenant's, TooLarge when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord, list[Sampled]]:
        record = unit.tenants.get(tenant)
        since = unit.now - dt.timedelta(hours=hours)
        found = unit.packet_log.of_tenant(tenant, after=None, limit=unit.packet_log.kept)
        sampled = [Sampled(each.packet, each.length, each.time) for each in found if each.time >= since]
        return record, unit.acls.current(tenant), unit.domains.get(record.domain), sampled

    owner, current, domain, sampled = services.control.read(read)
    checks = Checks(own=owner.prefixes, returns=domain.return_traffic, now=services.clock())
    return services.workbench.run(services.review_limit_s, tried_traffic, current.acl, text, checks, sampled)


def waived_now(unit: Unit, tenant: str) -> Waived:
    """The waivers that hold, by what they waive."""
    holding = (each for each in unit.waivers.list(tenant) if each.ends > unit.now)
    return {Subject.subject_named(each.kind, each.rules, each.group): each for each in holding}


def _judge_list(services: Services, tenant: str, current: Acl, text: bytes, checks: Checks, waived: Waived) -> ToldBody:
    within_s, lead = services.review_limit_s, services.expiry_lead
    found = services.workbench.judge(
        within_s, tried_findings, tenant, current, text, checks, lead, MOST_FINDINGS, tuple(waived)
    )
    return ToldBody(
        findings=[*map(FindingBody.expiring, found.soon), *map(FindingBody.of, found.whole.first)][:MOST_FINDINGS],
        counts=_count_kinds(found.whole, len(found.soon)),
        severities=_count_severities(found.whole, len(found.soon)),
        waived=_list_waived(found.whole, waived),
        brought=[*map(FindingBody.of, found.brought.first)],
        brought_counts=_count_kinds(found.brought, 0),
        brought_severities=_count_severities(found.brought, 0),
    )


def standing(services: Services, tenant: str, parts: Collection[PartWord]) -> StandingBody:
    """Return the findings about the current list, and its costs.

    They are looked for once a version. Raises TooLarge when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord, Waived]:
        record = unit.tenants.get(tenant)
        return record, unit.acls.current(tenant), unit.domains.get(record.domain), waived_now(unit, tenant)

    owner, current, domain, waived = services.control.read(read)
    acl, returns = current.acl, domain.return_traffic
    state = (current.version, owner.prefixes, returns)
    checks = Checks(own=owner.prefixes, returns=returns, now=services.clock())
    bench, within_s = services.workbench, services.review_limit_s

    def look_at_list() -> Told:
        return bench.judge(within_s, findings_now, tenant, acl, checks, MOST_OF_A_KIND, tuple(waived))

    def price_list() -> Cost:
        plain = services.reviews.of((tenant, "plain cost"), state, lambda: bench.run(within_s, cost, acl, returns))
        firewall = functools.partial(bench.run, within_s, firewall_cost, acl, returns)
        return _price_list(plain, firewall if "firewall" in parts else None)

    told, priced = ToldBody(), None
    if "findings" in parts:
        found = services.reviews.of((tenant, "findings"), (*state, frozenset(waived)), look_at_list)
        soon = [*map(FindingBody.expiring, soon_over(acl, checks, services.expiry_lead))]
        told = ToldBody(
            findings=[*soon[:MOST_OF_A_KIND], *map(FindingBody.of, found.first)],
            counts=_count_kinds(found, len(soon)),
            severities=_count_severities(found, len(soon)),
            waived=_list_waived(found, waived),
        )
    if not _COSTS.isdisjoint(parts):
        priced = services.reviews.of((tenant, "firewall" if "firewall" in parts else "cost"), state, price_list)
    return StandingBody(
        version=current.version,
        findings=told.findings,
        counts=told.counts,
        severities=told.severities,
        waived=told.waived,
        cost=priced,
    )


def _count_severities(found: Told, soon: int) -> SeverityCounts:
    counts: SeverityCounts = {severity.value: count for severity, count in found.severities.items()}
    return counts | ({"note": counts.get("note", 0) + soon} if soon else {})


def _list_waived(found: Told, waived: Waived) -> list[FindingBody]:
    return [FindingBody.of(each, waived[each.subject]) for each in found.waived]


def _count_kinds(found: Told, soon: int) -> dict[KindWord, int]:
    counts: dict[KindWord, int] = {kind.value: count for kind, count in found.counts.items()}
    return counts | ({"expiring": soon} if soon else {})


def _price_list(plain: Cost, firewall: Callable[[], FirewallCost] | None) -> Cost:
    """Return the costs of a list on each kind of device.

    The cost of a firewall is left out where it takes too long.
    """
    found = None
    if firewall is not None:
        with suppress(TooLarge):
            found = firewall()
    return replace(plain, firewall=found)


def _changes(services: Services, current: Acl, text: bytes, checks: Checks) -> list[ChangeBody] | None:
    """Return the packets that a list opens and closes, if that can be told.

    None where that takes too long, or the list says more.
    """
    found = None
    with suppress(TooLarge):
        found = services.workbench.run(services.review_limit_s, tried_difference, current, text, checks)
    return None if found is None else ChangeBody.all_of(found)


def trace(
    services: Services, tenant: str, packet: Packet, *, whole_domain: bool, draft: Acl | None = None
) -> TraceBody:
    """Return the decider of a packet, in the whole domain or for one tenant.

    For one tenant, its lists and the operator's rules are asked. With a draft it stands in the place of the tenant's
    list. Raises BadPolicy for one that names other addresses.
    """

    def read(unit: Unit) -> tuple[Policy, Decision, Settled]:
        owner = unit.tenants.get(tenant)
        domain = owner.domain
        everybody = unit.domains.policy(domain).policy
        if draft is not None:
            check_ownership(draft, owner.prefixes)
            others = (replace(each, acl=draft) if each.id == tenant else each for each in everybody.tenants)
            everybody = replace(everybody, tenants=tuple(others))
        policy = everybody
        if not whole_domain:
            policy = replace(policy, tenants=tuple(each for each in policy.tenants if each.id == tenant), endpoints=())
        decision = decide(policy, packet)
        return policy, decision, settle_decision(unit, domain, policy, packet, decision)

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


TierWord = Literal["server", "host"]


@dataclass(frozen=True, slots=True)
class Settled:
    """Where a packet's fate is settled first.

    `server` names the firewall server, or the VNF where there is one alone, that drops it before a host sees it.
    `lifted`: the deciding rule stands ahead of its list. `heavy`: it is a heavy hitter, so its packets go past the
    firewall servers.
    """

    tier: TierWord = "host"
    server: str | None = None
    lifted: bool = False
    heavy: bool = False


def settle_decision(unit: Unit, domain: str, policy: Policy, packet: Packet, decision: Decision) -> Settled:
    """Where a decision takes effect, with what is placed as it is now.

    `policy` is what the decision asked. The way a packet comes by depends on whether its source is anybody's here,
    which a tenant does not learn: for its own list alone every other source is outside.
    """
    if not decision.steps:
        return Settled()
    last, pop = decision.steps[-1], unit.pops.of_domain(domain)
    tier: TierWord = "host"
    server = None
    if not decision.permitted and _is_from_outside(policy, packet):
        tier, server = _dropped_ahead(unit, domain, pop, policy, packet)
    if last.tenant is None or last.rule is None:
        return Settled(tier, server)
    chosen = {(each.rule.tenant, each.rule.rule) for each in pop.heavy} if pop else set()
    return Settled(
        tier,
        server,
        lifted=last.rule in unit.placements.lifted_of(last.tenant),
        heavy=(last.tenant, last.rule) in chosen,
    )


def _is_from_outside(policy: Policy, packet: Packet) -> bool:
    """Return whether a packet to a tenant comes from outside the domain.

    Its sender's address is nobody's here, so it comes through all that stands ahead of the hosts.
    """
    ends = (owner(policy, packet.family, each) for each in (packet.source, packet.destination))
    return [each is not None for each in ends] == [False, True]


def _dropped_ahead(
    unit: Unit, domain: str, pop: Pop | None, policy: Policy, packet: Packet
) -> tuple[TierWord, str | None]:
    """Return the tier that drops a packet on its way in, and the dropper's name.

    It is its tenant's server, a VNF (they hold whole lists), or a host. None: the name is not known, or it is the host.
    """
    if pop is not None:
        server = _dropped_by(unit, pop, policy, packet)
        return "server" if server else "host", server
    names = sorted(unit.firewalls.names(domain))
    return "server" if names else "host", names[0] if len(names) == 1 else None


def _dropped_by(unit: Unit, pop: Pop, policy: Policy, packet: Packet) -> str | None:
    """The firewall server that drops a packet from outside, if one does."""
    whom = owner(policy, packet.family, packet.destination)
    if whom is None:
        return None
    number = pop.places.get(unit.tenants.get(whom.id).number)
    name = next((each.name for each in pop.servers if each.number == number), None)
    dropped = name is not None and verdict(policy, Share(frozenset({whom.id})), packet) == DROPPED
    return name if dropped else None


log = structlog.get_logger()

LONG = 1_000
"""Lists of fewer rules take no time that anybody would notice."""
_QUIET_S = 0.5
_FOREVER_S = 3600.0
_AGAIN_S = 1.0
_PARTS: tuple[PartWord, ...] = "findings", "cost"
_CHANGES = ("acl.", "rule.", "group.", "tenant.prefixes")
"""How the kinds of events begin after which a list may say something else."""


async def look_ahead(services: Services) -> None:
    """Look at every long list some time after it was changed, until the service stops.

    So pages opened later find the answers, which are kept where all are (`Reviews`). Short lists are looked at within
    the time that a page takes. While a list is being changed it is left alone.
    """
    feed = services.feed
    upto: int | None = None
    changed: set[str] = set()
    while not feed.closed:
        try:
            if upto is None:
                upto = await feed.newest()
            fed = await feed.after(upto, _QUIET_S if changed else _FOREVER_S, gather_s=_QUIET_S)
        except TryAgain:  # the database is away
            await asyncio.sleep(_AGAIN_S)
            continue
        if fed is not None:
            upto = fed.upto
            changed |= {event.subject for event in fed.events if event.kind.startswith(_CHANGES)}
        elif changed:
            await asyncio.to_thread(_look_at_lists, services, changed)
            await asyncio.to_thread(give_back)  # reading a list takes many times its own memory
            changed = set()


def _look_at_lists(services: Services, tenants: set[str]) -> None:
    for tenant in sorted(tenants):
        try:
            if not services.feed.closed and _count_rules(services, tenant) >= LONG:
                standing(services, tenant, _PARTS)
        except AclflowError:
            continue  # it is gone meanwhile, or looking at it takes too long: who asks will be told
        except Exception:
            log.exception("cannot look ahead", tenant=tenant)  # a fault of ours; the other lists are looked at


def _count_rules(services: Services, tenant: str) -> int:
    return services.control.read(lambda unit: unit.acls.head(tenant)).rules
