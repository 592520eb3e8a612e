"""Pick the domain that an operator's page is about."""

from __future__ import annotations

from nicegui import ui

from api.console.parts.pieces import empty
from api.console.parts.tree import path_of
from api.console.parts.view import View


async def pick_domain(view: View, place: str) -> str | None:
    """Return the domain that the page is about, and draw a choice of several.

    None: there is no domain yet, and the page says so.
    """
    names = [each.id for each in await view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=2)]
    if not names:
        with empty("No domain yet: there is nothing to show before there is one."):
            ui.link("Make a domain", path_of("domains"))
        return None
    picked = view.query.get("domain") or names[0]
    if len(names) > 1:
        ui.select(
            names,
            value=picked if picked in names else None,
            label="Domain",
            on_change=lambda event: ui.navigate.to(f"{path_of(place)}?domain={event.value}"),
        ).props("outlined dense options-dense").classes("w-64")
    return picked
