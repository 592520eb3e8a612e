"""A shared draft and what it would change, for a second pair of eyes."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from nicegui import ui

from api.console import words
from api.console.draftedits import Draft, ReplaceAll
from api.console.parts.desk import Desk
from api.console.parts.differences import draw_difference
from api.console.parts.pieces import Section, Way, dialog, empty, is_sure
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.errors import AclflowError
from orchestrator.policy.model import Acl
from orchestrator.wire.expectations import SharedDraft

_DAYS = {1: "for a day", 7: "for a week", 30: "for 30 days"}
_USUAL_DAYS = 7


async def build(view: View) -> None:
    """Draw the draft that the address names, else all that are shared."""
    name = view.query.get("id", "")
    if name:
        shared, acl = await view.session.reading.once(lambda: view.client.drafts.read(view.tenant, name))
        _DraftPage(await Desk.of(view), shared, acl).draw()
        return
    found = await view.session.reading.once(lambda: [*view.client.drafts.read_all(view.tenant)])
    if not found:
        empty("No draft is shared. Share one from its review, and send the link.")
    for each in found:
        with ui.column().classes("panel gap-1"):
            ui.link(each.message or f"Draft of {each.by()}", _make_path(view.tenant, each.id))
            ui.label(_describe_draft(view, each)).classes("small quiet")


class _DraftPage:
    def __init__(self, desk: Desk, shared: SharedDraft, acl: Acl) -> None:
        self._desk = desk
        self._view = desk.view
        self._shared = shared
        self._acl = acl

    def draw(self) -> None:
        ui.label(self._shared.message or "Without a message").classes("text-lg")
        ui.label(_describe_draft(self._view, self._shared)).classes("quiet")
        if self._view.session.may_write:
            with ui.row().classes("gap-3"):
                ui.button("Go on from it", icon="edit_note", on_click=self._take).props("no-caps unelevated")
                ui.button("Delete", on_click=self._delete_draft).props("flat no-caps color=negative")
        self._differs = Section("difference", "What it would change", "Comparing it with the list as it is")
        self._view.parts.later(self._show_difference)

    async def _show_difference(self) -> None:
        client, tenant = self._view.client, self._view.tenant
        try:
            found = await self._view.session.reading.once(lambda: client.acls.check(tenant, self._acl, ("difference",)))
        except AclflowError as error:
            with self._differs.fill():
                ui.label(f"The service would refuse it now: {error}").classes("text-negative").props("role=alert")
            return
        with self._differs.fill():
            draw_difference(found.difference)

    async def _take(self) -> None:
        """Make it the viewer's own draft, on top of what changed since."""
        mine = self._desk.draft
        if mine.edits and not await is_sure("Replace your draft?", "Your own changes will be lost.", "Replace it"):
            return
        origin, client, tenant = f"the draft of {self._shared.by()}", self._view.client, self._view.tenant
        try:
            began = await self._view.session.reading.once(
                lambda: client.acls.read(tenant, version=self._shared.base_version)
            )
            rebased = await asyncio.to_thread(Draft(began).add_edit(ReplaceAll(self._acl, origin)).onto, mine.base)
        except AclflowError:
            rebased = ("the version that it was begun from is kept no more",)
        if not isinstance(rebased, Draft):
            ui.notify(f"Later changes touch the same packets: {'; '.join(rebased[:3])}", type="warning", timeout=0)
            rebased = Draft(mine.base).add_edit(ReplaceAll(self._acl, origin))
        self._desk.put(rebased)
        ui.navigate.to(path_of("review", tenant))

    async def _delete_draft(self) -> None:
        if not await is_sure(
            "Delete the shared draft?", "Its link will lead nowhere. The list stays as it is.", "Delete it"
        ):
            return
        try:
            await self._view.do(lambda client: client.drafts.delete(self._view.tenant, self._shared.id))
        except AclflowError as error:
            ui.notify(str(error), type="negative")
            return
        ui.navigate.to(path_of("draft", self._view.tenant))


def share(desk: Desk) -> None:
    """Keep the draft at the service for some days, and show the link to it."""
    view, draft = desk.view, desk.draft
    with dialog("Share this draft") as box:
        ui.label("Members of this project can look at it by the link; nothing is committed.").classes("quiet")
        message = ui.input("What should they look at?", value=draft.comment)
        message.props("outlined dense autofocus maxlength=1000")
        message.classes("w-full")
        days = ui.select(_DAYS, value=_USUAL_DAYS, label="It is kept").props("outlined dense").classes("w-full")

        async def share_with_others() -> None:
            said, how_long = (message.value or "").strip(), int(days.value)
            shared = await view.do(
                lambda client: client.drafts.share(
                    view.tenant, draft.acl, base=draft.base.version, message=said, days=how_long
                )
            )
            _show_link(view, shared)

        Way(box, "Make a link", share_with_others)


def _show_link(view: View, shared: SharedDraft) -> None:
    path = _make_path(view.tenant, shared.id)
    with dialog("The draft is shared") as box:
        ui.link("Open it", path)
        ui.label(f"The link is good until {words.moment(shared.expires, view.session.zone)}.").classes("quiet")
        with ui.row().classes("w-full justify-end gap-2"):
            copy = f"navigator.clipboard?.writeText(location.origin + {path!r})"
            ui.button("Copy the link", icon="content_copy").props("flat no-caps").on(
                "click", js_handler=f"() => {copy}"
            )
            ui.button("Close", on_click=box.close).props("no-caps unelevated")


def _make_path(tenant: str, draft: str) -> str:
    return f"{path_of('draft', tenant)}?id={quote(draft)}"


def _describe_draft(view: View, shared: SharedDraft) -> str:
    made, ends = (words.moment(time, view.session.zone) for time in (shared.created, shared.expires))
    return f"by {shared.by()}, {made}, from version {shared.base_version}; kept until {ends}"
