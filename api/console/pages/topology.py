"""The cloud as a picture: every domain with its hosts, who drives them, and the tenants behind them, live."""

from __future__ import annotations

import datetime as dt
import functools
from collections import Counter

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty
from api.console.parts.view import View
from api.console.pictures.topology import HostState, TenantPlace, domain_picture
from orchestrator.client import Client, Domain, Enforced
from orchestrator.errors import AclflowError

_LIVE_S = 3.0
_MOST_TENANTS = 12
_SILENT = frozenset({"disconnected", "refused", "drifted"})


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("domains", lambda client: list(client.domains()), fresh_s=5)
    if not found:
        empty("Nothing to draw yet: there is no domain.")
        return
    pictures = [(domain, ui.html("", sanitize=False).classes("panel")) for domain in found]

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
    """What the service knows of a domain, drawn. Blocks."""
    generation = client.domain(domain.id).generation
    state = client.generation(domain.id, generation)
    hosts = [_host(host.name, state) for host in client.hosts(domain.id)]
    places = Counter(str(endpoint.tenant) for endpoint in client.endpoints(domain.id))
    tenants = [tenant for tenant in client.tenants() if tenant.domain == domain.id]
    shown = [
        TenantPlace(
            tenant.name or tenant.id, places[tenant.id], words.named([str(each) for each in tenant.prefixes], 1)
        )
        for tenant in tenants[:_MOST_TENANTS]
    ]
    if len(tenants) > _MOST_TENANTS:
        rest = tenants[_MOST_TENANTS:]
        shown.append(TenantPlace(f"{len(rest)} more tenants", sum(places[each.id] for each in rest), ""))
    now = dt.datetime.now(dt.UTC)
    enforcers = {
        each.name: f"{each.kind}, heard {words.ago(each.last_seen, now)}" for each in client.enforcers(domain.id)
    }
    return domain_picture(domain.id, hosts, shown, enforcers)


def _host(name: str, state: Enforced) -> HostState:
    lag = next((each for each in state.laggards if each.host == name), None)
    if lag is None:
        return HostState(name, f"holds generation {state.generation}", "good")
    if lag.state is None:
        return HostState(name, "never reported", "bad")
    return HostState(name, f"{lag.state}, at {lag.generation or 0}", "bad" if lag.state in _SILENT else "warn")
