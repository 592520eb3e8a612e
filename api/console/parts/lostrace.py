"""Handle a lost race: the draft goes on top of the other commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from api.console import words
from api.console.draftedits import Draft
from api.console.parts.desk import Desk
from api.console.parts.dialog import dialog
from orchestrator.client import AclSeen
from orchestrator.errors import AclflowError

_MOST_CONFLICTS = 12


async def go_on_from_current(desk: Desk) -> str:
    """Merge the draft with the list that the page was opened with.

    Returns what was done in words. Where both sides touch the same packets, the draft stays as it is.
    """
    draft, seen = desk.draft, desk.current
    if seen.etag == draft.base.etag:
        return ""
    rebased = await asyncio.to_thread(draft.onto, seen)
    if isinstance(rebased, Draft):
        desk.put(rebased)
        return f"Somebody changed the list meanwhile: your changes are on top of version {seen.version}."
    return (
        "Somebody changed the same packets meanwhile: what follows is as if your draft took that back. Before anything"
        " is committed you are asked whose rules win."
    )


async def go_on_from_newest(desk: Desk) -> None:
    """Merge the draft with the current list, or ask whose rules win.

    The draft is kept either way.
    """
    draft = desk.draft
    try:
        seen = await desk.newest()
    except AclflowError as error:
        ui.notify(
            f"Not committed, and your draft is kept: {error}",
            type="negative",
            position="top",
            timeout=0,
            close_button=True,
        )
        return
    rebased = await asyncio.to_thread(draft.onto, seen)
    if isinstance(rebased, Draft):
        desk.put(rebased)
        _say_merged()
    else:
        _ask_whose(desk, seen, rebased)


def _say_merged() -> None:
    with dialog("Somebody changed the list meanwhile") as box:
        box.props("persistent")
        ui.label("Your changes were put on top of the newest version. Look at them again before you commit.")
        ui.button("Review again", on_click=ui.navigate.reload).props("no-caps unelevated")


def _ask_whose(desk: Desk, seen: AclSeen, conflicts: Sequence[str]) -> None:
    """Ask which rules win, where both sides touch the same packets."""

    def take_mine() -> None:
        desk.put(desk.draft.over(seen))
        ui.navigate.reload()

    with dialog("Somebody changed the same packets meanwhile", 620) as box:
        box.props("persistent")
        ui.label(f"The list is at version {seen.version}, and your draft began at version {desk.draft.base.version}:")
        with ui.column().classes("gap-1").props("role=list"):
            for conflict in conflicts[:_MOST_CONFLICTS]:
                ui.label(conflict).classes("text-negative small").props("role=listitem")
            if len(conflicts) > _MOST_CONFLICTS:
                ui.label(f"and {words.count(len(conflicts) - _MOST_CONFLICTS)} more").classes("quiet small")
        ui.label(
            "Nothing was committed, and your draft is as it was. With your rules on top, the review shows what that"
            " takes back of the other change, before anything is committed."
        )
        with ui.row().classes("w-full justify-end gap-2"):
            ui.button("Leave my draft as it is", on_click=box.close).props("flat no-caps")
            ui.button("Put my rules on top, and review", on_click=take_mine).props("no-caps unelevated")
