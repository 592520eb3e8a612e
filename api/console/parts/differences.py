"""What a change opens and closes, what it costs, and what is odd about a list: as several pages show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, heading
from api.console.parts.section import working
from api.console.parts.tree import path_of
from orchestrator.client import Finding
from orchestrator.client.lists import Part
from orchestrator.policy.headline import Danger, Sentence
from orchestrator.wire.costs import Cost

Json = Mapping[str, Any]

COSTS: tuple[Part, ...] = ("cost", "firewall")
"""The parts that a cost comes in: without a firewall's share, and with it."""
MOST_SHOWN = 25
_FEW = 5
_DEFAULT = "_default"
_DANGERS = {
    Danger.HIGH: ("text-negative", "warning"),
    Danger.SOME: ("text-warning", "info"),
    Danger.NONE: ("", "check"),
}
_KINDS = {
    "shadowed": ("bad", "Never decides: rules before it take all its packets"),
    "never": ("bad", "Can match nothing"),
    "duplicate": ("warn", "Says what another rule says"),
    "redundant": ("info", "Could go without changing anything"),
    "conflict": ("info", "Overlaps a rule that says the opposite"),
    "wide": ("warn", "Lets a large part of the world in"),
    "expired": ("warn", "Its time is over"),
    "expiring": ("warn", "Its time is nearly over"),
    "group": ("info", "A group that could be shorter"),
    "undecided": ("info", "Too many rules to tell"),
}


def draw_difference(changes: Sequence[Json] | None) -> None:
    """The packets that become permitted and those that become denied, each set with who decides it."""
    if changes is None:
        ui.label("The two lists have next to nothing in common: everything may fare otherwise.").classes("chip warn")
        return
    if not changes:
        empty("No packet fares otherwise. Only words or places of rules change.")
        return
    for becomes, title in (("permit", "Newly permitted"), ("deny", "Newly denied")):
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
    """What a change does in sentences, coloured by how dangerous that is."""
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
        ui.icon("add_circle" if becomes == "permit" else "remove_circle").classes("quiet").props("aria-hidden=true")
        with ui.column().classes("gap-0 grow"):
            ui.label(f"{change['direction']}: {change['summary']}").classes("mono")
            less = tuple(dict.fromkeys((*change["less_before"], *change["less_after"])))
            if less:
                ui.label(f"less what {words.named(less)} take").classes("small quiet")
            before, after = (words.named([_rule(rule) for rule in change[when]]) for when in ("before", "after"))
            ui.label(f"decided by {before} before, by {after} after").classes("small quiet")


def _rule(name: str) -> str:
    return "the default" if name == _DEFAULT else name


def draw_findings(findings: Sequence[Finding], counts: Mapping[str, int] | None = None, tenant: str = "") -> None:
    """Findings by kind, the worst first; rules lead to the list of `tenant`. `counts`: how many there are in all."""
    if not findings:
        empty("Nothing found: every rule decides something, none is in the way of another.")
        return
    first = True
    for kind, (colour, meaning) in _KINDS.items():
        some = [finding for finding in findings if finding.kind == kind]
        if some:
            total = (counts or {}).get(kind, len(some))
            _draw_kind((kind, colour, meaning), some, total, tenant, opened=first or len(some) < _FEW)
            first = False


def _draw_kind(says: tuple[str, str, str], some: Sequence[Finding], total: int, tenant: str, *, opened: bool) -> None:
    """The findings of a kind; they are drawn when somebody opens it."""
    kind, colour, meaning = says
    with ui.expansion(value=opened).classes("panel findings").props("header-class=p-0") as expansion:
        with expansion.add_slot("header"), ui.row().classes("items-center gap-2 grow no-wrap"):
            ui.label(kind).classes(f"chip {colour}")
            ui.label(meaning)
            ui.space()
            ui.label(words.count(total)).classes("number quiet")
        place = ui.column().classes("w-full gap-1")

    def draw() -> None:
        if place.default_slot.children:
            return
        with place:
            for finding in some[:MOST_SHOWN]:
                _draw_finding(finding, tenant)
            if total > MOST_SHOWN:
                ui.label(f"and {words.count(total - MOST_SHOWN)} more").classes("quiet small")

    expansion.on_value_change(draw)
    if opened:
        draw()


def _draw_finding(finding: Finding, tenant: str) -> None:
    with ui.column().classes("gap-0 w-full py-1"):
        ui.label(finding.explanation)
        with ui.row().classes("gap-3 items-center"):
            if finding.witness:
                ui.label(f"for example {packet_words(finding.witness)}").classes("small mono quiet")
            for rule in finding.rules[:2]:
                ui.link(f"show {rule}", f"{path_of('acl', tenant)}?q={rule}").classes("small")


def packet_words(packet: Json) -> str:
    """A packet of the API's in one line."""
    ports = packet.get("source_port") or packet.get("destination_port")
    ends = [f"{packet['source']}", f"{packet['destination']}"]
    if ports:
        ends = [
            words.with_port(end, packet[f"{side}_port"])
            for side, end in zip(("source", "destination"), ends, strict=True)
        ]
    return f"{packet['protocol']} {ends[0]} > {ends[1]}"


def draw_cost(after: Cost | None, before: Cost | None = None, *, counting: bool = False) -> None:
    """What a list costs on each kind of device, beside what it costs now. `counting`: a firewall's share is to come."""
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
    now, then = _costs(after), _costs(before) if before else {}
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


def _costs(cost: Cost) -> dict[str, int]:
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
