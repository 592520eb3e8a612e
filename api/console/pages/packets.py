"""Packets that rules with `log` decided, one by one, the newest first.

The page grows as they come.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.desk import Desk
from api.console.parts.pieces import empty
from api.console.parts.table import columns, fill, plain_table
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.client.packetlog import LoggedPacket, end_of
from orchestrator.errors import AclflowError
from orchestrator.policy.protocols import format_protocol

_LIVE_S = 2.0
_SHOWN = 200
_MOST_AT_ONCE = 1000
_ANY_RULE = "every rule"
_COLUMNS = columns(
    ("time", "Time", "left"),
    ("action", "Verdict", "left"),
    ("rule", "Rule", "left"),
    ("direction", "Direction", "left"),
    ("protocol", "Protocol", "left"),
    ("source", "Source", "left"),
    ("destination", "Destination", "left"),
    ("octets", "Length", "right"),
    ("host", "Host", "left"),
)
_VERDICT = (
    "<q-td :props='props'><span :class=\"['chip', props.row.action === 'permit' ? 'good' : 'bad']\">"
    "<q-icon :name=\"props.row.action === 'permit' ? 'check' : 'block'\" aria-hidden='true'></q-icon>"
    "{{ props.row.action }}</span></q-td>"
)
_RULE = "<q-td :props='props'><a :href=\"'%s?q=' + props.value\">{{ props.value }}</a></q-td>"
_MONO = "<q-td :props='props' class='mono'>{{ props.value }}</q-td>"
_SAMPLE = (
    f"The newest {_SHOWN}. A sample: each switch reports some of a project's packets a second. Hits count every packet."
)


async def build(view: View) -> None:
    """Draw the page."""
    desk = await Desk.of(view)
    page = _Packets(view, [rule.id for rule in desk.draft.base.acl.rules if rule.log])
    page.draw()
    await page.refresh()
    ui.timer(_LIVE_S, page.refresh)


class _Packets:
    def __init__(self, view: View, logging: list[str]) -> None:
        self._view = view
        self._logging = logging
        self._records: list[LoggedPacket] = []

    def draw(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._rule = (
                ui.select([_ANY_RULE, *self._logging], value=_ANY_RULE, label="Rule", with_input=len(self._logging) > 8)
                .props("outlined dense options-dense")
                .classes("w-56")
                .on_value_change(self._again)
            )
            self._verdict = (
                ui.toggle({"": "All", "permit": "Permitted", "deny": "Denied"}, value="")
                .props("no-caps unelevated aria-label=Verdict")
                .on_value_change(self._again)
            )
            self._said = ui.label(_SAMPLE).classes("quiet small")
        self._draw_none()
        self._table = plain_table(_COLUMNS, key="id")
        self._table.add_slot("body-cell-action", _VERDICT)
        self._table.add_slot("body-cell-rule", _RULE % path_of("acl", self._view.tenant))
        for name in ("source", "destination"):
            self._table.add_slot(f"body-cell-{name}", _MONO)

    def _draw_none(self) -> None:
        """Say why no packet is listed."""
        acl = path_of("acl", self._view.tenant)
        if self._logging:
            logging = words.list_names(self._logging)
            says = f"No packet yet. Shown are those that rules with a log decide: {logging}."
        else:
            says = (
                "No rule of this list has its log on, so no packet is shown. Edit a rule, tick Log packets, and commit."
            )
        with empty() as self._none:
            self._why = ui.label(says)
            ui.link("Open the access list", acl)
        self._says = says

    async def refresh(self) -> None:
        """Show what came since the last look."""
        rule, action = self._asked_filter()
        after = max((int(each["id"]) for each in self._records), default=None)

        def read_packets(client: Client) -> list[LoggedPacket]:
            limit = _SHOWN if after is None else _MOST_AT_ONCE
            return [*client.packet_log.read(self._view.tenant, rule=rule, action=action, after=after, limit=limit)]

        try:
            found = await self._view.read(("packets", rule, action, after), read_packets, fresh_s=_LIVE_S - 0.5)
        except AclflowError:
            return
        if (rule, action) != self._asked_filter():  # somebody asked for others meanwhile
            return
        known = {each["id"] for each in self._records}
        fresh = [each for each in found if each["id"] not in known]
        if fresh:
            newest = sorted((*self._records, *fresh), key=lambda each: -int(each["id"]))
            self._records = newest[:_SHOWN]
            fill(self._table, [_make_row(each, self._view.session.zone) for each in self._records])
        self._show_none()

    def _asked_filter(self) -> tuple[str | None, str | None]:
        """Return the rule and the verdict that the person filters by; None: any."""
        rule = self._rule.value
        return None if rule in (None, _ANY_RULE) else rule, self._verdict.value or None

    async def _again(self) -> None:
        """Begin anew: other packets are wanted."""
        self._records = []
        fill(self._table, [])
        await self.refresh()

    def _show_none(self) -> None:
        self._table.set_visibility(bool(self._records))
        self._none.set_visibility(not self._records)
        filtered = self._asked_filter() != (None, None)
        self._why.text = "No reported packet is of that rule and verdict." if filtered else self._says


def _make_row(record: Mapping[str, Any], zone: dt.tzinfo) -> dict[str, object]:
    return {
        "id": record["id"],
        "time": words.moment(dt.datetime.fromisoformat(record["time"]), zone),
        "action": record["action"],
        "rule": record["rule"],
        "direction": record["direction"] or "",
        "protocol": format_protocol(record["protocol"]),
        "source": end_of(record, "source"),
        "destination": end_of(record, "destination"),
        "octets": words.bytes_text(record["octets"]),
        "host": record["host"],
    }
