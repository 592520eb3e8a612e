"""The suite: every client to every server, in rounds, each figure against its limit.

The servers of the suite: iperf3, lighttpd with one page, and a refused port.

All of it ends with the SSH connections that it was started over.
"""

from __future__ import annotations

import datetime as dt
import html
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.qualify.inventory import Host, Inventory
from orchestrator.bench.qualify.pairgauges import OCTETS, Limits, Load, Measure, Pair, Remote
from orchestrator.bench.results import Figure, Results, Series, Target, in_digits
from orchestrator.bench.traffic.line import PAGE
from orchestrator.errors import AclflowError, Missing, Refused, Unreachable

_PATIENCE_S = 20.0


@contextmanager
def answering(server: Remote) -> Iterator[None]:
    """Run the servers during the block.

    Raises Refused where one of them does not start, Unreachable, Missing.
    """
    host = server.host
    with ExitStack() as stack:
        folder = server.run("mktemp", "-d", "-t", "aclflow-bench-XXXXXX").strip()
        stack.callback(server.run, "rm", "-rf", folder)
        server.run("tee", f"{folder}{PAGE}", text="1")
        iperf = ("iperf3", "--server", "--bind", host.traffic, "--port", str(host.iperf_port))
        listening: dict[int, tuple[str, ...]] = {host.iperf_port: iperf}
        for port in filter(None, (host.http_port, host.refused_port)):
            settings = f"{folder}/web-{port}.conf"
            server.run("tee", settings, text=_configure_web(folder, host.traffic, port))
            listening[port] = ("lighttpd", "-D", "-f", settings)
        for port, words in listening.items():
            process = stack.enter_context(server.running(*words))
            _wait_until_listening(server, process, port, words[0])
        yield


def _configure_web(folder: str, address: str, port: int) -> str:
    return (
        f'server.document-root = "{folder}"\n'
        f'server.bind = "{address}"\n'
        f"server.port = {port}\n"
        f'server.errorlog = "{folder}/web-{port}.log"\n'
        "server.max-fds = 8192\n"
        "server.listen-backlog = 4096\n"
    )


def _wait_until_listening(server: Remote, process: subprocess.Popen[bytes], port: int, program: str) -> None:
    place = f"{server.host.name} ({server.host.address})"
    until = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if server.run("ss", "-Hltn", f"sport = :{port}").strip() and process.poll() is None:
            return
        time.sleep(0.1)
    if process.poll() is None:
        raise Unreachable(f"{program} does not listen on port {port} after {_PATIENCE_S:.0f} s", place=place)
    assert process.stderr is not None
    raise Refused(f"{program} ended: {process.stderr.read().decode(errors='replace').strip()[-500:]}", place=place)


_ROUNDS, _QUICK_ROUNDS = 5, 1
_LOAD = Load(seconds=10, connections=20_000, at_once=64)
_QUICK_LOAD = Load(seconds=1, connections=500, at_once=16)
_NEEDS = {"client": ("iperf3", "httperf", "bash", "timeout"), "server": ("iperf3", "lighttpd", "ss", "ip")}


def run(inventory: Inventory, limits: Limits, *, quick: bool, progress: Progress) -> Results:
    """Run the suite. Raises Unreachable, Missing and Refused with the machine as the place."""
    rounds, load = (_QUICK_ROUNDS, _QUICK_LOAD) if quick else (_ROUNDS, _LOAD)
    progress("looking at the machines")
    _ready(inventory)
    settings: dict[str, object] = {
        "rounds": rounds,
        "seconds": load.seconds,
        "connections": load.connections,
        "at_once": load.at_once,
    }
    settings |= {host.name: _about(Remote(host)) for host in inventory.hosts}
    results = Results("qualify", settings)
    pairs = [Pair(Remote(client), Remote(server)) for client in inventory.clients for server in inventory.servers]
    with ExitStack() as stack:
        for server in inventory.servers:
            progress(f"starting what answers on {server.name}")
            stack.enter_context(answering(Remote(server)))
        found = _measure_pairs(pairs, load, rounds, progress)
    _conclude(results, found, pairs, limits)
    return results


