"""Counters: what devices count, turned into sums that belong to rules and never go down.

A switch counts from when a flow entry was put in, and begins anew when the entry is replaced or the switch restarts.
The store keeps, for every host and cookie, the counter as last reported (the baseline), and adds what it grew by to
the cookie's sum over all hosts. A counter below its baseline has begun anew: all it shows is new, and the reset is
noted. Only rows that changed are written, so idle rules cost nothing but reading.

Cookies are kept without their first byte, which is the same in all of ours, and so fit into a signed column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import BigInteger, ColumnElement, Row, Table, case, cast, delete, or_, select

from orchestrator.compile.cookies import HIGHEST_NUMBER, MARK, Cookie, Kind
from orchestrator.errors import NotFound
from orchestrator.program.program import Tier
from orchestrator.store.keys import from_micros
from orchestrator.store.records import HostCounters, RuleHits, TenantHits
from orchestrator.store.schema import acl_rules, hit_baselines, hits, hosts, operator_rules
from orchestrator.store.transaction import Transaction

_LOWER = (1 << 56) - 1
_KIND_BITS = 0xF << 48
_SECOND = 1_000_000
_NO_HITS = RuleHits()
_TENANT_KINDS = (Kind.INGRESS_DEFAULT, Kind.EGRESS_DEFAULT, Kind.INGRESS_RETURN, Kind.EGRESS_RETURN)

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Growth:
    """Counters that changed since the baseline, as columns: the new baseline, and what to add to the sums."""

    cookie: I64
    packets: I64
    bytes: I64
    more_packets: I64
    more_bytes: I64
    resets: I64
    last_hit: I64


class Hits:
    """The counters' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def record(self, domain: str, host: str, counters: HostCounters) -> None:
        """Add what a host's counters grew by since its last report.

        A counter that went backwards counts from zero and is noted as a reset. Cookies not ours, and counts that a
        device gives as unknown (all ones), are passed over. Raises NotFound (host).
        """
        known = select(hosts.c.name).where(hosts.c.domain == domain, hosts.c.name == host)
        if self._tx.read(known).first() is None:
            raise NotFound(f"the domain has no host '{host}'")
        columns = hit_baselines.c
        rows = self._tx.read(
            select(columns.cookie, columns.packets, columns.bytes)
            .where(columns.domain == domain, columns.host == host)
            .order_by(columns.cookie)
        ).all()
        baseline = np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, 3)
        growth = grown(counters, baseline, self._tx.micros)
        if len(growth.cookie):
            self._write_baselines(domain, host, growth)
            self._add(growth)

    def totals(self, tenant: str) -> TenantHits:
        """The sums of a tenant's current rules and of its defaults, as the host tier counted them. Raises NotFound."""
        owner = self._tx.tenant(tenant)
        current = (acl_rules.c.tenant == owner.number) & acl_rules.c.until_version.is_(None)
        rules = self._sums_of_rules(acl_rules, current, Kind.RULE)
        cookies = {kind: _host_cookie(kind, owner.number) for kind in _TENANT_KINDS}
        rows = self._tx.read(select(hits).where(hits.c.cookie.in_(cookies.values())))
        others = {row.cookie: _hits(row) for row in rows}
        of_kind = {kind: others.get(cookie, _NO_HITS) for kind, cookie in cookies.items()}
        return TenantHits(
            rules=rules,
            ingress_default=of_kind[Kind.INGRESS_DEFAULT],
            egress_default=of_kind[Kind.EGRESS_DEFAULT],
            ingress_return=of_kind[Kind.INGRESS_RETURN],
            egress_return=of_kind[Kind.EGRESS_RETURN],
        )

    def operator_totals(self, domain: str) -> Mapping[str, RuleHits]:
        """The sums of the operator's rules, by rule id. Raises NotFound."""
        self._tx.domain(domain)
        return self._sums_of_rules(operator_rules, operator_rules.c.domain == domain, Kind.OPERATOR_RULE)

    def _sums_of_rules(self, table: Table, which: ColumnElement[bool], kind: Kind) -> Mapping[str, RuleHits]:
        of_rule = hits.c.cookie == table.c.number + cast(_host_cookie(kind, 0), BigInteger)
        rows = self._tx.read(select(table.c.rule_id, hits).join(hits, of_rule, isouter=True).where(which))
        return MappingProxyType({row.rule_id: _NO_HITS if row.cookie is None else _hits(row) for row in rows})

    def _write_baselines(self, domain: str, host: str, growth: Growth) -> None:
        new = self._tx.upsert(hit_baselines)
        new = new.on_conflict_do_update(
            index_elements=["domain", "host", "cookie"],
            set_={"packets": new.excluded.packets, "bytes": new.excluded.bytes},
        )
        columns = zip(growth.cookie.tolist(), growth.packets.tolist(), growth.bytes.tolist(), strict=True)
        rows = [
            {"domain": domain, "host": host, "cookie": cookie, "packets": packets, "bytes": octets}
            for cookie, packets, octets in columns
        ]
        self._tx.write(new, rows)

    def _add(self, growth: Growth) -> None:
        new = self._tx.upsert(hits)
        later = case((hits.c.last_hit > new.excluded.last_hit, hits.c.last_hit), else_=new.excluded.last_hit)
        new = new.on_conflict_do_update(
            index_elements=["cookie"],
            set_={
                "packets": hits.c.packets + new.excluded.packets,
                "bytes": hits.c.bytes + new.excluded.bytes,
                "resets": hits.c.resets + new.excluded.resets,
                "last_hit": case((new.excluded.last_hit.is_(None), hits.c.last_hit), else_=later),
            },
        )
        columns = (growth.cookie, growth.more_packets, growth.more_bytes, growth.resets, growth.last_hit)
        rows = [
            {"cookie": cookie, "packets": packets, "bytes": octets, "resets": resets, "last_hit": last or None}
            for cookie, packets, octets, resets, last in zip(*(column.tolist() for column in columns), strict=True)
        ]
        self._tx.write(new, rows)


