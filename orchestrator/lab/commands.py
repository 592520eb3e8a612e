"""`aclflow lab` (up, down, status, migrate, cluster, kill, revive, chaos, exec) and `aclflow demo`."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from orchestrator.errors import BadInput
from orchestrator.lab import cluster, failover, pop, rootless, scenes, specfile
from orchestrator.lab.chaos.run import Report, Wishes
from orchestrator.lab.chaos.run import run as run_chaos
from orchestrator.lab.chaos.stage import SQLITE, STORES
from orchestrator.lab.demo import run
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import DEFAULT_PREFIX, Layout
from orchestrator.lab.migration import migrate
from orchestrator.lab.namespaces import need_root
from orchestrator.lab.screen import Screen
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.status import Status, look

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A point of presence on this machine: real switches in network namespaces.",
)

_FILE_WIDTH = 150

Prefix = Annotated[str, typer.Option("--prefix", help="Begins every name, so that several labs do not meet.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def up(
    pop_file: Annotated[
        Path, typer.Option("--pop", help="Description of the point of presence, in YAML.")
    ] = specfile.DEFAULT_FILE,
    prefix: Prefix = DEFAULT_PREFIX,
    tls: Annotated[bool, typer.Option("--tls", help="TLS everywhere: service, agents, OpenFlow.")] = False,
    bare: Annotated[bool, typer.Option("--bare", help="Network and switches only: no service, no controller.")] = False,
) -> None:
    """Bring a point of presence up, and leave it running.

    Tenants have empty lists: nothing is permitted yet.
    """
    need_root()
    console = Console()
    layout, description = Layout(prefix), specfile.load(pop_file)
    with Interrupts() as interrupts:
        lab = pop.up(layout, description, console.print)
        if bare:
            return
        try:
            plane = ControlPlane(lab, tls=tls)
            plane.start({}, progress=console.print)
        except BaseException:
            interrupts.ignore()
            pop.down(layout)
            raise
    believed = f", authority {plane.authority}" if plane.authority is not None else ", with ACLFLOW_PLAIN_HTTP=yes"
    console.print(f"API {plane.url}, token {plane.token}{believed}", soft_wrap=True)


@app.command()
def down(prefix: Prefix = DEFAULT_PREFIX) -> None:
    """Remove a lab, or whatever a killed one left behind."""
    need_root()
    removed = pop.down(Layout(prefix))
    if removed.nothing:
        Console().print(f"there was no lab with the prefix '{prefix}'")
    else:
        Console().print(f"removed {len(removed.namespaces)} namespaces and {len(removed.processes)} processes")


@app.command()
def status(prefix: Prefix = DEFAULT_PREFIX, as_json: AsJson = False) -> None:
    """Show a lab's processes, switches, nodes and firewalls."""
    need_root()
    seen = look(pop.find(Layout(prefix)))
    if as_json:
        typer.echo(json.dumps(asdict(seen), indent=2))
    else:
        _show_status(seen, Console())


@app.command(name="migrate")
def move(
    endpoint: Annotated[str, typer.Argument(help="A tenant's endpoint.")],
    host: Annotated[str, typer.Argument(help="The host that it is to be on.")],
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: AsJson = False,
) -> None:
    """Move an endpoint to another host, and report how long it was cut off."""
    need_root()
    moved = migrate(pop.find(Layout(prefix)), endpoint, host)
    if as_json:
        typer.echo(json.dumps(asdict(moved), indent=2))
    else:
        where = f"{moved.endpoint} moved from {moved.before} to {moved.after}"
        typer.echo(f"{where}; it was cut off for {moved.gap_s * 1000:.0f} ms")


