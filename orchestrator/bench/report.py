"""Write a suite's results: results.json, plots, report.md, and a table on the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryFile

from rich.console import Console
from rich.table import Table

from orchestrator.bench.plots import draw_plots, load_pyplot
from orchestrator.bench.results import Figure, Results, in_digits, machine, read_plotted
from orchestrator.errors import BadInput, Missing


def prepare(folder: Path) -> None:
    """Make the folder for `write` before measuring.

    Raises Missing where nothing can be written into it, or nothing drawn.
    """
    load_pyplot()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Missing(f"nothing can be written there: {error.strerror}", place=str(folder)) from None


def write(results: Results, folder: Path) -> list[Path]:
    """Write everything into `folder`, which is there, and return the paths written."""
    document = folder / "results.json"
    document.write_text(_write_json(results.document()) + "\n", encoding="utf-8")
    plots = draw_plots(results.series, results.stacks, folder)
    report = folder / "report.md"
    report.write_text(_write_markdown(results, plots), encoding="utf-8")
    return [document, *plots, report]


def redraw(folder: Path) -> list[Path]:
    """Draw the plots of a folder again from its results.json; return their paths.

    Raises Missing where there is no results.json, BadInput where it is not one.
    """
    document = folder / "results.json"
    try:
        text = document.read_text(encoding="utf-8")
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(document)) from None
    try:
        series, stacks = read_plotted(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"is not what a suite wrote: {error}", place=str(document)) from None
    return draw_plots(series, stacks, folder)


def _write_json(value: object, indent: str = "") -> str:
    """Write JSON, a line an entry; flat lists and objects take one line."""
    if isinstance(value, dict):
        items, brackets = [f"{json.dumps(key)}: " for key in value], "{}"
        inside = list(value.values())
    elif isinstance(value, list):
        items, brackets, inside = [""] * len(value), "[]", value
    else:
        return json.dumps(value)
    if not any(isinstance(each, dict | list) for each in inside):
        return json.dumps(value)
    deeper = f"{indent}  "
    lines = [f"{deeper}{name}{_write_json(each, deeper)}" for name, each in zip(items, inside, strict=True)]
    return f"{brackets[0]}\n" + ",\n".join(lines) + f"\n{indent}{brackets[1]}"


def show(results: Results, console: Console) -> None:
    """Print the figures beside their targets."""
    table = Table(title=f"suite {results.suite}")
    for heading in ("figure", "median", "95 % interval", "runs", "unit", "target", ""):
        table.add_column(heading, justify="right" if heading in {"median", "runs"} else "left")
    for name, figure in results.figures.items():
        table.add_row(name, *_write_cells(figure))
    for name, reason in results.absent.items():
        table.add_row(name, "-", reason)
    console.print(table)
    for note in results.notes:
        console.print(f"  {note}")


def _write_cells(figure: Figure) -> tuple[str, str, str, str, str, str]:
    verdict = "" if figure.target is None else ("met" if figure.is_met else "MISSED")
    spread = f"{in_digits(figure.low)} .. {in_digits(figure.high)}"
    return in_digits(figure.median), spread, str(figure.runs), figure.unit, str(figure.target or ""), verdict


def _write_markdown(results: Results, plots: list[Path]) -> str:
    headings = "| figure | median | 95 % interval | runs | unit | target | |"
    lines = [f"# {results.suite}", "", headings, "|" + " --- |" * 7]
    lines += [f"| `{name}` | " + " | ".join(_write_cells(figure)) + " |" for name, figure in results.figures.items()]
    lines += [f"| `{name}` | absent | {reason} | | | | |" for name, reason in results.absent.items()]
    lines += ["", *(f"![{plot.stem}]({plot.name})" for plot in plots), ""]
    lines += [f"- {note}" for note in results.notes]
    about = ", ".join(f"{key} {value}" for key, value in {**machine(), **results.settings}.items())
    return "\n".join([*lines, "", f"Measured on: {about}.", ""])
