"""The cloud as a live picture: domains, edge, firewalls, hosts, enforcers, tenants.

outside ──▶ edge switches ──▶ firewall servers, VNFs ──▶ hosts ──▶ tenants
                                                           ┆
                                                       enforcers
"""

from __future__ import annotations

import datetime as dt
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.wire.domains import Domain, Enforced
from orchestrator.wire.firewalls import Firewall

_LIVE_S = 3.0
_MOST_NODES = 10
_SILENT = frozenset({"disconnected", "refused", "drifted"})
_SERVERS = {"serving": "good", "draining": "warn", "lost": "bad"}

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


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("domains", lambda client: list(client.domains.read_all()), fresh_s=5)
    ui.label("The way of a packet from outside, and what enforces the lists on it.").classes("quiet")
    if not found:
        with empty("Nothing to draw yet: there is no domain."):
            ui.link("Make one", path_of("domains"))
        return
    pictures = []
    for domain in found:
        with ui.column().classes("panel"):
            ui.label(domain.id).classes("text-lg font-bold")
            place = ui.html("", sanitize=False).classes("w-full scrolls")
            pictures.append((domain, place.props(f"tabindex=0 role=group aria-label='Picture of {domain.id}'")))

    async def refresh() -> None:
        for domain, place in pictures:
            read = functools.partial(_picture, domain=domain)
            try:
                drawn = await view.read(("picture", domain.id), read, fresh_s=_LIVE_S - 0.5)
            except AclflowError:
                return
            if place.content != drawn:
                place.content = drawn

    await refresh()
    ui.timer(_LIVE_S, refresh)


def _picture(client: Client, domain: Domain) -> str:
    """Read a domain and draw it. Blocks."""
    state = client.domains.read_generation(domain.id, client.domains.read(domain.id).generation)
    every = [client.pops.read(each["name"]) for each in client.pops.read_all()]
    pops = [each for each in every if each["domain"] == domain.id]
    servers = {each["name"]: each for pop in pops for each in pop["servers"]}
    edges = [_make_host_node(each["name"], state) for pop in pops for each in pop["edges"]]
    firewalls = [_firewall(each, state, servers.get(each.name)) for each in client.firewalls.read_all(domain.id)]
    known = {each.name for each in firewalls}
    firewalls += [
        Node(name, each["state"], _SERVERS[each["state"]]) for name, each in servers.items() if name not in known
    ]
    columns = (
        Column("Outside", (Node("WAN", "every packet from outside"),)),
        Column("Edge switches", _cut(edges)),
        Column("Firewalls", _cut(firewalls)),
        Column("Hosts", _cut([_make_host_node(host.name, state) for host in client.domains.read_hosts(domain.id)])),
        Column("Tenants", _cut(_make_tenant_nodes(client, domain.id))),
    )
    now = dt.datetime.now(dt.UTC)
    enforcers = {
        each.name: f"{each.kind}, {words.ago(each.last_seen, now) if each.last_seen else 'never heard'}"
        for each in client.points.read_all(domain.id)
    }
    return domain_picture(domain.id, columns, enforcers)


def _cut(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Keep as many nodes as a reader can take in.

    The others become a number, in the worst state of theirs.
    """
    every = tuple(nodes)
    if len(every) <= _MOST_NODES:
        return every
    rest = every[_MOST_NODES - 1 :]
    worst = next(kind for kind in ("bad", "warn", "good", "none") if any(each.kind == kind for each in rest))
    return (*every[: _MOST_NODES - 1], Node(f"{words.count(len(rest))} more", "", worst))


def _make_tenant_nodes(client: Client, domain: str) -> list[Node]:
    places = Counter(str(endpoint.tenant) for endpoint in client.domains.read_endpoints(domain))
    return [
        Node(
            tenant.name or tenant.id,
            f"{words.of(places[tenant.id], 'endpoint')} · {words.of(len(tenant.prefixes), 'prefix', 'prefixes')}",
        )
        for tenant in client.tenants.read_all()
        if tenant.domain == domain
    ]


def _make_host_node(name: str, state: Enforced) -> Node:
    lag = next((each for each in state.laggards if each.host == name), None)
    if lag is None:
        return Node(name, f"holds generation {words.count(state.generation)}", "good")
    if lag.state is None:
        return Node(name, "never reported", "bad")
    says = lag.word
    return Node(name, f"{says}, at {words.count(lag.generation or 0)}", "bad" if lag.state in _SILENT else "warn")


def _firewall(firewall: Firewall, state: Enforced, server: Mapping[str, Any] | None) -> Node:
    """Draw a firewall with its load, or a PoP's server with its state."""
    node = _make_host_node(firewall.name, state)
    load = firewall.load
    says = node.says if load is None else f"{words.short(load.packets_pps, 'pps')}, CPU {load.cpu_permille / 10:.0f} %"
    kind = node.kind
    if server is not None and server["state"] != "serving":
        says, kind = f"{server['state']}, {says}", _SERVERS[server["state"]]
    return Node(firewall.name, says, kind, None if load is None else load.cpu_permille / 1000)
