"""Numbers, units and times as people read them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

_STEPS = (("day", 86400), ("h", 3600), ("min", 60), ("s", 1))
_TENANT = re.compile(r"'[^']*'(?!\w)|\b([Tt])enant")
"""A name in quotes, or the word; what a name is called stays."""
DESPITE = "Commit it although it breaks what is expected"
"""The box that an owner ticks in a review; the parameter `despite_expectations` of the service."""
_DESPITE = "write it with `despite_expectations`"
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")


def count(number: int) -> str:
    """Spell a number with a narrow space between thousands: 20 000."""
    return f"{number:,}".replace(",", "\u202f")


def of(number: int, noun: str, plural: str = "") -> str:
    """A number of things: 1 rule, 20 000 rules."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def short(number: float, unit: str = "") -> str:
    """Spell a number with three digits and a decimal prefix: 12.3 k, 1.25 MB."""
    size, step = float(number), 0
    while abs(size) >= 999.5 and step < len(_DECIMAL) - 1:
        size, step = size / 1000, step + 1
    digits = f"{size:.3g}" if step else f"{size:.3g}" if size != int(size) else f"{int(size)}"
    return f"{digits} {_DECIMAL[step]}{unit}".rstrip()


def bytes_text(number: int) -> str:
    """Return a number of bytes as text: 1.25 MB."""
    return short(number, "B")


def share(of_one: float) -> str:
    """A part of a whole: 33.3 %, 5 %, less than 0.1 %."""
    if 0 < of_one < 0.001:
        return "less than 0.1 %"
    return f"{round(of_one * 100, 1):g} %"


def for_owners(text: str) -> str:
    """Say project where the service says tenant, the word of those whose list it is.

    Where it names a parameter, a box of the review is named.
    """
    return _TENANT.sub(
        lambda found: found[0] if found[1] is None else "Project" if found[1] == "T" else "project",
        text.replace(_DESPITE, f"tick “{DESPITE}” in the review"),
    )


def ago(time: dt.datetime | None, now: dt.datetime) -> str:
    """How long a time is past: 3 min ago; never, where there is none."""
    if time is None:
        return "never"
    seconds = (now - time).total_seconds()
    if seconds < 1:
        return "now" if seconds > -1 else f"in {span(-seconds)}"
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A duration in its largest unit: 3 min, 2 days."""
    for name, size in _STEPS:
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {name}{'s' if name == 'day' and number != 1 else ''}"
    return "0 s"


def countdown(seconds: float) -> str:
    """Say the rest of a time as it passes: 4:32, 1:04:32."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def moment(time: dt.datetime, zone: dt.tzinfo) -> str:
    """A time in the viewer's zone: 2026-11-21 17:04:05.

    It is in UTC, and says so, where that would be the year 10000.
    """
    try:
        return f"{time.astimezone(zone):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def list_names(names: Sequence[str], most: int = 4) -> str:
    """List some names, and the rest as a number: a, b and 3 more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {count(len(names) - most)} more"


def seconds(number: float) -> str:
    """A short duration: 45 ms, 1.2 s."""
    return f"{number * 1000:.0f} ms" if number < 1 else f"{number:.1f} s"


def with_port(address: str, port: int) -> str:
    """An address with a port: 192.0.2.1:80, [2001:db8::1]:80."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
