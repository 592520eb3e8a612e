"""Draw the way of a packet through the lists, as far as it gets."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from orchestrator.client import Step, Trace
from orchestrator.policy.describe import name_decider


def way(steps: Sequence[Step], source: str, destination: str, *, permitted: bool) -> str:
    """Draw ``source > list > list > destination``, as far as the packet gets.

    It is a row of boxes, and a column where the window is narrow.
    """
    boxes = [("end", ("from", source)), *map(_list, steps)]
    boxes.append(("end", ("to", destination)) if permitted else ("bad", ("dropped",)))
    said = f"{source} to {destination}: {'permitted' if permitted else 'denied'}"
    items = "".join(_box(kind, lines) for kind, lines in boxes)
    return f'<ol class="way" aria-label="{escape(said)}">{items}</ol>'


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
    """Name the rule that decided, in words."""
    return "no rule matches: the default" if rule is None else name_decider(rule, "rule {}")


def _list(step: Step) -> tuple[str, tuple[str, ...]]:
    return ("good" if step.action == "permit" else "bad"), (who_decides(step), rule_words(step.rule), step.action)


def _box(kind: str, lines: tuple[str, ...]) -> str:
    *before, last = map(escape, lines)
    return f'<li class="{kind}">{"".join(f"<span>{line}</span>" for line in before)}<b>{last}</b></li>'
