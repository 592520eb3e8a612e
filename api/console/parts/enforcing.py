"""The dialog after a commit: it waits until every point holds it."""

from __future__ import annotations

import time

from nicegui import ui

from api.console import words
from api.console.parts.pieces import dialog
from api.console.parts.tree import approvals_path
from api.console.parts.view import View
from orchestrator.client import Client, Written
from orchestrator.errors import AclflowError
from orchestrator.wire.common import Proposal
from orchestrator.wire.domains import Enforced, Lagging

_LOOK_S = 0.25
_PATIENCE_S = 30.0
"""When enforcement takes so long, it is said who is waited for, and looked less often."""
_LATER_S = 2.0


def _points(client: Client, domain: str) -> tuple[str, ...]:
    """Name all that enforces a domain's lists: its hosts, its edge switches, its firewalls. Blocks."""
    pops = [client.pops.read(each["name"]) for each in client.pops.read_all()]
    edges = [edge["name"] for pop in pops if pop["domain"] == domain for edge in pop["edges"]]
    firewalls = [each.name for each in client.firewalls.read_all(domain)]
    hosts = [each.name for each in client.domains.read_hosts(domain)]
    return tuple(dict.fromkeys((*edges, *firewalls, *hosts)))


class Enforcing:
    """The dialog that waits until every enforcement point was read back at the new generation."""

    def __init__(self, view: View, domain: str, written: Written, after: str, note: str = "") -> None:
        """`after` is the page that follows; `note` is said beside the progress."""
        self._view = view
        self._domain = domain
        self._written = written
        self._after = after
        self._note = note
        self._begun = time.monotonic()

    async def follow(self) -> None:
        """Open the dialog, and look until all is in force."""
        if self._written.proposal is not None:
            self._say_proposed(self._written.proposal)
            return
        points: tuple[str, ...] = ()
        if self._view.session.is_admin:
            points = await self._view.read(
                ("points", self._domain), lambda client: _points(client, self._domain), fresh_s=5
            )
        with dialog(f"Version {self._written.version} is committed", 460) as box:
            box.props("persistent")
            self._text = ui.label("Waiting until it is in force …").props("aria-live=polite")
            if self._note:
                ui.label(self._note).classes("text-warning")
            self._bar = ui.linear_progress(show_value=False).props("indeterminate rounded")
            self._rows = {point: self._add_row(point) for point in points}
            with ui.row().classes("w-full justify-end"):
                self._close = ui.button("Go on without waiting", on_click=lambda: ui.navigate.to(self._after))
                self._close.props("flat no-caps")
            self._looks = ui.timer(_LOOK_S, self._look)
        self._box = box

    def _say_proposed(self, proposal: Proposal) -> None:
        """Say that nothing has changed until another person approves it, and where that is done."""
        about = proposal.tenant or f"domain/{proposal.domain}"
        with dialog("Proposed: nothing has changed yet", 460):
            until = words.moment(proposal.expires, self._view.session.zone)
            ui.label(f"Another person must approve it until {until}, on the page Approvals or by:")
            ui.label(f"aclflow proposal approve {about} {proposal.id[:8]}").classes("mono")
            with ui.row().classes("w-full justify-end"):
                page = approvals_path(proposal.domain, proposal.tenant)
                ui.button("See what waits", on_click=lambda: ui.navigate.to(page)).props("flat no-caps")
                ui.button("Done", on_click=lambda: ui.navigate.to(self._after)).props("flat no-caps")

    def _add_row(self, host: str) -> tuple[ui.icon, ui.label]:
        with ui.row().classes("items-center gap-2 w-full"):
            icon = ui.icon("hourglass_top").classes("quiet")
            ui.label(host).classes("grow")
            return icon, ui.label("waiting").classes("small quiet")

    async def _look(self) -> None:
        """Show which hosts are still behind, and stop looking when none is.

        It may take any time.
        """
        generation, waited_s = self._written.generation, time.monotonic() - self._begun
        try:
            state = await self._view.session.reading.once(
                lambda: self._view.client.domains.read_generation(self._domain, generation)
            )
        except AclflowError as error:
            self._text.text = f"The service does not answer: {error.reason}. The list is committed all the same."
            return
        self._show_state(state)
        if state.done:
            self._looks.deactivate()
            self._bar.set_visibility(False)
            self._close.text = "Done"
            self._box.props(remove="persistent")
            after = words.seconds(time.monotonic() - self._begun)
            self._text.text = f"{state.describe_done().capitalize()}, {after} after the commit."
        elif waited_s > _PATIENCE_S:
            self._looks.interval = _LATER_S
            self._text.text = f"{_still(state)} It is committed, and goes on being tried."

    def _show_state(self, state: Enforced) -> None:
        lagging = {each.host: each for each in state.laggards}
        if not self._rows:
            late = len(state.laggards)
            self._text.text = f"{words.of(late, 'enforcement point')} behind" if late else ""
        for host, (icon, text) in self._rows.items():
            shape, look, said = _progress(lagging.get(host))
            icon.props(f"name={shape}")
            icon.classes(replace=look)
            text.text = said


def _progress(late: Lagging | None) -> tuple[str, str, str]:
    """Return a point's icon, its look, and its state in words."""
    if late is None:
        return "check_circle", "text-positive", "in force"
    if late.error:
        return "error", "text-negative", late.error
    return "hourglass_top", "quiet", late.word


def _still(state: Enforced) -> str:
    """Name the points that are behind, as far as the viewer may know."""
    names = [each.host for each in state.laggards if each.host is not None]
    who = words.list_names(names) if names else words.of(len(state.laggards), "enforcement point")
    return f"Behind: {who}."
