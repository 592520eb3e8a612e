"""The review of a draft: difference, recorded traffic, expectations, findings and cost; then the commit."""

from __future__ import annotations

import asyncio
import datetime as dt
from asyncio import Task
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from nicegui import ui

from api.console import words
from api.console.pages.draft import share
from api.console.pages.expectations import draw_outcomes
from api.console.parts.desk import Desk, go_on_from_current, go_on_from_newest
from api.console.parts.differences import COSTS, Json, draw_cost, draw_difference, draw_headline, draw_traffic
from api.console.parts.enforcing import Enforcing
from api.console.parts.findings import draw_findings, severity_words
from api.console.parts.pieces import Section, empty, heading
from api.console.parts.ruleform import error_text
from api.console.parts.tree import path_of
from api.console.parts.view import View
from api.console.reading import begin_task
from orchestrator.client import Review
from orchestrator.client.lists import Part
from orchestrator.errors import AclflowError, Stale
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_text
from orchestrator.policy.headline import Sentence, counts_wanted, headline

_LASTS = {
    0: "for good",
    60: "only if confirmed within a minute",
    300: "only if confirmed within 5 minutes",
    1800: "only if confirmed within 30 minutes",
    7200: "only if confirmed within 2 hours",
}
"""How long a commit stays, by the seconds that there are to confirm it."""
_MOST_ENDS = 10
_WHAT_FOR = "What is it for?"
_COUNTED = 500
"""Rules that the service tells the counts of at once."""


async def build(view: View) -> None:
    """Draw the page."""
    desk = await Desk.of(view)
    moved = await go_on_from_current(desk) if desk.draft.edits else ""
    if moved:
        with ui.element("div").classes("banner").props("role=status"):
            ui.icon("merge")
            ui.label(moved)
    if not desk.draft.edits:
        with empty("There is nothing to commit: the draft is the list as it is."):
            ui.link("Back to the access list", path_of("acl", view.tenant))
        return
    _ReviewPage(desk).draw()