def missed_figures(results: Results) -> list[str]:
    """Return the figures beyond their limits, and limited ones not measured."""
    fell_short = [name for name, figure in results.figures.items() if not figure.is_met]
    return [*fell_short, *results.absent]


@dataclass(slots=True)
class _Found:
    """All values by pair and measure, in order; reasons for absent ones, by figure."""

    values: dict[tuple[str, Measure], list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def _measure_pairs(pairs: Sequence[Pair], load: Load, rounds: int, progress: Progress) -> _Found:
    found = _Found()
    steps = Steps(progress, rounds * sum(len(pair.gauges(load)) for pair in pairs))
    for turn in range(rounds):
        for pair in pairs:
            for name, gauge in pair.gauges(load).items():
                steps.next(f"round {turn + 1} of {rounds}, {pair.name.replace(' ', ' to ')}: {name}")
                try:
                    sample = gauge()
                except Unreachable as error:
                    lacking = [_name_figure(measure, pair.name) for measure in Measure if measure.tool == name]
                    found.absent |= dict.fromkeys(lacking, f"round {turn + 1}: {error.reason}")
                    continue
                for measure, value in sample.items():
                    found.values.setdefault((pair.name, measure), []).append(value)
    return found


def _conclude(results: Results, found: _Found, pairs: Sequence[Pair], limits: Limits) -> None:
    for (pair, measure), values in found.values.items():
        results.figures[_name_figure(measure, pair)] = Figure.of(values, measure.unit, limits.get(measure))
    results.series += sorted(_lines(found, limits), key=lambda line: line.y_label)
    results.absent |= found.absent
    if Measure.REFUSED in limits:
        for each in pairs:
            if not each.server.host.refused_port:
                name = _name_figure(Measure.REFUSED, each.name)
                results.absent[name] = f"{each.server.host.name} has no aclflow_bench_refused_port in the inventory"
    results.notes += [f"`{measure.value}`: {measure.what}" for measure in Measure]
    results.notes += [
        f"datagrams of {OCTETS} bytes; every pair by itself, pairs and tools in turns",
        "a limit holds for the median of each pair",
        "the machine that is named first gave the orders; the traffic was between the others",
    ]


def _lines(found: _Found, limits: Limits) -> Iterator[Series]:
    """Yield series over the rounds, with their limits; none for a single round."""
    longest: dict[Measure, int] = {}
    for (pair, measure), values in found.values.items():
        if len(values) > 1:
            yield _make_series(pair.replace(" ", " to "), measure, values)
            longest[measure] = max(len(values), longest.get(measure, 0))
    for measure, turns in longest.items():
        if measure in limits:
            yield _make_series("limit", measure, [limits[measure].bound] * turns)


def _make_series(name: str, measure: Measure, values: Sequence[float]) -> Series:
    rounds = tuple(float(turn + 1) for turn in range(len(values)))
    return Series(name, rounds, tuple(values), "round", f"{measure.value} ({measure.unit})")


def _name_figure(measure: Measure, pair: str) -> str:
    return f"{measure.value} {pair}"


def _ready(inventory: Inventory) -> None:
    """Check that the machines can be measured.

    Raises one error that tells everything that is wrong with the machines.
    """
    wrong = [*_find_lacking(inventory.clients, "client"), *_find_lacking(inventory.servers, "server")]
    if wrong:
        kind = Missing if all(isinstance(each, Missing) for each in wrong) else Unreachable
        raise kind("; ".join(dict.fromkeys(map(str, wrong))))


def _find_lacking(hosts: Sequence[Host], role: str) -> Iterator[AclflowError]:
    for host in hosts:
        try:
            _tools(host, _NEEDS[role])
        except AclflowError as error:
            yield error


def _tools(host: Host, needed: Sequence[str]) -> None:
    """Check that the programs are installed.

    Raises Missing for a machine that lacks a program, with all that it lacks.
    """
    look = 'for each in "$@"; do command -v "$each" >/dev/null || echo "$each"; done'
    lacks = Remote(host).run("sh", "-c", look, "sh", *needed).split()
    if lacks:
        raise Missing(
            f"{' and '.join(lacks)} not installed: apt-get install iperf3 httperf lighttpd there, or run the playbook "
            "aclflow.cloud.benchmark, which does",
            place=f"{host.name} ({host.address})",
        )


def _about(remote: Remote) -> str:
    """Describe a machine in a few words."""
    kernel = remote.run("uname", "-r").strip()
    model = remote.run("sh", "-c", "grep -m1 'model name' /proc/cpuinfo || true").partition(":")[2].strip()
    return f"({remote.run('nproc').strip()} cores, {model or 'processor unknown'}, kernel {kernel})"


_STYLE = """
body { font: 15px/1.5 sans-serif; color: #1a1a1a; max-width: 64em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } td, th { border: 1px solid #bbb; padding: .25em .6em; text-align: left }
td.number { text-align: right } .met { color: #0a6b2d } .missed { color: #a40000; font-weight: bold }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 1em; margin: 1.5em 0 } svg { width: 100%; height: auto }
"""
_CODE = re.compile(r"`([^`]+)`")
_HEADINGS = ("figure", "client", "server", "median", "95 % interval", "runs", "unit", "limit", "")


def write_page(results: Results, plots: Sequence[Path], path: Path, now: dt.datetime) -> None:
    """Write the report to hand over: one HTML file, with the verdict on top.

    `plots` are SVG and become part of it.
    """
    short = missed_figures(results)
    verdict = f"Not passed: {', '.join(short)}." if short else "Passed: every limit is kept."
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Qualification</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Qualification</h1><p>{now:%Y-%m-%d %H:%M} UTC</p>",
        f'<p class="{"missed" if short else "met"}">{html.escape(verdict)}</p>',
        "<table><tr>" + "".join(f"<th>{text}</th>" for text in _HEADINGS) + "</tr>",
        *(_write_row(name, figure) for name, figure in results.figures.items()),
        "</table>",
        *_write_absent(results),
        '<div class="plots">',
        *map(_drawing, plots),
        "</div>",
        "<h2>How it was measured</h2><ul>",
        *(f"<li>{_mark_code(note)}</li>" for note in results.notes),
        *(f"<li>{html.escape(f'{name}: {value}')}</li>" for name, value in results.settings.items()),
        "</ul></body></html>",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_row(name: str, figure: Figure) -> str:
    verdict = "" if figure.target is None else ("met" if figure.is_met else "missed")
    cells = [*(f"<td>{html.escape(word)}</td>" for word in name.split(" ", 2))]
    spread = f"{in_digits(figure.low)} to {in_digits(figure.high)}"
    cells += [f'<td class="number">{in_digits(figure.median)}</td>', f'<td class="number">{spread}</td>']
    cells += [f'<td class="number">{figure.runs}</td>', f"<td>{html.escape(figure.unit.removeprefix('1'))}</td>"]
    cells += [f"<td>{_bound(figure.target)}</td>", f'<td class="{verdict}">{verdict}</td>']
    return f"<tr>{''.join(cells)}</tr>"


def _bound(target: Target | None) -> str:
    """A limit as the file of limits says it."""
    return "" if target is None else f"{'at most' if target.at_most else 'at least'} {in_digits(target.bound)}"


def _write_absent(results: Results) -> list[str]:
    if not results.absent:
        return []
    rows = [f"<li>{html.escape(f'{name}: {reason}')}</li>" for name, reason in results.absent.items()]
    return ["<h2>Not measured</h2><ul>", *rows, "</ul>"]


def _mark_code(note: str) -> str:
    """A note with what stands in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(note))


def _drawing(plot: Path) -> str:
    """The drawing without what stands before it in a file of its own."""
    _, begin, rest = plot.read_text(encoding="utf-8").partition("<svg")
    return begin + rest
