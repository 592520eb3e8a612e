"""Small pieces that every page uses, so that they look and are read alike everywhere."""

from __future__ import annotations

from contextlib import AbstractContextManager

from nicegui import ui


def heading(text: str) -> None:
    """The title of a part of a page."""
    ui.html(f"<h2 class='section'>{text}</h2>", sanitize=False)


def empty(*lines: str) -> AbstractContextManager[ui.element]:
    """Draw the box of an empty page: what belongs there, what to do next.

    More may be put into it.
    """
    box = ui.element("div").classes("empty")
    with box:
        for line in lines:
            ui.label(line)
    return box


def at_work() -> None:
    """Draw the sign that something is being done."""
    ui.element("span").classes("at-work").props("aria-hidden=true")


def fact(name: str, value: str) -> None:
    """A line of a list of facts, inside a `dl` of the class facts."""
    with ui.element("dt"):
        ui.label(name)
    with ui.element("dd").classes("mono"):
        ui.label(value)


class Tile:
    """A number that stands out, with what it is above and more of it below."""

    def __init__(self, value: ui.label, below: ui.label | ui.link) -> None:
        self._value = value
        self._below = below

    def show(self, value: str, below: str | None = None) -> None:
        """Show another number, and other words below it if there are any."""
        self._value.text = value
        if below is not None:
            self._below.text = below


def tile(title: str, below: str = "", target: str = "") -> Tile:
    """Draw a tile; where `target` is given, what stands below leads there."""
    with ui.column().classes("tile"):
        ui.label(title).classes("quiet small")
        value = ui.label("…").classes("value")
        return Tile(
            value, ui.link(below, target).classes("small") if target else ui.label(below).classes("quiet small")
        )
