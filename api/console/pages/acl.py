"""The access list: an ordered table to search, to put into another order, and to edit before anything is committed."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nicegui import events, ui

from api.console import words
from api.console.draft import Move, Remove, Replace
from api.console.parts.desk import Desk
from api.console.parts.draftbar import DraftBar
from api.console.parts.files import offer_export, take_import
from api.console.parts.ruleedits import add_rule, change_rule
from api.console.parts.ruleform import document_of
from api.console.parts.rules import edited, row_of
from api.console.parts.table import BODY, COLUMNS
from api.console.parts.view import View
from orchestrator.errors import AclflowError
from orchestrator.policy.search import find
from orchestrator.wire.hits import RuleHits

PAGE_ROWS = 25
_HITS_S = 5.0
_FOCUS = """setTimeout(() => {
  [...document.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === WHERE)?.focus();
}, 400)"""
"""Gives the keyboard to a part of a row, once what was changed is drawn."""
_NOTHING_FOUND = "No rule fits the search. Take a word of it away, or clear it to see every rule."
_NO_RULES = "No rules yet. Nothing gets in until a rule permits it: add one, or import a list that you have."


async def build(view: View) -> None:
    """Draw the page."""
    page = _AclPage(await Desk.of(view))
    page.draw(view.query.get("q", ""))
    await page.read_hits()


class _AclPage:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._view = desk.view
        self._writes = desk.view.session.may_write
        self._shown: tuple[str, ...] = ()
        """The rules on the page that is seen."""
        self._hits: Mapping[str, RuleHits] = {}
        self._wrong: dict[str, dict[str, tuple[str, str]]] = {}
        """By rule and field: what was written into a cell and is no such field, and why."""
        desk.on_change = self.refresh

    def draw(self, asked: str) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._search = (
                ui.input(placeholder="Search: 10.1.2.3:443, tcp, @group, a name …", value=asked)
                .props("outlined dense clearable debounce=250 aria-label='Search rules'")
                .classes("grow")
                .on_value_change(self._searched)
            )
            if self._writes:
                ui.button("New rule", icon="add", on_click=self._new).props("no-caps unelevated")
                ui.button("Import", icon="upload_file", on_click=lambda: take_import(self._desk)).props(
                    "no-caps outline"
                )
            ui.button("Export", icon="download", on_click=lambda: offer_export(self._desk)).props("no-caps outline")
        self._count = ui.label().classes("small quiet").props("aria-live=polite")
        self._table = (
            ui.table(
                columns=COLUMNS,
                rows=[],
                row_key="id",
                pagination={"rowsPerPage": PAGE_ROWS, "page": 1, "rowsNumber": 0},
            )
            .classes("w-full rules")
            .props("flat :rows-per-page-options='[25,50,100,200]' wrap-cells rows-per-page-label='Rules a page'")
        )
        self._table.add_slot("body", BODY)
        self._table.add_slot("no-data", "<div class='empty'>{{ props.message }}</div>")
        self._table.on("request", self._paged)
        self._table.on("act", self._act)
        self._table.on("dropped", self._dropped)
        self._table.on("cell", self._edited)
        acl = self._desk.draft.acl
        ends = " · ".join(
            f"{name}: {what.value}" for name, what in (("ingress", acl.ingress_default), ("egress", acl.egress_default))
        )
        ui.label(f"Where no rule matches: {ends}").classes("small quiet")
        if self._writes:
            ui.label(
                "Drag a rule to another place, or press the arrow keys on its number; click a cell to edit it."
            ).classes("small quiet")
        self._bar = DraftBar(self._desk)
        self.refresh()
        ui.timer(_HITS_S, self.read_hits)

    # ------------------------------------------------------------------------------------------------------ the table

    def refresh(self) -> None:
        """Show the draft as it is."""
        acl = self._desk.draft.acl
        self._found = find(acl, self._search.value or "")
        self._count.text = (
            words.of(len(acl.rules), "rule")
            if len(self._found) == len(acl.rules)
            else f"{words.count(len(self._found))} of {words.of(len(acl.rules), 'rule')}"
        )
        self._table.props["no-data-label"] = _NOTHING_FOUND if acl.rules else _NO_RULES
        self._bar.refresh()
        self._show()

    def _show(self) -> None:
        pagination = dict(self._table.pagination)
        size = pagination["rowsPerPage"] or PAGE_ROWS
        last = max(0, len(self._found) - 1) // size + 1
        page = min(pagination.get("page", 1), last)
        acl, marks = self._desk.draft.acl, self._desk.draft.marks()
        rows = []
        indices = self._found[(page - 1) * size : page * size]
        self._shown = tuple(acl.rules[index].id for index in indices)
        for index in indices:
            rule = acl.rules[index]
            hits = self._hits.get(rule.id)
            row = row_of(index + 1, rule, marks.get(rule.id, ""))
            wrong = self._wrong.get(rule.id, {})
            row["tried"] = {field: text for field, (text, _) in wrong.items()}
            row["wrong"] = {field: reason for field, (_, reason) in wrong.items()}
            counted = {"packets": words.short(hits.packets), "ahead": _ahead(hits)} if hits else {}
            rows.append({**row, **counted, "may_move": self._writes})
        self._table.pagination = {**pagination, "page": page, "rowsPerPage": size, "rowsNumber": len(self._found)}
        self._table.rows = rows

    async def _paged(self, event: events.GenericEventArguments) -> None:
        self._table.pagination = event.args["pagination"]
        self._show()
        await self.read_hits()

    async def _searched(self) -> None:
        self._table.pagination = {**self._table.pagination, "page": 1}
        self.refresh()
        await self.read_hits()

    async def read_hits(self) -> None:
        """Show how often the rules that are seen decided."""
        wanted, tenant = self._shown, self._view.tenant
        if not wanted:
            return
        try:
            found = await self._view.read(
                ("hits", wanted), lambda client: client.hits_of(tenant, wanted), fresh_s=_HITS_S - 0.5
            )
        except AclflowError:
            return
        if {**self._hits, **found} != self._hits:
            self._hits = {**self._hits, **found}
            self._show()

    # ------------------------------------------------------------------------------------------------------ the edits

    async def _new(self) -> None:
        await add_rule(self._desk, {})

    async def _act(self, event: events.GenericEventArguments) -> None:
        """Something from a row's buttons."""
        what, name = event.args["what"], event.args["rule"]
        acl = self._desk.draft.acl
        index = next((index for index, rule in enumerate(acl.rules) if rule.id == name), None)
        if index is None:
            return
        rule = acl.rules[index]
        if what == "edit":
            await change_rule(self._desk, rule, f"Rule {index + 1}")
            _focus(f"{name}/edit")
        elif what in ("above", "below"):
            await add_rule(self._desk, {"direction": rule.direction.value}, index + (what == "below"))
            _focus(f"{name}/more")
        elif what == "copy":
            await add_rule(self._desk, {**document_of(rule), "id": ""}, index + 1)
            _focus(f"{name}/more")
        elif what == "remove":
            self._desk.edit(Remove(name))
        else:
            place = {"up": index - 1, "down": index + 1, "top": 0}[what]
            if 0 <= place < len(acl.rules) and self._desk.edit(Move(name, place)):
                self._stay_at(name, place)

    def _stay_at(self, name: str, place: int) -> None:
        """Keep the keyboard on a rule that was moved, on whichever page it is now."""
        if len(self._found) == len(self._desk.draft.acl.rules):
            size = self._table.pagination["rowsPerPage"]
            self._table.pagination = {**self._table.pagination, "page": place // size + 1}
            self._show()
        _focus(f"{name}/place")

    def _edited(self, event: events.GenericEventArguments) -> None:
        """Something was written into a cell: it goes into the draft, or the cell says what is wrong with it."""
        name, field, text = event.args["rule"], event.args["field"], str(event.args["text"] or "")
        rule = next((rule for rule in self._desk.draft.acl.rules if rule.id == name), None)
        if rule is None:
            return
        try:
            changed = edited(rule, field, text)
            draft = self._desk.draft.edited(Replace(changed))
        except AclflowError as error:
            self._wrong.setdefault(name, {})[field] = text, error.reason
            self._show()
        else:
            self._wrong.get(name, {}).pop(field, None)
            if changed == rule:
                self._show()
            else:
                self._desk.put(draft)
        _focus(f"{name}/{field}")

    def _dropped(self, event: events.GenericEventArguments) -> None:
        """A row was let go over another one: it goes before that."""
        name, onto = event.args["rule"], event.args["onto"]
        places = {rule.id: index for index, rule in enumerate(self._desk.draft.acl.rules)}
        if name != onto and name in places and onto in places:
            below = places[onto] > places[name]
            self._desk.edit(Move(name, places[onto] - below))


def _ahead(hits: RuleHits) -> str:
    """What a rule decided before packets came to a host, which its count does not say."""
    packets = hits.ahead.get("server", 0)
    return f"{words.short(packets)} at firewalls" if packets else ""


def _focus(where: str) -> None:
    """Give the keyboard to a rule's place or to one of its cells."""
    ui.run_javascript(_FOCUS.replace("WHERE", json.dumps(where)))
