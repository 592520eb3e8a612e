"""Expectations: sentences that every commit is held to, tried on the draft."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk, DraftBar
from api.console.parts.pieces import empty, heading, working
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.errors import AclflowError, Stale
from orchestrator.policy.describe import name_decider
from orchestrator.wire.expectations import AskedList, JudgedExpectation, KeptExpectations

_EXAMPLE = "alice is 192.0.2.10\nalice reaches web1:443\nnobody reaches db1:22 from outside"


async def build(view: View) -> None:
    """Draw the page."""
    page = _ExpectationsPage(await Desk.of(view))
    await page.draw()


class _ExpectationsPage:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._view = desk.view
        self._etag: str | None = None
        """The state that the person saw last: what others wrote since is not replaced unseen."""

    async def draw(self) -> None:
        kept = await self._view.read("expectations", lambda client: client.expectations.read(self._view.tenant))
        self._etag = kept.etag
        writes = self._view.session.may_write
        ui.label(
            "One sentence a line, for all packets at once: a commit that breaks one is refused with a packet that "
            "shows it. Names are your endpoints, @groups of the list, and those of lines such as `alice is 192.0.2.10`."
        ).classes("quiet")
        self._text = (
            ui.textarea("Expectations", value=kept.text, placeholder=_EXAMPLE)
            .props(f"outlined autogrow spellcheck=false {'' if writes else 'readonly'}")
            .classes("w-full mono")
        )
        if kept.created is not None:
            moment = words.moment(kept.created, self._view.session.zone)
            ui.label(f"Kept by {kept.by()} since {moment}").classes("small quiet")
        with ui.row().classes("gap-3"):
            edits = self._desk.draft.edits
            self._button = ui.button(
                "Test the draft" if edits else "Test the list", icon="rule", on_click=self.test
            ).props("no-caps outline")
            if writes:
                ui.button("Keep", icon="save", on_click=self._keep_expectations).props("no-caps unelevated")
        self._outcome = ui.column().classes("w-full gap-3").props("aria-live=polite data-part=expectations")
        bar = DraftBar(self._desk)
        self._desk.on_change = bar.refresh
        await self.test()

    async def test(self) -> None:
        """Hold the draft, or the list where there is none, to what is written."""
        self._outcome.clear()
        draft = self._desk.draft
        acl, text, tenant = draft.acl if draft.edits else None, self._text.value or "", self._view.tenant
        if not text.strip():
            with self._outcome, empty("Nothing is expected yet. Write a sentence such as:"):
                ui.label("nobody reaches 198.51.100.20:22 from outside").classes("mono")
            return
        self._button.set_enabled(False)
        self._outcome.props("aria-busy=true")
        with self._outcome:
            working("Testing the draft" if acl else "Testing the list")
        try:
            found = await self._view.session.reading.once(lambda: self._view.client.acls.test(tenant, acl, text))
        except AclflowError as error:
            self._outcome.clear()
            self._show_error(error)
            return
        finally:
            self._outcome.props("aria-busy=false")
            self._button.set_enabled(True)
        self._outcome.clear()
        with self._outcome:
            draw_outcomes(found.expectations)

    async def _keep_expectations(self) -> None:
        text, tenant = self._text.value or "", self._view.tenant
        try:
            kept = await self._view.do(lambda client: _keep_or_delete(client, tenant, text, self._etag))
        except Stale:
            await self._show_theirs()
            return
        except AclflowError as error:
            self._outcome.clear()
            self._show_error(error)
            return
        self._etag = kept.etag
        ui.notify("Every commit is held to it from now on." if text.strip() else "Nothing is expected any more.")
        await self.test()

    async def _show_theirs(self) -> None:
        """Show what somebody else keeps since; the next press of *Keep* replaces that."""
        kept = await self._view.read("expectations", lambda client: client.expectations.read(self._view.tenant))
        self._etag = kept.etag
        self._outcome.clear()
        with self._outcome, ui.column().classes("panel gap-1").props("role=alert"):
            by = f" ({kept.by()})" if kept.author else ""
            ui.label(f"Somebody changed the expectations meanwhile{by}. Nothing was written. They are now:")
            ui.label(kept.text or "Nothing is expected.").classes("mono").style("white-space: pre-wrap")
            ui.label("Your text is as you typed it. Keep puts it in the place of theirs.").classes("quiet")

    def _show_error(self, error: AclflowError) -> None:
        with self._outcome:
            ui.label(str(error)).classes("text-negative").props("role=alert")


def _keep_or_delete(client: Client, tenant: str, text: str, etag: str | None) -> KeptExpectations:
    if text.strip():
        return client.expectations.keep(tenant, text, etag=etag)
    client.expectations.delete(tenant, etag=etag)
    return client.expectations.read(tenant)


def draw_outcomes(outcomes: Sequence[JudgedExpectation]) -> None:
    """Draw each expectation, broken ones first, with the packet and its rule."""
    broken = [each for each in outcomes if not each.kept]
    heading(
        f"{words.of(len(broken), 'expectation')} broken, of {words.count(len(outcomes))}"
        if broken
        else f"All {words.of(len(outcomes), 'expectation')} kept"
    )
    for each in (*broken, *(each for each in outcomes if each.kept)):
        with ui.column().classes("panel gap-1"):
            with ui.row().classes("items-center gap-3 no-wrap"):
                ui.label("kept" if each.kept else "broken").classes(f"chip {'good' if each.kept else 'bad'}")
                ui.label(each.text).classes("font-bold")
            if not each.kept:
                ui.label(f"{each.witness}").classes("mono")
                ui.label("; ".join(map(_describe_step, each.decided))).classes("quiet")


def _describe_step(step: AskedList) -> str:
    by = name_decider(step.rule or None, "rule {}")
    return f"{step.direction or 'the operator'}: {step.action}, by {by}"
