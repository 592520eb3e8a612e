"""Small pieces that every page uses, so that they look and are read alike everywhere."""

from __future__ import annotations

from contextlib import AbstractContextManager

from nicegui import ui


def heading(text: str) -> None:
    """The title of a part of a page."""
    ui.html(f"<h2 class='section'>{text}</h2>", sanitize=False)


def empty(*lines: str) -> AbstractContextManager[ui.element]:
    """What a page shows where there is nothing yet: what it would be, and what to do next. More may be put into it."""
    box = ui.element("div").classes("empty")
    with box:
        for line in lines:
            ui.label(line)
    return box
