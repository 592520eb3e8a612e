"""The application: routes, middleware and handlers of errors around the services that it is given."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic.json_schema import models_json_schema

from api import problems, waiting
from api.answers import dump_json
from api.auth import identify
from api.bodies import BodyLimit
from api.context import Services
from api.inspection import look_ahead
from api.limits import sender_of
from api.middleware import Observe, PaceStrangers, Refused
from api.routes import (
    acl,
    audit,
    domains,
    drafts,
    enforcers,
    enrolment,
    events,
    firewalls,
    fleet,
    groups,
    hits,
    onboarding,
    operations,
    packetlog,
    placement,
    pops,
    proposals,
    rules,
    tenants,
    tokens,
)
from api.schemas.acl import AclDocument, GroupDocument, MembersChange, RuleDocument
from api.schemas.common import problem_responses
from api.schemas.domains import OperatorRulesDocument
from api.schemas.drafts import NewDraft, TestBody
from api.schemas.enforcers import ReportBody
from api.schemas.packetlog import SightingsBody
from orchestrator.errors import TooLarge

_HOT = (rules.router, enforcers.reports)
"""The routes of every changed rule: a request is compared with these first, one after the other. Their routes stand for
themselves; those of a router that was included are looked through twice."""

_ROUTERS = (
    tenants.router,
    acl.waivers,
    groups.router,
    acl.router,
    drafts.router,
    hits.router,
    acl.versions,
    domains.router,
    onboarding.router,
    domains.operator_rules,
    proposals.router,
    proposals.domains,
    enforcers.router,
    enrolment.router,
    enrolment.strangers,
    hits.reports,
    packetlog.reports,
    packetlog.router,
    firewalls.router,
    fleet.router,
    fleet.capacities,
    firewalls.spread,
    placement.router,
    pops.router,
    pops.edges,
    tokens.router,
    events.router,
    audit.router,
    operations.router,
)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


RAW_BODIES = (
    AclDocument, RuleDocument, GroupDocument, MembersChange, OperatorRulesDocument, ReportBody, SightingsBody,
    TestBody, NewDraft,
)  # fmt: skip
"""The models of bodies that are read after the caller is known, off the event loop: FastAPI does not see them."""


class Application(FastAPI):
    """FastAPI that documents raw bodies too."""

    _described = b""

    async def describe(self, _: Request) -> Response:
        """Answer with the OpenAPI document, written once: it is long, and anybody may ask."""
        self._described = self._described or dump_json(self.openapi())
        return Response(self._described, media_type="application/json")

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        schemas = document["components"]["schemas"]
        if not all(model.__name__ in schemas for model in RAW_BODIES):
            template = "#/components/schemas/{model}"
            _, raw = models_json_schema([(model, "validation") for model in RAW_BODIES], ref_template=template)
            schemas |= raw["$defs"]
            waiting.document(document)
            rename_components(document)
        return document


@asynccontextmanager
async def _run_looking_ahead(services: Services, lifespan: Lifespan, app: FastAPI) -> AsyncIterator[None]:
    async with lifespan(app):
        task = asyncio.create_task(look_ahead(services))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def create_app(services: Services, lifespan: Lifespan) -> FastAPI:
    """The REST API over `services`, which `lifespan` starts and stops."""
    app = _application(partial(_run_looking_ahead, services, lifespan))
    app.state.services, app.state.identify, app.state.threads = services, identify, services.threads
    problems.install(app)
    app.add_middleware(
        BodyLimit,
        limit_bytes=services.body_limit_bytes,
        sender=sender_of,
        refuse=lambda reason: problems.problem(TooLarge(reason)),
        pace=services.pace,
    )
    app.add_middleware(PaceStrangers, strangers=services.strangers)
    app.add_middleware(Refused, refusals=services.refusals)
    app.add_middleware(waiting.Waiting, services=services)
    app.add_middleware(Observe, metrics=services.metrics)
    return app


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document, made without a running service."""
    return _application(None).openapi()


def _application(lifespan: Lifespan | None) -> FastAPI:
    """The application with its routes; they do nothing until it has services."""
    app = Application(
        title="aclflow",
        summary="Tenants say which traffic they permit; aclflow keeps that promise on real data planes.",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `Observe` tells what there is to tell
        lifespan=lifespan,
    )
    app.add_route("/v1/openapi.json", app.describe, include_in_schema=False)
    app.router.routes += [route for router in _HOT for route in router.routes]
    for router in _ROUTERS:
        app.include_router(router, responses=problem_responses())
    return app


COMPONENT_NAMES = {
    "AclVersion": "VersionBody",
    "Authority": "AuthorityBody",
    "CapacityVersion": "CapacityBody",
    "CapacityVersions": "CapacityList",
    "Certificate": "CertificateBody",
    "Cost": "CostBody",
    "Domain": "DomainBody",
    "EndpointSeen": "EndpointBody",
    "Enforced": "GenerationBody",
    "Enforcer": "EnforcerBody",
    "EnrolmentGroup": "GroupBody",
    "Event": "EventBody",
    "Events": "EventsBody",
    "Firewall": "FirewallBody",
    "FirewallCost": "FirewallCostBody",
    "Fleet": "FleetBody",
    "FleetDecision": "DecisionBody",
    "FleetMember": "MemberBody",
    "FleetSample": "SampleBody",
    "FleetSamples": "Samples",
    "Group": "AddressGroupBody",
    "HitStretch": "StretchBody",
    "HitSummary": "SummaryBody",
    "Hits": "HitsBody",
    "Lagging": "LaggardBody",
    "Lapse": "LapseBody",
    "Limits": "LimitsBody",
    "ListCost": "ListCostBody",
    "MachineOnboarding": "OnboardingBody",
    "NewToken": "NewTokenBody",
    "OwnedPrefixes": "PrefixesBody",
    "Prediction": "PredictionBody",
    "Quota": "QuotaBody",
    "RefusedHosts": "CountsTaken",
    "RuleHits": "RuleHitsBody",
    "TcamCost": "TcamCostBody",
    "Tenant": "TenantBody",
    "Token": "TokenBody",
    "Unused": "UnusedBody",
    "Used": "UsedBody",
    "VerdictStretch": "VerdictStretchBody",
}
"""The component of each document whose class has another name."""

_REFERENCE = "#/components/schemas/"
_PAGE = re.compile(r"Page_(\w+)_")


def rename_components(document: dict[str, Any]) -> None:
    """Give an OpenAPI document's components their published names, also where they are referenced."""
    schemas = document["components"]["schemas"]
    for name in COMPONENT_NAMES.keys() & schemas.keys():
        schemas[name]["title"] = COMPONENT_NAMES[name]
    for name in schemas:
        if page := _PAGE.fullmatch(name):
            schemas[name]["title"] = f"Page[{_shorten_component_name(page[1])}]"
    document["components"]["schemas"] = {_shorten_component_name(name): schema for name, schema in schemas.items()}
    _rename_references(document)


def _shorten_component_name(name: str) -> str:
    page = _PAGE.fullmatch(name)
    return f"Page_{_shorten_component_name(page[1])}_" if page else COMPONENT_NAMES.get(name, name)


def _rename_references(part: Any) -> None:
    for key, each in part.items() if isinstance(part, dict) else enumerate(part):
        if key == "$ref":
            part[key] = _REFERENCE + _shorten_component_name(each.removeprefix(_REFERENCE))
        elif isinstance(each, dict | list):
            _rename_references(each)
