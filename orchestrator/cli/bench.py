"""`aclflow bench`: measure, and put the figures beside their targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.bench import report, suites
from orchestrator.cli.options import AsJson, taking
from orchestrator.cli.terminal import remark, say_json


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
    results = suites.run(suite, quick=quick, inventory=inventory, progress=remark)
    for path in report.write(results, out) if out is not None else ():
        remark(str(path))
    if as_json:
        say_json(results.document())
    else:
        report.show(results, Console())
