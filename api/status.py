"""The state of the whole service: hosts behind, silent points, quotas, ending certificates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

from orchestrator.store.points.pointrecords import Laggard
from orchestrator.store.records import DomainRecord, TenantRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState
from orchestrator.wire.status import Concern, ConcernWord, Status, is_near

_MOST = 10_000
_ENDS_SOON = dt.timedelta(days=14)
_WORST_FIRST = ("refused", "drifted", "disconnected", "silent", "uncompiled", "behind", "certificate", "quota")
_KINDS: dict[PointState, ConcernWord] = {
    PointState.REFUSED: "refused",
    PointState.DRIFTED: "drifted",
    PointState.DISCONNECTED: "disconnected",
}

FlowsOf = Callable[[str, int], int | None]
IsCompiled = Callable[[str, int], bool]


def status(unit: Unit, flows_of: FlowsOf, is_compiled: IsCompiled, silence_s: float) -> Status:
    """Look at every domain and tenant.

    `flows_of` says how many flow entries a tenant's list takes now, `is_compiled` whether a domain's generation is
    given out.
    """
    domains, tenants = unit.domains.list(limit=_MOST), unit.tenants.list(limit=_MOST)
    concerns = [concern for domain in domains for concern in _list_domain_concerns(unit, domain, silence_s)]
    concerns += [_describe_uncompiled(domain) for domain in domains if not is_compiled(domain.id, domain.generation)]
    concerns += [concern for tenant in tenants for concern in _list_quota_concerns(unit, tenant, flows_of)]
    concerns += _of_certificates(unit)
    concerns.sort(key=lambda each: (_WORST_FIRST.index(each.kind), each.domain, each.name))
    hosts = sum(unit.enforcers.enforced_state(domain.id, domain.generation).hosts for domain in domains)
    return Status(
        time=unit.now,
        domains=len(domains),
        hosts=hosts,
        tenants=len(tenants),
        last_backup=unit.last_backup,
        concerns=tuple(concerns),
    )


def _list_domain_concerns(unit: Unit, domain: DomainRecord, silence_s: float) -> Iterator[Concern]:
    for late in unit.enforcers.enforced_state(domain.id, domain.generation).laggards:
        yield _describe_host_concern(domain.id, late)
    for each in unit.enforcers.list(domain.id):
        if each.last_seen is None:
            continue
        quiet_s = (unit.now - each.last_seen).total_seconds()
        if quiet_s > silence_s:
            yield Concern(
                kind="silent",
                domain=domain.id,
                name=each.name,
                text=f"{each.name} was not heard of for {quiet_s:.0f} s; its hosts keep what they enforce",
                since=each.last_seen,
                command=f"aclflow domain show {domain.id}",
            )


def _describe_uncompiled(domain: DomainRecord) -> Concern:
    return Concern(
        kind="uncompiled",
        domain=domain.id,
        name=domain.id,
        text=f"generation {domain.generation} is not compiled yet; hosts keep what they enforce",
        since=None,
        command=f"aclflow domain show {domain.id}",
    )


def _describe_host_concern(domain: str, late: Laggard) -> Concern:
    point = late.point
    kind: ConcernWord = "behind" if point is None else _KINDS.get(point.report.state, "behind")
    if point is None:
        says = "never reported: its controller has not enrolled, or its switch does not reach it"
    elif point.report.error:
        says = point.report.error
    else:
        says = f"at generation {point.report.generation}"
    return Concern(
        kind=kind,
        domain=domain,
        name=late.host,
        text=f"{late.host}: {says}",
        since=None if point is None else point.reported,
        command=f"aclflow domain show {domain}",
    )


def _list_quota_concerns(unit: Unit, tenant: TenantRecord, flows_of: FlowsOf) -> Iterator[Concern]:
    limits = tenant.quota
    if limits.rules is None and limits.flows is None:
        return
    flows = flows_of(tenant.domain, tenant.number)
    used = (
        ("rules", unit.acls.head(tenant.id).rules, limits.rules),
        ("flow entries", flows, limits.flows),
    )
    for what, number, limit in used:
        if number is not None and limit is not None and is_near(number, limit):
            yield Concern(
                kind="quota",
                domain=tenant.domain,
                name=tenant.id,
                text=f"{tenant.id} has {number:,} of {limit:,} {what}",
                since=None,
                command=f"aclflow tenant quota show {tenant.id}",
            )


def _of_certificates(unit: Unit) -> Iterator[Concern]:
    """The newest valid certificate of each bearer, where it ends soon and was not renewed."""
    newest = {each.subject: each for each in unit.certificates.list() if each.is_valid and each.revoked is None}
    for subject, each in newest.items():
        if each.ends - unit.now < _ENDS_SOON and each.ends - unit.now < (each.ends - each.issued) / 4:
            yield Concern(
                kind="certificate",
                domain=subject.domain,
                name=subject.name,
                text=f"the certificate of {subject.name} ends on {each.ends:%Y-%m-%d %H:%M} UTC and was not renewed",
                since=each.ends,
                command="aclflow certificates list",
            )
