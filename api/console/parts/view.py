"""A page: who looks at it, what it is about, and how its builder is called.

A builder is an async function that takes a `View` and draws into the frame. Whoever is not signed in is led to the
sign-in page first; when the service does not answer, the page says so and tries again by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import ui
from starlette.responses import Response

from api.console import words
from api.console.parts.frame import frame, say_lost, say_refused
from api.console.parts.tree import SECTIONS
from api.console.reading import REST
from api.console.sessions import COOKIE, Session, Sessions
from orchestrator.client import Client, Standing
from orchestrator.client.lists import Part
from orchestrator.errors import AclflowError, Busy, Unauthenticated, Unreachable

T = TypeVar("T")

_FORCE_LIVE_S = 2.0
_PATIENCE_S = 20.0
"""How long a page may take to be drawn."""


class Parts:
    """The parts of a page that are not drawn yet; while there is one, the page says that it is busy."""

    def __init__(self, page: ui.element) -> None:
        self._page = page
        self._missing = 1

    def later(self, draw: Callable[[], Awaitable[None]]) -> None:
        """Draw a part that takes its time as soon as the page is shown."""
        self._missing += 1

        async def now() -> None:
            try:
                await draw()
            finally:
                self.drawn()

        ui.timer(0.01, now, once=True)

    def drawn(self) -> None:
        """One part less is missing."""
        self._missing -= 1
        if not self._missing:
            self._page.props("aria-busy=false")


@dataclass(frozen=True, slots=True)
class View:
    """One look at a page."""

    session: Session
    tenant: str
    """The project that the page is about; empty on pages that are about none."""
    query: Mapping[str, str]
    parts: Parts

    @property
    def client(self) -> Client:
        """The service, as whoever looks."""
        return self.session.client

    async def read(self, key: Hashable, read: Callable[[Client], T], *, fresh_s: float = 1.0, rest: int = REST) -> T:
        """What the service says, shared with the session's other pages. Raises what the client raises."""
        return await self.session.reading.get((self.tenant, key), lambda: read(self.client), fresh_s=fresh_s, rest=rest)

    async def standing(self, part: Part) -> Standing:
        """A part of what is said about the project's list as it is now, however long it took to find out before."""
        key, read = (self.tenant, "standing", part), lambda: self.client.standing(self.tenant, (part,))
        return await self.session.reading.get(key, read, fresh_s=0.5, rest=0)

    async def do(self, work: Callable[[Client], T]) -> T:
        """Something that changes what there is; all is read anew afterwards."""
        try:
            return await self.session.reading.once(lambda: work(self.client))
        finally:
            self.session.reading.forget()


class _ForceMark:
    """Whether the tenant's list is in force, on each of its pages, live.

    A line such as ``Version 7: in force since 12:04:05``; red while a host is behind.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._label = ui.label().classes("chip none").props("role=status data-part=in-force")
        self._label.set_visibility(False)
        ui.timer(_FORCE_LIVE_S, self.refresh)

    async def refresh(self) -> None:
        """Show it as it is."""
        tenant = self._view.tenant
        try:
            seen = await self._view.read(
                "in force", lambda client: client.tenant(tenant).in_force, fresh_s=_FORCE_LIVE_S - 0.5
            )
        except AclflowError:
            return
        since = words.moment(seen.since, self._view.session.zone)
        is_behind = seen.state == "behind"
        what = (
            seen.state if not is_behind else f"behind: {words.named(seen.behind or ()) or words.of(seen.late, 'host')},"
        )
        self._label.text = f"Version {seen.version}: {what} since {since}"
        self._label.set_visibility(True)
        self._label.classes(replace=f"chip {'bad' if is_behind else 'good'}")


Builder = Callable[[View], Awaitable[None]]


def add_page(sessions: Sessions, key: str, build: Builder) -> None:
    """Serve a place of the tree with what a builder draws."""
    section, place = next((section, place) for section in SECTIONS for place in section.places if place.key == key)

    @ui.page(place.path, response_timeout=_PATIENCE_S)
    async def page(request: Request) -> Response | None:
        session = sessions.of(request.cookies.get(COOKIE))
        if session is None:
            asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/login?next={quote(asked)}", status_code=303)
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
                parts.later(_ForceMark(view).refresh)
            try:
                await build(view)
            except Unauthenticated:
                sessions.sign_out(request.cookies.get(COOKIE))
                ui.navigate.to("/login")
            except (Unreachable, Busy) as error:
                say_lost(error)
            except AclflowError as error:
                say_refused(str(error))
        parts.drawn()
        return None
