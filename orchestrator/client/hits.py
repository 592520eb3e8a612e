"""The counts of rules, as the REST API shows them, and their calls."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.client.calls import Calls, domain_path, tenant_path
from orchestrator.wire.codec import fill
from orchestrator.wire.hits import DomainHits, HitsPage, HitSummary, RuleHits, Unused

HOST_TIER = "host"


@dataclass(frozen=True, slots=True)
class TenantHits:
    """The counts of a list's rules, its defaults and its return-traffic rules."""

    rules: tuple[RuleHits, ...]
    ingress_default: RuleHits
    egress_default: RuleHits
    ingress_return: RuleHits
    egress_return: RuleHits


_ENDS = ("ingress_default", "egress_default", "ingress_return", "egress_return")


class HitCalls(Calls):
    """Reading what rules decided."""

    def read(self, tenant: str, *, tier: str = HOST_TIER, sort: str = "list") -> TenantHits:
        """Return each rule's counts so far, in list order or most first, and the ends'."""
        rules: list[RuleHits] = []
        for page in self._service.document_pages(HitsPage, f"{tenant_path(tenant)}/acl/hits", tier=tier, sort=sort):
            rules += page.items
        return _tenant_hits(rules, page)

    def read_first(self, tenant: str, sort: str, limit: int, *, tier: str = HOST_TIER) -> TenantHits:
        """Return the first `limit` rules (at most 1000) by `sort`, with counts and ends."""
        path = f"{tenant_path(tenant)}/acl/hits"
        page = self._service.read_document(HitsPage, path, tier=tier, sort=sort, limit=limit)
        return _tenant_hits(page.items, page)

    def read_of_rules(self, tenant: str, rules: Iterable[str], *, tier: str = HOST_TIER) -> dict[str, RuleHits]:
        """Return the counts of some current rules (at most 500), by rule.

        Unknown rules are left out.
        """
        path = f"{tenant_path(tenant)}/acl/hits"
        page = self._service.read_document(HitsPage, path, tier=tier, rule=list(rules), limit=1000)
        return {item.rule: item for item in page.items}

    def read_packets_since(self, tenant: str, rules: Iterable[str], since: dt.datetime) -> dict[str, int]:
        """Return packets of some current rules on hosts since a time, by the hour.

        At most 500 rules.
        """
        path, start = f"{tenant_path(tenant)}/acl/hits", since.isoformat()
        page = self._service.read_document(
            HitsPage, path, rule=list(rules), resolution="hours", since=start, limit=1000
        )
        return {hits.rule: sum(stretch.packets for stretch in hits.history or ()) for hits in page.items}

    def read_summary(
        self,
        tenant: str,
        *,
        resolution: str = "moments",
        since: dt.datetime | None = None,
        top: int = 5,
        tier: str = HOST_TIER,
    ) -> HitSummary:
        """Return a list's counts at a tier, in all and over time.

        Over the last hour by default, with the `top` busiest rules.
        """
        start = since.isoformat() if since else None
        path = f"{tenant_path(tenant)}/acl/hits/summary"
        return self._service.read_document(HitSummary, path, resolution=resolution, since=start, top=top, tier=tier)

    def read_history(
        self, tenant: str, resolution: str, *, since: dt.datetime | None = None, tier: str = HOST_TIER
    ) -> tuple[RuleHits, ...]:
        """Return each rule's counts and history in `moments`, `minutes` or `hours`."""
        start = since.isoformat() if since else None
        path, query = f"{tenant_path(tenant)}/acl/hits", {"tier": tier, "resolution": resolution, "since": start}
        return tuple(item for page in self._service.document_pages(HitsPage, path, **query) for item in page.items)

    def read_domain(
        self, domain: str, *, tier: str = HOST_TIER, sort: str = "rate", contains: str = "", limit: int = 100
    ) -> DomainHits:
        """The rules of all tenants of a domain that come first."""
        path = f"{domain_path(domain)}/hits"
        return self._service.read_document(DomainHits, path, tier=tier, sort=sort, contains=contains, limit=limit)

    def read_unused_rules(self, tenant: str, *, idle_s: float | None = None, tier: str = HOST_TIER) -> Unused:
        """Return the rules without a hit for so long (default: a month).

        Only rules that were watched for so long.
        """
        return self._service.read_document(Unused, f"{tenant_path(tenant)}/acl/unused", tier=tier, idle_s=idle_s)


def _tenant_hits(rules: Iterable[RuleHits], page: HitsPage) -> TenantHits:
    ends = {name: fill(RuleHits, getattr(page, name), rule=name, lifted=False, history=None) for name in _ENDS}
    return TenantHits(tuple(rules), **ends)
