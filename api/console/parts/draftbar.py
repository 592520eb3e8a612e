"""The bar at a page's foot while the draft has uncommitted changes."""

from __future__ import annotations

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk


class DraftBar:
    """Says how many changes wait, and what can be done with them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._bar = ui.element("div").classes("draft-bar").props("role=region aria-label='Changes not committed'")
        with self._bar:
            ui.icon("edit_note").classes("text-xl text-primary").props("aria-hidden=true")
            self._text = ui.label().classes("grow").props("aria-live=polite")
            ui.button("Undo", icon="undo", on_click=desk.undo).props("flat no-caps dense")
            ui.button("Discard", on_click=desk.discard).props("flat no-caps dense color=negative")
            ui.button("Review and commit", on_click=lambda: ui.navigate.to(desk.review_path)).props(
                "no-caps unelevated"
            )
        self.refresh()

    def refresh(self) -> None:
        """Show the draft as it is."""
        edits = self._desk.draft.edits
        if edits:
            self._text.text = f"{words.of(len(edits), 'change')} not committed; the last: {edits[-1]}"
        self._bar.set_visibility(bool(edits))
