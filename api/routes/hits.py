"""Counts of rules: for tenants their own, for operators a whole domain's."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Header, Query, Request, Response

from api.answers import answer, page_after
from api.auth import DomainOwner, TenantReader, TheEnforcer
from api.context import Limit, NameMarker, NamePath, ServicesDep, keep_in_turn
from api.lean import Lean
from api.schemas.common import BIGGEST
from orchestrator.policy.model import Action
from orchestrator.program.countframes import MEDIA_TYPE
from orchestrator.program.program import Tier
from orchestrator.store.hits import hitrecords
from orchestrator.store.hits.history import Resolution
from orchestrator.store.hits.hitrecords import HitOrder, RuleWatch, TenantHits
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.hits import (
    DomainHits,
    DomainRuleHits,
    Hits,
    HitsPage,
    HitStretch,
    HitSummary,
    Lapse,
    RefusedHosts,
    RuleHits,
    TierWord,
    Unused,
    UnusedRule,
)

Counted = TypeVar("Counted", bound=Hits)

SortWord = Literal["list", "rate", "packets", "bytes", "last_hit"]
ResolutionWord = Literal["moments", "minutes", "hours"]

OfTier = Annotated[TierWord, Query(description="where packets were counted; tiers are never added up")]
Sort = Annotated[SortWord, Query(description="in the list's order, or most first")]
In = Annotated[ResolutionWord | None, Query(description="give the history too, in stretches of this length")]
Since = Annotated[dt.datetime | None, Query(description="how far the history goes back; an hour by default")]
IdleSeconds = Annotated[float, Query(ge=0, le=3e9, description="how long nothing may have met a rule that is unused")]
Top = Annotated[int, Query(ge=0, le=100, description="how many of the busiest rules")]
OnlyRules = Annotated[list[str] | None, Query(alias="rule", max_length=500, description="only these rules; repeatable")]
Contains = Annotated[str, Query(max_length=64, description="only tenants and rules whose names contain this")]

_HISTORY = dt.timedelta(hours=1)
_TOLD_S = 2.0
"""How long all who ask for a summary are told the same."""
_SPAN_S = 60
_LONGEST_S = 10 * 365 * 86400.0
"""No history is as long."""
_MONTH_S = 30 * 86400.0

router = APIRouter(prefix="/v1", tags=["hits"], route_class=Lean)


@router.get("/tenants/{tenant}/acl/hits", response_model=HitsPage)
def get_hits(
    _: TenantReader,
    services: ServicesDep,
    tenant: NamePath,
    tier: OfTier = "host",
    sort: Sort = "list",
    resolution: In = None,
    since: Since = None,
    only: OnlyRules = None,
    limit: Limit = 100,
    marker: NameMarker = None,
) -> Response:
    """Counts of each rule of the current list.

    Where the order is by what changes all the time, pages are of different moments. On the host tier every rule tells
    too what it decided ahead of the hosts, and stands where the tier puts it that counted most.
    """

    def read_page(unit: Unit) -> HitsPage:
        found = unit.hits.totals(tenant, Tier(tier), only)
        ahead = _count_ahead(unit, tenant, only) if tier == "host" else {}
        lifted = unit.placements.lifted_of(tenant)
        ranked = _rank_rules(found.rules, [found, *ahead.values()], sort)
        names, following = page_after(ranked, limit, marker)
        history: Sequence[hitrecords.HitStretch] | None = None
        if resolution is not None:
            history = unit.hits.history(
                tenant, Resolution[resolution.upper()], _find_start(since, unit.now), Tier(tier)
            )
        return HitsPage(
            tier=tier,
            items=tuple(
                _count_document(
                    RuleHits,
                    found.rules[name],
                    ahead={each.value: hits.rules[name].packets for each, hits in ahead.items()},
                    rule=name,
                    lifted=name in lifted,
                    history=_make_history(name, history),
                )
                for name in names
            ),
            next=following,
            ingress_default=_end(found, ahead, lambda hits: hits.ingress_default),
            egress_default=_end(found, ahead, lambda hits: hits.egress_default),
            ingress_return=_end(found, ahead, lambda hits: hits.ingress_return),
            egress_return=_end(found, ahead, lambda hits: hits.egress_return),
        )

    return answer(services.control.read(read_page))


@router.get("/tenants/{tenant}/acl/hits/summary", response_model=HitSummary)
def get_summary(
    _: TenantReader,
    services: ServicesDep,
    tenant: NamePath,
    tier: OfTier = "host",
    resolution: ResolutionWord = "moments",
    since: Since = None,
    top: Top = 5,
) -> Response:
    """Count permitted and denied packets of the whole list, and its busiest rules.

    The packets are counted in all and over time. The answer may be two seconds old: all who look at a list meanwhile
    are told the same.
    """
    now = services.clock()
    begins, span_s = _begins(since, now)

    def read_summary(unit: Unit) -> HitSummary:
        earliest = now - dt.timedelta(seconds=span_s)
        wanted = Resolution[resolution.upper()]
        return unit.hit_summaries.of(tenant, top=top, resolution=wanted, since=earliest, tier=Tier(tier))

    def look_and_count() -> HitSummary:
        return services.control.read(read_summary)

    version = services.control.read(lambda unit: unit.acls.version(tenant))
    moment = version, int(monotonic() / _TOLD_S)
    found = services.summaries.of((tenant, tier, resolution, top, span_s), moment, look_and_count)
    history = tuple(each for each in found.history if each.start >= begins)
    return answer(replace(found, history=history))


@router.get("/tenants/{tenant}/acl/unused", response_model=Unused)
def get_unused(
    _: TenantReader, services: ServicesDep, tenant: NamePath, tier: OfTier = "host", idle_s: IdleSeconds = _MONTH_S
) -> Response:
    """Return the rules that no packet met within `idle_s`.

    They are among those watched for so long. Gaps in counting are told as well.
    """

    def read_unused(unit: Unit) -> Unused:
        watch = unit.hits.watch(unit.tenants.get(tenant).domain)
        rules = unit.hits.watched_rules(tenant, Tier(tier))
        old = [rule for rule in rules if (unit.now - rule.since).total_seconds() >= idle_s]
        unused = [rule for rule in old if _idle_s(rule, unit.now) >= idle_s]
        return Unused(
            tier=tier,
            idle_s=idle_s,
            watched_since=watch.since,
            rules=len(rules),
            never=_compute_share([rule for rule in rules if rule.hits.last_hit is None], rules),
            idle=_compute_share([rule for rule in rules if _idle_s(rule, unit.now) >= idle_s], rules),
            too_young=len(rules) - len(old),
            items=tuple(_make_unused_rule(rule, unit.now) for rule in unused),
            lapses=tuple(fill(Lapse, lapse) for lapse in watch.lapses),
        )

    return answer(services.control.read(read_unused))


@router.get("/domains/{domain}/hits", response_model=DomainHits)
def get_domain_hits(
    _: DomainOwner,
    services: ServicesDep,
    domain: NamePath,
    tier: OfTier = "host",
    sort: Sort = "rate",
    contains: Contains = "",
    limit: Limit = 100,
) -> Response:
    """Return the first rules of all tenants of a domain, in an order.

    The order is by rate, packets, bytes or time.
    """

    def read_hits(unit: Unit) -> DomainHits:
        found = unit.hits.first_rules(domain, HitOrder(sort), limit=limit, contains=contains, tier=Tier(tier))
        return DomainHits(
            tier=tier,
            items=tuple(
                _count_document(
                    DomainRuleHits,
                    each.hits,
                    ahead={},
                    rule=each.rule,
                    tenant=each.tenant,
                    lifted=each.is_lifted,
                    history=None,
                )
                for each in found.rules
            ),
            rules=unit.hits.count_rules(domain),
            packets_per_s=found.rate_pps,
            bits_per_s=found.rate_bps,
        )

    return answer(services.control.read(read_hits))


def _rank_rules(rules: Iterable[str], tiers: Sequence[TenantHits], sort: SortWord) -> list[str]:
    """Return rules by their counts on their busiest tier, the highest first.

    Rules with equal counts stay in the order in which they come.
    """
    return sorted(rules, key=lambda rule: max(_rank(sort, hits.rules[rule]) for hits in tiers), reverse=True)


def _rank(sort: SortWord, hits: hitrecords.RuleHits) -> float:
    """The order of rules; in the list's order nothing does."""
    if sort == "rate":
        return hits.rate_pps
    if sort == "packets":
        return hits.packets
    if sort == "bytes":
        return hits.bytes
    if sort == "last_hit":
        return hits.last_hit.timestamp() if hits.last_hit else 0.0
    return 0.0


