"""Counts of rules, the busiest first, and rules that no packet met."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from typing import Any

from nicegui import events, ui

from api.console import words
from api.console.parts.table import columns
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import TenantHits
from orchestrator.errors import AclflowError
from orchestrator.wire.hits import RuleHits, Unused, UnusedRule

_LIVE_S = 3.0
_MOST = 1000
_LONGEST_S = 3_000_000_000
"""Nothing is idle for so long: who asks for such rules learns alone since when there are counts."""
_SINCE_FRESH_S = 30.0
_SORTS = {"packets": "packets", "rate": "rate", "bytes": "bytes", "last": "last_hit"}
"""How a column's order is asked for."""
_SPANS = {
    0: "every rule, the busiest first",
    3600: "unused for an hour",
    86400: "unused for a day",
    604800: "unused for a week",
    2592000: "unused for 30 days",
}
_COLUMNS = [
    {**column, "sortable": column["name"] in _SORTS}
    for column in columns(
        ("rule", "Rule", "left"),
        ("packets", "Packets", "right"),
        ("rate", "Packets/s", "right"),
        ("bytes", "Bytes", "right"),
        ("last", "Last packet", "right"),
        ("resets", "Counter resets", "right"),
    )
]
_AT_HOSTS, *_AHEAD = columns(
    ("packets", "At hosts", "right"), ("server", "At firewalls", "right"), ("edge", "At the edge", "right")
)
"""The heading in place of the packets where tiers ahead of the hosts count apart."""
_ENDS = {
    "ingress_default": "(ingress default)",
    "egress_default": "(egress default)",
    "ingress_return": "(return traffic in)",
    "egress_return": "(return traffic out)",
}


async def build(view: View) -> None:
    """Draw the page."""
    page = _Hits(view)
    page.draw()
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)


