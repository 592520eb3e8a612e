"""The table of rules: its columns, and the body whose rows can be dragged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLUMNS: list[dict[str, Any]] = [
    {"name": "place", "label": "#", "field": "place", "align": "right", "style": "width: 56px"},
    {"name": "action", "label": "Action", "field": "action", "align": "left", "style": "width: 84px"},
    {"name": "direction", "label": "Direction", "field": "direction", "align": "left", "style": "width: 90px"},
    {"name": "protocol", "label": "Protocol", "field": "protocol", "align": "left", "style": "width: 80px"},
    {"name": "source", "label": "Source", "field": "source", "align": "left"},
    {"name": "destination", "label": "Destination", "field": "destination", "align": "left"},
    {"name": "rule", "label": "Rule", "field": "id", "align": "left"},
    {"name": "packets", "label": "Packets", "field": "packets", "align": "right", "style": "width: 96px"},
    {"name": "actions", "label": "", "field": "id", "align": "right", "style": "width: 96px"},
]

BODY = Path(__file__).with_name("rule-row.html").read_text(encoding="utf-8")
"""A row as Vue draws it. It tells of `act` (what, rule) and of `dropped` (rule, onto)."""
