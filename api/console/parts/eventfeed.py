"""Events as people read them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress

from nicegui import ui

from api.console import words
from orchestrator.eventkinds import KINDS
from orchestrator.wire.events import Event

_BAD = frozenset(
    {
        "enforcer.down", "firewall.unmade", "host.disconnected", "host.drifted", "host.full", "host.impersonated",
        "host.refused",
    }
)  # fmt: skip
_GOOD = frozenset(
    {"acl.enforced", "generation.enforced", "firewall.made", "host.recovered", "enforcer.up", "enforcer.enrolled"}
)
_MOST_WORDS = 6


def draw_events(events: Sequence[Event], zone: dt.tzinfo, *, for_owners: bool = False) -> None:
    """Draw events in the order given; `for_owners` of a list, in their words."""
    if not events:
        ui.label("Nothing yet.").classes("quiet")
    for event in events:
        with ui.element("div").classes("event"):
            kind = "bad" if event.kind in _BAD else "good" if event.kind in _GOOD else "none"
            ui.label(event.kind).classes(f"chip {kind}")
            with ui.column().classes("gap-0").style("min-width: 0"):
                text = event_text(event, zone)
                ui.label(words.for_owners(text) if for_owners else text).classes("small")
                ui.label(words.moment(event.time, zone)).classes("small quiet number")


def event_text(event: Event, zone: dt.tzinfo) -> str:
    """Say an event in words: what happened, to what, by whom."""
    known = KINDS.get(event.kind)
    told = ((name, _value_text(value, zone)) for name, value in event.facts().items())
    detail = [f"{name.replace('_', ' ')} {text}" for name, text in told if text]
    said = f"{event.subject}: {known.says if known else event.kind}"
    by = event.by()
    return said + (f" ({', '.join(detail[:_MOST_WORDS])})" if detail else "") + (f"; by {by}" if by else "")


def _value_text(value: object, zone: dt.tzinfo) -> str:
    """A detail in words; empty where there is nothing to say."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_value_text(each, zone)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value_text(each, zone) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        with suppress(ValueError):
            time = dt.datetime.fromisoformat(value)
            return words.moment(time, zone) if time.tzinfo is not None else value
    return str(value)
