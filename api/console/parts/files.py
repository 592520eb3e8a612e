"""Import a file of any format into the draft, and export the draft."""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nicegui import events, ui

from api.console import words
from api.console.draftedits import ReplaceAll
from api.console.parts.desk import Desk
from api.console.parts.pieces import dialog
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats import registry
from orchestrator.policy.formats.endpoints import write_at_endpoints
from orchestrator.policy.formats.results import Exported, Imported, Interfaces, Options, TakenFrom, account

_LARGEST = 32 << 20
_MOST_SHOWN = 200
_LISTS, _CHAINS = "Lists to read", "Chains to read"
_ARRIVES, _LEAVES = "Packets come in by the interface", "and leave by the interface"
_STATELESS = "Read connection states as what a list without connection tracking can say"
_QUESTIONS = {
    "--list": _LISTS,
    "--chain": _CHAINS,
    "--stateless": _STATELESS,
    "--in-interface": _ARRIVES,
    "--out-interface": _LEAVES,
}
"""The dialog's words for the options that readers name in their errors."""
_LOSSES = ".losses"
"""The file beside an exported one has that one's name, and this ending."""


def take_import(desk: Desk) -> None:
    """Ask for a file; it goes into the draft when its losses are accepted."""
    with dialog("Import a list", 680) as box:
        ui.label("It replaces every rule of the draft. Nothing is committed before you have reviewed it.").classes(
            "quiet small"
        )
        _Import(desk, box).draw()


@dataclass(frozen=True, slots=True)
class _File:
    """An uploaded file."""

    name: str
    text: bytes


class _Import:
    """The import's questions, those of the command line, and the file's reading."""

    def __init__(self, desk: Desk, box: ui.dialog) -> None:
        self._desk = desk
        self._box = box
        self._file: _File | None = None
        self._readings = 0

    def draw(self) -> None:
        formats = {
            "": "Tell the format from the file",
            **{name: f"{name}: {each.summary}" for name, each in registry.FORMATS.items()},
        }
        self._format = ui.select(formats, value="", label="Format", on_change=self._read)
        self._format.props("outlined dense").classes("w-full")
        self._lists = self._add_question(_LISTS, "a name, or NAME=egress; several with commas").classes("w-full")
        self._chains = self._add_question(_CHAINS, "FORWARD=ingress, several with commas").classes("w-full")
        with ui.row().classes("w-full gap-3") as self._interfaces:
            self._arrives = self._add_question(_ARRIVES, "eth0")
            self._leaves = self._add_question(_LEAVES, "eth1")
        self._stateless = ui.checkbox(_STATELESS, on_change=self._read)
        self._ask(())
        self._outcome = ui.column().classes("w-full gap-2").props("aria-live=polite")
        ui.upload(
            label="Drop a file here, or press +", auto_upload=True, max_file_size=_LARGEST, on_upload=self._take_file
        ).props("flat bordered").classes("w-full").on(
            "rejected", lambda: ui.notify(f"larger than {words.bytes_text(_LARGEST)}", type="negative")
        )
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=self._box.close).props("flat no-caps")

    def _add_question(self, label: str, example: str) -> ui.input:
        field = ui.input(label, placeholder=example).props("outlined dense debounce=400").classes("grow")
        field.on_value_change(self._read)
        return field

    def _ask(self, options: tuple[str, ...]) -> None:
        """Show the questions that a format has."""
        self._lists.set_visibility("lists" in options)
        self._chains.set_visibility("chains" in options)
        self._interfaces.set_visibility("interfaces" in options)
        self._stateless.set_visibility("stateless" in options)

    async def _take_file(self, event: events.UploadEventArguments) -> None:
        self._file = _File(event.file.name, await event.file.read())
        await self._read()

    async def _read(self) -> None:
        """Read the file with the answers as they are, and show what that comes to."""
        file = self._file
        if file is None:
            return
        options = Options(
            lists=_split_names(self._lists.value),
            chains=_split_names(self._chains.value),
            stateless=bool(self._stateless.value),
            interfaces=Interfaces((self._arrives.value or "").strip(), (self._leaves.value or "").strip()),
        )
        self._readings += 1
        this = self._readings
        found: Imported | AclflowError
        try:
            form = await asyncio.to_thread(_find_format, file, self._format.value or None)
            self._ask(form.options)
            found = await asyncio.to_thread(registry.read, file.text, form.name, name=file.name, options=options)
            _check_origin(found, self._desk.view.tenant)
        except AclflowError as error:
            found = error
        if this != self._readings:
            return  # another answer was given meanwhile
        self._outcome.clear()
        with self._outcome:
            if isinstance(found, AclflowError):
                ui.label(_said(str(found))).classes("text-negative").props("role=alert")
            else:
                self._show_imported(file, found)

    def _show_imported(self, file: _File, imported: Imported) -> None:
        ui.label(f"{words.of(len(imported.acl.rules), 'rule')}, {words.of(len(imported.acl.groups), 'address group')}")
        for note in imported.notes[:5]:
            ui.label(_said(note)).classes("small quiet")
        losses = (replace(loss, reason=_said(loss.reason)) for loss in imported.losses)
        _show_losses([*map(str, losses)], "carried over")

        def accept_imported() -> None:
            if self._desk.edit(ReplaceAll(imported.acl, file.name)):
                self._box.close()

        label = "Take its safe approximation" if imported.losses else "Put into the draft"
        ui.button(label, on_click=accept_imported).props("no-caps unelevated")