def _end(found: TenantHits, ahead: Mapping[Tier, TenantHits], end: Callable[[TenantHits], hitrecords.RuleHits]) -> Hits:
    """Count the packets that one of a list's ends decided.

    They are counted on the tier that was asked for and ahead of it.
    """
    return _count_document(Hits, end(found), ahead={tier.value: end(hits).packets for tier, hits in ahead.items()})


def _count_document(kind: type[Counted], hits: hitrecords.RuleHits, **more: object) -> Counted:
    """Return counts as a document, with rates to the thousandth."""
    rates = {"packets_per_s": round(hits.rate_pps, 3), "bits_per_s": round(hits.rate_bps, 3)}
    return fill(kind, hits, **rates, **more)


def _make_unused_rule(watch: RuleWatch, now: dt.datetime) -> UnusedRule:
    watched_s = (now - watch.since).total_seconds()
    return fill(UnusedRule, watch.hits, rule=watch.rule, watched_since=watch.since, watched_s=watched_s)


def _begins(since: dt.datetime | None, now: dt.datetime) -> tuple[dt.datetime, int]:
    """Return the beginning of a history, and how many seconds ago it is.

    The seconds are rounded up, so that those who follow it ask the same.
    """
    begins = _find_start(since, now)
    span_s = min(max(0.0, (now - begins).total_seconds()), _LONGEST_S)
    return begins, math.ceil(span_s / _SPAN_S) * _SPAN_S