class _ReviewPage:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._view = desk.view

    def draw(self) -> None:
        draft = self._desk.draft
        self._says = Section("sentence", "", "Looking for what is dangerous in the change")
        with ui.column().classes("panel"):
            heading("Changes")
            for edit in draft.edits[:50]:
                ui.label(f"• {edit}")
            if len(draft.edits) > 50:
                ui.label(f"and {len(draft.edits) - 50} more").classes("quiet")
            self._draw_ends()
        rules = words.of(len(draft.acl.rules), "rule")
        self._found = ui.column().classes("w-full gap-4")
        with self._found:
            self._differs = Section("difference", "", f"Comparing {rules} with the list as it is")
            self._recorded = Section("traffic", "Recorded traffic", "Asking packets of the last 24 hours")
            self._expected = Section("expectations", "", f"Holding {rules} to what is expected of them")
            self._odd = Section("findings", "Findings that this change brings", f"Looking for what is odd in {rules}")
            self._cost = Section("cost", "Cost", "Counting what each kind of device needs")
        with ui.row().classes("commit-bar"):
            self._comment = (
                ui.input(f"{_WHAT_FOR} (kept in the history)", value=draft.comment, on_change=self._keep_comment)
                .props("outlined dense maxlength=1000")
                .classes("grow")
            )
            self._lasts = ui.select(_LASTS, value=0, label="Keep it").props("outlined dense").classes("w-72")
            ui.button("Share a link", icon="share", on_click=lambda: share(self._desk)).props("flat no-caps")
            ui.button("Back to the list", on_click=lambda: ui.navigate.to(self._desk.list_path)).props("flat no-caps")
            self._commit = ui.button("Commit", icon="publish", on_click=self._do_commit).props("no-caps unelevated")
        self._despite: ui.checkbox | None = None
        self._ask()
        self._view.parts.later(self._look)

    def _draw_ends(self) -> None:
        """Say which of the rules that are new or changed end by themselves."""
        draft, zone = self._desk.draft, self._view.session.zone
        marks = draft.marks()
        ends = sorted((rule.expires, rule.id) for rule in draft.acl.rules if rule.expires and rule.id in marks)
        for end, rule in ends[:_MOST_ENDS]:
            with ui.row().classes("items-center gap-2"):
                ui.label("expiring").classes("chip warn")
                ui.label(
                    f"'{rule}' ends by itself {words.moment(end, zone)}, {words.ago(end, dt.datetime.now(dt.UTC))}"
                )

    def _ask(self) -> None:
        """Start reading each part of the review, while the browser still loads the page.

        The difference is wanted first; the cost takes longest, and is asked for behind it.
        """
        text = begin_task(asyncio.to_thread(acl_text, self._desk.draft.acl))
        self._difference = begin_task(self._ask_part(text, "difference"))
        self._findings = begin_task(self._ask_part(text, "findings"))
        self._after = {part: begin_task(self._ask_part(text, part, self._difference)) for part in COSTS}

    async def _ask_part(self, text: Task[bytes], part: Part, behind: Task[Review] | None = None) -> Review:
        if behind is not None:
            await asyncio.wait([behind])
        client, tenant, document = self._view.client, self._view.tenant, await text
        return await self._view.session.reading.once(lambda: client.acls.check(tenant, document, (part,)))

    async def _look(self) -> None:
        """Show each part as soon as it is known."""
        try:
            async with asyncio.TaskGroup() as parts:
                parts.create_task(self._show_difference())
                parts.create_task(self._show_traffic())
                parts.create_task(self._show_expectations())
                parts.create_task(self._show_findings())
                parts.create_task(self._show_costs())
        except* AclflowError as refused:
            self._says.drop()
            self._found.clear()
            with self._found, ui.element("div").classes("banner").props("role=alert"):
                ui.icon("error")
                ui.label(f"The service would refuse this list: {self._said(refused.exceptions[0])}")
            self._commit.set_enabled(False)

    def _said(self, error: Exception) -> str:
        """Say an error with the words of the page."""
        if isinstance(error, AclflowError) and error.place == "comment":
            return f"{_WHAT_FOR}: {error.reason}"
        return error_text(error, self._desk.draft.acl) if isinstance(error, AclflowError) else str(error)

    async def _show_difference(self) -> None:
        changes = (await self._difference).difference
        says = await self._headline(changes)
        with self._says.fill():
            draw_headline(says)
        with self._differs.fill():
            draw_difference(changes)

    async def _show_traffic(self) -> None:
        """Show what of recorded packets would fare otherwise; nothing where there are none."""
        tenant, acl = self._view.tenant, self._desk.draft.acl
        await asyncio.wait([self._difference])
        try:
            traffic = await self._view.session.reading.once(lambda: self._view.client.acls.check_traffic(tenant, acl))
        except AclflowError as error:  # a commit does not depend on it
            with self._recorded.fill():
                ui.label(f"Recorded packets cannot be asked: {error}").classes("quiet")
            return
        if not traffic.packets:
            self._recorded.drop()
            return
        with self._recorded.fill():
            draw_traffic(traffic)

    async def _show_expectations(self) -> None:
        tenant, acl = self._view.tenant, self._desk.draft.acl
        await asyncio.wait([self._difference])
        found = await self._view.session.reading.once(lambda: self._view.client.acls.test(tenant, acl))
        if not found.expectations:
            self._expected.drop()
            return
        with self._expected.fill():
            draw_outcomes(found.expectations)
            if found.broken:
                self._despite = ui.checkbox(words.DESPITE).props("color=negative")

    async def _headline(self, changes: Sequence[Json] | None) -> tuple[Sentence, ...]:
        """Say the change in sentences, with the counts of rules that lose packets."""
        tenant = await self._view.read("tenant", lambda client: client.tenants.read(self._view.tenant), fresh_s=10)
        packets: dict[str, int] = {}
        rules = counts_wanted(changes)
        if 0 < len(rules) <= _COUNTED:
            since = dt.datetime.now(dt.UTC) - dt.timedelta(hours=24)
            with suppress(AclflowError):
                packets = await self._view.session.reading.once(
                    lambda: self._view.client.hits.read_packets_since(self._view.tenant, rules, since)
                )
        kept = {rule.id for rule in self._desk.draft.acl.rules}
        return headline(changes, own=tuple(map(Prefix.parse, tenant.prefixes)), kept=kept, packets=packets)

    async def _show_findings(self) -> None:
        review = await self._findings
        total = sum(review.counts.values())
        with self._odd.fill():
            brought = severity_words(review.brought_severities)
            ui.label(f"Brought: {brought}. The list has {words.of(total, 'finding')} in all.").classes("quiet")
            if review.brought:
                draw_findings(review.brought, review.brought_counts, self._view.tenant)

    async def _show_costs(self) -> None:
        await asyncio.wait([self._findings])
        before = {part: begin_task(self._view.standing(part)) for part in COSTS}
        for part in COSTS:
            after, now = await self._after[part], await before[part]
            with (
                self._cost.fill(complete=part == "firewall"),
                ui.column().classes("panel").style("max-width: 520px"),
            ):
                draw_cost(after.cost, now.cost, counting=part == "cost")

    async def _do_commit(self) -> None:
        self._commit.set_enabled(False)
        draft, tenant, comment = self._desk.draft, self._view.tenant, self._comment.value.strip()
        despite = self._despite is not None and bool(self._despite.value)
        confirm_s = int(self._lasts.value) or None
        try:
            written = await self._view.do(
                lambda client: client.acls.put(
                    tenant, draft.acl, etag=draft.base.etag, comment=comment, despite=despite, confirm_s=confirm_s
                )
            )
        except Stale:
            await go_on_from_newest(self._desk)
            self._commit.set_enabled(True)
            return
        except AclflowError as error:
            ui.notify(
                f"Not committed: {self._said(error)}",
                type="negative",
                multi_line=True,
                position="top",
                timeout=0,
                close_button=True,
            )
            self._commit.set_enabled(True)
            return
        self._desk.forget()
        seen = await self._view.read("tenant", lambda client: client.tenants.read(tenant), fresh_s=60)
        note = f"Keep it {_LASTS[confirm_s]}: each page of the list asks." if confirm_s and written.changed else ""
        await Enforcing(self._view, seen.domain, written, self._desk.list_path, note).follow()

    def _keep_comment(self) -> None:
        """Keep the comment in the draft, so that another visit does not lose it."""
        self._desk.put(replace(self._desk.draft, comment=self._comment.value or ""))
