"""Counts of rules for readers: sums, rates, history, and how long rules were watched.

Sums belong to a cookie, so to a tier and a rule number: a rule keeps its sum wherever its flow entries are and whenever
they are replaced. Tiers are never added up, for a packet passes through several. How counts come in is in
`counting.py`, how they are kept in `hits/history.py`.

`HitSum` counts all rules of a domain together, by tier and by decider: as many sums for any number of rules.

How the first rules of a domain are found is in `firstrules.py`.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

import numpy as np
from sqlalchemy import func, or_, select

from orchestrator.compile.cookies import HIGHEST_NUMBER, NUMBER_BITS, Cookie, Kind
from orchestrator.program.counts import U64, Counts
from orchestrator.program.program import Tier
from orchestrator.store.acls.spans import holds_now
from orchestrator.store.hits.firstrules import IS_CURRENT, find_first, find_named
from orchestrator.store.hits.history import MINUTE, SECOND, HitHistory, Resolution, Window
from orchestrator.store.hits.hitrecords import (
    FirstRules,
    HitOrder,
    HitStretch,
    Lapse,
    Listed,
    RuleCounts,
    RuleHits,
    RuleWatch,
    TenantHits,
    Watch,
)
from orchestrator.store.schema.acls import acl_rules, acl_versions
from orchestrator.store.schema.core import tenants
from orchestrator.store.schema.hits import hit_feeds, hit_losses
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.transaction import Transaction

RATE_OVER = MINUTE
"""Over how long the rate of a rule is taken."""

_KIND_SHIFT = np.uint64(48)
_NUMBER_SHIFT = np.uint64(NUMBER_BITS)
_TENANT_KINDS = (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN)
_MOST_LAPSES = 100
_BY_TOTALS = frozenset({HitOrder.PACKETS, HitOrder.BYTES, HitOrder.LAST_HIT})
_FEW = 1_000
"""Of so many rules, sums are looked up one by one."""


class Hits:
    """The repository of what rules decided.

    Every method raises NotFound for a tenant or a domain that is none.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def totals(self, tenant: str, tier: Tier = Tier.HOST, only: Sequence[str] | None = None) -> TenantHits:
        """Return the counts of a tenant's current rules and defaults on a tier.

        `only` limits the rules to some ids.
        """
        owner = self._tx.tenant(tenant)
        numbers = self._current_numbers(owner.number, only)
        cookies = [*_cookies(tier, Kind.RULE, numbers.values()).tolist()]
        ends = [Cookie(tier, kind, owner.number).pack() for kind in _TENANT_KINDS]
        found = self._hits(owner.domain, np.array([*cookies, *ends], np.uint64))
        of_rule, of_end = found[: len(numbers)], found[len(numbers) :]
        return TenantHits(MappingProxyType(dict(zip(numbers, of_rule, strict=True))), *of_end)

    def sums(self, domain: str) -> tuple[HitSum, ...]:
        """Counts of all rules of a domain together, by tier and by who decided."""
        self._tx.domain(domain)
        return sums_of(self._tx, domain)

    def first_rules(
        self, domain: str, order: HitOrder, *, limit: int, contains: str = "", tier: Tier = Tier.HOST
    ) -> FirstRules:
        """Return the first rules of all tenants of a domain in an order.

        Of equal ones the older rule is first. `contains` limits them to tenants and rules with that in their name.
        """
        self._tx.domain(domain)
        history = HitHistory(self._tx, domain)
        window = history.window(self._tx.micros - RATE_OVER)
        window = replace(window, counts=_of_tenants_rules(window.counts, tier))
        named = find_named(self._tx, domain, contains) if contains else None
        by_totals = order in _BY_TOTALS
        ranked = _ranked_totals(history, tier, named) if by_totals else window.counts
        rows = find_first(self._tx, domain, order, ranked, named=named, contains=contains, limit=limit)
        cookies = _cookies(tier, Kind.RULE, (row.number for row in rows))
        hits = _join_hits(ranked.at(cookies) if by_totals else history.totals(cookies), window)
        seconds = _seconds_of(window)
        return FirstRules(
            tuple(
                Listed(row.id, row.rule_id, row.lifted is not None, each) for row, each in zip(rows, hits, strict=True)
            ),
            rate_pps=float(window.counts.packets.sum()) / seconds,
            rate_bps=float(window.counts.byte_counts.sum()) * 8 / seconds,
        )

    def count_rules(self, domain: str) -> int:
        """How many rules the current lists of all tenants of a domain have."""
        self._tx.domain(domain)
        query = (
            select(func.coalesce(func.sum(acl_versions.c.rules), 0))
            .select_from(tenants)
            .join(acl_versions, IS_CURRENT)
            .where(tenants.c.domain == domain)
        )
        return int(self._tx.read(query).scalar_one())

    def rates(self, domain: str, *, tier: Tier = Tier.HOST, since: dt.datetime | None = None) -> RuleCounts:
        """Return the counts of all rules of a domain since a time, with rates.

        Without a time the counts are all that there ever were, and the rate is of the last minute. The time may turn
        out earlier (whole minutes, whole hours of what is long ago) or later (what is forgotten).
        """
        self._tx.domain(domain)
        history = HitHistory(self._tx, domain)
        totals = _of_rules(history.totals(), tier)
        window = history.window(self._tx.micros - RATE_OVER if since is None else to_micros(since))
        moved = window.counts.at(totals.cookie)
        seconds = max(window.until - window.since, 1) / SECOND
        counted = totals if since is None else moved
        idle_s = np.where(totals.last_hit > 0, (self._tx.micros - totals.last_hit) / SECOND, np.inf)
        return RuleCounts(
            since=from_micros(window.since),
            until=self._tx.now,
            number=(totals.cookie & np.uint64(HIGHEST_NUMBER)).astype(np.int64),
            packets=counted.packets,
            bytes=counted.byte_counts,
            idle_s=np.maximum(idle_s, 0.0),
            rate_pps=moved.packets / seconds,
        )

    def history(
        self, tenant: str, resolution: Resolution, since: dt.datetime, tier: Tier = Tier.HOST
    ) -> Sequence[HitStretch]:
        """Return the counts of a tenant's current rules in each stretch since a time.

        The first is the stretch that the time is in; stretches without counts are left out.
        """
        owner = self._tx.tenant(tenant)
        numbers = self._current_numbers(owner.number)
        cookies = _cookies(tier, Kind.RULE, numbers.values())
        names = list(numbers)
        found = []
        for stretch in HitHistory(self._tx, owner.domain).stretches(resolution, to_micros(since)):
            counts = stretch.counts.at(cookies)
            rows = np.flatnonzero((counts.packets > 0) | (counts.byte_counts > 0)).tolist()
            by_rule = {names[row]: (int(counts.packets[row]), int(counts.byte_counts[row])) for row in rows}
            if by_rule:
                found.append(HitStretch(from_micros(stretch.start), MappingProxyType(by_rule)))
        return found

    def watch(self, domain: str) -> Watch:
        """Read since when a domain's hosts are counted, and the latest gaps."""
        self._tx.domain(domain)
        since = self._tx.read(select(func.min(hit_feeds.c.since)).where(hit_feeds.c.domain == domain)).scalar_one()
        losses = select(hit_losses).where(hit_losses.c.domain == domain).order_by(hit_losses.c.id.desc())
        lapses = [
            Lapse(from_micros(row.at), row.host, row.kind, row.entries, row.within_ms / 1000)
            for row in self._tx.read(losses.limit(_MOST_LAPSES))
        ]
        return Watch(None if since is None else from_micros(since), tuple(lapses))

    def watched_rules(self, tenant: str, tier: Tier = Tier.HOST) -> Sequence[RuleWatch]:
        """Return since when each of a tenant's current rules is watched, in list order.

        A rule is watched from when it was in the list and hosts were counted. Nothing is returned where no host is
        counted.

        On the host tier a rule was met too when a firewall server or VNF met it: a packet denied there is seen by no
        host.
        """
        owner = self._tx.tenant(tenant)
        since = self._tx.read(
            select(func.min(hit_feeds.c.since)).where(hit_feeds.c.domain == owner.domain)
        ).scalar_one()
        if since is None:
            return ()
        rules = self.totals(tenant, tier).rules
        ahead = self.totals(tenant, Tier.SERVER).rules if tier is Tier.HOST else rules
        born = self._born(owner.number)
        return [
            RuleWatch(rule, from_micros(max(since, born[rule])), _met_later(hits, ahead[rule]))
            for rule, hits in rules.items()
        ]

    def _born(self, tenant: int) -> dict[str, int]:
        """Return when each current rule last came into the list.

        For a rule that is older than the history, it is the time of the oldest version that is still known.
        """
        ended = func.lag(acl_rules.c.until_version).over(
            partition_by=acl_rules.c.number, order_by=acl_rules.c.since_version
        )
        rows = select(acl_rules.c.number, acl_rules.c.since_version, ended.label("ended")).where(
            acl_rules.c.tenant == tenant
        )
        spans = rows.subquery()
        begins = or_(spans.c.ended.is_(None), spans.c.ended != spans.c.since_version)
        first = (
            select(spans.c.number, func.max(spans.c.since_version).label("version"))
            .where(begins)
            .group_by(spans.c.number)
            .subquery()
        )
        made = (acl_versions.c.tenant == tenant) & (acl_versions.c.version == first.c.version)
        oldest = select(func.min(acl_versions.c.created)).where(acl_versions.c.tenant == tenant).scalar_subquery()
        query = (
            select(acl_rules.c.rule_id, func.coalesce(acl_versions.c.created, oldest).label("created"))
            .join(first, first.c.number == acl_rules.c.number)
            .join(acl_versions, made, isouter=True)
            .where(holds_now(acl_rules, tenant))
        )
        return {row.rule_id: row.created for row in self._tx.read(query)}

    def _current_numbers(self, tenant: int, only: Sequence[str] | None = None) -> dict[str, int]:
        """Return the number of each current rule of a tenant, in list order.

        `only` limits them to some rule ids.
        """
        current = holds_now(acl_rules, tenant)
        if only is not None:
            current &= acl_rules.c.rule_id.in_(only)
        query = select(acl_rules.c.rule_id, acl_rules.c.number).where(current).order_by(acl_rules.c.order_key)
        return {row.rule_id: row.number for row in self._tx.read(query)}

    def _hits(self, domain: str, cookies: U64) -> list[RuleHits]:
        """Counts of some cookies, in their order."""
        history = HitHistory(self._tx, domain)
        return _join_hits(history.totals(cookies), history.window(self._tx.micros - RATE_OVER))


