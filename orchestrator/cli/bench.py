"""`aclflow bench`: measure, and put the figures beside their targets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from orchestrator.bench import report, suites
from orchestrator.bench.progress import Progress
from orchestrator.cli.options import AsJson, taking
from orchestrator.cli.terminal import printable, remark, say_json

_FILE_WIDTH = 150
"""Of a table that goes to a file or a pipe."""


@taking
def bench(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help=f"One of {', '.join(suites.SUITES)}.")],
    quick: Annotated[bool, typer.Option("--quick", help="A shorter run of the same measurements.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write results.json, plots and report.md there.")] = None,
    inventory: Annotated[
        Path | None, typer.Option("--inventory", help="The machines to measure; this one by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a suite, its baseline in the same run, and print the figures beside their targets.

    Runs are interleaved, and a figure that could not be measured is left out and says why.
    """
    with _telling() as progress:
        results = suites.run(suite, quick=quick, inventory=inventory, progress=progress)
    for path in report.write(results, out) if out is not None else ():
        remark(str(path))
    if as_json:
        say_json(results.document())
    else:
        report.show(results, Console(width=None if sys.stdout.isatty() else _FILE_WIDTH))


def _line_by_line(text: str, *, done: int = 0, total: int = 0) -> None:
    remark(f"{text} ({done + 1} of {total})" if total else text)


@contextmanager
def _telling() -> Iterator[Progress]:
    """How the suite's progress is shown: as a bar on a terminal, if it knows how long it is; else line by line."""
    if not sys.stderr.isatty():
        yield _line_by_line
        return
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda text, *, done=0, total=0: bars.update(
            task, description=printable(text), completed=done, total=total or None
        )
