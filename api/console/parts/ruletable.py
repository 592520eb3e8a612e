"""The table of a draft's rules: pages, moves, edits in cells and forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from nicegui import events, ui

from api.console.draftedits import Delete, Move, Replace
from api.console.parts.desk import Desk
from api.console.parts.ruleedits import add_rule, change_rule
from api.console.parts.ruleform import document_of, edit_field, reason_of, row_of
from api.console.parts.table import BODY, COLUMNS
from orchestrator.errors import AclflowError

PAGE_ROWS = 25
_FOCUS = """(() => {
  const before = document.activeElement;
  setTimeout(() => {
    if (![before, document.body].includes(document.activeElement)) return;
    [...document.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === WHERE)?.focus();
  }, 400);
})()"""
"""Gives the keyboard to a part of a row, once what was changed is drawn, unless it has gone elsewhere since."""


class _Rows(ui.table, component="ruletable.js"):
    """Rows that stay as they are where nothing of them changes."""


class RuleTable:
    """Rules of a draft, page by page; edits go into the draft."""

    def __init__(
        self,
        desk: Desk,
        *,
        writes: bool,
        counted: Callable[[str], Mapping[str, object]] | None = None,
        turned: Callable[[], object] = lambda: None,
    ) -> None:
        """`counted` returns a row's packet counts; None: there is no such column.

        `turned` is called when another page is shown.
        """
        self._desk = desk
        self._writes = writes
        self._counted = counted
        self._turned = turned
        self.shown: tuple[str, ...] = ()
        """The rules on the page that is seen."""
        self._found: Sequence[int] = ()
        self._wrong: dict[str, dict[str, tuple[str, str]]] = {}
        """By rule and field: what was written into a cell and is no such field, and why."""

    def draw(self) -> None:
        self._table = (
            _Rows(
                columns=[each for each in COLUMNS if self._counted or each["name"] != "packets"],
                rows=[],
                row_key="id",
                pagination={"rowsPerPage": PAGE_ROWS, "page": 1, "rowsNumber": 0},
            )
            .classes("w-full rules")
            .props("flat :rows-per-page-options='[25,50,100,200]' wrap-cells rows-per-page-label='Rules a page'")
        )
        self._table.props["body"] = BODY
        self._table.on("request", self._turn_page)
        self._table.on("act", self._act)
        self._table.on("dropped", self._drop_row)
        self._table.on("cell", self._take_cell)

    def to_first_page(self) -> None:
        """Begin at the top again: other rules are looked for."""
        self._table.pagination = {**self._table.pagination, "page": 1}

    def show(self, found: Sequence[int], none: str) -> None:
        """Show the rules at these places of the list; `none` stands where there are none."""
        self._table.props["no-data-label"] = none
        self._found = found
        self.refresh()

    def refresh(self) -> None:
        """Show the rows of the page as they are."""
        pagination = dict(self._table.pagination)
        size = pagination["rowsPerPage"] or PAGE_ROWS
        last = max(0, len(self._found) - 1) // size + 1
        page = min(pagination.get("page", 1), last)
        acl, marks = self._desk.draft.acl, self._desk.draft.marks()
        indices = self._found[(page - 1) * size : page * size]
        self.shown = tuple(acl.rules[index].id for index in indices)
        rows = []
        for index in indices:
            rule = acl.rules[index]
            row = row_of(index + 1, rule, marks.get(rule.id, ""))
            wrong = self._wrong.get(rule.id, {})
            row["tried"] = {field: text for field, (text, _) in wrong.items()}
            row["wrong"] = {field: reason for field, (_, reason) in wrong.items()}
            counted = self._counted(rule.id) if self._counted else {}
            rows.append({**row, **counted, "may_move": self._writes})
        self._table.pagination = {**pagination, "page": page, "rowsPerPage": size, "rowsNumber": len(self._found)}
        self._table.rows = rows

    def _turn_page(self, event: events.GenericEventArguments) -> object:
        self._table.pagination = event.args["pagination"]
        self.refresh()
        return self._turned()

    async def _act(self, event: events.GenericEventArguments) -> None:
        """Carry out what a button of a row asks for."""
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
        elif what == "delete":
            self._desk.edit(Delete(name))
        else:
            place = {"up": index - 1, "down": index + 1, "top": 0}[what]
            if 0 <= place < len(acl.rules) and self._desk.edit(Move(name, place)):
                self._stay_at(name, place)

    def _stay_at(self, name: str, place: int) -> None:
        """Keep the keyboard on a rule that was moved, on whichever page it is now."""
        if len(self._found) == len(self._desk.draft.acl.rules):
            size = self._table.pagination["rowsPerPage"]
            self._table.pagination = {**self._table.pagination, "page": place // size + 1}
            self.refresh()
        _focus(f"{name}/place")

    async def _take_cell(self, event: events.GenericEventArguments) -> None:
        """Take a cell's new text into the draft, or show its error there."""
        name, field, text = event.args["rule"], event.args["field"], str(event.args["text"] or "")
        rule = next((rule for rule in self._desk.draft.acl.rules if rule.id == name), None)
        if rule is None:
            return
        try:
            changed = edit_field(rule, field, text)
            draft = self._desk.naming(changed, await self._desk.endpoints()).add_edit(Replace(changed))
        except AclflowError as error:
            self._wrong.setdefault(name, {})[field] = text, reason_of(error)
            self.refresh()
        else:
            self._wrong.get(name, {}).pop(field, None)
            if changed == rule:
                self.refresh()
            else:
                self._desk.put(draft)
        _focus(f"{name}/{field}")

    def _drop_row(self, event: events.GenericEventArguments) -> None:
        """Move the rule that was dropped on another one before that."""
        name, onto = event.args["rule"], event.args["onto"]
        places = {rule.id: index for index, rule in enumerate(self._desk.draft.acl.rules)}
        if name != onto and name in places and onto in places:
            below = places[onto] > places[name]
            self._desk.edit(Move(name, places[onto] - below))


def _focus(where: str) -> None:
    """Give the keyboard to a rule's place or to one of its cells."""
    ui.run_javascript(_FOCUS.replace("WHERE", json.dumps(where)))
