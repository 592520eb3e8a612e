"""Writing a suite's results: results.json, a plot for each set of series, report.md, and the table on the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from orchestrator.bench.results import Figure, Results, Series, Stack, in_digits, machine
from orchestrator.errors import Missing

_BESIDE: Mapping[str, Any] = MappingProxyType({"loc": "center left", "bbox_to_anchor": (1.0, 0.5)})
"""Where a legend stands that would cover what is drawn."""
_FEW_LINES = 3


def prepare(folder: Path) -> None:
    """Make the folder that `write` will fill, before minutes are spent on measuring. Raises Missing where nothing can
    be written into it, or nothing drawn."""
    _pyplot()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Missing(f"nothing can be written there: {error.strerror}", place=str(folder)) from None


def write(results: Results, folder: Path) -> list[Path]:
    """Write everything into `folder`, which is there, and return the paths written."""
    document = folder / "results.json"
    document.write_text(json.dumps(results.document(), indent=2) + "\n", encoding="utf-8")
    plots = drawn(results.series, folder)
    plots += [_stacked(stack, folder) for stack in results.stacks]
    report = folder / "report.md"
    report.write_text(_markdown(results, plots), encoding="utf-8")
    return [document, *plots, report]


def drawn(series: Sequence[Series], folder: Path) -> list[Path]:
    """Draw a plot for each set of neighbouring series with one `y_label` into a folder that is there; their paths."""
    return [_plot(list(lines), folder) for _, lines in groupby(series, key=lambda line: line.y_label)]


def show(results: Results, console: Console) -> None:
    """Print the figures beside their targets."""
    table = Table(title=f"suite {results.suite}")
    for heading in ("figure", "median", "95 % interval", "runs", "unit", "target", ""):
        table.add_column(heading, justify="right" if heading in {"median", "runs"} else "left")
    for name, figure in results.figures.items():
        table.add_row(name, *_cells(figure))
    for name, reason in results.absent.items():
        table.add_row(name, "-", reason)
    console.print(table)
    for note in results.notes:
        console.print(f"  {note}")


def _cells(figure: Figure) -> tuple[str, str, str, str, str, str]:
    verdict = "" if figure.target is None else ("met" if figure.target.met(figure.median) else "MISSED")
    spread = f"{in_digits(figure.low)} .. {in_digits(figure.high)}"
    return in_digits(figure.median), spread, str(figure.runs), figure.unit, str(figure.target or ""), verdict


def _plot(lines: list[Series], folder: Path) -> Path:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for line in lines:
        axes.plot(line.x, line.y, marker="o", markersize=3, label=line.name)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, alpha=0.15)
    axes.set_xlabel(lines[0].x_label)
    axes.set_ylabel(lines[0].y_label)
    axes.set_xscale("log" if lines[0].x_log else "linear")
    if not lines[0].x_log and all(float(value).is_integer() for line in lines for value in line.x):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if lines[0].y_log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(**(_BESIDE if len(lines) > _FEW_LINES else {}))
    axes.grid(visible=True, alpha=0.3)
    return _saved(pyplot, figure, folder, lines[0].y_label.split(" (")[0])


def _stacked(stack: Stack, folder: Path) -> Path:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4))
    below = [0.0] * len(stack.bars)
    for name, heights in stack.parts.items():
        axes.bar(stack.bars, heights, bottom=below, label=name)
        below = [base + height for base, height in zip(below, heights, strict=True)]
    axes.set_ylabel(stack.y_label)
    axes.set_title(stack.title)
    axes.legend(**_BESIDE)
    axes.grid(visible=True, axis="y", alpha=0.3)
    return _saved(pyplot, figure, folder, stack.title)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl  # noqa: PLC0415  (a second of import that only plots need)

        mpl.use("svg")
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError:
        raise Missing("matplotlib draws the plots: install aclflow with its extra 'bench'") from None
    return pyplot


def _saved(pyplot: Any, figure: Any, folder: Path, title: str) -> Path:
    path = folder / (title.lower().replace(" ", "-").replace("/", "-") + ".svg")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _markdown(results: Results, plots: list[Path]) -> str:
    headings = "| figure | median | 95 % interval | runs | unit | target | |"
    lines = [f"# {results.suite}", "", headings, "|" + " --- |" * 7]
    lines += [f"| `{name}` | " + " | ".join(_cells(figure)) + " |" for name, figure in results.figures.items()]
    lines += [f"| `{name}` | absent | {reason} | | | | |" for name, reason in results.absent.items()]
    lines += ["", *(f"![{plot.stem}]({plot.name})" for plot in plots), ""]
    lines += [f"- {note}" for note in results.notes]
    about = ", ".join(f"{key} {value}" for key, value in {**machine(), **results.settings}.items())
    return "\n".join([*lines, "", f"Measured on: {about}.", ""])
