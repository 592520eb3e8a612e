"""The frame around every page: bar, project picker, menu, banner for a lost service."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from api.console.parts.pieces import empty
from api.console.parts.tree import Place, sections_for
from api.console.sessions import Session
from orchestrator.errors import AclflowError, Unauthenticated
from orchestrator.wire.tenants import Tenant

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