def _join_hits(totals: Counts, window: Window) -> list[RuleHits]:
    """Join counts of all time, in their order, with the rates of a time."""
    moved = window.counts.at(totals.cookie)
    seconds = _seconds_of(window)
    columns = zip(
        totals.packets.tolist(), totals.byte_counts.tolist(), totals.resets.tolist(), totals.last_hit.tolist(),
        (moved.packets / seconds).tolist(), (moved.byte_counts * (8 / seconds)).tolist(), strict=True,
    )  # fmt: skip
    return [
        RuleHits(packets, byte_count, resets, from_micros(last) if last else None, pps, bps)
        for packets, byte_count, resets, last, pps, bps in columns
    ]


def _seconds_of(window: Window) -> float:
    return max(window.until - window.since, SECOND) / SECOND


def _met_later(hits: RuleHits, elsewhere: RuleHits) -> RuleHits:
    """Counts of one place, with the last packet that came there or elsewhere."""
    times = [each.last_hit for each in (hits, elsewhere) if each.last_hit is not None]
    return replace(hits, last_hit=max(times, default=None))


def forget_tenant(tx: Transaction, tenant: int, domain: str) -> None:
    """Remove the counts of a tenant that is about to be deleted.

    They are those of every rule that it ever had, and of its defaults, on all tiers.
    """
    numbers = tx.read(select(acl_rules.c.number).where(acl_rules.c.tenant == tenant).distinct()).scalars().all()
    cookies = [_cookies(tier, Kind.RULE, numbers) for tier in Tier]
    ends = [Cookie(tier, kind, tenant).pack() for tier in Tier for kind in _TENANT_KINDS]
    HitHistory(tx, domain).forget(np.concatenate([*cookies, np.array(ends, np.uint64)]))


