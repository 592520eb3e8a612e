"""The cloud as a live picture: domains, edge, firewalls, hosts, enforcers, tenants."""

from __future__ import annotations

import datetime as dt
import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty
from api.console.parts.tree import path_of
from api.console.parts.view import View
from api.console.pictures.topologymap import Column, Node, domain_picture
from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.wire.domains import Domain, Enforced
from orchestrator.wire.firewalls import Firewall

_LIVE_S = 3.0
_MOST_NODES = 10
_SILENT = frozenset({"disconnected", "refused", "drifted"})
_SERVERS = {"serving": "good", "draining": "warn", "lost": "bad"}


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
