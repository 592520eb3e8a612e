"""Files in and out: a list of any format into the draft, the draft as a file of any format."""

from __future__ import annotations

import asyncio

from nicegui import events, ui

from api.console import words
from api.console.draft import ReplaceAll
from api.console.parts.desk import Desk
from api.console.parts.dialog import dialog
from orchestrator.errors import AclflowError
from orchestrator.policy.formats import registry
from orchestrator.policy.formats.results import Imported, Options

_LARGEST = 32 << 20


def take_import(desk: Desk) -> None:
    """Let a file be chosen; what reading it loses is told, and it goes into the draft when that is accepted."""
    with dialog("Import a list", 680) as box:
        ui.label("It replaces every rule of the draft. Nothing is committed before you have reviewed it.").classes(
            "quiet small"
        )
        formats = {
            "": "Tell the format from the file",
            **{name: f"{name}: {each.summary}" for name, each in registry.FORMATS.items()},
        }
        chosen = ui.select(formats, value="", label="Format").props("outlined dense").classes("w-full")
        outcome = ui.column().classes("w-full gap-2")

        async def read(event: events.UploadEventArguments) -> None:
            outcome.clear()
            with outcome:
                await _read(desk, box, await event.file.read(), event.file.name, chosen.value or None)

        ui.upload(label="Drop a file here, or press +", auto_upload=True, max_file_size=_LARGEST, on_upload=read).props(
            "flat bordered"
        ).classes("w-full").on("rejected", lambda: ui.notify(f"larger than {words.octets(_LARGEST)}", type="negative"))
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=box.close).props("flat no-caps")


async def _read(desk: Desk, box: ui.dialog, text: bytes, name: str, chosen: str | None) -> None:
    try:
        imported = await asyncio.to_thread(_imported, text, name, chosen)
    except AclflowError as error:
        ui.label(str(error)).classes("text-negative").props("role=alert")
        return
    ui.label(f"{words.of(len(imported.acl.rules), 'rule')}, {words.of(len(imported.acl.groups), 'address group')}")
    for note in imported.notes[:5]:
        ui.label(note).classes("small quiet")
    if imported.losses:
        ui.label(f"{words.of(len(imported.losses), 'line')} cannot be carried over exactly:").classes("chip warn")
        with ui.scroll_area().classes("w-full h-40"):
            for loss in imported.losses[:200]:
                ui.label(str(loss)).classes("small mono")

    def accept() -> None:
        if desk.edit(ReplaceAll(imported.acl, name)):
            box.close()

    label = "Take its safe approximation" if imported.losses else "Put into the draft"
    ui.button(label, on_click=accept).props("no-caps unelevated")


def _imported(text: bytes, name: str, chosen: str | None) -> Imported:
    found = registry.named(chosen) if chosen else registry.guess(text.decode(errors="replace"), name)
    return registry.read(text, found.name, name=name, options=Options(stateless=True))


def offer_export(desk: Desk) -> None:
    """Let a format be chosen and download the draft in it; what it cannot say is told first."""
    names = [name for name, each in registry.FORMATS.items() if each.write]
    with dialog("Export this list", 560) as box:
        chosen = ui.select(names, value="native", label="Format").props("outlined dense").classes("w-full")
        outcome = ui.column().classes("w-full gap-1")

        async def write() -> None:
            outcome.clear()
            with outcome:
                try:
                    exported = await asyncio.to_thread(registry.write, desk.draft.acl, chosen.value)
                except AclflowError as error:
                    ui.label(str(error)).classes("text-negative").props("role=alert")
                    return
                for loss in exported.losses[:20]:
                    ui.label(str(loss)).classes("small mono")
                ui.download(exported.text.encode(), f"{desk.view.tenant}.{chosen.value}.txt")

        with ui.row().classes("w-full justify-end"):
            ui.button("Close", on_click=box.close).props("flat no-caps")
            ui.button("Download", icon="download", on_click=write).props("no-caps unelevated")
