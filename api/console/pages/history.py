"""The list's history: authors, times, what each version changed, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from nicegui import ui

from api.console import words
from api.console.draftedits import ReplaceAll
from api.console.parts.desk import Desk, DraftBar
from api.console.parts.differences import Json, draw_difference
from api.console.parts.pieces import dialog, empty, working
from api.console.parts.view import View
from orchestrator.errors import AclflowError, TooLarge
from orchestrator.wire.lists import AclVersion

_SHOWN = 100


async def build(view: View) -> None:
    """Draw the page."""
    desk = await Desk.of(view)
    found = await view.read(
        "versions", lambda client: list(islice(client.acls.read_versions(view.tenant), _SHOWN + 1)), fresh_s=2
    )
    if len(found) < 2:
        empty("The list has not been changed yet. Every commit will be a version here, to compare and to go back to.")
        return
    bar = DraftBar(desk)
    desk.on_change = bar.refresh
    page = _History(desk, found)
    for number, version in enumerate(found[:_SHOWN]):
        page.draw(version, newest=number == 0, oldest=number == len(found) - 1)
    if len(found) > _SHOWN:
        ui.label(f"and older versions: aclflow acl versions {view.tenant} lists them all").classes("quiet")


class _History:
    def __init__(self, desk: Desk, versions: Sequence[AclVersion]) -> None:
        self._desk = desk
        self._view = desk.view
        self._versions = versions

    def draw(self, version: AclVersion, *, newest: bool, oldest: bool) -> None:
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                self._draw_line(version, newest=newest, oldest=oldest)
            if version.comment:
                ui.label(version.comment).classes("said")
            if version.changes is not None:
                says = version.changes.text()
                ui.label(f"{says[0].upper()}{says[1:]}.").classes("small quiet")

    def _draw_line(self, version: AclVersion, *, newest: bool, oldest: bool) -> None:
        """Draw the time, the author and the actions into the open row."""
        ui.label(f"Version {version.version}").classes("font-bold")
        if newest:
            ui.label("now").classes("chip good")
        ui.label(words.moment(version.created, self._view.session.zone)).classes("quiet number")
        if version.author:
            ui.label(f"by {version.by()}").classes("quiet")
        ui.label(words.of(version.rules, "rule")).classes("quiet")
        ui.space()
        if not oldest:
            ui.button(
                "What it changed",
                icon="difference",
                on_click=lambda: self._compare_versions(version.version - 1, version.version),
            ).props("flat dense no-caps")
        if not newest:
            ui.button(
                "Compare with now",
                icon="compare_arrows",
                on_click=lambda: self._compare_versions(version.version, None),
            ).props("flat dense no-caps")
            if self._view.session.may_write:
                ui.button("Roll back to it", icon="undo", on_click=lambda: self._take_back(version.version)).props(
                    "flat dense no-caps"
                )

    async def _compare_versions(self, before: int, after: int | None) -> None:
        name = "now" if after is None else f"version {after}"
        with dialog(f"From version {before} to {name}", 860) as box:
            place = ui.column().classes("w-full gap-3")
            ui.button("Close", on_click=box.close).props("flat no-caps").classes("self-end")
            with place:
                working("Comparing the two lists")
        try:
            changes: Sequence[Json] | None = (
                await self._view.session.reading.once(
                    lambda: self._view.client.acls.compare_versions(self._view.tenant, before, after)
                )
            )["changes"]
        except TooLarge:
            changes = None
        except AclflowError as error:
            place.clear()
            with place:
                ui.label(str(error)).classes("text-negative").props("role=alert")
            return
        place.clear()
        with place:
            draw_difference(changes)

    async def _take_back(self, version: int) -> None:
        """Put an older version into the draft, to be reviewed and committed as any change."""
        try:
            seen = await self._view.session.reading.once(
                lambda: self._view.client.acls.read(self._view.tenant, version=version)
            )
        except AclflowError as error:
            ui.notify(str(error), type="negative")
            return
        if self._desk.edit(ReplaceAll(seen.acl, f"version {version}")):
            ui.notify("It is in the draft: review and commit it below.", type="positive")
