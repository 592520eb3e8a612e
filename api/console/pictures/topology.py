"""A domain as a picture: the edge, its hosts with their state, and the endpoints behind each tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_BOX, _ROW, _COLUMN = (190, 64), 96, 270
_COLOURS = {"good": "var(--good)", "warn": "var(--warn)", "bad": "var(--bad)", "none": "var(--quiet)"}


@dataclass(frozen=True, slots=True)
class HostState:
    """A host as the picture shows it. `kind` is good, warn, bad or none."""

    name: str
    says: str
    kind: str


@dataclass(frozen=True, slots=True)
class TenantPlace:
    """A tenant, with how many endpoints it has in the domain."""

    name: str
    endpoints: int
    prefixes: str


def domain_picture(
    domain: str, hosts: Sequence[HostState], tenants: Sequence[TenantPlace], enforcers: Mapping[str, str]
) -> str:
    """Draw the domain: WAN at the left, hosts in the middle, tenants at the right, enforcers below the hosts.

    `enforcers` are names with what is said of them.
    """
    rows = max(len(hosts), len(tenants), 1)
    height = rows * _ROW + 70 + (_ROW if enforcers else 0)
    width = 3 * _COLUMN + _BOX[0] - 60
    middle = 40 + rows * _ROW / 2
    parts = [_text(10, 22, domain, size=15, bold=True)]
    host_y = [40 + (number + 0.5) * _ROW * rows / max(len(hosts), 1) for number in range(len(hosts))]
    tenant_y = [40 + (number + 0.5) * _ROW * rows / max(len(tenants), 1) for number in range(len(tenants))]
    x_host, x_tenant = _COLUMN, 2 * _COLUMN + 40
    for y in host_y:
        parts.append(_line(10 + _BOX[0], middle, x_host, y))
        parts += [_line(x_host + _BOX[0], y, x_tenant, other, faint=True) for other in tenant_y]
    parts.append(_box(10, middle, "WAN and edge", "every packet from outside", "none"))
    parts += [_box(x_host, y, host.name, host.says, host.kind) for y, host in zip(host_y, hosts, strict=True)]
    for y, tenant in zip(tenant_y, tenants, strict=True):
        count = f"{tenant.endpoints} endpoint{'' if tenant.endpoints == 1 else 's'}"
        parts.append(_box(x_tenant, y, tenant.name, f"{count} · {tenant.prefixes}", "none"))
    for number, (name, says) in enumerate(enforcers.items()):
        y = 40 + rows * _ROW + _ROW / 2
        x = x_host + number * (_BOX[0] + 20)
        parts.append(_box(x, y, name, says, "none"))
        parts += [
            _line(x + _BOX[0] / 2, y - _BOX[1] / 2, x_host + _BOX[0] / 2, other + _BOX[1] / 2, dashed=True)
            for other in host_y[-1:]
        ]
    said = f"Domain {domain} with {len(hosts)} hosts and {len(tenants)} tenants"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" aria-label="{escape(said)}" '
        f'width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'
    )


def _box(x: float, y: float, title: str, below: str, kind: str) -> str:
    top = y - _BOX[1] / 2
    return (
        f'<rect x="{x}" y="{top}" width="{_BOX[0]}" height="{_BOX[1]}" rx="10" '
        f'style="fill:var(--card);stroke:{_COLOURS[kind]}" stroke-width="{1 if kind == "none" else 2}"/>'
        + (f'<circle cx="{x + 16}" cy="{y - 10}" r="5" style="fill:{_COLOURS[kind]}"/>' if kind != "none" else "")
        + _text(x + (28 if kind != "none" else 14), y - 5, title, size=14, bold=True)
        + _text(x + 14, y + 17, below, size=12, quiet=True)
    )


def _text(x: float, y: float, words: str, *, size: int, bold: bool = False, quiet: bool = False) -> str:
    shown = words if len(words) <= 30 else words[:29] + "…"
    weight, look = "600" if bold else "400", "quiet" if quiet else "plain"
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" class="{look}">'
        f"{f'<title>{escape(words)}</title>' if shown != words else ''}{escape(shown)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, *, faint: bool = False, dashed: bool = False) -> str:
    half = (x1 + x2) / 2
    dash = ' stroke-dasharray="5 5"' if dashed else ""
    path = f"M{x1} {y1}V{y2}" if dashed and x1 == x2 else f"M{x1} {y1}C{half} {y1} {half} {y2} {x2} {y2}"
    return f'<path d="{path}" fill="none" style="stroke:var(--line)" stroke-width="{1.5 if faint else 2.5}"{dash}/>'
