"""Lifted rules: since when, why, what each saves, and how they are chosen."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import Way, dialog, empty
from api.console.parts.tree import path_of
from api.console.parts.view import View
from api.console.pictures.series import LIFTED, LOWERED, Series, lifted_over_time, series_picture
from orchestrator.client.placement import Fate, PlacedRule, PlacementSeen
from orchestrator.errors import AclflowError
from orchestrator.wire.domains import Domain
from orchestrator.wire.events import Event

_LIVE_S = 3.0
_EVENTS = 500
_ALGORITHMS = {
    "off": "off: nothing is lifted but what is pinned",
    "savings": "savings: rules that save the most work",
    "paper": "paper: the rule with the most packets, as ACLFLOW does",
}
_CHOSEN = {
    "off": "only pinned rules are lifted",
    "savings": "chosen by what they save",
    "paper": "chosen by their packets",
}
_NUMBERS = {
    "interval_s": ("Interval, s", "how often rules are looked at (T)"),
    "upper": ("Upper threshold", "packets an interval that a rule needs to go up (UT)"),
    "lower": ("Lower threshold", "below so many packets it comes down (LT)"),
    "most_lifted": ("Most lifted", "the budget; 0 lifts nothing"),
    "hysteresis": ("Hysteresis", "how much better another rule must be"),
}
_MOVES = {"lift": ("good", "would go up"), "lower": ("warn", "would come down"), "stays": ("none", "stays")}


async def build(view: View) -> None:
    """Draw the page."""
    ui.label(
        "A popular rule is decided ahead of its list, with what must stay above it; what is permitted never changes."
    ).classes("quiet")
    domains = await view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=5)
    if not domains:
        empty("There is no domain yet, so there are no rules to lift.")
    for domain in domains:
        panel = _Placement(view, domain)
        panel.draw()
        await panel.refresh()
        ui.timer(_LIVE_S, panel.refresh)


class _Placement:
    def __init__(self, view: View, domain: Domain) -> None:
        self._view = view
        self._domain = domain.id
        self._seen: PlacementSeen | None = None
        self._drawn: Sequence[PlacedRule] | None = None
        """The rules that are drawn, without what `_show_numbers` writes."""

    def draw(self) -> None:
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(self._domain).classes("text-lg font-bold")
                self._said = ui.label().classes("quiet small")
                ui.space()
                ui.button("Try a round now", icon="science", on_click=self._try).props("flat dense no-caps")
                ui.button("Settings", icon="tune", on_click=self._set).props("flat dense no-caps")
            self._shares = ui.label().classes("quiet small")
            self._plot = ui.html("", sanitize=False).classes("w-full scrolls newest-first")
            self._plot.props("tabindex=0 role=group aria-label='Lifted rules and what they save over time'")
            self._rules = ui.column().classes("w-full gap-2")

    async def refresh(self) -> None:
        """Show what is lifted now."""
        try:
            seen = await self._view.read(
                ("placement", self._domain), lambda client: client.placement.read(self._domain), fresh_s=_LIVE_S - 0.5
            )
            happened = await self._view.read(
                "newest events", lambda client: client.events.read_newest(limit=_EVENTS).items, fresh_s=_LIVE_S - 0.5
            )
        except AclflowError:
            return
        self._show_plot(seen, happened)
        if seen == self._seen:
            return
        self._seen = seen
        settings = seen.settings
        how = f"{_CHOSEN[str(settings['algorithm'])]}, looked at every {settings['interval_s']:g} s"
        self._said.text = f"{how}, at most {settings['most_lifted']} lifted"
        if seen.idle_share is not None and seen.never_used_share is not None:
            idle, unused = words.share(seen.idle_share), words.share(seen.never_used_share)
            self._shares.text = f"In the last round {idle} of the rules were idle; {unused} were never used."
        wanted = [replace(rule, because="", saves_us_per_s=None) for rule in seen.rules]
        if wanted != self._drawn:
            self._drawn = wanted
            self._draw_rules(seen.rules)
        self._show_numbers(seen.rules)

    def _draw_rules(self, rules: Sequence[PlacedRule]) -> None:
        self._numbers: list[tuple[ui.label, ui.label]] = []
        self._rules.clear()
        with self._rules:
            if not rules:
                ui.label(
                    "No rule is lifted: none has enough traffic, or lifting would save nothing. "
                    "Try a round now to see what each would save."
                ).classes("quiet")
            self._together = ui.label().classes("small")
            for rule in rules:
                self._numbers.append(self._draw_rule(rule))

    def _show_numbers(self, rules: Sequence[PlacedRule]) -> None:
        """Write a round's numbers into the rows that are there.

        Menus and the keyboard's place stay.
        """
        saved = sum(rule.saves_us_per_s or 0 for rule in rules if rule.lifted)
        self._together.text = f"All together they save {words.share(saved / 1e6)} of a core."
        self._together.set_visibility(saved > 0)
        for rule, (saves, because) in zip(rules, self._numbers, strict=True):
            saves.text = f"saves {words.short(rule.saves_us_per_s or 0)} µs of a core a second"
            saves.set_visibility(bool(rule.saves_us_per_s))
            because.text = rule.because

    def _show_plot(self, seen: PlacementSeen, happened: Sequence[Event]) -> None:
        """Draw lifted rules and their savings, as far back as events reach."""
        lifted = {(rule.tenant, rule.rule): rule.saves_us_per_s or 0 for rule in seen.rules if rule.lifted}
        moved = any(each.subject == self._domain and each.kind in (LIFTED, LOWERED) for each in happened)
        self._plot.set_visibility(moved or bool(lifted))
        if not self._plot.visible:
            return
        found = lifted_over_time(happened, self._domain, lifted, dt.datetime.now(dt.UTC))
        lanes = [Series("Lifted rules", found.counts, stepped=True)]
        if any(found.saved_us_per_s):
            percent = [each / 1e4 for each in found.saved_us_per_s]
            lanes.append(Series("Saved of a core", percent, "%", stepped=True, kind="good"))
        self._plot.set_content(series_picture(found.times, lanes, self._view.session.zone))

    def _draw_rule(self, rule: PlacedRule) -> tuple[ui.label, ui.label]:
        """Draw a rule; return the labels of what it saves, and why it is there."""
        zone = self._view.session.zone
        with ui.row().classes("w-full items-center gap-3"):
            ui.icon("vertical_align_top" if rule.lifted else "hourglass_top").classes(
                "text-positive" if rule.lifted else "quiet"
            )
            ui.link(f"{rule.tenant} / {rule.rule}", f"{path_of('acl', rule.tenant)}?q={rule.rule}").classes("font-bold")
            if rule.wish:
                ui.label(rule.wish).classes("chip info")
            if rule.form:
                ui.label(f"{rule.form}, {words.of(rule.parts, 'part')}").classes("chip none")
            ui.label("with its replies" if rule.replies else rule.no_replies).classes("small quiet")
            ui.space()
            saves = ui.label().classes("small number")
            ui.label(f"since {words.moment(rule.lifted, zone)}" if rule.lifted else "not lifted").classes("small quiet")
            with ui.button(icon="more_vert").props(f"flat dense round aria-label='More for {rule.rule}'"), ui.menu():
                ui.menu_item("Pin it", on_click=lambda: self._set_wish(rule, "pinned"))
                ui.menu_item("Forbid it", on_click=lambda: self._set_wish(rule, "forbidden"))
                if rule.wish:
                    ui.menu_item("Leave it to the chooser", on_click=lambda: self._set_wish(rule, None))
        return saves, ui.label().classes("small quiet").style("padding-left: 36px")

    async def _set_wish(self, rule: PlacedRule, wish: str | None) -> None:
        domain = self._domain
        try:
            if wish is None:
                await self._view.do(lambda client: client.placement.leave_to_chooser(domain, rule.tenant, rule.rule))
            else:
                await self._view.do(lambda client: client.placement.set_wish(domain, rule.tenant, rule.rule, wish))
        except AclflowError as error:
            ui.notify(str(error), type="negative")
        await self.refresh()

    async def _try(self) -> None:
        """Show what a round would decide now."""
        try:
            fates = await self._view.session.reading.once(
                lambda: self._view.client.placement.try_settings(self._domain)
            )
        except AclflowError as error:
            ui.notify(str(error), type="negative")
            return
        with dialog("What a round would decide now", 760) as box:
            if not fates:
                ui.label("Nothing: no rule has traffic.").classes("quiet")
            for fate in fates[:100]:
                _draw_fate(fate)
            ui.button("Close", on_click=box.close).props("flat no-caps").classes("self-end")

    async def _set(self) -> None:
        """Ask for other settings."""
        if self._seen is None:
            return
        settings, etag = self._seen.settings, self._seen.etag
        with dialog("How rules are chosen", 520) as box:
            algorithm = (
                ui.select(_ALGORITHMS, value=settings["algorithm"], label="Algorithm")
                .props("outlined dense")
                .classes("w-full")
            )
            fields = {
                name: ui.input(label, value=f"{settings[name]:g}")
                .props(f'outlined dense hint="{hint}"')
                .classes("w-full")
                for name, (label, hint) in _NUMBERS.items()
            }
            printed = ui.checkbox("The paper's algorithm with its slips", value=bool(settings["as_printed"]))
            printed.bind_visibility_from(algorithm, "value", lambda value: value == "paper")

            async def keep_settings() -> None:
                wanted = _read(fields) | {"algorithm": algorithm.value, "as_printed": printed.value}
                await self._view.do(lambda client: client.placement.configure(self._domain, wanted, etag=etag))
                await self.refresh()

            Way(box, "Apply", keep_settings)


def _read(fields: Mapping[str, ui.input]) -> dict[str, Any]:
    """The numbers that were filled in. Raises ValueError with the field's label."""
    found: dict[str, Any] = {}
    for name, field in fields.items():
        try:
            number = float(field.value)
        except ValueError:
            raise ValueError(f"{_NUMBERS[name][0]}: '{field.value}' is not a number") from None
        found[name] = int(number) if name in ("upper", "lower", "most_lifted") else number
    return found


def _draw_fate(fate: Fate) -> None:
    kind, says = _MOVES[fate.move]
    with ui.row().classes("w-full items-center gap-3"):
        ui.label(says).classes(f"chip {kind}")
        ui.label(f"{fate.tenant} / {fate.rule}").classes("font-bold")
        if fate.saves_us_per_s:
            ui.label(f"saves {words.short(fate.saves_us_per_s)} µs/s").classes("small number")
        ui.label(fate.because).classes("small quiet")