def _find_start(since: dt.datetime | None, now: dt.datetime) -> dt.datetime:
    if since is None:
        return now - _HISTORY
    return since if since.tzinfo is not None else since.replace(tzinfo=dt.UTC)


def _make_history(rule: str, history: Sequence[hitrecords.HitStretch] | None) -> tuple[HitStretch, ...] | None:
    if history is None:
        return None
    return tuple(HitStretch(stretch.start, *stretch.counts[rule]) for stretch in history if rule in stretch.counts)


def _idle_s(rule: RuleWatch, now: dt.datetime) -> float:
    """Return for how many seconds no packet has met a rule."""
    return (now - (rule.hits.last_hit or rule.since)).total_seconds()


def _compute_share(some: Sequence[RuleWatch], rules: Sequence[RuleWatch]) -> float:
    return len(some) / len(rules) if rules else 0.0


def _count_ahead(unit: Unit, tenant: str, only: Sequence[str] | None = None) -> Mapping[Tier, TenantHits]:
    """Return counts of a tenant's rules on each tier ahead of its domain's hosts.

    Those are firewalls and edges. Of its current rules, or `only` some of them, and its defaults. A packet that such
    a tier permits is counted again by its host, so tiers are told apart and never added up; one that it denies is
    known to no host. Raises NotFound.
    """
    found = {
        tier: unit.hits.totals(tenant, tier, only) for tier in _list_tiers_ahead(unit, unit.tenants.get(tenant).domain)
    }
    if Tier.EDGE in found:
        found[Tier.EDGE] = _without_denies(unit, tenant, found[Tier.EDGE])
    return MappingProxyType(found)


def _list_tiers_ahead(unit: Unit, domain: str) -> tuple[Tier, ...]:
    if unit.pops.of_domain(domain) is not None:
        return Tier.SERVER, Tier.EDGE
    return (Tier.SERVER,) if unit.firewalls.planes(domain) else ()


def _without_denies(unit: Unit, tenant: str, found: TenantHits) -> TenantHits:
    """Drop an edge's counts of denies.

    It drops nothing that a list speaks of: what a deny counts there is sent on.
    """
    denies = {rule.id for rule in unit.acls.current(tenant).acl.rules if rule.action is Action.DENY}
    rules = {name: hitrecords.RuleHits() if name in denies else hits for name, hits in found.rules.items()}
    return replace(found, rules=MappingProxyType(rules))


Epoch = Annotated[int, Header(alias="X-Aclflow-Epoch", ge=0, le=BIGGEST, description="of the caller")]

reports = APIRouter(prefix="/v1/domains/{domain}/enforcers/{enforcer}/counts", tags=["enforcers"], route_class=Lean)

_BINARY = {"type": "string", "format": "binary"}
_CLAIMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "how far the host was counted", "content": {MEDIA_TYPE: {"schema": _BINARY}}}
}
_FRAMES = {"requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": _BINARY}}}}


@reports.post("/{host}/claim", response_class=Response, responses=_CLAIMED)
def claim(
    _: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: int, host: NamePath, epoch: Epoch
) -> Response:
    """Become the one who counts a host, and learn how far it was counted.

    The enforcer that counted it before counts no more.
    """
    found = services.counts.claim(domain, enforcer, host, epoch)
    return Response(found.to_bytes(), media_type=MEDIA_TYPE)


@reports.post("", response_model=RefusedHosts, openapi_extra=_FRAMES)
async def take(
    caller: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: int, request: Request, epoch: Epoch
) -> Response:
    """Store the counts of hosts' devices since the previous report.

    Each counts once. The hosts that the answer names must be claimed anew: somebody else counts them now, or a report
    before this one is missing. Reports of one enforcement point are taken one after the other.
    """

    def keep_report(raw: bytes) -> Response:
        return answer(RefusedHosts(services.counts.take(domain, enforcer, epoch, raw)))

    return await keep_in_turn(services, caller, f"counts of enforcement point {enforcer}", request, keep_report)
