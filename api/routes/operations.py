"""Health and measurements, for operators.

Only the status asks for a token, and alone shows anything of a tenant.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.answers import answer
from api.auth import Administrator
from api.context import ServicesDep
from api.status import status
from orchestrator.wire.common import Health
from orchestrator.wire.status import Status

OfDomain = Annotated[str | None, Query(max_length=64, description="is this domain's program ready?")]

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
    return answer(control.read(lambda unit: status(unit, control.flows_of, control.is_compiled, silence_s)))


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(services: ServicesDep) -> Response:
    """Measurements for Prometheus."""
    return Response(await services.metrics.shared_text(), media_type=CONTENT_TYPE_LATEST)
