"""Serve a page at its place: its builder draws into the frame around every page.

Pages of a tenant say how its list stands.

A builder is an async function that takes a `View` and draws into the frame. A visitor without a session is led to the
sign-in page first; when the service does not answer, the page says so and tries again by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from fastapi import Request
from nicegui import ui
from starlette.responses import Response

from api.console import words
from api.console.guards import lead_to_sign_in
from api.console.parts.pieces import empty, is_sure
from api.console.parts.tree import SECTIONS, Place, sections_for
from api.console.parts.view import Parts, View
from api.console.sessions import COOKIE, Session, Sessions
from orchestrator.client import Client, Written
from orchestrator.errors import AclflowError, Busy, Unauthenticated, Unreachable
from orchestrator.wire.lists import Unconfirmed
from orchestrator.wire.tenants import NO_HOST, InForce, SeenTenant, Tenant

_LIVE_S = 2.0
_TICK_S = 1.0
_PATIENCE_S = 20.0
"""How long a page may take to be drawn."""

_LOOK_S = 3.0
"""How often a page looks whether the service answers."""
_TENANTS_FRESH_S = 10.0
_SIGN_OUT = """
const form = document.createElement("form");
form.method = "post";
form.action = "/session/end";
document.body.append(form);
form.submit();
"""
_RECALL_THEME = """
const theme = localStorage.getItem("aclflow-theme");
if (theme) Quasar.Dark.set(theme === "dark");
"""
_CHANGE_THEME = """() => {
  Quasar.Dark.toggle();
  localStorage.setItem("aclflow-theme", Quasar.Dark.isActive ? "dark" : "light");
}"""
_HEAD = """
<link rel="stylesheet" href="/console-static/console.css">
<script src="/console-static/steering.js"></script>
<script>document.documentElement.lang = "en";</script>
"""


async def frame(session: Session, place: Place, tenant: str) -> ui.column:
    """Draw the frame, and return the column that the page goes into.

    The column is busy until somebody says otherwise.
    """
    ui.add_head_html(_HEAD)
    ui.page_title(" · ".join([place.title, *([tenant] if tenant else []), "aclflow"]))
    ui.colors(primary="#0f766e", positive="#0a7d4f", negative="#b42318", warning="#8a5a00", info="#175cd3")
    with ui.header().classes("bar items-center px-4 py-2 gap-3 no-wrap"):
        menu = ui.button(icon="menu").props("flat dense color=white aria-label='Show or hide the menu'")
        with ui.link(target="/").classes("brand flex items-center gap-2 no-wrap").props("aria-label='aclflow, home'"):
            ui.html("<img src='/console-static/favicon.svg' alt='' width='24' height='24'>", sanitize=False)
            ui.label("aclflow").classes("brand-name")
        await _draw_project_picker(session, place, tenant)
        ui.space()
        _theme_button()
        _draw_account(session)
    with ui.left_drawer(value=False).classes("side p-0").props("width=230 breakpoint=900 show-if-above") as drawer:
        _draw_menu(session, place)
    menu.on_click(drawer.toggle)
    _give_keyboard(drawer, menu)
    banner = ui.element("div").classes("banner").props("role=alert aria-live=assertive")
    with banner:
        ui.icon("cloud_off")
        text = ui.label()
    _watch(session, banner, text)
    column = ui.column().classes("page").props("tabindex=-1 aria-busy=true")
    ui.skip_link("Skip to the page", target=column)
    with column:
        ui.html(f"<h1 class='title'>{place.title}</h1>", sanitize=False)
    return column


def say_lost(error: AclflowError) -> None:
    """Say that the service does not answer; the page tries again by itself."""
    with empty("The service does not answer, so there is nothing to show yet."):
        ui.label(error.reason).classes("small quiet")
        ui.label("This page goes on by itself when it is back.").classes("small quiet")
    ui.timer(_LOOK_S, ui.navigate.reload, once=True)


def say_refused(reason: str) -> None:
    """Say why a page is not shown."""
    empty(reason)


def _draw_menu(session: Session, here: Place) -> None:
    with ui.element("nav").props("aria-label='Main menu'"):
        for section in sections_for(session.who):
            places = [each for each in section.places if each.in_tree]
            if not session.project:
                places = [each for each in places if "{tenant}" not in each.path]
            if places:
                ui.label(section.title).classes("heading")
            for place in places:
                path = place.path.replace("{tenant}", quote(session.project or "", safe=""))
                with ui.link(target=path).classes("entry") as link:
                    ui.icon(place.icon).classes("text-lg").props("aria-hidden=true")
                    ui.label(place.title)
                if place is here:
                    link.props("aria-current=page")


async def _draw_project_picker(session: Session, here: Place, tenant: str) -> None:
    try:
        tenants = await session.reading.get(
            "tenants", lambda: list(session.client.tenants.read_all()), fresh_s=_TENANTS_FRESH_S
        )
    except AclflowError:
        return
    if session.project is None and tenants:
        session.project = tenants[0].id
    if not tenants:
        return
    names = {each.id: _name_project(each) for each in tenants}
    goes_to = here.path if "{tenant}" in here.path else "/project/{tenant}"
    picked = tenant or session.project
    ui.select(
        names,
        value=picked if picked in names else None,
        with_input=len(names) > 8,
        on_change=lambda event: ui.navigate.to(goes_to.replace("{tenant}", quote(event.value, safe=""))),
    ).props("dense outlined dark options-dense bg-color=transparent aria-label=Project").classes("w-44 project-picker")


def _name_project(tenant: Tenant) -> str:
    return tenant.name or tenant.id


def _give_keyboard(drawer: ui.left_drawer, menu: ui.button) -> None:
    """Give the keyboard to a menu over the page; Escape takes it back."""
    lies_over = "window.innerWidth <= 900"
    drawer.on("show", js_handler=f"() => {{ if ({lies_over}) document.querySelector('.side nav a').focus(); }}")
    drawer.on(
        "keydown.esc",
        drawer.hide,
        js_handler=f"(...all) => {{ if ({lies_over}) {{ getHtmlElement({menu.id}).focus(); emit(...all); }} }}",
    )


def _theme_button() -> None:
    """Draw the choice of light, dark, or the machine's own theme."""
    ui.run_javascript(_RECALL_THEME)
    button = ui.button(icon="contrast").props("flat dense color=white aria-label='Light or dark'")
    button.on("click", js_handler=_CHANGE_THEME)


