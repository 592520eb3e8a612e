"""Draw findings, the worst first, and waivers, by which somebody takes responsibility."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nicegui import ui

from api.console import words
from api.console.parts.differences import MOST_SHOWN, Json
from api.console.parts.pieces import Way, dialog, empty
from api.console.parts.timefield import TimeField
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Finding
from orchestrator.errors import AclflowError, BadInput
from orchestrator.wire.lists import Waiver

Act = Callable[[Finding], object]
After = Callable[[], Awaitable[None]]

_SEVERITIES = {"error": "bad", "warning": "warn", "note": "none"}
"""How much a finding matters, the most first, and how that looks."""
_WHY = "Why may it stay so?"
_MEANINGS = {
    "shadowed": "Never decides: rules before it take all its packets",
    "never": "Can match nothing",
    "duplicate": "Says what another rule says",
    "redundant": "Could go without changing anything",
    "conflict": "Overlaps a rule that says the opposite",
    "wide": "Lets a large part of the world in",
    "expired": "Its time is over",
    "group": "A group that could be shorter",
    "undecided": "Too many rules to tell",
}


def severity_words(severities: Mapping[str, int]) -> str:
    """How many findings of each severity: 1 error, 3 warnings and 2 notes; none."""
    parts = [words.of(severities[name], name) for name in _SEVERITIES if severities.get(name)]
    *most, last = parts or ["none"]
    return f"{', '.join(most)} and {last}" if most else last


def draw_findings(
    findings: Sequence[Finding], counts: Mapping[str, int], tenant: str, *, waive: Act | None = None
) -> None:
    """Draw findings by kind, the kind with the worst first.

    Rules lead to the list of `tenant`.

    `counts` says how many there are in all. With `waive`, each has a button for it.
    """
    if not findings:
        empty("Nothing found: every rule decides something, none is in the way of another.")
        return
    kinds = [kind for kind in _MEANINGS if any(each.kind == kind for each in findings)]
    for kind in sorted(kinds, key=lambda kind: min(_rank_severity(each) for each in findings if each.kind == kind)):
        some = sorted((each for each in findings if each.kind == kind), key=_rank_severity)
        _Kind(kind, some, counts.get(kind, len(some)), tenant, waive).draw()


def _rank_severity(finding: Finding) -> int:
    return list(_SEVERITIES).index(finding.severity)


class _Kind:
    """The findings of a kind, drawn when somebody opens it.

    Notes alone are ordinary, so they stay closed.
    """

    def __init__(self, kind: str, some: Sequence[Finding], total: int, tenant: str, waive: Act | None) -> None:
        self._kind = kind
        self._some = some
        self._total = total
        self._tenant = tenant
        self._waive = waive

    def draw(self) -> None:
        worst = self._some[0].severity
        opened = worst != "note"
        with ui.expansion(value=opened).classes("panel findings").props("header-class=p-0") as expansion:
            with expansion.add_slot("header"), ui.row().classes("items-center gap-2 grow no-wrap"):
                ui.label(worst).classes(f"chip {_SEVERITIES[worst]}")
                ui.label(f"{self._kind}: {_MEANINGS[self._kind]}")
                ui.space()
                ui.label(words.count(self._total)).classes("number quiet")
            self._place = ui.column().classes("w-full gap-1")
        expansion.on_value_change(self._draw_findings)
        if opened:
            self._draw_findings()

    def _draw_findings(self) -> None:
        if self._place.default_slot.children:
            return
        with self._place:
            for finding in self._some[:MOST_SHOWN]:
                self._draw_one(finding)
            if self._total > MOST_SHOWN:
                ui.label(f"and {words.count(self._total - MOST_SHOWN)} more").classes("quiet small")

    def _draw_one(self, finding: Finding) -> None:
        with ui.column().classes("gap-0 w-full py-1"):
            with ui.row().classes("gap-2 items-center w-full"):
                ui.label(finding.severity).classes(f"chip {_SEVERITIES[finding.severity]}")
                ui.label(finding.explanation).style("flex: 1 1 200px")
            ui.label(f"{finding.severity}: {finding.reason}").classes("small quiet")
            with ui.row().classes("gap-3 items-center"):
                if finding.witness:
                    ui.label(f"for example {packet_words(finding.witness)}").classes("small mono quiet")
                for rule in finding.rules[:2]:
                    ui.link(f"show {rule}", f"{path_of('acl', self._tenant)}?q={rule}").classes("small")
                if self._waive is not None:
                    self._offer_waiver(finding, self._waive)

    def _offer_waiver(self, finding: Finding, waive: Act) -> None:
        button = ui.button("Waive", icon="task_alt", on_click=lambda: waive(finding)).props(
            "flat dense no-caps size=sm"
        )
        button.props(f'aria-label="Waive {self._kind} of {_name_subject(_subject(finding), finding.group)}"')


def ask_to_waive(view: View, finding: Finding, after: After) -> None:
    """Ask for a reason and an end; then waive the finding."""
    with dialog("Waive this finding?") as box:
        ui.label(finding.explanation)
        ui.label("It counts no more until then, for everybody of the project. The list stays as it is.").classes(
            "quiet"
        )
        reason = ui.input(_WHY).props("outlined dense autofocus maxlength=1000").classes("w-full")
        ends = TimeField("Until", "in 4w", view.session.zone)

        async def keep_waiver() -> None:
            why, until = (reason.value or "").strip(), ends.read()
            if not why:
                raise BadInput("say why, so that the next one who looks knows", place=_WHY)
            if until is None:
                raise BadInput("it is empty: a waiver ends, so that somebody looks again", place="Until")
            made = await view.do(
                lambda client: client.waivers.add(
                    view.tenant, finding.kind, _subject(finding), group=finding.group, reason=why, ends=until
                )
            )
            if made.replaced is not None:
                older = made.replaced
                over = words.moment(older.ends, view.session.zone)
                said = f"It takes the place of a waiver by {older.by()}, until {over}: {older.reason}"
                ui.notify(said, type="warning", multi_line=True, position="top", timeout=0, close_button=True)
            await after()

        Way(box, "Waive it", keep_waiver)


def draw_waivers(view: View, waivers: Sequence[Waiver], after: After) -> None:
    """Draw what is waived: by whom, why, until when; and how it is taken back."""
    now = dt.datetime.now(dt.UTC)
    for each in waivers:
        about = _name_subject(each.rules, each.group)
        with ui.row().classes("w-full items-center gap-3 py-1"):
            ui.label("over" if each.ends <= now else "waived").classes(f"chip {'warn' if each.ends <= now else 'none'}")
            with ui.column().classes("gap-0").style("flex: 1 1 240px; min-width: 0"):
                ui.label(f"{each.kind} of {about}: {each.reason}").style("overflow-wrap: anywhere")
                until = words.moment(each.ends, view.session.zone)
                ui.label(f"by {each.by()}, until {until}").classes("small quiet")
            if view.session.may_write:
                button = ui.button("Delete", on_click=lambda waiver=each: _ask_to_delete(view, waiver, after))
                button.props(f'flat dense no-caps aria-label="Delete the waiver of {each.kind} of {about}"')


async def _ask_to_delete(view: View, waiver: Waiver, after: After) -> None:
    try:
        await view.do(lambda client: client.waivers.remove(view.tenant, waiver.id))
    except AclflowError as error:
        ui.notify(str(error), type="negative")
    await after()


def _subject(finding: Finding) -> tuple[str, ...]:
    """Return the rules that its waiver names: both of a conflict, none for groups."""
    if finding.group is not None:
        return ()
    return finding.rules if finding.kind == "conflict" else finding.rules[:1]


def _name_subject(rules: Sequence[str], group: str | None) -> str:
    return f"@{group}" if group is not None else " and ".join(rules)


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
