"""`aclflow pop`: points of presence, their edge switches and firewall servers, and where packets went."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.domains import DatapathId, datapath
from orchestrator.cli.options import TenantName, Url, taking
from orchestrator.cli.tables import Line, Report, Shown, Table
from orchestrator.cli.terminal import say
from orchestrator.client import Host
from orchestrator.client.pops import share_of, ways
from orchestrator.client.records import Json
from orchestrator.policy.prefilter import Misdirect

PopName = Annotated[str, typer.Argument(metavar="POP", help="The PoP's name.", autocompletion=complete.pops)]
ServerName = Annotated[
    str, typer.Argument(metavar="SERVER", help="The firewall server's name.", autocompletion=complete.servers)
]
EdgeName = Annotated[str, typer.Argument(metavar="EDGE", help="The edge switch's name.", autocompletion=complete.edges)]


class State(enum.Enum):
    """States of a firewall server."""

    SERVING = "serving"
    DRAINING = "draining"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout options of a PoP, named as in REST.

    None: the option was not given.
    """

    ipv4_chunk: Annotated[int | None, typer.Option("--ipv4-chunk", help="Leading bits of a chunk.")] = None
    ipv6_chunk: Annotated[int | None, typer.Option("--ipv6-chunk", help="The same in IPv6, up to 48.")] = None
    width: Annotated[int | None, typer.Option("--width", help="Bits a line, up to 288.")] = None
    functions: Annotated[int | None, typer.Option("--functions", help="Hash functions (k).")] = None
    per_line: Annotated[int | None, typer.Option("--per-line", help="Chunks a line, at most.")] = None
    most_heavy: Annotated[int | None, typer.Option("--most-heavy", help="Entries for heavy hitters.")] = None
    most_exceptions: Annotated[int | None, typer.Option("--most-exceptions", help="Entries for single chunks.")] = None
    most_lines: Annotated[int | None, typer.Option("--most-lines", help="Entries for lines.")] = None
    rebuild_share: Annotated[float | None, typer.Option("--rebuild-share", help="Stale share for a rebuild.")] = None
    heavy_interval_s: Annotated[
        float | None, typer.Option("--heavy-interval", help="How often to choose heavy hitters, in seconds; 0: asked.")
    ] = None
    heavy_least_packets: Annotated[
        int | None, typer.Option("--heavy-least", help="Packets that a rule needs in that time.")
    ] = None

    misdirect: Annotated[
        Misdirect | None, typer.Option("--misdirect", help="How servers treat packets for others' tenants.")
    ] = None
    classify: Annotated[
        bool | None, typer.Option("--classify/--no-classify", help="Give servers whole lists for a classifier, too.")
    ] = None
    window_ms: Annotated[
        float | None, typer.Option("--window", help="Longest that changes wait for a busy server, in milliseconds.")
    ] = None
    tenant_updates_s: Annotated[
        float | None, typer.Option("--tenant-updates", help="How often a second a tenant's list may change; 0: any.")
    ] = None

    def settings(self) -> Mapping[str, Any]:
        """The settings that were named."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        said = {name: value for name, value in every.items() if value is not None}
        return {name: value.value if isinstance(value, enum.Enum) else value for name, value in said.items()}


@taking
def add(
    pop: PopName,
    domain: Annotated[
        str, typer.Option("--domain", help="The domain that it is for.", autocompletion=complete.domains)
    ],
    outside: Annotated[list[str], typer.Option("--outside", help="An edge switch's port towards the outside.")],
    layout: Layout,
    url: Url = None,
) -> None:
    """Give a domain its PoP."""
    with service(url) as client:
        generation = client.pops.add(pop, domain, tuple(outside), **layout.settings())
    say(f"PoP {pop} of {domain} stands from generation {generation} on")


@taking
def list_all(shown: Shown, url: Url = None) -> None:
    """List the PoPs."""
    with service(url) as client:
        found = list(client.pops.read_all())
    rows = ((each["name"], each["version"], each["generation"]) for each in found)
    shown.say(found, ("PoP", "version", "generation"), rows)


@taking
def show(pop: PopName, report: Report, url: Url = None) -> None:
    """Show a PoP: settings, switches, servers, who serves whom, lines and heavy hitters."""
    with service(url) as client:
        seen = client.pops.read(pop)
    report.say(seen, _make_parts(seen))


def _make_parts(seen: Json) -> Iterator[Line | Table]:
    yield Line(f"{seen['name']} of {seen['domain']}", bold=True)
    yield Line(" ".join(f"{name}={value}" for name, value in seen["settings"].items()))
    edges = [(each["name"], each["datapath_id"], each["uplink"]) for each in seen["edges"]]
    yield Table("edges", ("edge", "datapath", "uplink"), edges)
    tenants: dict[str, list[str]] = {}
    for tenant, server in seen["places"].items():
        tenants.setdefault(server, []).append(tenant)
    servers = [
        (each["name"], each["state"], each["port"], each["mac"], ", ".join(sorted(tenants.get(each["name"], []))))
        for each in seen["servers"]
    ]
    yield Table("servers", ("server", "state", "port", "MAC", "tenants"), servers)
    columns = ("IP", "chunks", "lines", "exceptions", "stale", "misdirected", "fill", "union rate", "rebuilds")
    yield Table("lines", columns, [(name, *_make_lines_row(lines)) for name, lines in seen["lines"].items()])
    heavy = [
        (f"{each['tenant']}/{each['rule']}", each["since"], each["form"] or each["stays"], each["because"])
        for each in seen["heavy"]
    ]
    yield Table("heavy-hitters", ("heavy hitter", "since", "form", "because"), heavy)


def _make_lines_row(lines: Json) -> tuple[str, ...]:
    counts = (str(lines[name]) for name in ("chunks", "lines", "exceptions", "stale", "misdirected"))
    return (*counts, f"{lines['fill']:.3f}", f"{lines['union_rate']:.2g}", str(lines["draw"]))


@taking
def set_up(pop: PopName, layout: Layout, url: Url = None) -> None:
    """Lay a PoP out differently in what is named."""
    with service(url) as client:
        generation = client.pops.configure(pop, layout.settings())
    say(f"laid out so from generation {generation} on")


@taking
def remove(pop: PopName, url: Url = None) -> None:
    """Take a PoP away, once it has no edge switches."""
    with service(url) as client:
        client.pops.remove(pop)
    say(f"PoP {pop} is no more")


@taking
def add_edge(
    pop: PopName,
    edge: EdgeName,
    uplink: Annotated[str, typer.Option("--uplink", help="Its interface towards the WAN.")],
    datapath_id: DatapathId = None,
    url: Url = None,
) -> None:
    """Bring an edge switch into a PoP."""
    with service(url) as client:
        number = datapath(datapath_id, client.pops.read(pop)["domain"], edge)
        generation = client.pops.add_edge(pop, Host(edge, number, uplink))
    say(f"edge switch {edge} must reach generation {generation}")


@taking
def remove_edge(pop: PopName, edge: EdgeName, url: Url = None) -> None:
    """Take an edge switch out of a PoP.

    It goes on as it was last programmed.
    """
    with service(url) as client:
        client.pops.remove_edge(pop, edge)
    say(f"edge switch {edge} does not belong to {pop} any more")


@taking
def add_server(
    pop: PopName,
    server: ServerName,
    port: Annotated[str, typer.Option("--port", help="The edge switches' port towards it.")],
    mac: Annotated[str, typer.Option("--mac", help="The MAC address of its interface there.")],
    url: Url = None,
) -> None:
    """Bring a firewall server into a PoP; it gets its share of tenants."""
    with service(url) as client:
        generation = client.pops.add_server(pop, server, port, mac)
    say(f"server {server} has its tenants from generation {generation} on")


@taking
def set_server(
    pop: PopName,
    server: ServerName,
    state: Annotated[State, typer.Option("--state", help="Whether it serves, drains or is lost.")],
    url: Url = None,
) -> None:
    """Set whether a server serves, drains or is lost.

    A draining one keeps the tenants that it has; those of a lost one get others.
    """
    with service(url) as client:
        generation = client.pops.set_server(pop, server, state.value)
    say(f"server {server} is {state.value} from generation {generation} on")


@taking
def remove_server(pop: PopName, server: ServerName, url: Url = None) -> None:
    """Take a firewall server out of a PoP; its tenants get others."""
    with service(url) as client:
        client.pops.remove_server(pop, server)
    say(f"server {server} does not belong to {pop} any more")


@taking
def place(
    pop: PopName,
    tenant: TenantName,
    server: ServerName,
    url: Url = None,
) -> None:
    """Have a tenant served by a server of your choice."""
    with service(url) as client:
        generation = client.pops.place_tenants(pop, {tenant: server})
    say(f"{server} serves {tenant} from generation {generation} on")


@taking
def rebuild(pop: PopName, url: Url = None) -> None:
    """Have the lines built anew."""
    with service(url) as client:
        generation = client.pops.rebuild_lines(pop)
    say(f"lines are new from generation {generation} on")


@taking
def choose(pop: PopName, shown: Shown, url: Url = None) -> None:
    """Choose heavy hitters now, from what was counted since the last time."""
    with service(url) as client:
        seen = client.pops.choose_heavy_hitters(pop)
    rows = ((f"{c['tenant']}/{c['rule']}", c["because"]) for c in seen["chosen"])
    shown.say(seen, ("heavy hitter", "because"), rows)
    if not seen["had"] and shown.is_for_people:
        say("another process has just chosen")


@taking
def traffic(pop: PopName, report: Report, url: Url = None) -> None:
    """Show the ways of packets from outside, and each tenant's share past the servers."""
    with service(url) as client:
        seen = client.pops.read_traffic(pop)
    shares = [
        (name, each["server"] or "", each["bypassed"]["packets"], share_of(each))
        for name, each in seen["tenants"].items()
    ]
    parts = (
        Table("ways", ("packets from outside went", "packets", "bytes"), ways(seen)),
        Table("tenants", ("tenant", "server", "past the servers", "share"), shares),
    )
    report.say(seen, parts)
