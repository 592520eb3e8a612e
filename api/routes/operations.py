"""Health and measurements, for whoever runs the service. No token is asked for, and nothing of a tenant is shown."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.answers import answer
from api.context import ServicesDep
from orchestrator.wire.common import Health

router = APIRouter(tags=["operations"])


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """Whether the process answers."""
    return answer(Health("ok"))


@router.get("/readyz", response_model=Health)
def readyz(services: ServicesDep) -> Response:
    """Whether the database answers and the programs are compiled; 503 until then."""
    services.control.check_ready()
    return answer(Health("ok"))


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(services: ServicesDep) -> Response:
    """Measurements for Prometheus."""
    return Response(services.metrics.text(), media_type=CONTENT_TYPE_LATEST)
