"""Draw numbers over time as lanes, each with its current and highest value.

packets/s   152 k ┌─────────┐──┌─────── 148 k
                0 └─────────────────────
serving         3 ┌─────────┐──┌─────── 3
                0 └─────────────────────
                  17:04:05      18:04:05
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from api.console import words
from orchestrator.wire.events import Event
from orchestrator.wire.hits import VerdictStretch

_WIDTH, _LEFT, _RIGHT = 760, 92, 96
_TOP, _LANE, _GAP, _FOOT = 28, 62, 34, 24
_MOST_POINTS = 300
_HEADROOM = 1.1


@dataclass(frozen=True, slots=True)
class Series:
    """A number over time, one value for each moment.

    `unit` follows a decimal prefix.

    `stepped`: it holds until the next moment, as a count of things does. `limits` are drawn as dashed lines, by name.
    `kind` is its colour: info, good, warn or bad.
    """

    name: str
    values: Sequence[float]
    unit: str = ""
    stepped: bool = False
    limits: tuple[tuple[str, float], ...] = ()
    kind: str = "info"


def series_picture(times: Sequence[dt.datetime], series: Sequence[Series], zone: dt.tzinfo) -> str:
    """Draw the lanes.

    `times` grow, and there is at least one; each series has as many values.
    """
    height = _TOP + len(series) * (_LANE + _GAP) - _GAP + _FOOT
    axis = _xs(times)
    lanes = "".join(_draw_lane(_TOP + number * (_LANE + _GAP), axis, each) for number, each in enumerate(series))
    foot = height - 6
    ends = _draw_text(_LEFT, foot, _spell_clock(times[0], zone), quiet=True)
    if len(times) > 1:
        ends += _draw_text(_WIDTH - _RIGHT, foot, _spell_clock(times[-1], zone), quiet=True, anchor="end")
    said = "; ".join(
        f"{each.name} {words.short(each.values[-1], each.unit)} now, {words.short(max(each.values), each.unit)} at most"
        for each in series
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture plot" role="img" aria-label="{escape(said)}" '
        f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">{lanes}{ends}</svg>'
    )


def _xs(times: Sequence[dt.datetime]) -> list[float]:
    """Where each moment is; a single one is at the end, for it is now."""
    right, whole = _WIDTH - _RIGHT, (times[-1] - times[0]).total_seconds()
    if not whole:
        return [float(right)] * len(times)
    return [_LEFT + (time - times[0]).total_seconds() / whole * (right - _LEFT) for time in times]


def _draw_lane(top: float, axis: Sequence[float], series: Series) -> str:
    bottom, right = top + _LANE, _WIDTH - _RIGHT
    most = max(series.values)
    full = max(most, *(value for _, value in series.limits), 0.0) * _HEADROOM or 1.0
    points = [(x, bottom - value / full * _LANE) for x, value in _thin_points(axis, series.values)]
    parts = [
        _draw_text(_LEFT, top - 10, series.name, bold=True),
        _draw_rule(bottom),
        _draw_text(_LEFT - 8, bottom + 4, "0", anchor="end", quiet=True),
    ]
    if most:
        y = bottom - most / full * _LANE
        parts += [_draw_rule(y), _draw_text(_LEFT - 8, y + 4, words.short(most, series.unit), anchor="end", quiet=True)]
    for name, value in series.limits:
        y = bottom - value / full * _LANE
        parts += [_draw_rule(y, dashed=True), _draw_text(right - 4, y - 4, name, quiet=True, anchor="end")]
    line = _draw_path(points, stepped=series.stepped)
    x, y = points[-1]
    area = f"{line}L{x:.1f} {bottom}L{points[0][0]:.1f} {bottom}Z"
    parts.append(f'<path d="{area}" style="fill:var(--{series.kind}-soft)" fill-opacity=".6" stroke="none"/>')
    parts.append(
        f'<path d="{line}" fill="none" style="stroke:var(--{series.kind})" stroke-width="2" stroke-linejoin="round"/>'
    )
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:var(--{series.kind})"/>')
    parts.append(_draw_text(right + 10, y + 5, words.short(series.values[-1], series.unit), bold=True))
    return "".join(parts)


def _thin_points(axis: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """Thin the points to as many as can be told apart.

    Of several the highest stays, and the last stays as it is.
    """
    size = -(-len(axis) // _MOST_POINTS)
    found = [(axis[start], max(values[start : start + size])) for start in range(0, len(axis) - 1, size)]
    return [*found, (axis[-1], values[-1])]


def _draw_path(points: Sequence[tuple[float, float]], *, stepped: bool) -> str:
    (x, y), *others = points
    joins = "H{0:.1f}V{1:.1f}" if stepped else "L{0:.1f} {1:.1f}"
    return f"M{x:.1f} {y:.1f}" + "".join(joins.format(*point) for point in others)


def _draw_rule(y: float, *, dashed: bool = False) -> str:
    look = 'style="stroke:var(--quiet)" stroke-dasharray="4 4"' if dashed else 'style="stroke:var(--line)"'
    return f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" fill="none" {look}/>'


def _draw_text(x: float, y: float, text: str, *, bold: bool = False, quiet: bool = False, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y:.1f}" font-size="12" text-anchor="{anchor}" font-weight="{600 if bold else 400}" '
        f'class="{"quiet" if quiet else "plain"}">{escape(text)}</text>'
    )


def _spell_clock(time: dt.datetime, zone: dt.tzinfo) -> str:
    return f"{time.astimezone(zone):%H:%M:%S}"


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