def _cookies(tier: Tier, kind: Kind, numbers: Iterable[int]) -> U64:
    """The cookies of rule numbers."""
    column: U64 = np.array(list(numbers), np.uint64) | np.uint64(Cookie(tier, kind).pack())
    return column


def _ranked_totals(history: HitHistory, tier: Tier, named: U64 | None) -> Counts:
    """Return the sums of all tenants' rules, or of those that are named, if few."""
    if named is None or len(named) > _FEW:
        return _of_tenants_rules(history.totals(), tier)
    return history.totals(_cookies(tier, Kind.RULE, np.sort(named).tolist()))


def _of_tenants_rules(counts: Counts, tier: Tier) -> Counts:
    """The rows of tenants' rules on a tier, ascending by rule number."""
    return counts.take(counts.cookie >> _NUMBER_SHIFT == np.uint64(Cookie(tier, Kind.RULE).pack()) >> _NUMBER_SHIFT)


def _of_rules(counts: Counts, tier: Tier) -> Counts:
    """The rows of tenants' and operator's rules on a tier, ascending by rule number."""
    kinds = [np.uint64(Cookie(tier, kind).pack()) >> _KIND_SHIFT for kind in (Kind.RULE, Kind.OPERATOR_RULE)]
    mine = counts.take(np.isin(counts.cookie >> _KIND_SHIFT, np.array(kinds, np.uint64)))
    return mine.take(np.argsort(mine.cookie & np.uint64(HIGHEST_NUMBER), kind="stable"))


