"""What each rule decided, the busiest first, and which rules decided nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import RuleHits
from orchestrator.errors import AclflowError

_LIVE_S = 3.0
_COLUMNS: list[dict[str, Any]] = [
    {"name": "rule", "label": "Rule", "field": "rule", "align": "left", "sortable": True},
    {"name": "packets", "label": "Packets", "field": "packets", "align": "right", "sortable": True},
    {"name": "rate", "label": "Packets/s now", "field": "rate", "align": "right", "sortable": True},
    {"name": "bytes", "label": "Bytes", "field": "bytes", "align": "right", "sortable": True},
    {"name": "last", "label": "Last packet", "field": "last", "align": "right"},
    {"name": "resets", "label": "Counter resets", "field": "resets", "align": "right", "sortable": True},
]
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
        self._before: dict[str, int] = {}
        self._read_at: dt.datetime | None = None

    def draw(self) -> None:
        with ui.row().classes("items-center gap-3"):
            self._unused = ui.switch("Only rules that decided nothing", on_change=self.refresh)
            self._said = ui.label().classes("quiet small").props("aria-live=polite")
        self._table = (
            ui.table(
                columns=_COLUMNS,
                rows=[],
                row_key="rule",
                pagination={"rowsPerPage": 50, "sortBy": "packets", "descending": True},
            )
            .classes("w-full")
            .props("flat :rows-per-page-options='[25,50,100,200]'")
        )
        for name in ("packets", "rate", "bytes", "resets"):
            self._table.add_slot(
                f"body-cell-{name}", f"<q-td :props='props' class='number'>{{{{ props.row.{name}_text }}}}</q-td>"
            )
        link = f"{path_of('acl', self._view.tenant)}?q="
        self._table.add_slot(
            "body-cell-rule",
            f"<q-td :props='props'><a v-if='props.row.linked' :href=\"'{link}' + props.row.rule\">"
            "{{ props.row.rule }}</a>"
            "<span v-else class='quiet'>{{ props.row.rule }}</span></q-td>",
        )
        self._table.add_slot("no-data", "<div class='empty'>Every rule has decided something.</div>")

    async def refresh(self) -> None:
        """Show the counters as they are."""
        try:
            found = await self._view.read("hits", lambda client: client.hits(self._view.tenant), fresh_s=_LIVE_S - 0.5)
        except AclflowError:
            return
        now = dt.datetime.now(dt.UTC)
        passed = (now - self._read_at).total_seconds() if self._read_at else 0.0
        ends = (found.ingress_default, found.egress_default, found.ingress_return, found.egress_return)
        counted = [*found.rules, *([] if self._unused.value else ends)]
        unused = sum(not each.packets for each in found.rules)
        self._said.text = f"{words.of(unused, 'rule')} of {words.count(len(found.rules))} decided nothing so far"
        self._table.rows = [
            self._row(each, now, passed) for each in counted if not (self._unused.value and each.packets)
        ]
        self._before = {each.rule: each.packets for each in counted}
        self._read_at = now

    def _row(self, hits: RuleHits, now: dt.datetime, passed: float) -> dict[str, object]:
        before = self._before.get(hits.rule)
        rate = (hits.packets - before) / passed if before is not None and passed > 0 else 0.0
        return {
            "rule": _ENDS.get(hits.rule, hits.rule),
            "linked": hits.rule not in _ENDS,
            "packets": hits.packets,
            "packets_text": words.count(hits.packets),
            "rate": rate,
            "rate_text": words.short(rate) if rate else "",
            "bytes": hits.bytes,
            "bytes_text": words.octets(hits.bytes),
            "last": words.ago(hits.last_hit, now),
            "resets": hits.resets,
            "resets_text": words.count(hits.resets),
        }
