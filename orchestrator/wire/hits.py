"""Counts of rules: sums, rates, history, and rules that nothing met."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from orchestrator.wire.common import describe, document

TierWord = Literal["host", "server", "edge"]


@document()
class RefusedHosts:
    """Gaps in counts: the hosts that must be claimed anew."""

    refused: tuple[str, ...]


@document(kw_only=True)
class Hits:
    """Growing sums over all hosts of a tier; the rates are of the last minute."""

    packets: int
    bytes: int
    resets: int = describe("how often a counter went before it was read; each may have cost some packets")
    last_hit: dt.datetime | None
    packets_per_s: float
    bits_per_s: float
    ahead: Mapping[TierWord, int] = field(
        default_factory=dict,
        metadata={
            "description": "packets that it decided ahead of the hosts, of each tier that the domain has: `server` is"
            " firewall servers and VNFs, `edge` is what went past them. No part of `packets`: what was permitted there"
            " is counted again by its host, what was denied there is not. Empty where another tier than the hosts' was"
            " asked for, and in the list of a whole domain"
        },
    )


@document()
class HitStretch:
    """Counts of a rule in a stretch of time.

    Stretches without a packet are left out.
    """

    start: dt.datetime
    packets: int
    bytes: int


@document(kw_only=True)
class RuleHits(Hits):
    """Counts of one rule so far."""

    rule: str
    lifted: bool = describe("whether it stands above its list")
    history: tuple[HitStretch, ...] | None = describe("where a resolution was asked for", default=None)


@document(kw_only=True)
class HitsPage:
    """Counts of a list's rules, defaults and return-traffic rules."""

    tier: TierWord
    items: tuple[RuleHits, ...]
    next: str | None
    ingress_default: Hits
    egress_default: Hits
    ingress_return: Hits
    egress_return: Hits


@document(kw_only=True)
class DomainRuleHits(RuleHits):
    """Counts of one rule of one tenant so far."""

    tenant: str


@document(kw_only=True)
class DomainHits:
    """The first rules of a domain in the requested order, and sums of all."""

    tier: TierWord
    items: tuple[DomainRuleHits, ...]
    rules: int = describe("of the whole domain")
    packets_per_s: float = describe("of all these, and of those that went within the last minute")
    bits_per_s: float


@document()
class Lapse:
    """A gap in counting on one host.

    Packets of `within_s` seconds may not have been counted.
    """

    at: dt.datetime
    kind: str = describe(
        "claimed (another enforcement point went on), renewed or vanished (entries were replaced or gone"
        " without our doing), unread (removed by a change too large to read them first)"
    )
    entries: int = describe("how many flow entries; 0: any")
    within_s: float


@document(kw_only=True)
class UnusedRule:
    """A rule that no packet met for a time.

    The time is as long as it was watched, or as was asked for.
    """

    rule: str
    watched_since: dt.datetime
    watched_s: float
    last_hit: dt.datetime | None = describe("null: nothing met it ever since it is watched")
    resets: int


@document(kw_only=True)
class Unused:
    """Which rules nothing met, and how sure that is."""

    tier: TierWord
    idle_s: float
    watched_since: dt.datetime | None = describe("of the domain; null: no host is counted yet")
    rules: int = describe("of the whole list")
    never: float = describe("the share of rules that nothing ever met")
    idle: float = describe("the share of rules that nothing met within `idle_s`, the others included")
    too_young: int = describe("rules that are watched for less than `idle_s`, and so are not listed")
    items: tuple[UnusedRule, ...]
    lapses: tuple[Lapse, ...] = describe("gaps in counting since then, the latest first; at most 100")


@document()
class VerdictStretch:
    """Packets of a stretch of time, by their fate.

    Stretches without any packet are left out.
    """

    start: dt.datetime
    permitted: int
    denied: int
    denied_ahead: int


@document()
class BusyRule:
    """A rule, and how many packets it decided so far."""

    rule: str
    packets: int


@document(kw_only=True)
class HitSummary:
    """Packets that a whole list decided, defaults and return traffic included."""

    tier: TierWord
    permitted: int
    denied: int
    denied_ahead: int = describe(
        "dropped by firewall servers and VNFs, ahead of the hosts: no part of `denied`, for no host saw"
        " them; 0 where another tier than the hosts' was asked for"
    )
    rules: int
    unused: int = describe("rules that decided nothing so far, on hosts or ahead of them")
    busiest: tuple[BusyRule, ...] = describe(
        "the rules that decided most, most first; what they denied ahead of the hosts is added"
    )
    history: tuple[VerdictStretch, ...]
