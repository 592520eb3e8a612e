"""Dialogs: a title for screen readers, a question, its error, two ways out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import ui

from orchestrator.errors import AclflowError


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
