"""The report to hand over: one HTML file that needs nothing beside it, with the verdict on top."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Sequence
from pathlib import Path

from orchestrator.bench.qualify.suite import missed
from orchestrator.bench.results import Figure, Results

_STYLE = """
body { font: 15px/1.5 sans-serif; color: #1a1a1a; max-width: 64em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } td, th { border: 1px solid #bbb; padding: .25em .6em; text-align: left }
td.number { text-align: right } .met { color: #0a6b2d } .missed { color: #a40000; font-weight: bold }
svg { max-width: 100%; height: auto }
"""
_HEADINGS = ("figure", "client", "server", "median", "95 % interval", "runs", "unit", "limit", "")


def write(results: Results, plots: Sequence[Path], path: Path, now: dt.datetime) -> None:
    """Write the file; `plots` are SVG and become part of it."""
    short = missed(results)
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
        *map(_drawing, plots),
        "<h2>How it was measured</h2><ul>",
        *(f"<li>{html.escape(note)}</li>" for note in results.notes),
        *(f"<li>{html.escape(f'{name}: {value}')}</li>" for name, value in results.settings.items()),
        "</ul></body></html>",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _row(name: str, figure: Figure) -> str:
    verdict = "" if figure.target is None else ("met" if figure.target.met(figure.median) else "missed")
    cells = [*(f"<td>{html.escape(word)}</td>" for word in name.split(" ", 2))]
    cells += [f'<td class="number">{figure.median:.4g}</td>', f"<td>{figure.low:.4g} .. {figure.high:.4g}</td>"]
    cells += [f'<td class="number">{figure.runs}</td>', f"<td>{html.escape(figure.unit)}</td>"]
    cells += [f"<td>{html.escape(str(figure.target or ''))}</td>", f'<td class="{verdict}">{verdict}</td>']
    return f"<tr>{''.join(cells)}</tr>"


def _absent(results: Results) -> list[str]:
    if not results.absent:
        return []
    rows = [f"<li>{html.escape(f'{name}: {reason}')}</li>" for name, reason in results.absent.items()]
    return ["<h2>Not measured</h2><ul>", *rows, "</ul>"]


def _drawing(plot: Path) -> str:
    """The drawing without what stands before it in a file of its own."""
    _, begin, rest = plot.read_text(encoding="utf-8").partition("<svg")
    return begin + rest
