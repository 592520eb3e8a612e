"""The way of a packet through the lists that are asked about it, as far as it gets."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from orchestrator.client import Step, Trace

_WIDTH, _HEIGHT, _GAP, _TOP = 210, 84, 44, 10


def way(steps: Sequence[Step], source: str, destination: str, *, permitted: bool) -> str:
    """Draw ``source > list > list > destination``; a denied packet ends at the list that denies it."""
    boxes = [_end("from", source)]
    boxes += [_list(step) for step in steps]
    boxes.append(_end("to", destination) if permitted else _stop())
    width = len(boxes) * (_WIDTH + _GAP) - _GAP + 20
    drawn = []
    for number, (kind, lines) in enumerate(boxes):
        x = 10 + number * (_WIDTH + _GAP)
        drawn.append(_box(x, kind, lines))
        if number + 1 < len(boxes):
            drawn.append(_arrow(x + _WIDTH, stopped=not permitted and number + 2 == len(boxes)))
    said = f"{source} to {destination}: {'permitted' if permitted else 'denied'}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" style="min-width:{0.8 * width:.0f}px" role="img" '
        f'aria-label="{escape(said)}" '
        f'width="{width}" height="{_HEIGHT + 2 * _TOP}" '
        f'viewBox="0 0 {width} {_HEIGHT + 2 * _TOP}">{"".join(drawn)}</svg>'
    )


def who_decides(step: Step) -> str:
    """The list that a step stands for, in words."""
    if step.tenant is None:
        return "operator's rules"
    return f"{step.direction} list of {step.tenant}"


def tier_words(found: Trace) -> str:
    """At which tier a packet's fate is settled first, in words."""
    if found.tier == "server":
        return f"firewall {found.server}, before any host" if found.server else "a firewall, before any host"
    where = "host, ahead of the list: the rule is lifted" if found.lifted else "host, in the list"
    return f"{where}; past the firewall servers, as a heavy hitter" if found.heavy else where


def rule_words(rule: str | None) -> str:
    """What decided, in words."""
    return {None: "no rule matches: the default", "_return": "return traffic"}.get(rule, f"rule {rule}")


def _end(which: str, address: str) -> tuple[str, tuple[str, ...]]:
    return "end", (which, address)


def _stop() -> tuple[str, tuple[str, ...]]:
    return "bad", ("dropped",)


def _list(step: Step) -> tuple[str, tuple[str, ...]]:
    return ("good" if step.action == "permit" else "bad"), (who_decides(step), rule_words(step.rule), step.action)


def _box(x: int, kind: str, lines: tuple[str, ...]) -> str:
    fill, stroke = {
        "end": ("var(--card)", "var(--line)"),
        "good": ("var(--good-soft)", "var(--good)"),
        "bad": ("var(--bad-soft)", "var(--bad)"),
    }[kind]
    middle = _TOP + _HEIGHT / 2 - (len(lines) - 1) * 10
    texts = []
    for number, line in enumerate(lines):
        shown = line if len(line) <= 28 else line[:27] + "…"
        weight = "600" if number == len(lines) - 1 or len(lines) == 1 else "400"
        texts.append(
            f'<text x="{x + _WIDTH / 2}" y="{middle + number * 20 + 5}" text-anchor="middle" font-size="13" '
            f'font-weight="{weight}">{escape(shown)}</text>'
        )
    return (
        f'<rect x="{x}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" rx="10" style="fill:{fill};stroke:{stroke}" '
        f'stroke-width="1.5"/>{"".join(texts)}'
    )


def _arrow(x: int, *, stopped: bool) -> str:
    y, end = _TOP + _HEIGHT / 2, x + _GAP - 6
    colour = "var(--bad)" if stopped else "var(--quiet)"
    return (
        f'<path d="M{x + 6} {y}H{end}M{end - 7} {y - 6}L{end} {y}L{end - 7} {y + 6}" fill="none" '
        f'style="stroke:{colour}" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/>'
    )