def _split_names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _said(text: str) -> str:
    """Name the questions of the dialog in place of the options of the command line."""
    for option, label in _QUESTIONS.items():
        text = re.sub(rf"{option}\b(?!-)", f"'{label}'", text)
    return text


def _find_format(file: _File, chosen: str | None) -> registry.Format:
    text = file.text.decode(errors="replace")
    registry.refuse_empty(text, file.name)
    return registry.format_named(chosen) if chosen else registry.guess(text, file.name)


def _check_origin(imported: Imported, tenant: str) -> None:
    """Refuse a file that was taken from another tenant's list. Raises BadInput."""
    origin = imported.taken_from
    if origin is not None and origin.tenant != tenant:
        raise BadInput(f"it was taken from the list of '{origin.tenant}', and this is '{tenant}'", place="taken_from")


def _show_losses(losses: Sequence[str], done: str) -> None:
    """Tell what is inexact, in as many places as the command line counts."""
    if not losses:
        return
    ui.label(f"{words.of(len(losses), 'place')} cannot be {done} exactly:").classes("chip warn")
    with ui.scroll_area().classes("w-full h-40"):
        for loss in losses[:_MOST_SHOWN]:
            ui.label(loss).classes("small mono")


def offer_export(desk: Desk) -> None:
    """Ask for a format, and download the draft in it.

    A format's losses are told, and come beside the file.
    """
    formats = {name: f"{name}: {each.summary}" for name, each in registry.FORMATS.items() if each.write}
    with dialog("Export this list", 560) as box:
        chosen = ui.select(formats, value="native", label="Format").props("outlined dense").classes("w-full")
        apart = ui.checkbox("One file for each endpoint, as security groups need it")
        outcome = ui.column().classes("w-full gap-1").props("aria-live=polite")

        async def write_file() -> None:
            outcome.clear()
            with outcome:
                try:
                    endpoints = await _endpoints(desk) if apart.value else {}
                    files = await asyncio.to_thread(_written, desk, chosen.value, endpoints)
                except AclflowError as error:
                    ui.label(str(error)).classes("text-negative").props("role=alert")
                    return
                _show_losses([*_exports_losses(files)], "said")
                beside = [f"{name}{_LOSSES}" for name, each in files.items() if each.losses]
                if beside:
                    ui.label(f"The archive says so beside the list, in {words.list_names(beside)}.").classes(
                        "small quiet"
                    )
                _download(desk.view.tenant, chosen.value, files)

        with ui.row().classes("w-full justify-end"):
            ui.button("Close", on_click=box.close).props("flat no-caps")
            ui.button("Download", icon="download", on_click=write_file).props("no-caps unelevated")


def _exports_losses(files: Mapping[str, Exported]) -> Iterator[str]:
    """Yield in words what each of several exported files could not express.

    A rule is named by its row on the page, and by its file where there are several.
    """
    for name, exported in files.items():
        where = f"{name}: " if len(files) > 1 else ""
        for loss in exported.losses:
            rule = f"Rule {loss.line} ('{loss.text}')" if loss.line else loss.text
            yield f"{where}{rule}: {loss.effect.value}: {loss.reason}"


async def _endpoints(desk: Desk) -> Mapping[str, tuple[Prefix, ...]]:
    """The tenant's endpoints by name. Raises BadInput where it has none."""
    known = await desk.endpoints()
    if not known:
        raise BadInput(f"{desk.view.tenant} has no endpoints")
    return known


def _written(desk: Desk, form: str, endpoints: Mapping[str, tuple[Prefix, ...]]) -> Mapping[str, Exported]:
    """Write the draft in a format, whole or for each endpoint, by file name."""
    draft, tenant = desk.draft, desk.view.tenant
    origin = TakenFrom(tenant, draft.base.version)
    if endpoints:
        written = write_at_endpoints(draft.acl, form, endpoints, origin)
    else:
        written = {tenant: registry.write(draft.acl, form, origin)}
    return {f"{name}.{form}.txt": exported for name, exported in written.items()}


def _download(tenant: str, form: str, files: Mapping[str, Exported]) -> None:
    """Give the only file; several, and what they could not say, as an archive."""
    if len(files) == 1 and not any(each.losses for each in files.values()):
        name, exported = next(iter(files.items()))
        ui.download(exported.text.encode(), name)
        return
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for name, exported in files.items():
            made.writestr(name, exported.text)
            if exported.losses:
                made.writestr(f"{name}{_LOSSES}", account(name, exported))
    ui.download(archive.getvalue(), f"{tenant}.{form}.zip")
