"""Times as people say them: ``in 2h``, ``tomorrow 18:00``, ``friday``, ``2026-11-24``.

said                          means
----------------------------  -----------------------------------------------------------------
in 2h, 90 min, in 1d 12h      so long from now: m, h, d, w, or these as words
18:00                         the next time that the clock shows it
today 18:00, tomorrow 18:00   that day at that time
friday, friday 18:00          the next such day after today
tomorrow, 2026-11-24          the end of that day: a rule that ends on a day holds on that day
2026-11-24 18:00              that time
2026-11-24T18:00:00+01:00     the same with its zone; all others are in the caller's zone

Where clocks go back, a time that they show twice means the first of the two that is still to come. Where they go
forward, a time that they never show is refused.
"""

from __future__ import annotations

import datetime as dt
import re

from orchestrator.errors import BadInput

_UNITS = {"m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400, "w": 604800}
_UNITS |= {"week": 604800}
_SPAN = re.compile(r"(?:in\s+)?((?:[0-9]{1,6}\s*[a-z]+\s*)+)")
_PART = re.compile(r"([0-9]+)\s*([a-z]+)")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_LONGEST = 64


def read_time(text: str, now: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """The time that is meant, in UTC.

    Raises BadInput for what cannot be read, and for what is over at `now`.
    """
    words = " ".join(text.lower().split())
    if len(words) > _LONGEST:
        raise BadInput(f"a time of {len(text)} characters cannot be read")
    try:
        meant = _find_time(words, now.astimezone(zone), zone)
        found = None if meant is None else meant.astimezone(dt.UTC)
    except (OverflowError, ValueError):
        found = None
    if found is None:
        raise BadInput(f"'{text}' is not a time such as `in 2h`, `tomorrow 18:00`, 2030-01-31 or 2030-01-31T12:00:00Z")
    if found <= now:
        raise BadInput(f"'{text}' is in the past: that is {found:%Y-%m-%d %H:%M} UTC, now it is {now:%Y-%m-%d %H:%M}")
    return found


def _find_time(words: str, now: dt.datetime, zone: dt.tzinfo) -> dt.datetime | None:
    span = _SPAN.fullmatch(words)
    if span is not None:
        return _read_distance(span[1], now)
    if _CLOCK.fullmatch(words):
        days = (now.date() + dt.timedelta(days=days) for days in range(3))
        shown = (at for day in days for at in _moments(day, _clock(words), zone))
        return next((at for at in shown if at > now.astimezone(dt.UTC)), None)
    first, _, clock = words.partition(" ")
    day = _day(first, now.date())
    if day is not None:
        if not clock:
            return dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), zone)
        return _at(day, _clock(clock), zone, now)
    written = dt.datetime.fromisoformat(words.upper())
    return written if written.tzinfo else _at(written.date(), written.time(), zone, now)


def _read_distance(text: str, now: dt.datetime) -> dt.datetime | None:
    seconds = 0
    for number, word in _PART.findall(text):
        unit = _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))
        if unit is None:
            return None
        seconds += int(number) * unit
    return now.astimezone(dt.UTC) + dt.timedelta(seconds=seconds)


def _day(word: str, today: dt.date) -> dt.date | None:
    """The day that a word names; None for no day alone."""
    if word in ("today", "tomorrow"):
        return today + dt.timedelta(days=word == "tomorrow")
    if word in _DAYS:
        return today + dt.timedelta(days=(_DAYS.index(word) - today.weekday() - 1) % 7 + 1)
    return dt.date.fromisoformat(word) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", word) else None


def _clock(text: str) -> dt.time:
    """A time of a day. Raises ValueError for what no clock shows."""
    shown = _CLOCK.fullmatch(text)
    return dt.time(int(shown[1]), int(shown[2])) if shown is not None else dt.time.fromisoformat(text)


def _at(day: dt.date, clock: dt.time, zone: dt.tzinfo, now: dt.datetime) -> dt.datetime:
    """Return the first moment of a day, after now, when clocks show a time.

    If none is after now, it is the last one of the day. Raises BadInput where clocks never show the time.
    """
    if clock.tzinfo is not None:
        return dt.datetime.combine(day, clock)
    found = _moments(day, clock, zone)
    if not found:
        raise BadInput(f"no clock shows {clock:%H:%M} on {day}: clocks go forward over it")
    return next((at for at in found if at > now.astimezone(dt.UTC)), found[-1])


def _moments(day: dt.date, clock: dt.time, zone: dt.tzinfo) -> list[dt.datetime]:
    """Return when the clocks of a zone show a time on a day, in UTC.

    This is once, or not at all or twice where clocks are changed.
    """
    shown = dt.datetime.combine(day, clock)
    both = {shown.replace(tzinfo=zone, fold=fold).astimezone(dt.UTC) for fold in (0, 1)}
    return sorted(at for at in both if at.astimezone(zone).replace(tzinfo=None) == shown)
