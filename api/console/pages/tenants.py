"""The cloud's tenants: what they own, what their lists may cost."""

from __future__ import annotations

from nicegui import ui

from api.console import words
from api.console.parts.dialog import Way, dialog
from api.console.parts.pieces import empty
from api.console.parts.question import ask_why
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.policy.addresses import Prefix
from orchestrator.wire.tenants import Tenant


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("every tenant", lambda client: list(client.tenants()), fresh_s=1)
    ui.button("New tenant", icon="add", on_click=lambda: _create(view)).props("no-caps unelevated")
    if not found:
        empty("No tenant yet. A tenant owns prefixes and says which traffic may reach them.")
        return
    ask_why(found)
    for tenant in found:
        _draw(tenant)


def _draw(tenant: Tenant) -> None:
    limit = tenant.quota
    with ui.column().classes("panel"), ui.row().classes("w-full items-center gap-3"):
        ui.link(tenant.name or tenant.id, path_of("overview", tenant.id)).classes("font-bold")
        if tenant.name and tenant.name != tenant.id:
            ui.label(tenant.id).classes("mono quiet")
        ui.label(f"domain {tenant.domain}").classes("chip none")
        ui.label(words.named([str(prefix) for prefix in tenant.prefixes]) or "no prefixes").classes("mono")
        ui.space()
        parts = [
            f"{words.count(value)} {name}"
            for name, value in (("rules", limit.rules), ("flow entries", limit.flows))
            if value is not None
        ]
        ui.label(f"quota: {', '.join(parts)}" if parts else "no quota").classes("small quiet")


async def _create(view: View) -> None:
    """Ask for a new tenant and make it."""
    domains = [domain.id for domain in await view.read("domains", lambda client: list(client.domains()), fresh_s=2)]
    with dialog("New tenant", 520) as box:
        if not domains:
            ui.link("There is no domain yet: make one first.", path_of("domains"))
        name = ui.input("Id", placeholder="shop").props("outlined dense").classes("w-full")
        title = ui.input("Name", placeholder="Web shop").props("outlined dense").classes("w-full")
        domain = (
            ui.select(domains, value=domains[0] if domains else None, label="Domain")
            .props("outlined dense")
            .classes("w-full")
        )
        prefixes = (
            ui.textarea("Prefixes it owns, one a line").props("outlined input-class=mono rows=4").classes("w-full")
        )

        async def make() -> None:
            owned = [Prefix.parse(line.strip()) for line in prefixes.value.splitlines() if line.strip()]
            await view.do(
                lambda client: client.create_tenant(
                    name.value.strip(), domain=domain.value, name=title.value, prefixes=owned
                )
            )
            ui.navigate.reload()

        Way(box, "Create", make).button.set_enabled(bool(domains))