def grown(counters: HostCounters, baseline: I64, now: int) -> Growth:
    """Compare a report with the baseline, (n, 3) rows of cookie, packets and bytes in the order of cookies.

    `now` is in microseconds. A `last_hit` of 0 says that no packet came since the baseline.
    """
    known = counters.packets >> np.uint64(63) == 0  # all ones: the device does not know
    ours = known & (counters.bytes >> np.uint64(63) == 0) & (counters.cookie >> np.uint64(56) == MARK)
    cookie = (counters.cookie[ours] & np.uint64(_LOWER)).astype(np.int64)
    cookie, inverse = np.unique(cookie, return_inverse=True)
    packets, octets = np.zeros_like(cookie), np.zeros_like(cookie)
    idle = np.full_like(cookie, np.iinfo(np.int64).max)
    np.add.at(packets, inverse, counters.packets[ours].astype(np.int64))
    np.add.at(octets, inverse, counters.bytes[ours].astype(np.int64))
    np.minimum.at(idle, inverse, counters.idle_s[ours].astype(np.int64))
    old_packets, old_octets = np.zeros_like(cookie), np.zeros_like(cookie)
    _, here, there = np.intersect1d(cookie, baseline[:, 0], assume_unique=True, return_indices=True)
    old_packets[here], old_octets[here] = baseline[there, 1], baseline[there, 2]
    reset = (packets < old_packets) | (octets < old_octets)
    more_packets = np.where(reset, packets, packets - old_packets)
    more_octets = np.where(reset, octets, octets - old_octets)
    changed = reset | (more_packets > 0) | (more_octets > 0)
    last_hit = np.where(more_packets > 0, np.maximum(now - idle * _SECOND, 1), 0)
    columns = (cookie, packets, octets, more_packets, more_octets, reset.astype(np.int64), last_hit)
    return Growth(*(column[changed] for column in columns))


def forget_tenant(tx: Transaction, tenant: int) -> None:
    """Remove the counters of a tenant that is about to go: those of every rule that it ever had, and its defaults'."""
    numbers = select(acl_rules.c.number).where(acl_rules.c.tenant == tenant)
    for table in (hits, hit_baselines):
        number, kind = table.c.cookie.op("&")(HIGHEST_NUMBER), table.c.cookie.op("&")(_KIND_BITS)
        of_rules = (kind == Kind.RULE << 48) & number.in_(numbers)
        of_tenant = kind.in_([other << 48 for other in _TENANT_KINDS]) & (number == tenant)
        tx.write(delete(table).where(or_(of_rules, of_tenant)))


def _host_cookie(kind: Kind, number: int) -> int:
    return Cookie(Tier.HOST, kind, number).pack() & _LOWER


def _hits(row: Row[Any]) -> RuleHits:
    last = None if row.last_hit is None else from_micros(row.last_hit)
    return RuleHits(row.packets, row.bytes, row.resets, last)
