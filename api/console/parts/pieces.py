"""Small pieces that pages use, so that they look and are read alike everywhere.

Headings, tiles and facts; parts of a page that show progress until they are drawn; dialogs, which have a title for
screen readers, a question, its error, and two ways out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from nicegui import ui

from api.console import words
from orchestrator.errors import AclflowError


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


@contextmanager
def dialog(title: str, width: int = 560, *, opened: bool = True) -> Iterator[ui.dialog]:
    """A dialog whose contents are drawn within the block."""
    box = ui.dialog(value=opened).props(f'role=dialog aria-modal=true aria-label="{title.replace(chr(34), chr(39))}"')
    with box, ui.card().classes("panel dialog").style(f"width: min({width}px, 94vw); max-width: none"):
        ui.label(title).classes("text-lg font-bold").props("role=heading aria-level=2")
        yield box


class Way:
    """The foot of a dialog: it shows the error of the action, or closes."""

    def __init__(self, box: ui.dialog, verb: str, act: Callable[[], Awaitable[None]], *, colour: str = "") -> None:
        """`act` does what the button says.

        An AclflowError or a ValueError of its is shown, and the dialog stays.
        """
        self._box = box
        self._act = act
        self._wrong = ui.label().classes("text-negative small").props("role=alert")
        self._wrong.set_visibility(False)
        with ui.row().classes("w-full justify-end gap-2"):
            ui.button("Cancel", on_click=box.close).props("flat no-caps")
            self.button = ui.button(verb, on_click=self._try_action).props(f"no-caps unelevated {colour}")

    async def _try_action(self) -> None:
        self._wrong.set_visibility(False)
        self.button.props("loading")
        try:
            await self._act()
        except (AclflowError, ValueError) as error:
            self._wrong.text = str(error)
            self._wrong.set_visibility(True)
            return
        finally:
            self.button.props(remove="loading")
        self._box.close()


async def is_sure(title: str, text: str, verb: str) -> bool:
    """Ask before something that cannot be taken back."""
    with dialog(title, 460, opened=False) as box:
        ui.label(text)
        with ui.row().classes("w-full justify-end gap-2"):
            ui.button("Cancel", on_click=box.close).props("flat no-caps autofocus")
            ui.button(verb, on_click=lambda: box.submit(True)).props("no-caps unelevated color=negative")
    return bool(await box)
