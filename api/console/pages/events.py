"""Events, the newest first, as they happen."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress

from nicegui import ui

from api.console import words
from api.console.parts.view import View
from orchestrator.errors import AclflowError
from orchestrator.eventkinds import KINDS
from orchestrator.wire.events import Event

_LIVE_S = 2.0
_PAGE = 50

_BAD = frozenset(
    {
        "enforcer.down", "firewall.unmade", "host.disconnected", "host.drifted", "host.full", "host.impersonated",
        "host.refused",
    }
)  # fmt: skip
_GOOD = frozenset(
    {"acl.enforced", "generation.enforced", "firewall.made", "host.recovered", "enforcer.up", "enforcer.enrolled"}
)
_MOST_WORDS = 6


def draw_events(events: Sequence[Event], zone: dt.tzinfo, *, for_owners: bool = False) -> None:
    """Draw events in the order given; `for_owners` of a list, in their words."""
    if not events:
        ui.label("Nothing yet.").classes("quiet")
    for event in events:
        with ui.element("div").classes("event"):
            kind = "bad" if event.kind in _BAD else "good" if event.kind in _GOOD else "none"
            ui.label(event.kind).classes(f"chip {kind}")
            with ui.column().classes("gap-0").style("min-width: 0"):
                text = event_text(event, zone)
                ui.label(words.for_owners(text) if for_owners else text).classes("small")
                ui.label(words.moment(event.time, zone)).classes("small quiet number")


def event_text(event: Event, zone: dt.tzinfo) -> str:
    """Say an event in words: what happened, to what, by whom."""
    known = KINDS.get(event.kind)
    told = ((name, _value_text(value, zone)) for name, value in event.facts().items())
    detail = [f"{name.replace('_', ' ')} {text}" for name, text in told if text]
    said = f"{event.subject}: {known.says if known else event.kind}"
    by = event.by()
    return said + (f" ({', '.join(detail[:_MOST_WORDS])})" if detail else "") + (f"; by {by}" if by else "")


def _value_text(value: object, zone: dt.tzinfo) -> str:
    """A detail in words; empty where there is nothing to say."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_value_text(each, zone)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value_text(each, zone) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        with suppress(ValueError):
            time = dt.datetime.fromisoformat(value)
            return words.moment(time, zone) if time.tzinfo is not None else value
    return str(value)


async def build(view: View) -> None:
    """Draw the page."""
    page = _Events(view)
    page.draw()
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)


class _Events:
    def __init__(self, view: View) -> None:
        self._view = view
        self._most = _PAGE
        self._shown: tuple[Event, ...] = ()

    def draw(self) -> None:
        self._search = ui.input(placeholder="Only events that say …").props(
            "outlined dense clearable debounce=250 aria-label='Search events'"
        )
        self._search.classes("w-full").on_value_change(self._draw_page)
        self._list = ui.column().classes("panel gap-2")
        self._older = ui.button("Older events", on_click=self._turn_back).props("flat no-caps")

    async def refresh(self) -> None:
        """Show the newest events."""
        most = self._most
        try:
            page = await self._view.read(
                ("events", most), lambda client: client.events.read_newest(limit=most), fresh_s=_LIVE_S - 0.5
            )
        except AclflowError:
            return
        if page.items != self._shown:
            self._shown = page.items
            self._draw_page()
        self._older.set_visibility(page.next is not None and most < 1000)

    def _draw_page(self) -> None:
        wanted = (self._search.value or "").lower()
        found = [event for event in self._shown if wanted in _make_searchable_text(event)]
        self._list.clear()
        with self._list:
            draw_events(found, self._view.session.zone)

    async def _turn_back(self) -> None:
        self._most = min(1000, self._most * 4)
        await self.refresh()


def _make_searchable_text(event: Event) -> str:
    return f"{event.kind} {event.subject} {dict(event.detail)} {event.by()}".lower()
