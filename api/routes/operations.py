"""Health, measurements, and everything that is not as it should be, for operators.

Only the status asks for a token, and alone shows anything of a tenant.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.answers import answer
from api.auth import Administrator
from api.context import ServicesDep
from orchestrator.store.points.pointrecords import Laggard
from orchestrator.store.records import DomainRecord
from orchestrator.store.tenants import LimitedList
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Health
from orchestrator.wire.points import Enforcer, PointState
from orchestrator.wire.status import Concern, ConcernWord, Status, is_near

OfDomain = Annotated[str | None, Query(max_length=64, description="is this domain's program ready?")]

_MOST_DOMAINS = 10_000
_ENDS_SOON = dt.timedelta(days=14)
_WORST_FIRST = ("refused", "drifted", "disconnected", "silent", "uncompiled", "behind", "certificate", "quota")
_KINDS: dict[PointState, ConcernWord] = {
    PointState.REFUSED: "refused",
    PointState.DRIFTED: "drifted",
    PointState.DISCONNECTED: "disconnected",
}

FlowsOf = Callable[[str, int], int | None]
IsCompiled = Callable[[str, int], bool]

router = APIRouter(tags=["operations"])


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Whether the process answers."""
    return answer(Health("ok"))


@router.get("/readyz", response_model=Health)
def readyz(services: ServicesDep, domain: OfDomain = None) -> Response:
    """Whether the database answers and the programs are compiled; 503 until then.

    With `domain`: whether the program of its newest generation is given out here. A start is ready in parts: domains
    that somebody waits for first, then those that were changed most lately.
    """
    services.control.check_ready(domain)
    return answer(Health("ok"))


@router.get("/v1/status", response_model=Status)
def get_status(_: Administrator, services: ServicesDep) -> Response:
    """Return all concerns, each with its remedy.

    They are hosts behind, silent points, and quotas and certificates that come to their end.
    """
    control, silence_s = services.control, services.silence_s
    return answer(control.read(lambda unit: _make_status(unit, control.flows_of, control.is_compiled, silence_s)))


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(services: ServicesDep) -> Response:
    """Measurements for Prometheus."""
    return Response(await services.metrics.shared_text(), media_type=CONTENT_TYPE_LATEST)


def _make_status(unit: Unit, flows_of: FlowsOf, is_compiled: IsCompiled, silence_s: float) -> Status:
    """Look at every domain and tenant.

    `flows_of` says how many flow entries a tenant's list takes now, `is_compiled` whether a domain's generation is
    given out.
    """
    domains = unit.domains.list(limit=_MOST_DOMAINS)
    concerns = [
        _describe_host_concern(domain.id, late)
        for domain in domains
        for late in unit.enforcers.enforced_state(domain.id, domain.generation).laggards
    ]
    concerns += [_describe_silence(each, unit.now) for each in unit.enforcers.silent(silence_s)]
    concerns += [_describe_uncompiled(domain) for domain in domains if not is_compiled(domain.id, domain.generation)]
    concerns += [concern for each in unit.tenants.limited() for concern in _list_quota_concerns(each, flows_of)]
    concerns += _list_certificate_concerns(unit)
    concerns.sort(key=lambda each: (_WORST_FIRST.index(each.kind), each.domain, each.name))
    hosts = sum(unit.enforcers.standing(domain.id).hosts for domain in domains)
    return Status(
        time=unit.now,
        domains=len(domains),
        hosts=hosts,
        tenants=unit.tenants.count(),
        last_backup=unit.last_backup,
        concerns=tuple(concerns),
    )


def _describe_silence(enforcer: Enforcer, now: dt.datetime) -> Concern:
    quiet_s = (now - (enforcer.last_seen or enforcer.created)).total_seconds()
    return Concern(
        kind="silent",
        domain=enforcer.domain,
        name=enforcer.name,
        text=f"{enforcer.name} was not heard of for {quiet_s:.0f} s; its hosts keep what they enforce",
        since=enforcer.last_seen,
        command=f"aclflow domain show {enforcer.domain}",
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


def _list_quota_concerns(limited: LimitedList, flows_of: FlowsOf) -> Iterator[Concern]:
    limits = limited.quota
    used = (
        ("rules", limited.rules, limits.rules),
        ("flow entries", flows_of(limited.domain, limited.number), limits.flows),
    )
    for what, number, limit in used:
        if number is not None and limit is not None and is_near(number, limit):
            yield Concern(
                kind="quota",
                domain=limited.domain,
                name=limited.tenant,
                text=f"{limited.tenant} has {number:,} of {limit:,} {what}",
                since=None,
                command=f"aclflow tenant quota show {limited.tenant}",
            )


def _list_certificate_concerns(unit: Unit) -> Iterator[Concern]:
    """Certificates that end soon and were not renewed."""
    for each in unit.certificates.ending(_ENDS_SOON):
        name = each.subject.name
        yield Concern(
            kind="certificate",
            domain=each.subject.domain,
            name=name,
            text=f"the certificate of {name} ends on {each.ends:%Y-%m-%d %H:%M} UTC and was not renewed",
            since=each.ends,
            command="aclflow certificates list",
        )
