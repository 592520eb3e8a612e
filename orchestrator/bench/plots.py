"""Plots of a suite's series and stacked bars, as small, searchable SVG files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.bench.results import Series, Stack
from orchestrator.extras import needs_extra

_BESIDE: Mapping[str, Any] = MappingProxyType({"loc": "center left", "bbox_to_anchor": (1.0, 0.5)})
"""Where the legend stands if it would cover the lines."""
_FEW_LINES = 3
_COORDINATES = re.compile(r'\b(?:d|x|y|transform)="[^"]*"')
_LONG = re.compile(r"(\.\d\d)\d+")
_LEAF = re.compile(r"<(g|defs|clipPath)\b[^>]*>(?:(?!<\1\b).)*?</\1>", re.DOTALL)
_METADATA = ("Creator", "Date", "Format", "Type")
"""The metadata that matplotlib would write about itself."""
_MOST_MARKED = 40
"""Points of a plot have a marker each up to this number."""
_MOST_POINTS = 160
"""A longer line is drawn by the lowest and highest point of each of half as many stretches."""
_MOST_BAND = 60
"""The band of a line with more points is left out: a reader could not see it at this size."""


def draw_plots(series: Sequence[Series], stacks: Sequence[Stack], folder: Path) -> list[Path]:
    """Draw one plot per `y_label` of neighbouring series, and one per stack.

    The folder must exist. Raises Missing where matplotlib is not installed.
    """
    pyplot = load_pyplot()
    plots = [_draw_lines(pyplot, list(lines), folder) for _, lines in groupby(series, key=lambda line: line.y_label)]
    return plots + [_draw_bars(pyplot, stack, folder) for stack in stacks]


def load_pyplot() -> Any:
    """Import matplotlib with our settings. Raises Missing where it is not installed."""
    with needs_extra("bench", "drawing plots"):
        import matplotlib as mpl  # noqa: PLC0415  (a second of import that only plots need)

        mpl.use("svg")
        from matplotlib import pyplot  # noqa: PLC0415
    mpl.rcParams["svg.fonttype"] = "none"  # words stay text, not outlines of letters
    mpl.rcParams["svg.hashsalt"] = "aclflow"  # the same results give the same file
    mpl.rcParams["font.sans-serif"] = ["DejaVu Sans"]
    return pyplot


def thin_points(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return at most `_MOST_POINTS` points that keep each stretch's extremes."""
    if len(x) <= _MOST_POINTS:
        return list(x), list(y)
    stretches = _MOST_POINTS // 2
    edges = [len(x) * place // stretches for place in range(stretches + 1)]
    kept = sorted(
        place
        for start, end in pairwise(edges)
        for place in {min(range(start, end), key=y.__getitem__), max(range(start, end), key=y.__getitem__)}
    )
    return [x[place] for place in kept], [y[place] for place in kept]


def _draw_lines(pyplot: Any, lines: list[Series], folder: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(7, 4))
    marker = "o" if sum(len(line.x) for line in lines) <= _MOST_MARKED else ""
    for line in lines:
        axes.plot(*thin_points(line.x, line.y), marker=marker, markersize=3, label=line.name)
        if line.low and len(line.x) <= _MOST_BAND:
            axes.fill_between(line.x, line.low, line.high, alpha=0.15)
    axes.set_xlabel(lines[0].x_label)
    axes.set_ylabel(lines[0].y_label)
    if lines[0].x_log:
        axes.set_xscale("log")
        _name_powers(axes.xaxis, pyplot.matplotlib.ticker)
    elif all(float(value).is_integer() for line in lines for value in line.x):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if lines[0].y_log:
        axes.set_yscale("log")
        _name_powers(axes.yaxis, pyplot.matplotlib.ticker)
    else:
        axes.set_ylim(bottom=0)
    axes.legend(**(_BESIDE if len(lines) > _FEW_LINES else {}))
    axes.grid(visible=True, alpha=0.3)
    return _save_figure(pyplot, figure, folder, lines[0].y_label.split(" (")[0])


def _name_powers(axis: Any, ticker: Any) -> None:
    """Mark a logarithmic axis with plain numbers at powers of ten, and nothing between them."""
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_bars(pyplot: Any, stack: Stack, folder: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(7, 4))
    below = [0.0] * len(stack.bars)
    for name, heights in stack.parts.items():
        axes.bar(stack.bars, heights, bottom=below, label=name)
        below = [base + height for base, height in zip(below, heights, strict=True)]
    axes.set_ylabel(stack.y_label)
    axes.set_title(stack.title)
    axes.legend(**_BESIDE)
    axes.grid(visible=True, axis="y", alpha=0.3)
    return _save_figure(pyplot, figure, folder, stack.title)


def _save_figure(pyplot: Any, figure: Any, folder: Path, title: str) -> Path:
    path = folder / (title.lower().replace(" ", "-").replace("/", "-") + ".svg")
    figure.tight_layout()
    figure.savefig(path, metadata=dict.fromkeys(_METADATA))
    pyplot.close(figure)
    path.write_text(_shorten_svg(path.read_text(encoding="utf-8")), encoding="utf-8")
    return path


def _shorten_svg(svg: str) -> str:
    """Write paths, and groups without groups, on one line; drop spaces at line ends.

    Coordinates are in hundredths of a point.
    """
    short = _COORDINATES.sub(lambda found: _LONG.sub(r"\1", " ".join(found.group().split())), svg)
    short = _LEAF.sub(lambda found: "".join(line.strip() for line in found.group().splitlines()), short)
    return "".join(f"{line.rstrip()}\n" for line in short.splitlines())
