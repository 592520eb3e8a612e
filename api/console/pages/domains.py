"""Domains: their hosts, what each holds, who drives it, and how far behind anything is."""

from __future__ import annotations

import datetime as dt

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, heading
from api.console.parts.view import View
from orchestrator.client import Domain, Enforced, Enforcer, Host
from orchestrator.errors import AclflowError

_LIVE_S = 2.0


async def build(view: View) -> None:
    """Draw the page."""
    found = await view.read("domains", lambda client: list(client.domains()), fresh_s=2)
    if not found:
        with empty("No domain yet. A domain is a set of hosts that hold the same rules; make one with:"):
            ui.label("aclflow domain create NAME").classes("mono")
        return
    for domain in found:
        panel = _Domain(view, domain)
        panel.draw()
        await panel.refresh()
        ui.timer(_LIVE_S, panel.refresh)


class _Domain:
    def __init__(self, view: View, domain: Domain) -> None:
        self._view = view
        self._domain = domain

    def draw(self) -> None:
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(self._domain.id).classes("text-lg font-bold")
                self._state = ui.label().classes("chip none")
                ui.space()
                self._generation = ui.label().classes("quiet number")
            ui.label(f"Return traffic: {self._domain.return_traffic}").classes("quiet small")
            self._rows = ui.column().classes("w-full gap-2")

    async def refresh(self) -> None:
        """Show how far the domain is."""
        name = self._domain.id
        try:
            domain = await self._view.read(("domain", name), lambda client: client.domain(name), fresh_s=_LIVE_S - 0.5)
            hosts = await self._view.read(("hosts", name), lambda client: client.hosts(name), fresh_s=_LIVE_S - 0.5)
            enforcers = await self._view.read(
                ("enforcers", name), lambda client: client.enforcers(name), fresh_s=_LIVE_S - 0.5
            )
            state = await self._view.read(
                ("generation", name), lambda client: client.generation(name, domain.generation), fresh_s=_LIVE_S - 0.5
            )
        except AclflowError:
            return
        self._generation.text = f"generation {words.count(domain.generation)}"
        late = len(state.laggards)
        self._state.text = "every host enforces it" if state.done else f"{words.of(late, 'host')} behind"
        self._state.classes(replace=f"chip {'good' if state.done else 'warn'}")
        self._show(hosts, enforcers, state)

    def _show(self, hosts: tuple[Host, ...], enforcers: tuple[Enforcer, ...], state: Enforced) -> None:
        late = {each.host: each for each in state.laggards}
        now = dt.datetime.now(dt.UTC)
        self._rows.clear()
        with self._rows:
            heading("Hosts")
            if not hosts:
                ui.label("No host yet: onboard one with `aclflow domain add-host`.").classes("quiet")
            for host in hosts:
                lag = late.get(host.name)
                with ui.row().classes("w-full items-center gap-3"):
                    ui.icon("check_circle" if lag is None else "hourglass_top").classes(
                        "text-positive" if lag is None else "text-warning"
                    )
                    ui.label(host.name).classes("w-32 font-bold")
                    ui.label(f"datapath {host.datapath_id:016x}").classes("mono quiet")
                    ui.label(f"uplink {host.uplink}").classes("quiet small")
                    ui.space()
                    ui.label(_state_words(lag)).classes("small")
            heading("Enforcers")
            if not enforcers:
                ui.label("None has enrolled: make a one-time token with `aclflow domain invite`.").classes("quiet")
            for each in enforcers:
                with ui.row().classes("w-full items-center gap-3"):
                    ui.icon("memory").classes("quiet")
                    ui.label(each.name).classes("w-32 font-bold")
                    ui.label(each.kind).classes("quiet")
                    ui.space()
                    ui.label(f"heard {words.ago(each.last_seen, now)}").classes("small quiet")


def _state_words(lag: object) -> str:
    if lag is None:
        return "enforced"
    generation, state, error = (getattr(lag, name) for name in ("generation", "state", "error"))
    if state is None:
        return "never reported"
    return f"{state}, at generation {generation or 0}" + (f": {error}" if error else "")
