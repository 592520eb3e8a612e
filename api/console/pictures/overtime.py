"""Series over time: rates of packets, and lifted rules with their savings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.wire.events import Event
from orchestrator.wire.hits import VerdictStretch

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
            standing.pop(_name_rule(event), None)
        else:
            standing[_name_rule(event)] = _estimate(moves[place + 1 :], _name_rule(event))
        counts.append(len(standing))
        saved.append(sum(standing.values()))
    return LiftedOverTime(tuple(reversed(times)), tuple(reversed(counts)), tuple(reversed(saved)))


def _estimate(earlier: Sequence[Event], name: Name) -> float:
    """Return the savings for which a rule was lifted last."""
    said = (each.detail.get("saves_us_per_s") for each in earlier if each.kind == LIFTED and _name_rule(each) == name)
    return float(next(said, None) or 0)


def _name_rule(event: Event) -> Name:
    return event.detail["tenant"], event.detail["rule"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Packets a second in each step; `times` are the steps' ends."""

    times: tuple[dt.datetime, ...]
    permitted: tuple[float, ...]
    denied: tuple[float, ...]


def rates_of(history: Sequence[VerdictStretch], now: dt.datetime, step: dt.timedelta, steps: int) -> Rates:
    """Return the last `steps` steps that are over.

    Steps begin at whole multiples, so past steps do not change any more.
    """
    length = step.total_seconds()
    last = dt.datetime.fromtimestamp(now.timestamp() // length * length, dt.UTC)
    permitted, denied = [0] * steps, [0] * steps
    for each in history:
        back = -int((each.start - last).total_seconds() // length)
        if 1 <= back <= steps:
            permitted[steps - back] += each.permitted
            denied[steps - back] += each.denied + each.denied_ahead
    times = tuple(last - step * back for back in range(steps - 1, -1, -1))
    return Rates(times, tuple(each / length for each in permitted), tuple(each / length for each in denied))
