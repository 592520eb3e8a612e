"""What rules decided: sums, rates, history, and rules that nothing met."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from api.schemas.common import Outgoing
from orchestrator.program.program import Tier
from orchestrator.store.hits.records import Lapse, Listed, RuleHits, RuleWatch
from orchestrator.store.hits.summary import HitSummary

TierWord = Literal["host", "server", "edge"]
SortWord = Literal["list", "rate", "packets", "bytes", "last_hit"]
ResolutionWord = Literal["moments", "minutes", "hours"]
Ahead = Mapping[Tier, int]
"""Packets by tier."""


class CountsTaken(Outgoing):
    """What became of counts: the hosts that must be claimed anew."""

    refused: list[str]


class HitsBody(Outgoing):
    """Growing sums over all hosts of a tier; the rates are of the last minute."""

    packets: int
    bytes: int
    resets: int = Field(description="how often a counter went before it was read; each may have cost some packets")
    last_hit: dt.datetime | None
    packets_per_s: float
    bits_per_s: float
    ahead: Ahead = Field(
        default_factory=dict,
        description="packets that it decided ahead of the hosts, of each tier that the domain has: `server` is firewall"
        " servers and VNFs, `edge` is what went past them. No part of `packets`: what was permitted there is counted"
        " again by its host, what was denied there is not. Empty where another tier than the hosts' was asked for, and"
        " in the list of a whole domain",
    )

    @classmethod
    def of(cls, hits: RuleHits, ahead: Ahead) -> HitsBody:
        return cls(ahead=ahead, **_members(hits))


class StretchBody(Outgoing):
    """What a rule decided in a stretch of time; stretches without a packet are left out."""

    start: dt.datetime
    packets: int
    bytes: int


class RuleHitsBody(HitsBody):
    """What one rule decided so far."""

    rule: str
    lifted: bool = Field(description="whether it stands above its list")
    history: list[StretchBody] | None = Field(default=None, description="where a resolution was asked for")

    @classmethod
    def of_rule(
        cls, rule: str, hits: RuleHits, ahead: Ahead, *, lifted: bool, history: list[StretchBody] | None
    ) -> RuleHitsBody:
        return cls(rule=rule, ahead=ahead, lifted=lifted, history=history, **_members(hits))


class HitsPage(Outgoing):
    """What a list's rules decided, and what fell to its defaults and return-traffic rules."""

    tier: TierWord
    items: list[RuleHitsBody]
    next: str | None
    ingress_default: HitsBody
    egress_default: HitsBody
    ingress_return: HitsBody
    egress_return: HitsBody


class DomainRuleHits(RuleHitsBody):
    """What one rule of one tenant decided so far."""

    tenant: str

    @classmethod
    def of_listed(cls, listed: Listed, *, lifted: bool) -> DomainRuleHits:
        return cls(tenant=listed.tenant, rule=listed.rule, lifted=lifted, **_members(listed.hits))


class DomainHits(Outgoing):
    """The rules of a domain that come first by what was asked for, and what all rules together do."""

    tier: TierWord
    items: list[DomainRuleHits]
    rules: int = Field(description="of the whole domain")
    packets_per_s: float = Field(description="of all these")
    bits_per_s: float


class LapseBody(Outgoing):
    """A gap in counting: packets of so many seconds, on one host, may not have been counted."""

    at: dt.datetime
    kind: str = Field(
        description="claimed (another enforcement point went on), renewed or vanished (entries were replaced or gone"
        " without our doing), unread (removed by a change too large to read them first)"
    )
    entries: int = Field(description="how many flow entries; 0: any")
    within_s: float

    @classmethod
    def of(cls, lapse: Lapse) -> LapseBody:
        return cls(at=lapse.at, kind=lapse.kind, entries=lapse.entries, within_s=lapse.within_s)


class UnusedRule(Outgoing):
    """A rule that nothing met, for as long as it was watched or as was asked for."""

    rule: str
    watched_since: dt.datetime
    watched_s: float
    last_hit: dt.datetime | None = Field(description="null: nothing met it ever since it is watched")
    resets: int

    @classmethod
    def of(cls, watch: RuleWatch, now: dt.datetime) -> UnusedRule:
        watched_s = (now - watch.since).total_seconds()
        hits = watch.hits
        return cls(
            rule=watch.rule,
            watched_since=watch.since,
            watched_s=watched_s,
            last_hit=hits.last_hit,
            resets=hits.resets,
        )


class UnusedBody(Outgoing):
    """Which rules nothing met, and how sure that is."""

    tier: TierWord
    idle_s: float
    watched_since: dt.datetime | None = Field(description="of the domain; null: no host is counted yet")
    rules: int = Field(description="of the whole list")
    never: float = Field(description="the share of rules that nothing ever met")
    idle: float = Field(description="the share of rules that nothing met within `idle_s`, the others included")
    too_young: int = Field(description="rules that are watched for less than `idle_s`, and so are not listed")
    items: list[UnusedRule]
    lapses: list[LapseBody] = Field(description="gaps in counting since then, the latest first; at most 100")


def _members(hits: RuleHits) -> dict[str, Any]:
    return {
        "packets": hits.packets,
        "bytes": hits.bytes,
        "resets": hits.resets,
        "last_hit": hits.last_hit,
        "packets_per_s": round(hits.rate_pps, 3),
        "bits_per_s": round(hits.rate_bps, 3),
    }


class VerdictStretchBody(Outgoing):
    """Packets of a stretch of time, by their fate; stretches without any packet are left out."""

    start: dt.datetime
    permitted: int
    denied: int
    denied_ahead: int


class BusyRule(Outgoing):
    """A rule, and how many packets it decided so far."""

    rule: str
    packets: int


class SummaryBody(Outgoing):
    """What a whole list decided, its defaults and return traffic among it, in packets."""

    tier: TierWord
    permitted: int
    denied: int
    denied_ahead: int = Field(
        description="dropped by firewall servers and VNFs, ahead of the hosts: no part of `denied`, for no host saw"
        " them; 0 where another tier than the hosts' was asked for"
    )
    rules: int
    unused: int = Field(description="rules that decided nothing so far, on hosts or ahead of them")
    busiest: list[BusyRule] = Field(
        description="the rules that decided most, most first; what they denied ahead of the hosts is added"
    )
    history: list[VerdictStretchBody]

    @classmethod
    def of(cls, summary: HitSummary, tier: TierWord) -> SummaryBody:
        return cls(
            tier=tier,
            permitted=summary.permitted,
            denied=summary.denied,
            denied_ahead=summary.denied_ahead,
            rules=summary.rules,
            unused=summary.unused,
            busiest=[BusyRule(rule=rule, packets=packets) for rule, packets in summary.busiest],
            history=[
                VerdictStretchBody(
                    start=each.start,
                    permitted=each.permitted,
                    denied=each.denied,
                    denied_ahead=each.denied_ahead,
                )
                for each in summary.history
            ],
        )
