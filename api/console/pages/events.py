"""Events, the newest first, as they happen."""

from __future__ import annotations

from nicegui import ui

from api.console.parts.eventfeed import draw_events
from api.console.parts.view import View
from orchestrator.errors import AclflowError
from orchestrator.wire.events import Event

_LIVE_S = 2.0
_PAGE = 50


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