@app.command(name="cluster")
def gather(
    size: Annotated[int, typer.Argument(min=2, max=cluster.MOST, help="How many firewalls.")] = 3,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Put firewalls that share their connections (fw1, fw2 ...) behind a lab's spreading switch."""
    need_root()
    lab = pop.find(Layout(prefix))
    with ControlPlane(lab).client() as client:
        members = cluster.start(lab, client, size)
    typer.echo(f"{', '.join(each.name for each in members)} carry the traffic of {lab.spec.domain}")


@app.command()
def kill(
    firewall: Annotated[str, typer.Argument(help="A firewall of the lab's cluster: fw1.")],
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Take the power from a firewall of the lab's cluster.

    Its links stay up, so that only its silence tells.
    """
    need_root()
    _, noticed_s = cluster.kill_and_watch(cluster.member(pop.find(Layout(prefix)), firewall))
    noticed = "" if noticed_s is None else f", and the switch gave it up after {noticed_s * 1000:.0f} ms"
    typer.echo(f"{firewall} is dead{noticed}; `aclflow lab revive {firewall}` brings it back, empty")


@app.command()
def revive(
    firewall: Annotated[str, typer.Argument(help="A firewall that was killed.")], prefix: Prefix = DEFAULT_PREFIX
) -> None:
    """Give a firewall its power back.

    It takes the others' connections in bulk, then it serves.
    """
    need_root()
    cluster.revive(cluster.member(pop.find(Layout(prefix)), firewall))
    typer.echo(f"{firewall} serves once it is whole")


@app.command()
def chaos(
    seed: Annotated[int, typer.Option(help="Lists, faults, their order and times follow from it.")] = 1,
    seconds: Annotated[float, typer.Option("--time", min=1.0, metavar="SECONDS", help="How long.")] = 300.0,
    store: Annotated[str, typer.Option(help=f"Where the service keeps its state: {' or '.join(STORES)}.")] = SQLITE,
    only: Annotated[str, typer.Option(help="Only faults whose name contains this.")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Write the report there, as JSON.")] = None,
    prefix: Prefix = "chaos-",
    as_json: AsJson = False,
) -> None:
    """Cause faults without end in a lab, and check every packet against the policy.

    The lab is made for it. Exit code 1: a packet passed that no policy of its moment permits, a permitted one is
    missing where all is well, or an acknowledged write is lost.
    """
    need_root()
    if store not in STORES:
        raise BadInput(f"'{store}' is none of {', '.join(STORES)}", place="--store")
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Interrupts(), Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=1.0)

        def show_progress(what: str, part: float, sent: int) -> None:
            bars.update(task, completed=part, description=f"{sent / 1e6:.2f} million packets; {escape(what)}")

        report = run_chaos(
            Layout(prefix),
            Wishes(seed, seconds, store, only=only),
            show_progress,
            lambda what: show_progress(what, 0.0, 0),
        )
    text = json.dumps(report.document(), indent=2)
    if out is not None:
        out.write_text(text + "\n")
    if as_json:
        typer.echo(text)
    else:
        _show_chaos(report, Console())
    raise typer.Exit(0 if report.is_good else 1)


def _show_chaos(report: Report, console: Console) -> None:
    table = Table(f"chaos, seed {report.seed}, {report.store}", "")
    for words, value in (
        ("packets sent", f"{report.packets:,}"),
        ("arrived", f"{report.arrived:,}"),
        ("arrived although no policy of the moment permits them", f"{report.wrong:,}"),
        ("missing where all is well and the policy permits them", f"{report.missing:,}"),
        ("writes acknowledged", f"{report.acknowledged:,}"),
        ("acknowledged writes lost", f"{report.lost_writes:,}"),
        ("requests that got no answer, and were sent again", f"{report.unanswered:,}"),
        ("rounds", f"{report.rounds:,} in {report.seconds:.0f} s"),
        ("kinds of faults", f"{len(report.faults):,}"),
        ("rounds without a fault, whose step was not reached", f"{sum(report.not_reached.values()):,}"),
        ("changes confirmed, and taken back", f"{report.confirmed:,}, {report.taken_back:,}"),
        ("seconds to exact again, median and most", _spell_spread(report.settled_s)),
    ):
        table.add_row(words, value)
    console.print(table)
    for trouble in report.troubles:
        console.print(f"[bold red]WRONG[/] {escape(trouble)}", soft_wrap=True)


def _spell_spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f}" if seconds else "-"


@app.command(name="exec", context_settings={"ignore_unknown_options": True})
def execute(
    node: Annotated[str, typer.Argument(help="A client, an endpoint, or `ovs`.")],
    command: Annotated[list[str], typer.Argument(help="What to run there.")],
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Run a command in a node's namespace: aclflow lab exec web1 -- ping 192.0.2.10."""
    need_root()
    pop.find(Layout(prefix)).execute(node, command)


def demo(
    acl: Annotated[Path | None, typer.Option("--acl", help="An access list of your own.")] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="Its format; told from the text if left out.")
    ] = None,
    lists: Annotated[
        list[str] | None, typer.Option("--list", help="Which list or chain of it to read: NAME, NAME=egress.")
    ] = None,
    prefix: Prefix = DEFAULT_PREFIX,
    dies: Annotated[
        bool, typer.Option("--failover", help="Kill the firewalls that a download passes, and watch it go on.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="End after the table.")] = False,
) -> None:
    """Bring up a cloud in namespaces with a real access list, and send real packets.

    A table shows which of them were permitted. Without root it runs in a user namespace, which is closed: its console
    is reached from inside only.
    """
    if dies:
        raise typer.Exit(_run_failover(prefix, has_list=acl is not None or bool(lists), once=once))
    if os.geteuid():
        rootless.reenter(["demo", *_spell_options(acl, format_name, lists, prefix, once=once)])
    console = _wide_console()
    confined = rootless.is_confined()
    console.print(_PLAN + (_CONFINED if confined else ""))
    scene = scenes.shipped_scene() if acl is None else scenes.of_file(acl, format_name, tuple(lists or ()))
    if confined:
        notes = (rootless.LEFT_OUT, *scene.notes) if scene.spec.servers else scene.notes
        scene = replace(scene, spec=replace(scene.spec, servers=()), notes=notes)
    with Screen(console) as screen:
        good = run(Layout(prefix), scene, screen, once=once)
    raise typer.Exit(0 if good else 1)


def _run_failover(prefix: str, *, has_list: bool, once: bool) -> int:
    """Run the demo of firewalls that die; return its exit code."""
    if has_list:
        raise BadInput("this demo has a list of its own: leave --acl and --list out", place="--failover")
    need_root()
    console = _wide_console()
    console.print(_FAILOVER)
    with Screen(console) as screen:
        return 0 if failover.run(Layout(prefix), screen, once=once) else 1


_FAILOVER = (
    "A cloud on this machine, in network namespaces: three firewalls that share their connections, a download through "
    "them, and no power for the one that carries it. It takes about 20 seconds; nothing outside of it is changed."
)
_PLAN = (
    "A cloud on this machine, in network namespaces: switches with Open vSwitch, the service, a controller, access "
    "lists, and real packets. It takes about 20 seconds; nothing outside of it is changed."
)
_CONFINED = " Without root it is in a user namespace, closed to browsers outside."


def _spell_options(
    acl: Path | None, format_name: str | None, lists: list[str] | None, prefix: str, *, once: bool
) -> list[str]:
    """The options of a demo as they are typed."""
    words = ["--prefix", prefix]
    words += ["--acl", str(acl)] if acl is not None else []
    words += ["--format", format_name] if format_name is not None else []
    for each in lists or ():
        words += ["--list", each]
    return [*words, "--once"] if once else words


def _wide_console() -> Console:
    """The terminal's console; wide enough for tables where the output is a file."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _FILE_WIDTH
    return console


def _show_status(seen: Status, console: Console) -> None:
    console.print(f"lab [bold]{seen.prefix}[/] in {seen.run_dir}, API {seen.api or 'not started'}")
    running = Table("process", "pid", "running")
    for process in seen.processes:
        running.add_row(process.name, str(process.pid), "yes" if process.running else "[red]no[/]")
    bridges = Table("host", "datapath id", "controller (seconds ago)", "flows")
    for bridge in seen.bridges:
        flows = "no answer" if bridge.flows is None else str(bridge.flows)
        bridges.add_row(bridge.host, bridge.datapath_id, "connected" if bridge.connected else "[red]none[/]", flows)
    nodes = Table("node", "namespace", "tenant", "host", "addresses")
    for node in seen.nodes:
        nodes.add_row(node.name, node.namespace, node.tenant or "(client)", node.host, " ".join(node.addresses))
    firewalls = Table("firewall", "namespace", "running", "gets traffic")
    for each in seen.firewalls:
        words = ("yes" if is_so else "[red]no[/]" for is_so in (each.running, each.serving))
        firewalls.add_row(each.name, each.namespace, *words)
    for table in (running, bridges, nodes, *([firewalls] if seen.firewalls else [])):
        console.print(table)
