"""Findings on the list, waivers, rules that end soon, and the list's cost."""

from __future__ import annotations

import datetime as dt

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk
from api.console.parts.differences import COSTS, draw_cost
from api.console.parts.findings import ask_to_waive, draw_findings, draw_waivers, severity_words
from api.console.parts.pieces import Section
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Finding
from orchestrator.errors import AclflowError

_SOON = dt.timedelta(days=7)
_MOST_ENDING = 25


async def build(view: View) -> None:
    """Draw the page."""
    page = _CheckPage(view)
    page.draw()
    view.parts.later(page.look)


class _CheckPage:
    def __init__(self, view: View) -> None:
        self._view = view

    def draw(self) -> None:
        ui.label("Exact, not guessed: each finding comes with a packet that shows it.").classes("quiet")
        self._findings = Section("findings", "", "Looking at every rule")
        self._waived = Section("waived", "Waived findings", "Reading what is waived")
        self._ending = Section("ending", "Rules that end within a week", "Looking for ends")
        self._cost = Section("cost", "What the list costs", "Counting what each kind of device needs")

    async def look(self) -> None:
        """Show each part as soon as it is known."""
        try:
            await self._show_findings()
            await self._show_ending()
            for part in COSTS:
                found = await self._view.standing(part)
                with (
                    self._cost.fill(complete=part == "firewall"),
                    ui.column().classes("panel").style("max-width: 520px"),
                ):
                    draw_cost(found.cost, counting=part == "cost")
        except AclflowError as error:
            for each in (self._waived, self._ending, self._cost):
                each.drop()
            with self._findings.fill():
                ui.label(str(error)).classes("text-negative").props("role=alert")

    async def _show_findings(self) -> None:
        """Show the findings that count, and those that are waived."""
        view = self._view
        found = await view.standing("findings")
        waivers = await view.session.reading.once(lambda: view.client.waivers.read_all(view.tenant))
        with self._findings.fill():
            ui.label(f"Found: {severity_words(found.severities)}.").classes("font-bold").props("role=status")
            draw_findings(
                found.findings, found.counts, view.tenant, waive=self._waive if view.session.may_write else None
            )
        with self._waived.fill():
            if waivers:
                with ui.column().classes("panel gap-1"):
                    draw_waivers(view, waivers, self._show_findings)
            else:
                ui.label("None. A finding that is meant to be so can be waived until a day.").classes("quiet small")

    async def _show_ending(self) -> None:
        """Show the rules of the list that end soon, the soonest first."""
        view, latest = self._view, dt.datetime.now(dt.UTC) + _SOON
        rules = (await Desk.of(view)).draft.base.acl.rules
        soon = sorted((rule.expires, rule.id) for rule in rules if rule.expires and rule.expires <= latest)
        if not soon:
            self._ending.drop()
            return
        with self._ending.fill(), ui.column().classes("panel gap-1"):
            for ends, rule in soon[:_MOST_ENDING]:
                with ui.row().classes("items-center gap-3"):
                    ui.label("expiring").classes("chip warn")
                    ui.link(rule, f"{path_of('acl', view.tenant)}?q={rule}")
                    ui.label(f"ends {words.moment(ends, view.session.zone)}").classes("number")
            if len(soon) > _MOST_ENDING:
                ui.label(f"and {words.count(len(soon) - _MOST_ENDING)} more").classes("quiet small")

    def _waive(self, finding: Finding) -> None:
        """Ask who takes responsibility for a finding; then show all findings anew."""
        ask_to_waive(self._view, finding, self._show_findings)
