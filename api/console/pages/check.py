"""What is odd about the list: rules that never decide, that could go, that contradict others, that let too much in."""

from __future__ import annotations

from nicegui import ui

from api.console.parts.differences import draw_cost, draw_findings
from api.console.parts.pieces import heading
from api.console.parts.view import View
from orchestrator.errors import AclflowError


async def build(view: View) -> None:
    """Draw the page."""
    ui.label("Exact, not guessed: each finding comes with a packet that shows it.").classes("quiet")
    place = ui.column().classes("w-full gap-4")
    with place, ui.row().classes("items-center gap-3"):
        ui.spinner(size="sm")
        ui.label("Looking at every rule: once for each version of the list …").props("aria-live=polite")

    async def look() -> None:
        try:
            found = await view.read("standing", lambda client: client.standing(view.tenant), fresh_s=5)
        except AclflowError as error:
            place.clear()
            with place:
                ui.label(str(error)).classes("text-negative").props("role=alert")
            return
        place.clear()
        with place:
            draw_findings(found.findings, found.counts, view.tenant)
            heading("What the list costs")
            with ui.column().classes("panel").style("max-width: 520px"):
                draw_cost(found.cost)

    view.parts.later(look)
