"""Points of presence: TCAM, tenants and their servers, packets past the servers."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nicegui import ui

from api.console import words
from api.console.parts.pieces import empty, heading
from api.console.parts.table import CHIP_CELL, WRAPPED_CELL, columns, fill, plain_table
from api.console.parts.tree import path_of
from api.console.parts.view import View
from orchestrator.client import Client
from orchestrator.errors import AclflowError

_LIVE_S = 3.0
_FULL = 0.9
_MOST_TENANTS = 6
_KINDS = {"serving": "good", "draining": "warn", "lost": "bad"}
_SERVERS = columns(
    ("name", "Server", "left"),
    ("state", "State", "left"),
    ("port", "Edge port", "left"),
    ("by_lines", "Packets by lines", "right"),
    ("by_exceptions", "Packets by exceptions", "right"),
    ("tenants", "Tenants", "left"),
)
_TENANTS = columns(
    ("tenant", "Tenant", "left"),
    ("server", "Server", "left"),
    ("bypassed", "Packets straight to the WAN", "right"),
    ("served", "Packets at the server", "right"),
    ("share", "Past the servers", "right"),
    ("over", "Addresses without owner in its chunks", "right"),
)
_HEAVY = columns(
    ("rule", "Rule", "left"),
    ("packets", "Packets past the servers", "right"),
    ("form", "Put there", "left"),
    ("because", "Because of", "left"),
)
_RULE_CELL = "<q-td :props='props'><a :href='props.row.link'>{{ props.value }}</a></q-td>"
_NOTICED = 1e-6
"""A share below one address in a million is shown as none."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the TCAM: entries taken, of so many."""

    name: str
    used: int
    budget: int


async def build(view: View) -> None:
    """Draw the page."""
    ui.label(
        "An edge switch sends popular permitted traffic straight to the WAN, the rest to its tenant's firewall server."
    ).classes("quiet")
    pops = await view.read("pops", lambda client: [each["name"] for each in client.pops.read_all()], fresh_s=5)
    if not pops:
        with empty("No point of presence yet. Give a domain one, then its edge switch and its firewall servers:"):
            ui.label("aclflow pop add POP --domain DOMAIN --outside INTERFACE").classes("mono")
            ui.label("aclflow pop edge add POP EDGE --datapath-id ID --uplink INTERFACE").classes("mono")
            ui.label("aclflow pop server add POP SERVER --port INTERFACE --mac MAC").classes("mono")
    for name in pops:
        panel = _Pop(view, name)
        await panel.refresh()
        ui.timer(_LIVE_S, panel.refresh)


class _Pop:
    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name
        self._shown: object = None
        self._draw()

    def _draw(self) -> None:
        with ui.column().classes("panel"):
            with ui.row().classes("w-full items-center gap-3"):
                ui.label(self._name).classes("text-lg font-bold")
                self._domain = ui.label().classes("chip none")
                ui.space()
                self._edges = ui.label().classes("quiet small")
            heading("TCAM")
            self._parts = ui.column().classes("w-full gap-2")
            heading("Lines")
            self._lines = ui.column().classes("w-full gap-1")
            heading("Firewall servers")
            self._servers = plain_table(
                _SERVERS, "No server yet: the edge drops everything. Add one: aclflow pop server add."
            )
            self._servers.add_slot("body-cell-state", CHIP_CELL)
            self._servers.add_slot("body-cell-tenants", WRAPPED_CELL)
            heading("Tenants")
            self._tenants = plain_table(_TENANTS, "The domain has no tenant yet.")
            self._dropped = ui.label().classes("quiet small")
            heading("Heavy hitters")
            self._heavy = plain_table(_HEAVY, "No rule is a heavy hitter: none was popular enough in the last round.")
            self._heavy.add_slot("body-cell-rule", _RULE_CELL)
            self._heavy.add_slot("body-cell-because", WRAPPED_CELL)

    async def refresh(self) -> None:
        """Show the PoP as it is."""
        read = functools.partial(_read, name=self._name)
        try:
            seen = await self._view.read(("pop", self._name), read, fresh_s=_LIVE_S - 0.5)
        except AclflowError:
            return
        if seen == self._shown:
            return
        self._shown = seen
        pop, traffic = seen
        self._domain.text = f"domain {pop['domain']}"
        edges = words.list_names([each["name"] for each in pop["edges"]])
        self._edges.text = f"edge switches: {edges}" if edges else "no edge switch yet: aclflow pop edge add"
        fill(self._servers, _make_server_rows(pop, traffic))
        fill(self._tenants, _make_tenant_rows(pop, traffic))
        self._dropped.text = _describe_dropped(traffic)
        self._show_tcam(pop)
        fill(self._heavy, _make_heavy_rows(pop, traffic))

    def _show_tcam(self, pop: Mapping[str, Any]) -> None:
        self._parts.clear()
        with self._parts:
            for part in _parts(pop):
                _draw_part(part)
        self._lines.clear()
        with self._lines:
            taken = _taken_lines(pop)
            if not taken:
                ui.label("No lines yet: they come with the first server, for the tenants' prefixes.").classes("quiet")
            for family, lines in taken.items():
                _draw_lines(family, lines)


