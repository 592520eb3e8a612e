"""Trace lifted rules and their savings back over time, from those lifted now, by events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.wire.events import Event

LIFTED, LOWERED = "placement.lifted", "placement.lowered"

Name = tuple[str, str]
"""A tenant and a rule of its list."""


@dataclass(frozen=True, slots=True)
class LiftedOverTime:
    """Lifted rules and their savings over time.

    Savings are microseconds of a core a second, from each moment on.
    """

    times: tuple[dt.datetime, ...]
    counts: tuple[int, ...]
    saved_us_per_s: tuple[float, ...]


def lifted_over_time(
    events: Sequence[Event], domain: str, lifted: Mapping[Name, float], now: dt.datetime
) -> LiftedOverTime:
    """Count the lifted rules of a domain, and their savings, at each event.

    `events` are the newest first, of any kind; `lifted` are the rules that are lifted now, with what each saves.
    A rule that was lowered since saved what was estimated when it was lifted; nothing, where that is too long ago.
    """
    moves = [each for each in events if each.subject == domain and each.kind in (LIFTED, LOWERED)]
    standing = dict(lifted)
    times, counts, saved = [now], [len(standing)], [sum(standing.values())]
    for place, event in enumerate(moves):
        times += [event.time, event.time - dt.timedelta(microseconds=1)]
        counts.append(len(standing))
        saved.append(sum(standing.values()))
        if event.kind == LIFTED:
            standing.pop(_name(event), None)
        else:
            standing[_name(event)] = _estimate(moves[place + 1 :], _name(event))
        counts.append(len(standing))
        saved.append(sum(standing.values()))
    return LiftedOverTime(tuple(reversed(times)), tuple(reversed(counts)), tuple(reversed(saved)))


def _estimate(earlier: Sequence[Event], name: Name) -> float:
    """Return the savings for which a rule was lifted last."""
    said = (each.detail.get("saves_us_per_s") for each in earlier if each.kind == LIFTED and _name(each) == name)
    return float(next(said, None) or 0)


def _name(event: Event) -> Name:
    return event.detail["tenant"], event.detail["rule"]
