"""Which rules were lifted over time, and what that saved: told backwards from those that are now, by what was lifted
and lowered since."""

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
    """From each moment on: how many rules are lifted, and what they save, in microseconds of a core a second."""

    times: tuple[dt.datetime, ...]
    counts: tuple[int, ...]
    saved_us_per_s: tuple[float, ...]


def lifted_over_time(
    events: Sequence[Event], domain: str, lifted: Mapping[Name, float], now: dt.datetime
) -> LiftedOverTime:
    """`events` are the newest first, of any kind; `lifted` are the rules of the domain that are, with what each saves.

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
    """What a rule was lifted for the last time."""
    said = (each.detail.get("saves_us_per_s") for each in earlier if each.kind == LIFTED and _name(each) == name)
    return float(next(said, None) or 0)


def _name(event: Event) -> Name:
    return event.detail["tenant"], event.detail["rule"]