def _read(client: Client, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """A PoP and where its packets went. Blocks."""
    return client.pops.read(name), client.pops.read_traffic(name)


def _describe_dropped(traffic: Mapping[str, Any]) -> str:
    nobody, spoofed = (words.of(traffic[name]["packets"], "packet") for name in ("nobody", "spoofed"))
    return f"Dropped at the edge: {nobody} to addresses without owner, {spoofed} from outside with a tenant's address"


def _taken_lines(pop: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The lines of each IP version that has any, or has chunks to be held."""
    return {family: lines for family, lines in pop["lines"].items() if lines["chunks"] or lines["lines"]}


def _parts(pop: Mapping[str, Any]) -> list[_Part]:
    """The TCAM's parts; exceptions and lines are those of each IP version."""
    settings = pop["settings"]
    found = [_Part("Heavy hitters", pop["heavy_entries"], settings["most_heavy"])]
    for family, lines in _taken_lines(pop).items():
        version = _spell_family(family)
        found.append(_Part(f"Exceptions, {version}", lines["exceptions"], settings["most_exceptions"]))
        found.append(_Part(f"Lines, {version}", lines["lines"], settings["most_lines"]))
    return found


def _draw_part(part: _Part) -> None:
    share = part.used / part.budget if part.budget else float(part.used > 0)
    colour = "negative" if share >= 1 else "warning" if share >= _FULL else "primary"
    with ui.row().classes("w-full items-center gap-3 no-wrap"):
        ui.label(part.name).classes("w-36")
        ui.linear_progress(share, show_value=False, color=colour).classes("grow").style("min-width: 40px").props(
            "rounded size=10px aria-hidden=true"
        )
        ui.label(f"{words.count(part.used)} of {words.count(part.budget)} entries").classes("number small w-36").style(
            "text-align: right"
        )


def _draw_lines(family: str, lines: Mapping[str, Any]) -> None:
    with ui.row().classes("w-full items-center gap-3"):
        ui.label(_spell_family(family)).classes("font-bold w-12")
        ui.label(f"{words.count(lines['in_lines'])} of {words.of(lines['chunks'], 'chunk')} in lines").classes("number")
        ui.label(f"{words.count(lines['stale'])} stale").classes(f"chip {'warn' if lines['stale'] else 'none'}")
        wrong = lines["misdirected"]
        ui.label(f"{words.count(wrong)} misdirected").classes(f"chip {'bad' if wrong else 'good'}")
        ui.label(
            f"{words.share(lines['fill'])} of the bits are *; {_leaking(lines['union_rate'])}; "
            f"built anew {words.of(lines['draw'], 'time')}"
        ).classes("small quiet")


def _leaking(rate: float) -> str:
    """Say which share of traffic to unowned addresses the lines let through.

    It goes on to a server.
    """
    return f"{words.share(rate) if rate >= _NOTICED else 'none'} of the addresses without owner pass"


def _make_heavy_rows(pop: Mapping[str, Any], traffic: Mapping[str, Any]) -> list[dict[str, object]]:
    counted = {(each["tenant"], each["rule"]): each["packets"] for each in traffic["heavy"]}
    return [
        {
            "rule": f"{each['tenant']} / {each['rule']}",
            "link": f"{path_of('acl', each['tenant'])}?q={quote(each['rule'])}",
            "form": each["form"] or each["stays"],
            "packets": words.count(counted.get((each["tenant"], each["rule"]), 0)),
            "because": each["because"],
        }
        for each in pop["heavy"]
    ]


def _make_server_rows(pop: Mapping[str, Any], traffic: Mapping[str, Any]) -> list[dict[str, object]]:
    tenants: dict[str, list[str]] = {}
    for tenant, server in pop["places"].items():
        tenants.setdefault(server, []).append(tenant)
    rows = []
    for each in pop["servers"]:
        name = each["name"]
        sent = traffic["servers"].get(name)
        whom = sorted(tenants.get(name, []))
        rows.append(
            {
                "name": name,
                "state": each["state"],
                "kind": _KINDS[each["state"]],
                "port": each["port"],
                "by_lines": words.count(sent["lines"]["packets"]) if sent else "",
                "by_exceptions": words.count(sent["exceptions"]["packets"]) if sent else "",
                "tenants": f"{words.count(len(whom))}: {words.list_names(whom, _MOST_TENANTS)}" if whom else "nobody",
            }
        )
    return rows


def _make_tenant_rows(pop: Mapping[str, Any], traffic: Mapping[str, Any]) -> list[dict[str, object]]:
    rows = []
    for name, each in traffic["tenants"].items():
        share = each["bypass_share"]
        rows.append(
            {
                "tenant": name,
                "server": each["server"] or "no server",
                "bypassed": words.count(each["bypassed"]["packets"]),
                "served": words.count(each["served"]["packets"]),
                "share": "no packet yet" if share is None else words.share(share),
                "over": words.count(pop["over_allocated"].get(name, 0)),
            }
        )
    return rows


def _spell_family(family: str) -> str:
    return family.replace("ipv", "IPv")
