"""Tables: the one of rules, whose rows can be dragged, and plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nicegui import ui

COLUMNS: list[dict[str, Any]] = [
    {"name": "place", "label": "#", "field": "place", "align": "right", "style": "width: 56px"},
    {"name": "action", "label": "Action", "field": "action", "align": "left", "style": "width: 84px"},
    {"name": "direction", "label": "Direction", "field": "direction", "align": "left", "style": "width: 90px"},
    {"name": "protocol", "label": "Protocol", "field": "protocol", "align": "left", "style": "width: 80px"},
    {"name": "source", "label": "Source", "field": "source", "align": "left"},
    {"name": "destination", "label": "Destination", "field": "destination", "align": "left"},
    {"name": "rule", "label": "Rule", "field": "id", "align": "left", "style": "min-width: 200px"},
    {"name": "packets", "label": "Packets", "field": "packets", "align": "right", "style": "width: 84px"},
    {"name": "actions", "label": "", "field": "id", "align": "right", "style": "width: 84px"},
]

BODY = Path(__file__).with_name("rule-row.html").read_text(encoding="utf-8")
"""A row as Vue draws it. It tells of `act` (what, rule) and of `dropped` (rule, onto)."""

CHIP_CELL = "<q-td :props='props'><span :class=\"['chip', props.row.kind]\">{{ props.value }}</span></q-td>"
"""A cell whose row says in `kind` how it looks: good, warn, bad, info or none."""

WRAPPED_CELL = "<q-td :props='props' style='white-space: normal; min-width: 180px'>{{ props.value }}</q-td>"
"""A cell with a sentence in it."""


def columns(*said: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Make columns from field name, label and side.

    On a phone a row is a card, where what stands above a column goes before its value: the style sheet reads it there.
    """
    return [
        {"name": name, "label": label, "field": name, "align": side, "style": f'--label: "{label}"'}
        for name, label, side in said
    ]


_PAGE = 25


def fill(table: ui.table, rows: list[dict[str, Any]]) -> None:
    """Put rows into a plain table if they changed; one page needs no foot."""
    if table.rows == rows:
        return
    if (len(rows) <= _PAGE) != bool(table.props.get("hide-pagination")):
        table.props["hide-pagination"] = len(rows) <= _PAGE
    table.rows = rows


def plain_table(of: list[dict[str, Any]], none: str = "", *, key: str = "") -> ui.table:
    """Draw a table to be read.

    `key` tells rows apart, by default the first column; `none` stands where no row does.
    """
    table = (
        ui.table(columns=of, rows=[], row_key=key or of[0]["name"], pagination={"rowsPerPage": _PAGE})
        .classes("w-full stacks")
        .props("flat dense hide-pagination :rows-per-page-options='[25,50,100,0]'")
    )
    if none:
        table.add_slot("no-data", f"<div class='empty'>{none}</div>")
    return table
