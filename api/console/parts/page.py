"""Serve a page at its place, and draw it by its builder.

Pages of a tenant say how its list stands.

A builder is an async function that takes a `View` and draws into the frame. A visitor without a session is led to the
sign-in page first; when the service does not answer, the page says so and tries again by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable

from fastapi import Request
from nicegui import ui
from starlette.responses import Response

from api.console import words
from api.console.guards import lead_to_sign_in
from api.console.parts.dialog import is_sure
from api.console.parts.frame import frame, say_lost, say_refused
from api.console.parts.tree import SECTIONS
from api.console.parts.view import Parts, View
from api.console.sessions import COOKIE, Sessions
from orchestrator.client import Client, Written
from orchestrator.errors import AclflowError, Busy, Unauthenticated, Unreachable
from orchestrator.wire.lists import Unconfirmed
from orchestrator.wire.tenants import NO_HOST, InForce, SeenTenant

_LIVE_S = 2.0
_TICK_S = 1.0
_PATIENCE_S = 20.0
"""How long a page may take to be drawn."""


class _ListState:
    """The live state of a tenant's list: in force, behind, or to be confirmed.

    A chip such as ``Version 7: in force since 12:04:05``, red while a host is behind; above it, while a change waits to
    be confirmed, how long it stays without that, and the two ways to settle it.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._waits = _Waiting(view)
        self._label = ui.label().classes("chip none").props("role=status data-part=in-force")
        self._label.set_visibility(False)
        ui.timer(_LIVE_S, self.refresh)

    async def refresh(self) -> None:
        """Show it as it is."""
        tenant = self._view.tenant
        try:
            seen = await self._view.read(
                "seen tenant", lambda client: client.tenants.read(tenant), fresh_s=_LIVE_S - 0.5
            )
        except AclflowError:
            return
        self._show_force(seen.in_force)
        self._waits.show(seen)

    def _show_force(self, force: InForce) -> None:
        since = words.moment(force.since, self._view.session.zone)
        is_behind = force.state == "behind"
        late = words.list_names(force.behind or ()) or words.of(force.late, "host")
        what = f"behind: {late}," if is_behind else force.state
        self._label.text = f"Version {force.version}: {what} since {since}{'' if force.hosts else NO_HOST}"
        self._label.set_visibility(True)
        self._label.classes(replace=f"chip {'bad' if is_behind else 'good'}")


class _Waiting:
    """The banner of a change that goes back by itself unless it is confirmed."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: Unconfirmed | None = None
        self._settled = False
        with ui.element("div").classes("banner waiting").props("data-part=unconfirmed") as self._banner:
            ui.icon("timer").props("aria-hidden=true")
            self._text = ui.label().style("flex: 1 1 260px").props("role=status")
            self._left = ui.label().classes("number font-bold").props("role=timer")
            with ui.row().classes("gap-2 no-wrap") as self._ways:
                ui.button("Revert now", icon="undo", on_click=self._revert_change).props(
                    "no-caps outline color=negative"
                )
                ui.button("Keep", icon="check", on_click=self._confirm_change).props("no-caps unelevated")
            self._anew = ui.button("Show the list as it is", icon="refresh", on_click=ui.navigate.reload)
            self._anew.props("no-caps outline")
        self._banner.set_visibility(False)
        ui.timer(_TICK_S, self._tick)

    def show(self, seen: SeenTenant) -> None:
        """Show the change that waits, or what became of it."""
        if seen.unconfirmed is not None:
            self._shown, self._settled = seen.unconfirmed, False
            until = words.moment(seen.unconfirmed.until, self._view.session.zone)
            self._text.text = (
                f"Version {seen.unconfirmed.version} goes back to version {seen.unconfirmed.back_to} at {until} unless "
                "it is kept. Until then nobody can write another change."
            )
            self._draw_buttons(waits=True)
            self._tick()
        elif self._shown is not None and not self._settled:
            self._settled = True
            kept = seen.in_force.version == self._shown.version
            was = "is kept" if kept else f"was taken back: the list is as it was at version {self._shown.back_to}"
            self._text.text = f"Version {self._shown.version} {was}."
            self._left.text = ""
            self._draw_buttons(waits=False)
            self._anew.set_visibility(not kept)

    def _draw_buttons(self, *, waits: bool) -> None:
        self._banner.set_visibility(True)
        self._ways.set_visibility(waits and self._view.session.may_write)
        self._anew.set_visibility(False)

    def _tick(self) -> None:
        """Count the seconds down that the page shows."""
        if self._shown is not None and not self._settled:
            left = (self._shown.until - dt.datetime.now(dt.UTC)).total_seconds()
            self._left.text = words.countdown(left) if left > 0 else "now"

    async def _confirm_change(self) -> None:
        await self._settle(lambda client: client.acls.confirm(self._view.tenant))

    async def _revert_change(self) -> None:
        assert self._shown is not None  # the button stands beside a change that waits
        text = f"Version {self._shown.back_to} is in force again at once, for everybody."
        if await is_sure(f"Take version {self._shown.version} back?", text, "Take it back"):
            await self._settle(lambda client: client.acls.revert(self._view.tenant))

    async def _settle(self, work: Callable[[Client], Written]) -> None:
        """Settle the change. Somebody else, or the clock, may have been faster: that is shown."""
        tenant = self._view.tenant
        try:
            await self._view.do(work)
        except AclflowError as error:
            ui.notify(str(error), type="warning", multi_line=True)
        try:
            self.show(
                await self._view.read("seen tenant", lambda client: client.tenants.read(tenant), fresh_s=0, rest=0)
            )
        except AclflowError as error:
            ui.notify(str(error), type="negative", multi_line=True)


Builder = Callable[[View], Awaitable[None]]


def add_page(sessions: Sessions, key: str, build: Builder) -> None:
    """Serve a place of the tree with what a builder draws."""
    section, place = next((section, place) for section in SECTIONS for place in section.places if place.key == key)

    @ui.page(place.path, response_timeout=_PATIENCE_S)
    async def page(request: Request) -> Response | None:
        session = sessions.of(request.cookies.get(COOKIE))
        if session is None:
            return lead_to_sign_in(request)
        tenant = str(request.path_params.get("tenant", ""))
        session.project = tenant or session.project
        column = await frame(session, place, tenant)
        parts = Parts(column)
        view = View(session, tenant, dict(request.query_params), parts)
        with column:
            if section.only_admins and not session.is_admin:
                say_refused("This page is for operators; your token is for one project.")
                parts.drawn()
                return None
            if tenant:
                parts.later(_ListState(view).refresh)
            try:
                await build(view)
            except Unauthenticated:
                sessions.sign_out(request.cookies.get(COOKIE))
                ui.navigate.to("/login")
            except (Unreachable, Busy) as error:
                say_lost(error)
            except AclflowError as error:
                say_refused(words.for_owners(str(error)) if tenant else str(error))
        parts.drawn()
        return None
