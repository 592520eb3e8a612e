"""The operator's home: concerns, the last backup, tiers of a tenant.

Each concern comes with the page and the command that help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, heading, tile
from api.console.parts.table import columns, fill, plain_table
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.wire.status import NEAR_A_QUOTA, Concern, Status

_LIVE_S = 2.0
_TIERS_LIVE_S = 5.0
_TIERS = {
    "edge": (
        "The edge, past firewall servers",
        "heavy hitters that are permitted; all else goes on to a firewall",
        "edge",
    ),
    "server": ("Firewall servers and VNFs", "the same list, ahead of the hosts", "firewalls"),
    "host": ("Hosts", "", "placement"),
}
"""Where packets of tenants are decided, in their order: name, what of the list stands there, the page that shows it."""
_COLUMNS = columns(
    ("tier", "Decided at", "left"),
    ("permitted", "Packets permitted", "right"),
    ("denied", "Packets denied", "right"),
    ("by", "By what", "left"),
)
_TIER_CELL = "<q-td :props='props'><a :href='props.row.page'>{{ props.row.tier }}</a></q-td>"
_LOOKS = {
    "refused": "bad",
    "drifted": "bad",
    "disconnected": "bad",
    "silent": "bad",
    "behind": "warn",
    "uncompiled": "warn",
}


async def build(view: View) -> None:
    """Draw the page."""
    page = _Home(view)
    page.draw()
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)
    await _draw_tiers(view)


class _Home:
    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: Sequence[Concern] | None = None

    def draw(self) -> None:
        with ui.row().classes("w-full gap-3 tiles"):
            self._concerns = tile("To look at")
            self._domains = tile("Domains", "hosts and enforcers", path_of("domains"))
            self._hosts = tile("Hosts", "topology", path_of("topology"))
            self._tenants = tile("Tenants", "prefixes and quotas", path_of("tenants"))
            self._backup = tile("Last backup", "aclflow db backup FILE")
        self._list = ui.column().classes("w-full gap-3").props("aria-live=polite data-part=concerns")

    async def refresh(self) -> None:
        """Show how it is now."""
        try:
            found: Status = await self._view.read("status", Client.read_status, fresh_s=_LIVE_S - 0.5)
        except AclflowError:
            if self._shown is None:
                raise
            return
        self._concerns.show(words.count(len(found.concerns)))
        for each, number in (
            (self._domains, found.domains),
            (self._hosts, found.hosts),
            (self._tenants, found.tenants),
        ):
            each.show(words.count(number))
        self._show_backup(found)
        if self._shown != found.concerns:
            self._shown = found.concerns
            self._list.clear()
            with self._list:
                self._draw_concerns(found.concerns)

    def _show_backup(self, found: Status) -> None:
        last = found.last_backup
        if last is None:
            self._backup.show("none known")
        else:
            self._backup.show(words.ago(last, found.time), words.moment(last, self._view.session.zone))

    def _draw_concerns(self, concerns: Sequence[Concern]) -> None:
        if not concerns:
            empty("All is in force: no host is behind, no enforcement point silent, no quota nearly used up.")
        ui.label(f"A tenant is near a quota with {NEAR_A_QUOTA}.").classes("small quiet")
        for each in concerns:
            with ui.column().classes("panel"), ui.row().classes("w-full items-center gap-3"):
                ui.label(each.kind).classes(f"chip {_LOOKS.get(each.kind, 'info')}")
                ui.label(each.text).classes("grow")
                if each.since is not None:
                    verb = "ends" if each.kind == "certificate" else "since"
                    ui.label(f"{verb} {words.moment(each.since, self._view.session.zone)}").classes(
                        "quiet small number"
                    )
                ui.label(each.command).classes("mono quiet")
                ui.link("Look there", _page(each)).props(f"aria-label='Look at {each.name}'")


def _page(concern: Concern) -> str:
    """The page that helps with a concern."""
    if concern.kind == "quota":
        return path_of("tenants")
    return f"{path_of('domains')}#{quote(concern.domain, safe='')}"


async def _draw_tiers(view: View) -> None:
    """Draw where the packets of a tenant, which is picked, are decided."""
    tenants = await view.read("every tenant", lambda client: list(client.tenants.read_all()), fresh_s=10)
    if not tenants:
        return
    heading("Where a tenant's packets are decided")
    names = {each.id: each.name or each.id for each in tenants}
    first = view.session.project if view.session.project in names else tenants[0].id
    panel = _Tiers(view, {each.id: each.domain for each in tenants})
    with ui.column().classes("panel"):
        panel.draw(names, first)
    await panel.refresh()
    ui.timer(_TIERS_LIVE_S, panel.refresh)


class _Tiers:
    """A table of the tiers that decide a tenant's packets, with counts."""

    def __init__(self, view: View, domains: Mapping[str, str]) -> None:
        self._view = view
        self._domains = domains

    def draw(self, names: Mapping[str, str], first: str) -> None:
        self._picked = ui.select(
            dict(names), value=first, label="Tenant", with_input=len(names) > 8, on_change=self.refresh
        )
        self._picked.props("outlined dense options-dense").classes("w-64")
        self._table = plain_table(_COLUMNS, "Nothing is decided yet.")
        self._table.add_slot("body-cell-tier", _TIER_CELL)
        ui.label(
            "What a firewall permits is counted again by its host; what it denies no host sees. "
            "'Trace a packet' tells where one packet is decided."
        ).classes("quiet small")

    async def refresh(self) -> None:
        """Show the counts as they are."""
        tenant = str(self._picked.value)
        domain, key = self._domains[tenant], ("tiers", tenant)
        try:
            rows = await self._view.read(key, lambda client: _tier_rows(client, tenant, domain), fresh_s=4.0)
        except AclflowError:
            return
        fill(self._table, rows)


def _tier_rows(client: Client, tenant: str, domain: str) -> list[dict[str, object]]:
    """A row for each tier of a tenant's domain. Blocks."""
    ahead = client.hits.read_first(tenant, "packets", 1).ingress_default.ahead
    lifted = sum(each.tenant == tenant and each.lifted is not None for each in client.placement.read(domain).rules)
    rows: list[dict[str, object]] = []
    for tier, (name, above, page) in _TIERS.items():
        if tier != "host" and tier not in ahead:
            continue
        found = client.hits.read_summary(tenant, top=0, tier=tier)
        by = above
        if tier == "host":
            by = f"{words.of(found.rules, 'rule')}, {words.count(lifted)} of them lifted ahead of the list"
        denied = "" if tier == "edge" else words.count(found.denied)
        counts = {"permitted": words.count(found.permitted), "denied": denied}
        rows.append({"tier": name, **counts, "by": by, "page": path_of(page)})
    return rows
