"""`aclflow bench`: measure, and put the figures beside their targets."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from orchestrator.bench import report, suites
from orchestrator.bench.progress import Progress
from orchestrator.bench.qualify import suite
from orchestrator.bench.qualify.suite import missed_figures
from orchestrator.bench.results import Results
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import AsJson, taking
from orchestrator.cli.terminal import complain, printable, remark, say_json
from orchestrator.errors import BadInput
from orchestrator.lab.interrupts import Interrupts
from orchestrator.logs import log_errors_alone

_FILE_WIDTH = 150
"""Of a table that goes to a file or a pipe."""


@taking
def bench(
    suite: Annotated[
        str,
        typer.Argument(metavar="[SUITE]", help=f"One of {', '.join((*suites.SUITES, suites.QUALIFY))}."),
    ] = suites.QUALIFY,
    quick: Annotated[bool, typer.Option("--quick", help="A shorter run of the same measurements.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write results.json, plots and report.md there.")] = None,
    inventory: Annotated[
        Path | None,
        typer.Option("--inventory", help="qualify: an inventory of Ansible's; measures between its machines."),
    ] = None,
    limits: Annotated[
        Path | None, typer.Option("--limits", help="qualify: what the figures must reach; status 1 if they do not.")
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option("--journal", help=f"{', '.join(suites.JOURNALLED)}: keep measurements there, go on from them."),
    ] = None,
    is_redraw: Annotated[
        bool, typer.Option("--redraw", help="Measure nothing; draw the plots of --out again from its results.json.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a suite and its baseline, and print the figures beside their targets.

    Runs are interleaved, and a figure that could not be measured is left out and says why. The suite qualify sends
    traffic between machines of an inventory, from the group bench_clients to bench_servers, through what is deployed
    there, and writes report.html too.
    """
    if is_redraw:
        _redraw(out)
        return
    beyond = suite == suites.QUALIFY
    if beyond:
        _check_beyond(inventory, journal)
    else:
        suites.check(suite, journal)
        _only_of(suite, {"--inventory": inventory, "--limits": limits})
    if out is not None:
        report.prepare(out)
    if (length := suites.warning(suite, quick=quick, journal=journal)) is not None:
        remark(length)
    with Interrupts(), log_errors_alone(), _telling() as progress:
        if inventory is not None:
            results = suites.run_qualify(inventory, limits, quick=quick, progress=progress)
        else:
            results = suites.run(suite, quick=quick, progress=progress, journal=journal)
    if out is not None:
        _write(results, out, beyond=beyond)
    if as_json:
        say_json(results.document())
    else:
        report.show(results, Console(width=None if sys.stdout.isatty() else _FILE_WIDTH))
    if beyond and (short := missed_figures(results)):
        complain(f"not passed: {', '.join(short)}")
        raise typer.Exit(ANSWER_IS_NO)


def _redraw(out: Path | None) -> None:
    """Draw the plots of a folder again. Raises BadInput where no folder is named."""
    if out is None:
        raise BadInput("which folder? name the one that holds results.json", place="--out")
    for path in report.redraw(out):
        remark(str(path))


def _check_beyond(inventory: Path | None, journal: Path | None) -> None:
    """Check the options of qualify.

    Raises BadInput for what qualify lacks, or has no use for.
    """
    if inventory is None:
        raise BadInput("which machines? name an inventory of Ansible's", place="--inventory")
    if journal is not None:
        raise BadInput(f"the suite {suites.QUALIFY} keeps none; leave it out", place="--journal")


def _only_of(suite: str, given: Mapping[str, Path | None]) -> None:
    """Refuse qualify's options to other suites.

    Raises BadInput for what only qualify has a use for.
    """
    for option, value in given.items():
        if value is not None:
            raise BadInput(f"the suite {suite} measures this machine only; leave it out", place=option)


def _write(results: Results, out: Path, *, beyond: bool) -> None:
    """Write everything into a folder and name each file on the terminal."""
    paths = report.write(results, out)
    if beyond:
        page = out / "report.html"
        suite.write_page(results, [path for path in paths if path.suffix == ".svg"], page, dt.datetime.now(dt.UTC))
        paths.append(page)
    for path in paths:
        remark(str(path))


def _say_progress(text: str, *, done: int = 0, total: int = 0) -> None:
    remark(f"{text} ({done + 1} of {total})" if total else text)


@contextmanager
def _telling() -> Iterator[Progress]:
    """Show the suite's progress: a bar on a terminal, else line by line.

    The bar needs to know how long the suite is.
    """
    if not sys.stderr.isatty():
        yield _say_progress
        return
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)
        yield lambda text, *, done=0, total=0: bars.update(
            task, description=printable(text), completed=done, total=total or None
        )
