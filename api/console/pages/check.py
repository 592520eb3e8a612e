"""What is odd about the list: rules that never decide, that could go, that contradict others, that let too much in."""

from __future__ import annotations

from nicegui import ui

from api.console.parts.differences import COSTS, draw_cost, draw_findings
from api.console.parts.section import Section
from api.console.parts.view import View
from orchestrator.errors import AclflowError


async def build(view: View) -> None:
    """Draw the page."""
    ui.label("Exact, not guessed: each finding comes with a packet that shows it.").classes("quiet")
    findings = Section("findings", "", "Looking at every rule")
    cost = Section("cost", "What the list costs", "Counting what each kind of device needs")

    async def look() -> None:
        try:
            found = await view.standing("findings")
            with findings.fill():
                draw_findings(found.findings, found.counts, view.tenant)
            for part in COSTS:
                found = await view.standing(part)
                with cost.fill(complete=part == "firewall"), ui.column().classes("panel").style("max-width: 520px"):
                    draw_cost(found.cost, counting=part == "cost")
        except AclflowError as error:
            cost.drop()
            with findings.fill():
                ui.label(str(error)).classes("text-negative").props("role=alert")

    view.parts.later(look)
