"""Draw a domain along a packet's way: outside, edge, firewalls, hosts, tenants.

outside ──▶ edge switches ──▶ firewall servers, VNFs ──▶ hosts ──▶ tenants
                                                           ┆
                                                       enforcers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_BOX_WIDTH, _BOX_HEIGHT, _ROW, _GAP = 178, 66, 84, 46
_TOP = 52
_COLOURS = {"good": "var(--good)", "warn": "var(--warn)", "bad": "var(--bad)", "none": "var(--quiet)"}
_LONGEST, _LONGEST_NAME = 27, 19


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the picture.

    `kind` is good, warn, bad or none; `load` a share of what it can carry, if known.
    """

    name: str
    says: str
    kind: str = "none"
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """Things of one sort, below each other."""

    title: str
    nodes: tuple[Node, ...]


def domain_picture(domain: str, columns: Sequence[Column], enforcers: Mapping[str, str]) -> str:
    """Draw the filled columns from left to right, and their enforcers below.

    `enforcers` are names with what is said of them.
    """
    shown = [column for column in columns if column.nodes]
    rows = max((len(column.nodes) for column in shown), default=1)
    wide = max(len(shown), len(enforcers), 1)
    width = wide * (_BOX_WIDTH + _GAP) - _GAP + 4
    height = _TOP + rows * _ROW + (_ROW + 26 if enforcers else 0)
    parts = []
    for number, column in enumerate(shown):
        x = 2 + number * (_BOX_WIDTH + _GAP)
        parts.append(_draw_text(x, 20, column.title, size=12, quiet=True, bold=True))
        following = shown[number + 1].nodes if number + 1 < len(shown) else ()
        for y in _heights(len(column.nodes), rows):
            parts += [_draw_link(x + _BOX_WIDTH, y, other) for other in _heights(len(following), rows)]
        parts += [
            _draw_box(x, y, node) for node, y in zip(column.nodes, _heights(len(column.nodes), rows), strict=True)
        ]
    if enforcers:
        parts.append(_draw_text(2, _TOP + rows * _ROW + 14, "driven by", size=12, quiet=True, bold=True))
    for number, (name, says) in enumerate(enforcers.items()):
        y = _TOP + rows * _ROW + 26 + _BOX_HEIGHT / 2
        parts.append(_draw_box(2 + number * (_BOX_WIDTH + _GAP), y, Node(name, says)))
    counted = ", ".join(f"{len(column.nodes)} {column.title.lower()}" for column in shown)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" style="min-width:{0.8 * width:.0f}px" role="img" '
        f'aria-label="{escape(f"Domain {domain}: {counted}")}" '
        f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}">{"".join(parts)}</svg>'
    )


def _heights(count: int, rows: int) -> list[float]:
    """The middles of so many boxes, spread over the rows."""
    return [_TOP + (number + 0.5) * _ROW * rows / count - 12 for number in range(count)]


def _draw_box(x: float, y: float, node: Node) -> str:
    top, colour = y - _BOX_HEIGHT / 2, _COLOURS[node.kind]
    dot = f'<circle cx="{x + 16}" cy="{top + 21}" r="5" style="fill:{colour}"/>' if node.kind != "none" else ""
    return (
        f'<rect x="{x}" y="{top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="10" '
        f'style="fill:var(--card);stroke:{"var(--line)" if node.kind == "none" else colour}" stroke-width="1.5"/>'
        + dot
        + _draw_text(x + (28 if dot else 12), top + 26, node.name, size=14, bold=True)
        + _draw_text(x + 12, top + 46, node.says, size=12, quiet=True)
        + ("" if node.load is None else _bar(x + 12, top + _BOX_HEIGHT - 11, node.load))
    )


def _bar(x: float, y: float, load: float) -> str:
    """How much of what it can carry something carries."""
    full, share = _BOX_WIDTH - 24, min(max(load, 0.0), 1.0)
    colour = "var(--bad)" if share > 0.9 else "var(--warn)" if share > 0.75 else "var(--good)"
    return (
        f'<rect x="{x}" y="{y}" width="{full}" height="4" rx="2" style="fill:var(--line)"/>'
        f'<rect x="{x}" y="{y}" width="{full * share:.1f}" height="4" rx="2" style="fill:{colour}"/>'
    )


def _draw_text(x: float, y: float, words: str, *, size: int, bold: bool = False, quiet: bool = False) -> str:
    most = _LONGEST_NAME if size > 12 else _LONGEST
    shown = words if len(words) <= most else words[: most - 1] + "…"
    weight, look = "600" if bold else "400", "quiet" if quiet else "plain"
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" class="{look}">'
        f"{f'<title>{escape(words)}</title>' if shown != words else ''}{escape(shown)}</text>"
    )


def _draw_link(x: float, y: float, other: float) -> str:
    end = x + _GAP
    half = (x + end) / 2
    path = f"M{x} {y:.1f}C{half} {y:.1f} {half} {other:.1f} {end} {other:.1f}"
    return f'<path d="{path}" fill="none" style="stroke:var(--line)" stroke-width="2"/>'
