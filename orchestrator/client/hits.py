"""What rules decided, as the REST API shows it, and the calls for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestrator.client.paths import domain_path, tenant_path
from orchestrator.client.records import Json, time_of
from orchestrator.client.transport import Transport

HOST_TIER = "host"


@dataclass(frozen=True, slots=True)
class HitStretch:
    """What a rule decided from a time on, in a stretch of the resolution that was asked for."""

    start: dt.datetime
    packets: int
    bytes: int

    @classmethod
    def of(cls, body: Json) -> HitStretch:
        return cls(dt.datetime.fromisoformat(body["start"]), body["packets"], body["bytes"])


@dataclass(frozen=True, slots=True)
class RuleHits:
    """What a rule decided so far on all hosts of a tier; the sums never go down, the rates are of the last minute.

    `ahead` is how many packets it decided on each tier ahead of the hosts that the domain has, `server` and `edge`: no
    part of `packets`. `tenant` is empty where only one tenant was asked about.
    """

    rule: str
    packets: int
    bytes: int
    resets: int
    last_hit: dt.datetime | None
    packets_per_s: float = 0.0
    bits_per_s: float = 0.0
    lifted: bool = False
    tenant: str = ""
    history: tuple[HitStretch, ...] = field(default=(), compare=False)
    ahead: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Json) -> RuleHits:
        return cls(
            body["rule"],
            body["packets"],
            body["bytes"],
            body["resets"],
            time_of(body["last_hit"]),
            body["packets_per_s"],
            body["bits_per_s"],
            body.get("lifted", False),
            body.get("tenant", ""),
            tuple(map(HitStretch.of, body.get("history") or ())),
            body.get("ahead") or {},
        )


@dataclass(frozen=True, slots=True)
class TenantHits:
    """What every rule of a list decided, and what fell to its defaults and its return-traffic rules."""

    rules: tuple[RuleHits, ...]
    ingress_default: RuleHits
    egress_default: RuleHits
    ingress_return: RuleHits
    egress_return: RuleHits


@dataclass(frozen=True, slots=True)
class VerdictStretch:
    """Packets of a stretch of time, by their fate; `denied_ahead` of the hosts are no part of `denied`."""

    start: dt.datetime
    permitted: int
    denied: int
    denied_ahead: int = 0

    @classmethod
    def of(cls, body: Json) -> VerdictStretch:
        start = dt.datetime.fromisoformat(body["start"])
        return cls(start, body["permitted"], body["denied"], body["denied_ahead"])


@dataclass(frozen=True, slots=True)
class HitSummary:
    """What a whole list decided, in packets; `busiest` are rules with theirs, most first.

    `denied_ahead` were dropped by firewall servers and VNFs: no host saw them, and they are no part of `denied`.
    """

    permitted: int
    denied: int
    denied_ahead: int
    rules: int
    unused: int
    busiest: tuple[tuple[str, int], ...]
    history: tuple[VerdictStretch, ...]

    @classmethod
    def of(cls, body: Json) -> HitSummary:
        return cls(
            body["permitted"],
            body["denied"],
            body["denied_ahead"],
            body["rules"],
            body["unused"],
            tuple((each["rule"], each["packets"]) for each in body["busiest"]),
            tuple(map(VerdictStretch.of, body["history"])),
        )


@dataclass(frozen=True, slots=True)
class DomainHits:
    """The rules of a domain that come first, and what all of its `rules` rules together do."""

    items: tuple[RuleHits, ...]
    rules: int
    packets_per_s: float
    bits_per_s: float


@dataclass(frozen=True, slots=True)
class Lapse:
    """A gap in counting on one host: packets of `within_s` seconds may not have been counted."""

    at: dt.datetime
    kind: str
    entries: int
    within_s: float

    @classmethod
    def of(cls, body: Json) -> Lapse:
        return cls(dt.datetime.fromisoformat(body["at"]), body["kind"], body["entries"], body["within_s"])


@dataclass(frozen=True, slots=True)
class UnusedRule:
    """A rule that nothing met, and for how long anybody looked."""

    rule: str
    watched_since: dt.datetime
    watched_s: float
    last_hit: dt.datetime | None
    resets: int

    @classmethod
    def of(cls, body: Json) -> UnusedRule:
        since = dt.datetime.fromisoformat(body["watched_since"])
        return cls(body["rule"], since, body["watched_s"], time_of(body["last_hit"]), body["resets"])


@dataclass(frozen=True, slots=True)
class Unused:
    """Which of `rules` rules nothing met; `never` and `idle` are shares of them."""

    items: tuple[UnusedRule, ...]
    lapses: tuple[Lapse, ...]
    watched_since: dt.datetime | None
    rules: int
    never: float
    idle: float
    too_young: int


_ENDS = ("ingress_default", "egress_default", "ingress_return", "egress_return")


class HitCalls:
    """Reading what rules decided."""

    _service: Transport

    def hits(self, tenant: str, *, tier: str = HOST_TIER, sort: str = "list") -> TenantHits:
        """What each rule of the current list decided so far, in the list's order or most first; and its ends."""
        rules: list[RuleHits] = []
        ends: dict[str, RuleHits] = {}
        for page in self._service.bodies(f"{tenant_path(tenant)}/acl/hits", tier=tier, sort=sort):
            rules += map(RuleHits.of, page["items"])
            ends = {name: RuleHits.of({"rule": name, **page[name]}) for name in _ENDS}
        return TenantHits(tuple(rules), **ends)

    def first_hits(self, tenant: str, sort: str, limit: int, *, tier: str = HOST_TIER) -> TenantHits:
        """What the `limit` rules (1000 at most) that come first by `sort` decided so far; and the list's ends."""
        body = self._service.read(f"{tenant_path(tenant)}/acl/hits", tier=tier, sort=sort, limit=limit)
        ends = {name: RuleHits.of({"rule": name, **body[name]}) for name in _ENDS}
        return TenantHits(tuple(map(RuleHits.of, body["items"])), **ends)

    def hits_of(self, tenant: str, rules: Iterable[str], *, tier: str = HOST_TIER) -> dict[str, RuleHits]:
        """What some rules of the current list decided so far (500 at most), by rule; what is no rule is left out."""
        path = f"{tenant_path(tenant)}/acl/hits"
        body = self._service.read(path, tier=tier, rule=list(rules), limit=1000)
        return {item["rule"]: RuleHits.of(item) for item in body["items"]}

    def packets_since(self, tenant: str, rules: Iterable[str], since: dt.datetime) -> dict[str, int]:
        """How many packets some rules of the current list (500 at most) decided on hosts since a time, by the hour."""
        body = self._service.read(
            f"{tenant_path(tenant)}/acl/hits", rule=list(rules), resolution="hours", since=since.isoformat(), limit=1000
        )
        found = map(RuleHits.of, body["items"])
        return {hits.rule: sum(stretch.packets for stretch in hits.history) for hits in found}

    def hit_summary(
        self, tenant: str, *, resolution: str = "moments", since: dt.datetime | None = None, top: int = 5
    ) -> HitSummary:
        """What the whole list decided, in all and over time (the last hour), and its `top` busiest rules."""
        start = since.isoformat() if since else None
        path = f"{tenant_path(tenant)}/acl/hits/summary"
        return HitSummary.of(self._service.read(path, resolution=resolution, since=start, top=top))

    def hit_history(
        self, tenant: str, resolution: str, *, since: dt.datetime | None = None, tier: str = HOST_TIER
    ) -> tuple[RuleHits, ...]:
        """What each rule decided so far, with its history in `moments`, `minutes` or `hours`."""
        start = since.isoformat() if since else None
        pages = self._service.bodies(f"{tenant_path(tenant)}/acl/hits", tier=tier, resolution=resolution, since=start)
        return tuple(RuleHits.of(item) for page in pages for item in page["items"])

    def domain_hits(
        self, domain: str, *, tier: str = HOST_TIER, sort: str = "rate", contains: str = "", limit: int = 100
    ) -> DomainHits:
        """The rules of all tenants of a domain that come first."""
        path = f"{domain_path(domain)}/hits"
        body = self._service.read(path, tier=tier, sort=sort, contains=contains, limit=limit)
        items = tuple(map(RuleHits.of, body["items"]))
        return DomainHits(items, body["rules"], body["packets_per_s"], body["bits_per_s"])

    def unused(self, tenant: str, *, idle_s: float | None = None, tier: str = HOST_TIER) -> Unused:
        """The rules that nothing met for so long (a month), of those that were watched for so long."""
        body = self._service.read(f"{tenant_path(tenant)}/acl/unused", tier=tier, idle_s=idle_s)
        return Unused(
            tuple(map(UnusedRule.of, body["items"])),
            tuple(map(Lapse.of, body["lapses"])),
            time_of(body["watched_since"]),
            body["rules"],
            body["never"],
            body["idle"],
            body["too_young"],
        )
