"""Draw the packets that a change opens and closes, and the cost of lists.

Recorded packets are among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, heading, working
from orchestrator.client.lists import Part
from orchestrator.policy.describe import name_decider
from orchestrator.policy.headline import Danger, Sentence
from orchestrator.wire.costs import Cost
from orchestrator.wire.lists import ChangedTraffic, DraftTraffic

Json = Mapping[str, Any]

COSTS: tuple[Part, ...] = ("cost", "firewall")
"""The parts that a cost comes in: without a firewall's share, and with it."""
MOST_SHOWN = 25
_MOST_PEERS = 5
_FATES = {
    "permit": ("Newly permitted", "add_circle"),
    "deny": ("Newly denied", "remove_circle"),
    "stateless": ("Decided as before, but by a stateless rule", "change_circle"),
    "tracked": ("Decided as before, but by connections", "change_circle"),
}
"""The fates of packets: the heading over them, and an icon."""
_DANGERS = {
    Danger.HIGH: ("text-negative", "warning"),
    Danger.SOME: ("text-warning", "info"),
    Danger.NONE: ("", "check"),
}


def draw_difference(changes: Sequence[Json] | None) -> None:
    """Draw the packets that fare otherwise, with the rules that decide."""
    if changes is None:
        ui.label("The two lists have next to nothing in common: everything may fare otherwise.").classes("chip warn")
        return
    if not changes:
        empty("No packet fares otherwise. Only words or places of rules change.")
        return
    for becomes, (title, _) in _FATES.items():
        some = [change for change in changes if change["becomes"] == becomes]
        if not some:
            continue
        with ui.row().classes("items-center gap-2"):
            heading(title)
            ui.label(words.of(len(some), "set of packets", "sets of packets")).classes("chip none")
        with ui.column().classes("panel"):
            for change in some[:MOST_SHOWN]:
                _draw_change(change, becomes)
            if len(some) > MOST_SHOWN:
                ui.label(f"and {words.count(len(some) - MOST_SHOWN)} more").classes("quiet small")


def draw_headline(sentences: Sequence[Sentence]) -> None:
    """Draw the sentences of a change, coloured by danger."""
    with ui.column().classes("panel gap-2").props("role=status data-part=headline"):
        for sentence in sentences:
            look, icon = _DANGERS[sentence.danger]
            with ui.row().classes("items-center gap-2 no-wrap"):
                ui.icon(icon).classes(look).props("aria-hidden=true")
                ui.label(f"{sentence.text[0].upper()}{sentence.text[1:]}.").classes(
                    f"{look} {'font-bold' if sentence.danger is Danger.HIGH else ''}"
                )


def _draw_change(change: Json, becomes: str) -> None:
    with ui.row().classes("w-full items-start gap-2 no-wrap"):
        ui.icon(_FATES[becomes][1]).classes("quiet").props("aria-hidden=true")
        with ui.column().classes("gap-0 grow"):
            ui.label(f"{change['direction']}: {change['summary']}").classes("mono")
            less = tuple(dict.fromkeys((*change["less_before"], *change["less_after"])))
            if less:
                ui.label(f"less what {words.list_names(less)} take").classes("small quiet")
            before, after = (words.list_names([*map(name_decider, change[when])]) for when in ("before", "after"))
            ui.label(f"decided by {before} before, by {after} after").classes("small quiet")


def draw_traffic(traffic: DraftTraffic) -> None:
    """Draw recorded packets that a draft would newly permit or refuse.

    They are shown by rule and by peer.
    """
    recorded = f"Of {words.of(traffic.packets, 'packet')} that rules with a log recorded in the last 24 hours, "
    if not traffic.changes:
        empty(f"{recorded}none would fare otherwise.")
        return
    permitted, refused = words.count(traffic.newly_permitted), words.count(traffic.newly_denied)
    ui.label(f"{recorded}{permitted} would be newly permitted, {refused} newly refused.").classes("quiet")
    with ui.column().classes("panel"):
        for change in traffic.changes[:MOST_SHOWN]:
            _draw_changed_traffic(change)
        if len(traffic.changes) > MOST_SHOWN:
            ui.label(f"and {words.count(len(traffic.changes) - MOST_SHOWN)} more").classes("quiet small")


def _draw_changed_traffic(change: ChangedTraffic) -> None:
    is_permit = change.becomes == "permit"
    becomes = "newly permitted" if is_permit else "newly refused"
    with ui.row().classes("w-full items-start gap-2 no-wrap"):
        ui.icon("add_circle" if is_permit else "remove_circle").classes("quiet").props("aria-hidden=true")
        with ui.column().classes("gap-0 grow"):
            ui.label(f"{change.direction}: {words.of(change.packets, 'packet')} {becomes}").classes("mono")
            peers = ", ".join(f"{each.peer} ({words.count(each.packets)})" for each in change.peers[:_MOST_PEERS])
            others = change.peers_in_all - len(change.peers[:_MOST_PEERS])
            more = f" and {words.of(others, 'other peer')}" if others else ""
            ui.label(f"to or from {peers}{more}").classes("small")
            before, after = (
                words.list_names([name_decider(rule or None)]) for rule in (change.rule_before, change.rule)
            )
            ui.label(f"decided by {before} before, by {after} after").classes("small quiet")


def draw_cost(after: Cost | None, before: Cost | None = None, *, counting: bool = False) -> None:
    """Draw a list's cost by kind of device, beside its cost now.

    `counting`: a firewall's share is to come.
    """
    if after is None:
        return
    rows = [
        ("Rules", "rules"),
        ("Flow entries on a switch", "flows"),
        ("Levels", "levels"),
        ("Shapes (masks)", "shapes"),
        ("TCAM slots", "slots"),
        ("iptables lines", "iptables_lines"),
        ("nftables lines", "nftables_lines"),
    ]
    now, then = _sum_costs(after), _sum_costs(before) if before else {}
    with ui.element("table").classes("w-full").style("border-spacing: 0 4px"), ui.element("tbody"):
        for label, key in rows:
            if key not in now:
                continue
            with ui.element("tr"):
                with ui.element("td"):
                    ui.label(label)
                with ui.element("td").classes("number").style("text-align: right"):
                    ui.label(words.count(now[key]))
                if before:
                    with ui.element("td").classes("number small quiet").style("text-align: right; width: 90px"):
                        delta = now[key] - then.get(key, now[key])
                        ui.label(f"{'+' if delta > 0 else '-'}{words.count(abs(delta))}" if delta else "")
    if counting:
        working("Counting the lines of a firewall VNF")


def _sum_costs(cost: Cost) -> dict[str, int]:
    ingress, egress, firewall = cost.ingress, cost.egress, cost.firewall
    found = {
        "rules": ingress.rules + egress.rules,
        "flows": ingress.flows + egress.flows,
        "levels": max(ingress.levels, egress.levels),
        "shapes": ingress.shapes + egress.shapes,
        "slots": cost.tcam.slots,
    }
    if firewall is not None:
        found |= {"iptables_lines": firewall.iptables_lines, "nftables_lines": firewall.nftables_lines}
    return found