_TIERS = (Tier.HOST, Tier.SERVER, Tier.EDGE)


class Decider(enum.Enum):
    """The decider of a packet."""

    RULE = "rule"
    OPERATOR = "operator"
    DEFAULT = "default"
    RETURN = "return"
    NO_ROOM = "no-room"
    """Not a list's word: the switch had no room for the connection that the packet would have opened."""


_KINDS = {
    Decider.RULE: (Kind.RULE,),
    Decider.OPERATOR: (Kind.OPERATOR_RULE,),
    Decider.DEFAULT: (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT),
    Decider.RETURN: (Kind.INGRESS_RETURN, Kind.EGRESS_RETURN),
    Decider.NO_ROOM: (Kind.STRUCTURE,),
}


@dataclass(frozen=True, slots=True)
class HitSum:
    """Counts of all lines of a domain with one decider, on a tier.

    `resets`: how often a counter began anew unread.
    """

    tier: Tier
    decider: Decider
    packets: int
    octets: int
    resets: int


def sums_of(tx: Transaction, domain: str) -> tuple[HitSum, ...]:
    """Return the sums of every tier of a domain.

    They are of all time. Tiers are never added up, for a packet passes through several.
    """
    return tuple(_read_sums(tx, domain))


def _read_sums(tx: Transaction, domain: str) -> Iterator[HitSum]:
    counts = HitHistory(tx, domain).totals()
    kinds = counts.cookie >> _KIND_SHIFT
    for tier, (decider, of) in product(_TIERS, _KINDS.items()):
        wanted = np.array([Cookie(tier, kind).pack() for kind in of], np.uint64) >> _KIND_SHIFT
        mine = counts.take(np.isin(kinds, wanted))
        columns = (mine.packets, mine.byte_counts, mine.resets)
        yield HitSum(tier, decider, *(int(column.sum()) for column in columns))
