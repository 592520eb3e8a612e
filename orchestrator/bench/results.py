"""A suite's results: series, figures with targets, and reasons for absent figures."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a figure: a bound for its median, or for its `whole` interval."""

    bound: float
    at_most: bool = True
    whole: bool = False

    def met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {in_digits(self.bound)}{', all of it' if self.whole else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of `runs` values with its 95 % confidence interval."""

    median: float
    low: float
    high: float
    runs: int
    unit: str
    target: Target | None = None

    @classmethod
    def of(cls, values: Sequence[float], unit: str, target: Target | None = None) -> Figure:
        """Return the figure of values.

        The interval is of order statistics (no distribution is assumed).
        """
        ordered = sorted(values)
        low, high = _median_interval(len(ordered))
        return cls(statistics.median(ordered), ordered[low], ordered[high], len(ordered), unit, target)

    @property
    def is_met(self) -> bool:
        """Whether it meets its target. True where it has none."""
        values = (self.low, self.high) if self.target is not None and self.target.whole else (self.median,)
        return self.target is None or all(map(self.target.met, values))


def in_digits(value: float) -> str:
    """Format a number for people: four digits, thousands apart, no powers of ten."""
    return f"{float(f'{value:.4g}'):,.12g}"


def _median_interval(runs: int, confidence: float = 0.95) -> tuple[int, int]:
    """Return the order statistics around the median for a confidence.

    The ends if there are too few.
    """
    best, term, below = (0, runs - 1), 1, 0
    for low in range(runs // 2):
        below += term  # the ways in which at most `low` of the runs come before the median
        if 1 - 2 * below / 2**runs < confidence:
            break
        best = (low, runs - 1 - low)
        term = term * (runs - low) // (low + 1)
    return best


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one line in a plot: `x` and `y` of equal length, with labels.

    `low` and `high` are the band of what `y` may be with 95 % confidence, of the same length, or empty. `x_log` and
    `y_log` ask for axes whose steps are factors.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_label: str
    y_label: str
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    x_log: bool = False
    y_log: bool = False

    def document(self) -> dict[str, object]:
        """Return its form in results.json."""
        band = {"low": self.low, "high": self.high} if self.low else {}
        logs = {name: True for name, is_log in (("x_log", self.x_log), ("y_log", self.y_log)) if is_log}
        labels = {"x_label": self.x_label, "y_label": self.y_label}
        return {"name": self.name, "x": self.x, "y": self.y, **band, **labels, **logs}


@dataclass(frozen=True, slots=True)
class Stack:
    """Stacked bars: `parts` holds for each part one height a bar, in stacking order."""

    title: str
    bars: tuple[str, ...]
    parts: Mapping[str, tuple[float, ...]]
    y_label: str


@dataclass(slots=True)
class Results:
    """Everything one run of a suite found."""

    suite: str
    settings: Mapping[str, object]
    figures: dict[str, Figure] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        """The form of results.json."""
        return {
            "suite": self.suite,
            "machine": machine(),
            "settings": dict(self.settings),
            "series": [line.document() for line in self.series],
            "stacks": [
                {"title": s.title, "bars": s.bars, "parts": dict(s.parts), "y_label": s.y_label} for s in self.stacks
            ],
            "figures": {
                name: {"median": f.median, "low": f.low, "high": f.high, "runs": f.runs, "unit": f.unit}
                for name, f in self.figures.items()
            },
            "absent": self.absent,
            "notes": self.notes,
        }


def read_plotted(document: Mapping[str, Any]) -> tuple[list[Series], list[Stack]]:
    """Read the series and stacks of a results.json.

    Raises KeyError or TypeError for any other document.
    """
    series = [
        Series(
            line["name"], tuple(line["x"]), tuple(line["y"]), line["x_label"], line["y_label"],
            tuple(line.get("low", ())), tuple(line.get("high", ())),
            x_log=line.get("x_log", False), y_log=line.get("y_log", False),
        )
        for line in document["series"]
    ]  # fmt: skip
    stacks = [Stack(s["title"], tuple(s["bars"]), s["parts"], s["y_label"]) for s in document.get("stacks", ())]
    return series, stacks


def machine() -> dict[str, object]:
    """Return the machine of the measurements."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
