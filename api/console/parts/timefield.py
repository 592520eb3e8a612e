"""A field for a future time, typed (``in 2h``, ``tomorrow 18:00``) or picked."""

from __future__ import annotations

import datetime as dt

from nicegui import ui

from api.console import words
from orchestrator.errors import AclflowError
from orchestrator.policy.timewords import read_time

_HELP = "in 2h, tomorrow 18:00, 2030-01-31"
_PICKED = "%Y-%m-%dT%H:%M"
"""As browsers write what was picked."""


class TimeField:
    """The field. Below it stands the time that is meant, or the error."""

    def __init__(self, label: str, value: str, zone: dt.tzinfo, *, place: str = "", may_be_empty: bool = False) -> None:
        """Times without a zone are of `zone`, in which they are shown too.

        Errors name `place`, or the label.
        """
        self._place = place or label
        self._zone = zone
        self._help = f"{_HELP}; empty: never" if may_be_empty else _HELP
        self.input = ui.input(label, value=value, on_change=self._say).props("outlined dense hide-bottom-space")
        self.input.classes("grow").on("blur", self._complain)
        with self.input.add_slot("append"):
            button = ui.button(icon="event").props("flat dense round size=sm aria-label='Pick a time'")
            with button, ui.menu() as menu, ui.column().classes("p-3 gap-2"):
                earliest = dt.datetime.now(zone).strftime(_PICKED)
                self._picked = ui.input(f"{label} at").props("type=datetime-local stack-label outlined dense")
                self._picked.props(f"min={earliest}")
                ui.button("Take it", on_click=lambda: self._take(menu)).props("no-caps unelevated dense")
        self._say()

    def read(self) -> dt.datetime | None:
        """The time that is meant; None where the field is empty. Raises BadInput."""
        said = (self.input.value or "").strip()
        if not said:
            return None
        try:
            return read_time(said, dt.datetime.now(dt.UTC), self._zone)
        except AclflowError as error:
            raise error.within(self._place) from None

    def _take(self, menu: ui.menu) -> None:
        """Write what was picked into the field, as it would be typed."""
        if self._picked.value:
            self.input.value = str(self._picked.value).replace("T", " ")
            self._complain()
        menu.close()

    def _say(self) -> None:
        """Say which time is meant; what cannot be read yet may become so."""
        self.input.props(remove="error error-message")
        try:
            found = self.read()
        except AclflowError:
            found = None
        said = self._help if found is None else f"that is {words.moment(found, self._zone)}"
        self.input.props(f'hint="{said}"')

    def _complain(self) -> None:
        """Show why the text in the field is no time."""
        try:
            self.read()
        except AclflowError as error:
            self.input.props(f'error error-message="{error.reason.replace(chr(34), chr(39))}"')
