"""Address groups: named sets of prefixes that rules point to."""

from __future__ import annotations

from nicegui import ui

from api.console import words
from api.console.draftedits import SetGroup
from api.console.parts.desk import Desk, DraftBar
from api.console.parts.pieces import dialog, empty
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, AddressGroup, GroupName

_MOST_SHOWN = 12


async def build(view: View) -> None:
    """Draw the page."""
    page = _Groups(await Desk.of(view))
    page.draw()


class _Groups:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._writes = desk.view.session.may_write

    def draw(self) -> None:
        ui.label("A rule names a group as @name; a change of its members changes every such rule.").classes("quiet")
        if self._writes:
            ui.button("New group", icon="add", on_click=lambda: self._ask_for_group(None)).props("no-caps unelevated")
        self._list = ui.column().classes("w-full gap-3")
        self._bar = DraftBar(self._desk)
        self._desk.on_change = self._draw_again
        self._draw_again()

    def _draw_again(self) -> None:
        self._bar.refresh()
        self._list.clear()
        acl = self._desk.draft.acl
        with self._list:
            if not acl.groups:
                empty("No groups yet. Make one for addresses that several rules share, such as your offices.")
            for name in sorted(acl.groups):
                self._draw_group(acl, acl.groups[name])

    def _draw_group(self, acl: Acl, group: AddressGroup) -> None:
        used = [rule.id for rule in acl.rules if group.name in (*rule.source.groups, *rule.destination.groups)]
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(f"@{group.name}").classes("font-bold")
                ui.label(words.of(len(group.prefixes), "member")).classes("chip none")
                ui.label(group.description).classes("quiet")
                ui.space()
                if self._writes:
                    ui.button("Edit", icon="edit", on_click=lambda: self._ask_for_group(group)).props(
                        "flat dense no-caps"
                    )
            ui.label(
                words.list_names([str(prefix) for prefix in group.prefixes], _MOST_SHOWN)
                or "no members: rules that name it match nothing"
            ).classes("mono")
            if used:
                link = f"{path_of('acl', self._desk.view.tenant)}?q=@{group.name}"
                ui.link(f"used by {words.of(len(used), 'rule')}: {words.list_names(used)}", link).classes("small")
            else:
                ui.label("no rule uses it").classes("small quiet")

    async def _ask_for_group(self, group: AddressGroup | None) -> None:
        with dialog(f"Group @{group.name}" if group else "New group", opened=False) as box:
            name = (
                ui.input("Name", value=group.name if group else "").props("outlined dense autofocus").classes("w-full")
            )
            name.set_enabled(group is None)
            about = (
                ui.input("Description", value=group.description if group else "")
                .props("outlined dense")
                .classes("w-full")
            )
            members = (
                ui.textarea("Members, one a line", value="\n".join(map(str, group.prefixes)) if group else "")
                .props("outlined input-class=mono rows=12")
                .classes("w-full")
            )
            wrong = ui.label().classes("text-negative small").props("role=alert")

            def keep_group() -> None:
                try:
                    made = _group(name.value, about.value, members.value)
                    if group is None and made.name in self._desk.draft.acl.groups:
                        raise BadInput("there is a group of that name: edit that one, or take another name")
                    draft = self._desk.draft.add_edit(SetGroup(made))
                except AclflowError as error:
                    wrong.text = str(error)
                    return
                if made != group:
                    self._desk.put(draft)
                box.submit(True)

            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=box.close).props("flat no-caps")
                ui.button("Keep in draft", on_click=keep_group).props("no-caps unelevated")
        await box


def _group(name: str, description: str, members: str) -> AddressGroup:
    """A group from a form's texts. Raises BadInput with the line as its place."""
    prefixes = []
    for number, line in enumerate(members.splitlines(), 1):
        text = line.strip()
        if not text:
            continue
        try:
            prefixes.append(Prefix.parse(text))
        except AclflowError as error:
            raise error.within(f"line {number}") from None
    return AddressGroup(GroupName(name.strip()), tuple(prefixes), description.strip())
