"""Counts of enforcement points, as columns (`orchestrator/program/countframes.py`)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response

from api.answers import answer
from api.auth import TheEnforcer
from api.context import NamePath, RawBody, ServicesDep
from api.lean import Lean
from api.schemas.common import BIGGEST
from orchestrator.program.countframes import MEDIA_TYPE
from orchestrator.wire.hits import RefusedHosts

Epoch = Annotated[int, Header(alias="X-Aclflow-Epoch", ge=0, le=BIGGEST, description="of the caller")]

router = APIRouter(prefix="/v1/domains/{domain}/enforcers/{enforcer}/counts", tags=["enforcers"], route_class=Lean)

_OCTETS = {"type": "string", "format": "binary"}
_CLAIMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "how far the host was counted", "content": {MEDIA_TYPE: {"schema": _OCTETS}}}
}
_FRAMES = {"requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": _OCTETS}}}}


@router.post("/{host}/claim", response_class=Response, responses=_CLAIMED)
def claim(
    _: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: int, host: NamePath, epoch: Epoch
) -> Response:
    """Become the one who counts a host, and learn how far it was counted.

    The enforcer that counted it before counts no more.
    """
    found = services.counts.claim(domain, enforcer, host, epoch)
    return Response(found.to_bytes(), media_type=MEDIA_TYPE)


@router.post("", response_model=RefusedHosts, openapi_extra=_FRAMES)
def take(
    _: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: int, raw: RawBody, epoch: Epoch
) -> Response:
    """Store the counts of hosts' devices since the previous report.

    Each counts once. The hosts that the answer names must be claimed anew: somebody else counts them now, or a report
    before this one is missing.
    """
    return answer(RefusedHosts(tuple(services.counts.take(domain, enforcer, epoch, raw))))
