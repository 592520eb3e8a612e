"""What a suite found: series for plots, figures with their targets, and the reasons for figures that are absent."""

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
    """What a figure must reach: at most or at least a value."""

    bound: float
    at_most: bool = True

    def met(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {in_digits(self.bound)}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its spread: the median of `runs` values and the 95 % confidence interval of that median."""

    median: float
    low: float
    high: float
    runs: int
    unit: str
    target: Target | None = None

    @classmethod
    def of(cls, values: Sequence[float], unit: str, target: Target | None = None) -> Figure:
        """The figure of some measured values; the interval is of order statistics (no distribution is assumed)."""
        ordered = sorted(values)
        low, high = _median_interval(len(ordered))
        return cls(statistics.median(ordered), ordered[low], ordered[high], len(ordered), unit, target)


def in_digits(value: float) -> str:
    """A number for people: four digits that say something, thousands apart, no powers of ten for what is large."""
    return f"{float(f'{value:.4g}'):,.12g}"


def _median_interval(runs: int, confidence: float = 0.95) -> tuple[int, int]:
    """Indices of the order statistics between which the median lies with the given confidence (the ends if too few)."""
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
    """Points of one line in a plot: `x` and `y` of equal length, with what they are called.

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
        """Its form in results.json."""
        band = {"low": self.low, "high": self.high} if self.low else {}
        logs = {name: True for name, is_log in (("x_log", self.x_log), ("y_log", self.y_log)) if is_log}
        labels = {"x_label": self.x_label, "y_label": self.y_label}
        return {"name": self.name, "x": self.x, "y": self.y, **band, **labels, **logs}


@dataclass(frozen=True, slots=True)
class Stack:
    """Where something goes, bar by bar: `parts` holds for each part one height a bar, in the order they are stacked."""

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
    """Read the series and stacks of a results.json. Raises KeyError or TypeError for any other document."""
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
    """What the figures were measured on."""
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
