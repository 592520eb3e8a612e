"""The operator's rules of a domain: edited in a draft, reviewed, committed.

They are asked before every tenant's list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from api.console import words
from api.console.parts.desk import DraftBar, OperatorDesk, go_on_from_newest
from api.console.parts.differences import draw_headline
from api.console.parts.domainpicker import pick_domain
from api.console.parts.enforcing import Enforcing
from api.console.parts.pieces import empty, heading, working
from api.console.parts.ruleedits import add_rule
from api.console.parts.ruleform import error_text
from api.console.parts.ruletable import RuleTable
from api.console.parts.view import View
from orchestrator.errors import AclflowError, Stale
from orchestrator.policy.describe import box_text
from orchestrator.policy.difference import Change
from orchestrator.policy.model import ReturnTraffic
from orchestrator.policy.operatorchanges import compare_operator_rules
from orchestrator.policy.rulechanges import RuleChange, list_changes
from orchestrator.policy.ruletext import rule_text

_MOST_SHOWN = 25
_NONE = "No rule yet. Rules that stand here are asked before the lists of all tenants, who cannot change them."
_SIGNS = {"added": "new", "removed": "deleted", "changed": "changed", "moved": "moved"}


async def build(view: View) -> None:
    """Draw the page of the rules."""
    domain = await _pick_domain(view, "operator-rules")
    if domain is not None:
        _RulesPage(await OperatorDesk.of_domain(view, domain)).draw()


async def build_review(view: View) -> None:
    """Draw the page that commits the draft."""
    domain = await _pick_domain(view, "operator-review")
    if domain is None:
        return
    desk = await OperatorDesk.of_domain(view, domain)
    if not desk.draft.edits:
        with empty("There is nothing to commit: the draft is the rules as they are."):
            ui.link("Back to the operator's rules", desk.list_path)
        return
    _ReviewPage(desk).draw()


async def _pick_domain(view: View, place: str) -> str | None:
    """The domain that the page is about, below what its rules mean."""
    ui.label(
        "These rules are asked before the list of any tenant of the domain. Source and destination are seen from the"
        " tenant's endpoints: ingress is what comes to them."
    ).classes("quiet")
    return await pick_domain(view, place)


class _RulesPage:
    def __init__(self, desk: OperatorDesk) -> None:
        self._desk = desk
        self._table = RuleTable(desk, writes=True)
        desk.on_change = self.refresh

    def draw(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            heading(f"Rules of {self._desk.domain}")
            self._count = ui.label().classes("small quiet").props("aria-live=polite")
            ui.space()
            ui.button("New rule", icon="add", on_click=lambda: add_rule(self._desk, {})).props("no-caps unelevated")
        self._table.draw()
        self._bar = DraftBar(self._desk)
        self.refresh()

    def refresh(self) -> None:
        """Show the draft as it is."""
        rules = self._desk.draft.acl.rules
        self._count.text = words.of(len(rules), "rule")
        self._bar.refresh()
        self._table.show(range(len(rules)), _NONE)


class _ReviewPage:
    def __init__(self, desk: OperatorDesk) -> None:
        self._desk = desk
        self._view = desk.view

    def draw(self) -> None:
        draft = self._desk.draft
        self._says = ui.column().classes("w-full gap-4").props("data-part=difference aria-busy=true")
        with self._says:
            working("Comparing the rules with those in force")
        with ui.column().classes("panel"):
            heading("Rules")
            changes = list_changes(draft.base.acl, draft.acl).rules
            for change in changes[:_MOST_SHOWN]:
                _draw_rule(change)
            if len(changes) > _MOST_SHOWN:
                ui.label(f"and {words.count(len(changes) - _MOST_SHOWN)} more").classes("quiet")
        with ui.row().classes("commit-bar"):
            ui.button("Back to the rules", on_click=lambda: ui.navigate.to(self._desk.list_path)).props("flat no-caps")
            self._commit = ui.button("Commit", icon="publish", on_click=self._do_commit).props("no-caps unelevated")
        self._view.parts.later(self._compare_rules)

    async def _compare_rules(self) -> None:
        draft = self._desk.draft
        tenants = await self._view.read("every tenant", lambda client: list(client.tenants.read_all()), fresh_s=2)
        number = sum(each.domain == self._desk.domain for each in tenants)
        domains = await self._view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=2)
        returns = next(ReturnTraffic(each.return_traffic) for each in domains if each.id == self._desk.domain)
        found = await asyncio.to_thread(compare_operator_rules, draft.base.acl, draft.acl, returns)
        self._says.clear()
        with self._says:
            draw_headline(found.says({rule.id for rule in draft.acl.rules}))
            ui.label(f"It holds for {words.of(number, 'tenant')} of {self._desk.domain}.").classes("quiet")
            for title, some in found.parts():
                _draw_packets(title, some)
        self._says.props("aria-busy=false")

    async def _do_commit(self) -> None:
        self._commit.set_enabled(False)
        draft, domain = self._desk.draft, self._desk.domain
        try:
            written = await self._view.do(
                lambda client: client.domains.set_operator_rules(domain, draft.acl.rules, etag=draft.base.etag)
            )
        except Stale:
            await go_on_from_newest(self._desk)
            self._commit.set_enabled(True)
            return
        except AclflowError as error:
            said = f"Not committed: {error_text(error, draft.acl)}"
            ui.notify(said, type="negative", multi_line=True, position="top", timeout=0, close_button=True)
            self._commit.set_enabled(True)
            return
        self._desk.forget()
        await Enforcing(self._view, domain, written, self._desk.list_path).follow()


def _draw_rule(change: RuleChange) -> None:
    rule = change.after or change.before
    with ui.row().classes("items-center gap-2 no-wrap"):
        ui.label(_SIGNS[change.kind]).classes("chip none")
        ui.label(change.id).classes("font-bold")
        ui.label(rule_text(rule) if rule else "").classes("mono")


def _draw_packets(title: str, some: Sequence[Change]) -> None:
    if not some:
        return
    with ui.column().classes("panel"):
        heading(title)
        for change in some[:_MOST_SHOWN]:
            ui.label(f"{change.direction.value}: {box_text(change.box)}").classes("mono")
        if len(some) > _MOST_SHOWN:
            ui.label(f"and {words.count(len(some) - _MOST_SHOWN)} more").classes("quiet small")
