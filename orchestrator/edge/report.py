"""Figures of an edge, for operators, metrics and events."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.edge.lines import Lines
from orchestrator.edge.upkeep import NO_LINE, Standing


@dataclass(frozen=True, slots=True)
class LinesReport:
    """The lines of one IP version.

    `chunks` are somebody's, `in_lines` of them are held by lines, `exceptions` have an entry of their own (some have
    both), `stale` are held by lines and nobody's any more, `misdirected` reach a wrong server. `fill` is the share of
    the lines' bits that are `*`, `union_rate` the probability that an address that is nobody's passes. `draw` counts
    rebuilds.
    """

    chunks: int
    in_lines: int
    lines: int
    exceptions: int
    stale: int
    misdirected: int
    fill: float
    union_rate: float
    draw: int


def report(standing: Standing, lines: Lines) -> LinesReport:
    """Sum up the lines that are in force."""
    return LinesReport(
        chunks=len(standing.key),
        in_lines=int((standing.line != NO_LINE).sum()),
        lines=len(standing.server),
        exceptions=int(standing.exact.sum()),
        stale=len(standing.gone),
        misdirected=standing.misdirected,
        fill=lines.fill,
        union_rate=lines.union_rate,
        draw=standing.draw,
    )
