"""The operator's home: how everything is, each concern with the page and the command that help."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, tile
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.wire.status import Concern, Status

_LIVE_S = 2.0
_LOOKS = {"refused": "bad", "drifted": "bad", "disconnected": "bad", "silent": "bad", "behind": "warn"}


async def build(view: View) -> None:
    """Draw the page."""
    page = _Home(view)
    page.draw()
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)


class _Home:
    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: Sequence[Concern] | None = None

    def draw(self) -> None:
        with ui.row().classes("w-full gap-3 tiles"):
            self._concerns = tile("To look at")
            self._domains = tile("Domains", "hosts and enforcers", path_of("domains"))
            self._hosts = tile("Hosts", "topology", path_of("topology"))
            self._tenants = tile("Tenants", "prefixes and quotas", path_of("tenants"))
        self._list = ui.column().classes("w-full gap-3").props("aria-live=polite data-part=concerns")

    async def refresh(self) -> None:
        """Show how it is now."""
        try:
            found: Status = await self._view.read("status", Client.status, fresh_s=_LIVE_S - 0.5)
        except AclflowError:
            if self._shown is None:
                raise
            return
        self._concerns.show(words.count(len(found.concerns)))
        for each, number in (
            (self._domains, found.domains),
            (self._hosts, found.hosts),
            (self._tenants, found.tenants),
        ):
            each.show(words.count(number))
        if self._shown != found.concerns:
            self._shown = found.concerns
            self._list.clear()
            with self._list:
                self._draw_concerns(found.concerns)

    def _draw_concerns(self, concerns: Sequence[Concern]) -> None:
        if not concerns:
            empty("All is in force: no host is behind, no enforcement point silent, no quota nearly used up.")
        for each in concerns:
            with ui.column().classes("panel"), ui.row().classes("w-full items-center gap-3"):
                ui.label(each.kind).classes(f"chip {_LOOKS.get(each.kind, 'info')}")
                ui.label(each.text).classes("grow")
                if each.since is not None:
                    verb = "ends" if each.kind == "certificate" else "since"
                    ui.label(f"{verb} {words.moment(each.since, self._view.session.zone)}").classes(
                        "quiet small number"
                    )
                ui.label(each.command).classes("mono quiet")
                ui.link("Look there", _page(each)).props(f"aria-label='Look at {each.name}'")


def _page(concern: Concern) -> str:
    """The page that helps with a concern."""
    if concern.kind == "quota":
        return path_of("tenants")
    return f"{path_of('domains')}#{quote(concern.domain, safe='')}"
