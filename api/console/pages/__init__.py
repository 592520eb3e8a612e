"""A module a page."""

from __future__ import annotations

from functools import partial

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import ui
from starlette.responses import Response

from api.console.guards import lead_to_sign_in
from api.console.pages import (
    acl,
    check,
    domains,
    draft,
    edge,
    events,
    expectations,
    firewalls,
    groups,
    history,
    hits,
    operatorrules,
    overview,
    packets,
    placement,
    proposals,
    review,
    status,
    tenants,
    tokens,
    topology,
    trace,
)
from api.console.parts.page import add_page
from api.console.parts.tree import path_of
from api.console.sessions import COOKIE, Sessions

_BUILDERS = {
    "overview": overview.build,
    "acl": acl.build,
    "review": review.build,
    "trace": trace.build,
    "check": check.build,
    "expectations": expectations.build,
    "draft": draft.build,
    "hits": hits.build,
    "packets": packets.build,
    "groups": groups.build,
    "history": history.build,
    "status": status.build,
    "topology": topology.build,
    "domains": domains.build,
    "operator-rules": operatorrules.build,
    "operator-review": operatorrules.build_review,
    "placement": placement.build,
    "proposals": proposals.build,
    "domain-proposals": proposals.build_domain,
    "edge": edge.build,
    "events": events.build,
    "tenants": tenants.build,
    "tokens": tokens.build,
}


def register(sessions: Sessions, clusters: firewalls.Clusters) -> None:
    """Serve every page. `clusters` tells where members of firewall clusters answer, by domain."""
    for key, build in _BUILDERS.items():
        add_page(sessions, key, build)
    add_page(sessions, "firewalls", partial(firewalls.build, clusters=clusters))

    @ui.page("/")
    async def home(request: Request) -> Response:
        session = sessions.of(request.cookies.get(COOKIE))
        if session is None:
            return lead_to_sign_in(request)
        if session.project:
            return RedirectResponse(path_of("overview", session.project), status_code=303)
        return RedirectResponse(path_of("tenants"), status_code=303)
