"""The access list: a table to search, to reorder and to edit in a draft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk, DraftBar
from api.console.parts.files import offer_export, take_import
from api.console.parts.ruleedits import add_rule
from api.console.parts.ruletable import RuleTable
from api.console.parts.view import View
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.search import Endpoints, find, names_endpoints
from orchestrator.wire.hits import RuleHits

_HITS_S = 5.0
_NOTHING_FOUND = "No rule fits the search. Take a word of it away, or clear it to see every rule."
_NO_RULES = "No rules yet. Nothing gets in until a rule permits it: add one, or import a list that you have."


async def build(view: View) -> None:
    """Draw the page."""
    desk = await Desk.of(view)
    page = _AclPage(desk, await desk.owned_prefixes())
    await page.draw(view.query.get("q", ""))
    await page.read_hits()


class _AclPage:
    def __init__(self, desk: Desk, owned: Sequence[Prefix]) -> None:
        self._desk = desk
        self._owned = owned
        self._view = desk.view
        self._writes = desk.view.session.may_write
        self._hits: Mapping[str, RuleHits] = {}
        self._endpoints: Endpoints = {}
        """Read once a search may name them."""
        self._table = RuleTable(desk, writes=self._writes, counted=self._count_cells, turned=self.read_hits)
        desk.on_change = self.refresh

    async def draw(self, asked: str) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._search = (
                ui.input(placeholder="Search: 10.1.2.3:443, web1:443, tcp, @group, a name …", value=asked)
                .props("outlined dense clearable debounce=250 aria-label='Search rules'")
                .classes("grow")
                .on_value_change(self._show_matches)
            )
            if self._writes:
                ui.button("New rule", icon="add", on_click=self._ask_for_rule).props("no-caps unelevated")
                ui.button("Import", icon="upload_file", on_click=lambda: take_import(self._desk)).props(
                    "no-caps outline"
                )
            ui.button("Export", icon="download", on_click=lambda: offer_export(self._desk)).props("no-caps outline")
        self._count = ui.label().classes("small quiet").props("aria-live=polite")
        self._table.draw()
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
        await self._read_endpoints()
        self.refresh()
        ui.timer(_HITS_S, self.read_hits)

    def refresh(self) -> None:
        """Show the draft as it is."""
        acl = self._desk.draft.acl
        found: Sequence[int] = ()
        none = _NOTHING_FOUND if acl.rules else _NO_RULES
        try:
            found = find(acl, self._search.value or "", self._owned, self._endpoints)
        except BadInput as error:
            none = words.for_owners(str(error))
        self._count.text = (
            words.of(len(acl.rules), "rule")
            if len(found) == len(acl.rules)
            else f"{words.count(len(found))} of {words.of(len(acl.rules), 'rule')}"
        )
        self._bar.refresh()
        self._table.show(found, none)

    async def _read_endpoints(self) -> None:
        """Read the endpoints if the search may name one."""
        if names_endpoints(self._search.value or ""):
            self._endpoints = await self._desk.endpoints()

    async def _show_matches(self) -> None:
        self._table.to_first_page()
        await self._read_endpoints()
        self.refresh()
        await self.read_hits()

    async def read_hits(self) -> None:
        """Show how often the rules that are seen decided."""
        wanted, tenant = self._table.shown, self._view.tenant
        if not wanted:
            return
        try:
            found = await self._view.read(
                ("hits", wanted), lambda client: client.hits.read_of_rules(tenant, wanted), fresh_s=_HITS_S - 0.5
            )
        except AclflowError:
            return
        if {**self._hits, **found} != self._hits:
            self._hits = {**self._hits, **found}
            self._table.refresh()

    def _count_cells(self, rule: str) -> Mapping[str, object]:
        hits = self._hits.get(rule)
        return {"packets": words.short(hits.packets), "ahead": _ahead(hits)} if hits else {}

    async def _ask_for_rule(self) -> None:
        await add_rule(self._desk, {})


def _ahead(hits: RuleHits) -> str:
    """Say how much a rule decided ahead of the hosts, beside its count."""
    packets = hits.ahead.get("server", 0)
    return f"{words.short(packets)} at firewalls" if packets else ""