class _Hits:
    def __init__(self, view: View) -> None:
        self._view = view
        self._total = 0

    def draw(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._span = (
                ui.select(_SPANS, value=0, label="Show", on_change=self._search_again)
                .props("outlined dense options-dense")
                .classes("w-64")
            )
            self._said = ui.label().classes("quiet small").props("aria-live=polite")
        self._table = (
            ui.table(
                columns=_COLUMNS,
                rows=[],
                row_key="rule",
                pagination={"rowsPerPage": 50, "page": 1, "sortBy": "packets", "descending": True, "rowsNumber": 0},
            )
            .classes("w-full stacks")
            .props(
                "flat binary-state-sort column-sort-order=da rows-per-page-label='Rules a page' "
                ":rows-per-page-options='[25,50,100,200]'"
            )
        )
        self._table.on("request", self._turn_page)
        self._table.on_pagination_change(self._count)
        link = f"{path_of('acl', self._view.tenant)}?q="
        self._table.add_slot(
            "body-cell-rule",
            f"<q-td :props='props'><a v-if='props.row.linked' :href=\"'{link}' + props.row.rule\">"
            "{{ props.row.rule }}</a>"
            "<span v-else class='quiet'>{{ props.row.rule }}</span></q-td>",
        )
        self._table.add_slot("no-data", "<div class='empty'>Every rule that was watched for so long met packets.</div>")

    async def refresh(self) -> None:
        """Show the counters as they are."""
        try:
            if self._span.value:
                await self._show_unused(self._span.value)
            else:
                await self._show_busiest()
        except AclflowError:
            return

    async def _show_busiest(self) -> None:
        view, asked = self._view, self._table.pagination
        sort, limit = _SORTS[asked.get("sortBy") or "packets"], min(asked["page"] * asked["rowsPerPage"], _MOST)
        fresh_s = _LIVE_S - 0.5
        found = await view.read(
            ("first", sort, limit), lambda client: client.hits.read_first(view.tenant, sort, limit), fresh_s=fresh_s
        )
        summary = await view.read(
            "short summary", lambda client: client.hits.read_summary(view.tenant, top=0), fresh_s=10
        )
        self._said.text = f"{words.of(summary.unused, 'rule')} of {words.count(summary.rules)} decided nothing so far"
        self._said.text += await self._counted_since()
        if summary.rules > _MOST:
            self._said.text += f"; the {words.count(_MOST)} busiest are listed"
        now = dt.datetime.now(dt.UTC)
        first = (asked["page"] - 1) * asked["rowsPerPage"]
        rows = [_make_row(each, now) for each in found.rules[first:limit]]
        ends = (
            [_make_row(each, now) for each in _list_defaults(found) if each.packets or any(each.ahead.values())]
            if asked["page"] == 1
            else []
        )
        self._put_rows([*ends, *rows], min(summary.rules, _MOST), _columns(found.ingress_default.ahead))

    async def _counted_since(self) -> str:
        """Say from when the counts are."""
        view = self._view
        found = await view.read(
            "counted since",
            lambda client: client.hits.read_unused_rules(view.tenant, idle_s=_LONGEST_S),
            fresh_s=_SINCE_FRESH_S,
        )
        if found.watched_since is None:
            return "; no host is counted yet"
        return f"; counted since {words.moment(found.watched_since, view.session.zone)}"

    async def _show_unused(self, idle_s: int) -> None:
        view, asked = self._view, self._table.pagination
        found = await view.read(
            ("unused", idle_s), lambda client: client.hits.read_unused_rules(view.tenant, idle_s=idle_s), fresh_s=30
        )
        self._said.text = _describe_unused(found)
        first = (asked["page"] - 1) * asked["rowsPerPage"]
        now = dt.datetime.now(dt.UTC)
        rows = [
            {"rule": each.rule, "linked": True, "packets": "", "last": self._idle(each, now), "resets": ""}
            for each in found.items[first : first + asked["rowsPerPage"]]
        ]
        self._put_rows(rows, len(found.items), _COLUMNS)

    def _idle(self, each: UnusedRule, now: dt.datetime) -> str:
        """Say when a rule met its last packet, or since when it is watched."""
        if each.last_hit is not None:
            return words.ago(each.last_hit, now)
        since = words.moment(each.watched_since, self._view.session.zone)
        return f"none since {since} ({words.span(each.watched_s)})"

    def _put_rows(self, rows: Sequence[dict[str, object]], total: int, shown: list[dict[str, Any]]) -> None:
        if self._table.columns != shown:
            self._table.columns = shown
        self._total = total
        self._count()
        if self._table.rows != rows:
            self._table.rows = [*rows]

    def _count(self) -> None:
        """Say how many rules there are.

        A browser that just drew the table tells of the pages as they were.
        """
        if self._table.pagination.get("rowsNumber") != self._total:
            self._table.pagination = {**self._table.pagination, "rowsNumber": self._total}

    async def _turn_page(self, event: events.GenericEventArguments) -> None:
        self._table.pagination = {**event.args["pagination"], "rowsNumber": self._total}
        await self.refresh()

    async def _search_again(self) -> None:
        self._table.pagination = {**self._table.pagination, "page": 1}
        await self.refresh()


def _columns(ahead: Collection[str]) -> list[dict[str, Any]]:
    """The columns where so many tiers stand ahead of the hosts."""
    more = [column for column in _AHEAD if column["name"] in ahead]
    if not more:
        return _COLUMNS
    rule, packets, *others = _COLUMNS
    return [rule, {**packets, **_AT_HOSTS}, *more, *others]


def _list_defaults(found: TenantHits) -> tuple[RuleHits, ...]:
    return found.ingress_default, found.egress_default, found.ingress_return, found.egress_return


def _describe_unused(found: Unused) -> str:
    said = f"{words.of(len(found.items), 'rule')} of {words.count(found.rules)}"
    if found.watched_since is None:
        return "No host is counted yet, so nothing can be said of unused rules"
    young = f"; {words.of(found.too_young, 'rule')} not watched for so long" if found.too_young else ""
    return said + young + (f"; {words.of(len(found.lapses), 'gap')} in counting" if found.lapses else "")


def _make_row(hits: RuleHits, now: dt.datetime) -> dict[str, object]:
    is_met_ahead_only = not hits.packets and any(hits.ahead.values())
    return {
        "rule": _ENDS.get(hits.rule, hits.rule),
        "linked": hits.rule not in _ENDS,
        "packets": words.count(hits.packets),
        **{tier: words.count(packets) if packets else "" for tier, packets in hits.ahead.items()},
        "rate": words.short(hits.packets_per_s) if hits.packets_per_s else "",
        "bytes": "" if is_met_ahead_only else words.bytes_text(hits.bytes),
        "last": "" if is_met_ahead_only else words.ago(hits.last_hit, now),
        "resets": words.count(hits.resets),
    }
