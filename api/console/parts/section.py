"""Parts of a page, each with a progress line until it is drawn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from api.console import words
from api.console.parts.pieces import at_work, heading

_TICK_S = 1.0


class Section:
    """A titled part of a page. `aria-busy` says whether it is complete."""

    def __init__(self, name: str, title: str, doing: str) -> None:
        self._title = title
        self._column = ui.column().classes("w-full gap-3").props(f"data-part={name} aria-busy=true")
        with self._column:
            self._draw_heading()
            working(doing)

    @contextmanager
    def fill(self, *, complete: bool = True) -> Iterator[None]:
        """Draw what came into it, in place of what is there."""
        self._column.clear()
        with self._column:
            self._draw_heading()
            yield
        if complete:
            self._column.props("aria-busy=false")

    def drop(self) -> None:
        """Take it off the page."""
        self._column.delete()

    def _draw_heading(self) -> None:
        if self._title:
            heading(self._title)


def working(doing: str) -> None:
    """Say what is being done, and for how long now, until it is cleared away."""
    began = time.monotonic()
    with ui.row().classes("items-center gap-3 quiet"):
        at_work()
        ui.label(f"{doing} …").props("aria-live=polite")
        passed = ui.label("").classes("number small")

    def show_seconds() -> None:
        passed.text = words.seconds(round(time.monotonic() - began))

    ui.timer(_TICK_S, show_seconds, immediate=False)
