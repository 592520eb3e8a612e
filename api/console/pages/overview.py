"""The project at a glance: the list's size, counts, findings and events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from nicegui import ui

from api.console import words
from api.console.pages.events import draw_events
from api.console.parts.desk import Desk, DraftBar
from api.console.parts.findings import severity_words
from api.console.parts.pieces import heading, tile
from api.console.parts.question import ask_why
from api.console.parts.tree import path_of
from api.console.parts.view import View
from api.console.pictures.series import Series, rates_of, series_picture
from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.wire.events import Event
from orchestrator.wire.hits import BusyRule, HitSummary
from orchestrator.wire.tenants import Tenant

_LIVE_S = 3.0
_EVENTS = 8
_STEP, _STEPS = dt.timedelta(seconds=5), 120


async def build(view: View) -> None:
    """Draw the page."""
    tenant = await view.read("tenant", lambda client: client.tenants.read(view.tenant), fresh_s=10)
    prefixes = words.list_names([str(prefix) for prefix in tenant.prefixes], 6)
    ui.label(f"Owns {prefixes or 'no prefix yet'}").classes("quiet")
    page = _Overview(view)
    page.draw()
    ask_why([tenant, *await _others(view)])
    page.draw_panels()
    desk = Desk.find_kept(view)
    if desk is not None:
        bar = DraftBar(desk)
        desk.on_change = bar.refresh
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)
    view.parts.later(page.look)


async def _others(view: View) -> list[Tenant]:
    """Return the other projects that the viewer may ask about.

    An operator need not know whose an address is.
    """
    if not view.session.is_admin:
        return []
    found = await view.read("every tenant", lambda client: list(client.tenants.read_all()), fresh_s=10)
    return [each for each in found if each.id != view.tenant]


class _Overview:
    def __init__(self, view: View) -> None:
        self._view = view
        self._busiest: Sequence[BusyRule] | None = None
        self._events: tuple[Event, ...] | None = None

    def draw(self) -> None:
        """Draw the tiles with numbers: rules, flow entries, packets."""
        check = path_of("check", self._view.tenant)
        with ui.row().classes("w-full gap-3 tiles"):
            self._rules = tile("Rules")
            self._flows = tile("Flow entries")
            self._permitted = tile("Permitted", "packets so far")
            self._denied = tile("Denied", "packets so far")
            self._unused = tile("Unused rules", "no packet so far", path_of("hits", self._view.tenant))
            self._findings = tile("Findings", "looking …", check)

    def draw_panels(self) -> None:
        """Draw the panels: packets a second, and the lists beside it."""
        with ui.column().classes("panel"):
            heading("Packets a second")
            self._plot = (
                ui.html("", sanitize=False)
                .classes("w-full scrolls newest-first")
                .props("tabindex=0 role=group aria-label='Packets a second over the last ten minutes'")
            )
        with ui.row().classes("w-full gap-4 items-stretch"):
            with ui.column().classes("panel").style("flex: 3; min-width: min(340px, 100%)"):
                heading("Busiest rules")
                self._busy = ui.column().classes("w-full gap-2")
            with ui.column().classes("panel").style("flex: 2; min-width: min(300px, 100%)"):
                heading("What happened")
                self._happened = ui.column().classes("w-full gap-2")

    async def refresh(self) -> None:
        """Show the counters and the events as they are."""
        tenant, zone = self._view.tenant, self._view.session.zone
        fresh_s = _LIVE_S - 0.5
        try:
            seen, plot = await self._view.read(
                ("summary", str(zone)), lambda client: _seen(client, tenant, zone), fresh_s=fresh_s
            )
            quota = await self._view.read("quota", lambda client: client.tenants.read_quota(tenant), fresh_s=10)
            events = await self._view.read(
                "events", lambda client: client.events.read_newest(limit=_EVENTS, tenant=tenant).items, fresh_s=fresh_s
            )
        except AclflowError:
            return
        flows = quota.used.flows
        self._rules.show(words.count(seen.rules), _describe_limit(quota.rules))
        self._flows.show("…" if flows is None else words.count(flows), _describe_limit(quota.flows))
        self._permitted.show(words.short(seen.permitted))
        self._denied.show(words.short(seen.denied + seen.denied_ahead), _where_denied(seen))
        self._unused.show(words.count(seen.unused))
        if self._plot.content != plot:
            self._plot.content = plot
        if seen.busiest != self._busiest:
            self._busiest = seen.busiest
            self._show_busiest(seen.busiest)
        if events != self._events:
            self._events = events
            self._happened.clear()
            with self._happened:
                draw_events(events, zone, for_owners=True)

    def _show_busiest(self, busiest: Sequence[BusyRule]) -> None:
        self._busy.clear()
        with self._busy:
            if not busiest:
                ui.label("No rule has decided a packet yet.").classes("quiet")
            for each in busiest:
                with ui.row().classes("w-full items-center gap-3 no-wrap"):
                    target = f"{path_of('acl', self._view.tenant)}?q={each.rule}"
                    ui.link(each.rule, target).classes("w-40 ellipsis")
                    ui.linear_progress(each.packets / busiest[0].packets, show_value=False).classes("grow").props(
                        "rounded size=10px aria-hidden=true"
                    )
                    ui.label(f"{words.short(each.packets)} packets").classes("number small w-28").style(
                        "text-align: right; white-space: nowrap; flex: none"
                    )

    async def look(self) -> None:
        """Show the number of findings that matter, and name the rest.

        The first look at a list may take a while.
        """
        try:
            found = await self._view.standing("findings")
        except AclflowError as error:
            self._findings.show("?", error.reason)
            return
        severities = found.severities
        matters = severities.get("error", 0) + severities.get("warning", 0)
        self._findings.show(words.count(matters), severity_words(severities) if severities else "nothing is odd")


def _seen(client: Client, tenant: str, zone: dt.tzinfo) -> tuple[HitSummary, str]:
    """Read the list's counts, and draw the last minutes. Blocks."""
    now = dt.datetime.now(dt.UTC)
    found = client.hits.read_summary(tenant, since=now - _STEP * (_STEPS + 1))
    rates = rates_of(found.history, now, _STEP, _STEPS)
    lanes = [
        Series("permitted", rates.permitted, "packets/s", kind="good"),
        Series("denied", rates.denied, "packets/s", kind="bad"),
    ]
    return found, series_picture(rates.times, lanes, zone)


def _where_denied(seen: HitSummary) -> str:
    """Say how many packets firewalls denied, ahead of the hosts."""
    return f"{words.short(seen.denied_ahead)} at firewalls" if seen.denied_ahead else "packets so far"


def _describe_limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"of {words.count(limit)}"
