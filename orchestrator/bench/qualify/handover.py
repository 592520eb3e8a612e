"""The report to hand over: one self-contained HTML file, with the verdict on top."""

from __future__ import annotations

import datetime as dt
import html
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.bench.qualify.suite import missed_figures
from orchestrator.bench.results import Figure, Results, Target, in_digits

_STYLE = """
body { font: 15px/1.5 sans-serif; color: #1a1a1a; max-width: 64em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } td, th { border: 1px solid #bbb; padding: .25em .6em; text-align: left }
td.number { text-align: right } .met { color: #0a6b2d } .missed { color: #a40000; font-weight: bold }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 1em; margin: 1.5em 0 } svg { width: 100%; height: auto }
"""
_CODE = re.compile(r"`([^`]+)`")
_HEADINGS = ("figure", "client", "server", "median", "95 % interval", "runs", "unit", "limit", "")


def write(results: Results, plots: Sequence[Path], path: Path, now: dt.datetime) -> None:
    """Write the file; `plots` are SVG and become part of it."""
    short = missed_figures(results)
    verdict = f"Not passed: {', '.join(short)}." if short else "Passed: every limit is kept."
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Qualification</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Qualification</h1><p>{now:%Y-%m-%d %H:%M} UTC</p>",
        f'<p class="{"missed" if short else "met"}">{html.escape(verdict)}</p>',
        "<table><tr>" + "".join(f"<th>{text}</th>" for text in _HEADINGS) + "</tr>",
        *(_row(name, figure) for name, figure in results.figures.items()),
        "</table>",
        *_absent(results),
        '<div class="plots">',
        *map(_drawing, plots),
        "</div>",
        "<h2>How it was measured</h2><ul>",
        *(f"<li>{_mark_code(note)}</li>" for note in results.notes),
        *(f"<li>{html.escape(f'{name}: {value}')}</li>" for name, value in results.settings.items()),
        "</ul></body></html>",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _row(name: str, figure: Figure) -> str:
    verdict = "" if figure.target is None else ("met" if figure.is_met else "missed")
    cells = [*(f"<td>{html.escape(word)}</td>" for word in name.split(" ", 2))]
    spread = f"{in_digits(figure.low)} to {in_digits(figure.high)}"
    cells += [f'<td class="number">{in_digits(figure.median)}</td>', f'<td class="number">{spread}</td>']
    cells += [f'<td class="number">{figure.runs}</td>', f"<td>{html.escape(figure.unit.removeprefix('1'))}</td>"]
    cells += [f"<td>{_bound(figure.target)}</td>", f'<td class="{verdict}">{verdict}</td>']
    return f"<tr>{''.join(cells)}</tr>"


def _bound(target: Target | None) -> str:
    """A limit as the file of limits says it."""
    return "" if target is None else f"{'at most' if target.at_most else 'at least'} {in_digits(target.bound)}"


def _absent(results: Results) -> list[str]:
    if not results.absent:
        return []
    rows = [f"<li>{html.escape(f'{name}: {reason}')}</li>" for name, reason in results.absent.items()]
    return ["<h2>Not measured</h2><ul>", *rows, "</ul>"]


def _mark_code(note: str) -> str:
    """A note with what stands in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(note))


def _drawing(plot: Path) -> str:
    """The drawing without what stands before it in a file of its own."""
    _, begin, rest = plot.read_text(encoding="utf-8").partition("<svg")
    return begin + rest