def _draw_account(session: Session) -> None:
    who = session.who
    with ui.button(icon="account_circle").props("flat dense color=white aria-label='Account'"), ui.menu():
        with ui.column().classes("px-4 py-3 gap-0"):
            ui.label(who.description or f"token {who.id}").classes("font-bold")
            ui.label(f"{who.role}{f' of {who.tenant}' if who.tenant else ''}").classes("small quiet")
            if who.expires:
                ui.label(f"good until {who.expires.astimezone(session.zone):%Y-%m-%d %H:%M}").classes("small quiet")
        ui.separator()
        ui.menu_item("Sign out", on_click=lambda: ui.run_javascript(_SIGN_OUT))


def _watch(session: Session, banner: ui.element, text: ui.label) -> None:
    """Show a banner while the service does not answer; end a session without valid token."""

    async def look_for_end() -> None:
        if session.is_over:
            ui.navigate.to("/login")
            return
        try:
            await session.reading.get("who", session.client.tokens.read_own, fresh_s=_LOOK_S - 0.5)
        except Unauthenticated:  # the token was revoked, or has ended
            session.is_ended = True
            ui.navigate.to("/login")
            return
        except AclflowError:
            pass  # said by the banner
        lost = session.reading.lost
        banner.set_visibility(lost is not None)
        if lost is not None:
            text.text = f"The service does not answer: {lost}. What you see is from before; trying again."

    banner.set_visibility(session.reading.lost is not None)
    ui.timer(_LOOK_S, look_for_end)


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
