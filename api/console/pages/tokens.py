"""Tokens: who may do what, until when; made here, shown once, revoked at once."""

from __future__ import annotations

import datetime as dt

from nicegui import ui

from api.console import words
from api.console.parts.pieces import Way, dialog, is_sure
from api.console.parts.view import View
from orchestrator.errors import AclflowError
from orchestrator.wire.enrolment import Token

_ROLES = {
    "member": "member: changes its tenant's list",
    "reader": "reader: sees its tenant",
    "admin": "admin: sees and changes everything",
}
_DAYS = {0: "never", 1: "in a day", 7: "in a week", 30: "in 30 days", 365: "in a year"}


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("tokens", lambda client: client.tokens.read_all(), fresh_s=1)
    ui.button("New token", icon="add", on_click=lambda: _create(view)).props("no-caps unelevated")
    for token in reversed(found):
        _draw_token(view, token)


def _draw_token(view: View, token: Token) -> None:
    own = token.id == view.session.who.id
    with ui.element("div").classes("panel token"):
        with ui.row().classes("items-center gap-3 who"):
            ui.label(f"{token.id}").classes("number quiet w-8")
            ui.label(token.role).classes(f"chip {'info' if token.role == 'admin' else 'none'}")
            ui.label(token.tenant or token.domain or "everything").classes("font-bold")
            if own:
                ui.label("yours").classes("chip good")
        ui.label(token.description).classes("quiet about")
        until = f"ends {words.moment(token.expires, view.session.zone)}" if token.expires else "no end"
        ui.label(until).classes("small quiet number until")
        if not own:
            ui.button("Revoke", icon="block", on_click=lambda: _revoke_token(view, token)).props(
                f"flat dense no-caps no-wrap color=negative aria-label='Revoke token {token.id}'"
            ).classes("act")


async def _revoke_token(view: View, token: Token) -> None:
    if not await is_sure(f"Revoke token {token.id}?", "Every program that uses it is shut out at once.", "Revoke"):
        return
    try:
        await view.do(lambda client: client.tokens.revoke(token.id))
    except AclflowError as error:
        ui.notify(str(error), type="negative")
        return
    ui.navigate.reload()


async def _create(view: View) -> None:
    """Ask what the token is for, make it, and show it once."""
    tenants = {
        each.id: each.name or each.id
        for each in await view.read("every tenant", lambda client: list(client.tenants.read_all()))
    }
    with dialog("New token", 520) as box:
        box.props("persistent")
        role = ui.select(_ROLES, value="member", label="Role").props("outlined dense").classes("w-full")
        tenant = (
            ui.select(tenants, value=next(iter(tenants), None), label="Tenant")
            .props("outlined dense")
            .classes("w-full")
        )
        tenant.bind_visibility_from(role, "value", lambda value: value != "admin")
        about = ui.input("What it is for").props("outlined dense").classes("w-full")
        days = ui.select(_DAYS, value=30, label="Ends").props("outlined dense").classes("w-full")

        async def create_token() -> None:
            expires = dt.datetime.now(dt.UTC) + dt.timedelta(days=days.value) if days.value else None
            of_tenant = None if role.value == "admin" else tenant.value
            _, secret = await view.do(
                lambda client: client.tokens.create(
                    role.value, tenant=of_tenant, description=about.value, expires=expires
                )
            )
            _show_secret_once(secret)

        Way(box, "Create", create_token)


def _show_secret_once(secret: str) -> None:
    with dialog("The token") as box:
        box.props("persistent")
        ui.label("This is the only time that it is shown: keep it now.")
        ui.label(secret).classes("mono").style("word-break: break-all; user-select: all")
        with ui.row().classes("w-full justify-end"):
            ui.button("Copy", icon="content_copy", on_click=lambda: ui.clipboard.write(secret)).props("flat no-caps")
            ui.button("Done", on_click=ui.navigate.reload).props("no-caps unelevated")
