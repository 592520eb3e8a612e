"""The project at a glance: what its list holds, what it decided, what it denied, and what is odd about it."""

from __future__ import annotations

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk
from api.console.parts.draftbar import DraftBar
from api.console.parts.events import draw_events
from api.console.parts.pieces import heading
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Event, RuleHits, TenantHits
from orchestrator.errors import AclflowError
from orchestrator.policy.model import Acl, Action

_LIVE_S = 3.0
_EVENTS = 8
_TOP = 5


async def build(view: View) -> None:
    """Draw the page."""
    desk = await Desk.of(view)
    tenant = await view.read("tenant", lambda client: client.tenant(view.tenant), fresh_s=10)
    quota = await view.read("quota", lambda client: client.quota(view.tenant), fresh_s=3)
    ui.label(f"Owns {words.named([str(prefix) for prefix in tenant.prefixes], 6) or 'no prefix yet'}").classes("quiet")
    page = _Overview(view, desk.draft.base.acl)
    with ui.row().classes("w-full gap-3"):
        used = quota.used.rules if quota.used.rules is not None else len(page.acl.rules)
        page.tile("Rules", words.count(used), _of_limit(quota.limit.rules))
        flows = quota.used.flows
        page.tile("Flow entries", "…" if flows is None else words.count(flows), _of_limit(quota.limit.flows))
        page.permitted = page.tile("Permitted", "0", "packets", live=True)
        page.denied = page.tile("Denied", "0", "packets", live=True)
        page.findings = page.tile("Findings", "…", "looking", target=path_of("check", view.tenant))
    with ui.row().classes("w-full gap-4 items-stretch"):
        with ui.column().classes("panel").style("flex: 3; min-width: 340px"):
            heading("Busiest rules")
            page.busiest = ui.column().classes("w-full gap-2")
        with ui.column().classes("panel").style("flex: 2; min-width: 300px"):
            heading("What happened")
            page.happened = ui.column().classes("w-full gap-1")
    DraftBar(desk)
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)
    ui.timer(0.1, page.look, once=True)


class _Overview:
    permitted: ui.label
    denied: ui.label
    findings: ui.label
    busiest: ui.column
    happened: ui.column

    def __init__(self, view: View, acl: Acl) -> None:
        self._view = view
        self.acl = acl
        self._shown: tuple[object, ...] = ()
        self._events: tuple[Event, ...] = ()

    def tile(self, title: str, value: str, below: str, *, live: bool = False, target: str = "") -> ui.label:
        with ui.column().classes("tile"):
            ui.label(title).classes("quiet small")
            text = ui.label(value).classes("value")
            if live:
                text.props("aria-live=off")
            if target:
                ui.link(below, target).classes("small")
            else:
                ui.label(below).classes("quiet small")
        return text

    async def refresh(self) -> None:
        """Show the counters and the events as they are."""
        tenant = self._view.tenant
        try:
            hits = await self._view.read("hits", lambda client: client.hits(tenant), fresh_s=_LIVE_S)
            page = await self._view.read(
                "events", lambda client: client.newest_events(limit=_EVENTS, tenant=tenant).items, fresh_s=_LIVE_S
            )
        except AclflowError:
            return
        self._show_hits(hits)
        if page != self._events:
            self._events = page
            self.happened.clear()
            with self.happened:
                draw_events(page, self._view.session.zone)

    def _show_hits(self, hits: TenantHits) -> None:
        actions: dict[str, Action] = {rule.id: rule.action for rule in self.acl.rules}
        permitted = sum(each.packets for each in hits.rules if actions.get(each.rule) is Action.PERMIT)
        permitted += hits.ingress_return.packets + hits.egress_return.packets
        denied = sum(each.packets for each in hits.rules if actions.get(each.rule) is Action.DENY)
        for default, end in (
            (self.acl.ingress_default, hits.ingress_default),
            (self.acl.egress_default, hits.egress_default),
        ):
            permitted += end.packets if default is Action.PERMIT else 0
            denied += end.packets if default is Action.DENY else 0
        self.permitted.text, self.denied.text = words.short(permitted), words.short(denied)
        best = sorted((each for each in hits.rules if each.packets), key=lambda each: -each.packets)[:_TOP]
        if tuple(best) == self._shown and best:
            return
        self._shown = tuple(best)
        self.busiest.clear()
        with self.busiest:
            if not best:
                ui.label("No rule has decided a packet yet.").classes("quiet")
            for each in best:
                self._draw_busy(each, best[0].packets, actions.get(each.rule))

    def _draw_busy(self, hits: RuleHits, most: int, action: Action | None) -> None:
        with ui.row().classes("w-full items-center gap-3 no-wrap"):
            ui.link(hits.rule, f"{path_of('acl', self._view.tenant)}?q={hits.rule}").classes("w-40 ellipsis")
            colour = "negative" if action is Action.DENY else "positive"
            ui.linear_progress(hits.packets / most, show_value=False, color=colour).classes("grow").props(
                "rounded size=10px aria-hidden=true"
            )
            ui.label(f"{words.short(hits.packets)} packets").classes("number small w-28").style("text-align: right")

    async def look(self) -> None:
        """Count the findings; may take a while."""
        desk = await Desk.of(self._view)
        base = desk.draft.base
        try:
            found = await self._view.read(
                ("check", base.etag), lambda client: client.check_acl(self._view.tenant, base.acl), fresh_s=300
            )
        except AclflowError:
            self.findings.text = "?"
            return
        self.findings.text = words.count(len(found.findings))


def _of_limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"of {words.count(limit)}"
