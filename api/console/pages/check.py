"""What is odd about the list: rules that never decide, that could go, that contradict others, that let too much in."""

from __future__ import annotations

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk
from api.console.parts.differences import draw_cost, draw_findings
from api.console.parts.pieces import heading
from api.console.parts.view import View
from orchestrator.errors import AclflowError


async def build(view: View) -> None:
    """Draw the page."""
    desk = await Desk.of(view)
    base = desk.draft.base
    ui.label("Exact, not guessed: each finding comes with a packet that shows it.").classes("quiet")
    place = ui.column().classes("w-full gap-4")
    with place, ui.row().classes("items-center gap-3"):
        ui.spinner(size="sm")
        ui.label(f"Looking at {words.of(len(base.acl.rules), 'rule')} …").props("aria-live=polite")

    async def look() -> None:
        try:
            found = await view.read(
                ("check", base.etag), lambda client: client.check_acl(view.tenant, base.acl), fresh_s=300
            )
        except AclflowError as error:
            place.clear()
            with place:
                ui.label(str(error)).classes("text-negative").props("role=alert")
            return
        place.clear()
        with place:
            draw_findings(found.findings)
            heading("What the list costs")
            with ui.column().classes("panel").style("max-width: 520px"):
                draw_cost(found.cost)

    ui.timer(0.05, look, once=True)
