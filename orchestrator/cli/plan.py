"""`aclflow plan`: the cost of a point of presence for a cloud of any size.

Its formulas can be compared with real lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.bench import report
from orchestrator.bench.edge.curves import papers_figures
from orchestrator.bench.plots import draw_plots
from orchestrator.cli.exitcodes import ANSWER_IS_NO
from orchestrator.cli.options import taking
from orchestrator.cli.tables import Line, Report, Table
from orchestrator.cli.terminal import counting, remark
from orchestrator.edge.occupancy import exact, formula, union_of
from orchestrator.edge.planner import Cloud, Load, Machines, Plan, Popularity, Tcam, Topology, plan
from orchestrator.edge.sampling import AGREES, Comparison, Model, compare, sample
from orchestrator.edge.suggest import Suggestion, suggest
from orchestrator.errors import BadInput

_OPTIONS = {
    "blocks_a_tenant": "blocks", "pairs_a_vm": "pairs", "chunk_size": "chunk", "entries": "tcam",
    "permitted_gbps": "permitted", "attack_gbps": "attack", "wan_gbps": "wan",
    "memory_gb": "memory", "octets_a_pair": "octets", "hop_ms": "hop",
}  # fmt: skip
"""The command's words for values that the planner calls otherwise."""


@contextmanager
def naming_options() -> Iterator[None]:
    """Have what is refused name the option that it came by."""
    try:
        yield
    except BadInput as error:
        if error.place and not error.place.startswith("--"):
            error.place = "--" + _OPTIONS.get(error.place, error.place).replace("_", "-")
        raise


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """The cloud behind the edge."""

    vms: Annotated[str, typer.Option(help="Virtual machines, as 250000 or 1e12.")] = "1e12"
    tenants: Annotated[str, typer.Option(help="Tenants.")] = "1e6"
    blocks: Annotated[int, typer.Option(help="Contiguous blocks of addresses a tenant.")] = 1
    pairs: Annotated[float, typer.Option(help="Permitted peers a VM, each an element in a firewall server.")] = 1.0
    regions: Annotated[int, typer.Option(help="Regions a tenant uses; they tell how many boxes it manages today.")] = 2

    def cloud(self) -> Cloud:
        """Return the planner's cloud. Raises BadInput."""
        counts = whole(self.vms, "--vms"), whole(self.tenants, "--tenants")
        return Cloud(*counts, self.blocks, self.pairs, Topology(regions=self.regions))


@dataclass(frozen=True, slots=True)
class TcamOptions:
    """The edge router's memory."""

    chunk: Annotated[str, typer.Option(help="Addresses a chunk, a power of two.")] = "65536"
    tcam: Annotated[str, typer.Option(help="Entries of the TCAM.")] = "7e6"
    width: Annotated[int, typer.Option(help="Bits an entry.")] = 288
    forwarding_share: Annotated[float, typer.Option(help="Of all entries, those that forwarding takes.")] = 9 / 70
    heavy_share: Annotated[float, typer.Option(help="Of the rest, those for heavy hitters.")] = 0.1
    most_functions: Annotated[int, typer.Option(help="Hash functions that the router can compute at most.")] = 288

    def memory(self) -> Tcam:
        """Return the planner's memory. Raises BadInput."""
        entries = whole(self.tcam, "--tcam")
        return Tcam(entries, self.width, self.forwarding_share, self.heavy_share, self.most_functions)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Traffic."""

    permitted: Annotated[float, typer.Option(help="Permitted traffic at the point of presence, in Gb/s.")] = 500.0
    attack: Annotated[float, typer.Option(help="An attack that sweeps addresses, in Gb/s.")] = 100.0
    wan: Annotated[float, typer.Option(help="The WAN's capacity, in Gb/s.")] = 1_000.0
    popularity: Annotated[
        list[str] | None, typer.Option(help="A point of the popularity curve, RULES:SHARE; again for more. [25:0.9]")
    ] = None
    shared: Annotated[bool, typer.Option("--shared", help="One curve for the rules of all tenants together.")] = False

    def load(self) -> Load:
        """Return the planner's load. Raises BadInput."""
        points = tuple(_read_point(text) for text in self.popularity or ())
        curve = Popularity(points) if points else Popularity()
        return Load(self.permitted, self.attack, self.wan, curve, self.shared)


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Firewall servers, and the gateways they stand for."""

    memory: Annotated[float, typer.Option(help="Memory a server, in GB.")] = 1_024.0
    octets: Annotated[float, typer.Option(help="Bytes of a server's memory that a permitted pair takes.")] = 96.0
    server_gbps: Annotated[float, typer.Option(help="Traffic that a server carries, in Gb/s.")] = 5.0
    server_cores: Annotated[float, typer.Option(help="Cores that a server keeps busy with that.")] = 0.25
    gateway_cores: Annotated[float, typer.Option(help="Cores that a tenant's VPN gateway keeps busy today.")] = 0.5
    hop: Annotated[float, typer.Option(help="Milliseconds from the router to a server, or back.")] = 10.0

    def machines(self) -> Machines:
        """Return the planner's machines. Raises BadInput."""
        return Machines(
            memory_gb=self.memory, octets_a_pair=self.octets, server_gbps=self.server_gbps,
            server_cores=self.server_cores, gateway_cores=self.gateway_cores, hop_ms=self.hop,
        )  # fmt: skip


@taking
def edge(
    cloud: CloudOptions,
    tcam: TcamOptions,
    load: LoadOptions,
    machines: MachineOptions,
    printed: Report,
    target: Annotated[float, typer.Option(help="The rate of false matches that a suggestion has to reach.")] = 1e-9,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the paper's figures 7 to 10 there.")] = None,
) -> None:
    """Show what a cloud costs at its edge: false matches, WAN, servers, latency, processors, boxes.

    The rate of one line is what the paper reports; the rate of any line is what an attacker meets who sweeps addresses.
    The defaults are the paper's router and its cloud of 10^12 VMs.
    """
    if not 0 < target < 1:
        raise BadInput(f"{target:g} is no rate that could be reached: between 0 and 1", place="--target")
    with naming_options():
        wanted, memory, traffic = cloud.cloud(), tcam.memory(), load.load()
        found = plan(wanted, whole(tcam.chunk, "--chunk"), memory, traffic, machines.machines())
        advice = suggest(wanted, memory, target)
    document = {"plan": asdict(found), "suggestion": asdict(advice), "target": target}
    printed.say(
        document, (Table("values", ("what", "value"), _make_rows(found, wanted)), _describe_advice(advice, target))
    )
    if plot is not None:
        report.prepare(plot)
        for path in draw_plots(papers_figures(wanted, memory, traffic), (), plot):
            remark(str(path))


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Lines that can be sampled."""

    lines: Annotated[int, typer.Option(help="Lines.")] = 512
    width: Annotated[int, typer.Option(help="Bits a line.")] = 64
    per_line: Annotated[int, typer.Option(help="Chunks a line holds.")] = 4
    functions: Annotated[int, typer.Option(help="Hash functions.")] = 11

    def model(self) -> Model:
        """Return the sampler's model. Raises BadInput."""
        return Model(self.lines, self.width, self.per_line, self.functions)


@taking
def sample_lines(
    options: ModelOptions,
    printed: Report,
    samples: Annotated[str, typer.Option(help="Chunks to draw in all, as 1e7.")] = "1e7",
    sets: Annotated[int, typer.Option(help="Sets of lines, each of other chunks and hash functions.")] = 32,
    seed: Annotated[int, typer.Option(help="The seed of what is drawn.")] = 1,
) -> None:
    """Draw chunks at random against real lines and compare with the planner's formulas.

    The results of the sets of lines are compared with each formula by Student's t; the exit code is 1 where the exact
    formulas are off by more than 4. The usual formulas are shown beside them.
    """
    with naming_options():
        model, draws = options.model(), whole(samples, "--samples")
        m, k, n = model.width, model.functions, model.per_line
        union = union_of(m, k, model.held)
        if sets <= draws and union * draws < sets:
            raise BadInput(f"lines match {union:.2g} of all chunks, less than one in each set's draws", place="samples")
    with naming_options(), counting("drawing chunks", draws) as progress:
        found = sample(model, draws, seed=seed, sets=sets, progress=progress)
    rate = exact(m, k, n)
    compared = {
        "one line, exactly": compare(found.one_line, rate),
        "any line, exactly": compare(found.union, union),
        "one line, the usual formula": compare(found.one_line, formula(m, k, n)),
        "any line, taken as independent": compare(found.union, -math.expm1(model.lines * math.log1p(-rate))),
    }
    agrees = all(each.agrees for each in list(compared.values())[:2])
    each = {name: {**asdict(one), "agrees": one.agrees} for name, one in compared.items()}
    document = {"samples": found.total, "misdirected": found.misdirected, "agrees": agrees, "compared": each}
    parts = (
        Table("rates", ("rate", "observed", "predicted", "t", "verdict"), _make_comparison_rows(compared)),
        Line(f"{found.total:,} draws over {sets} sets of lines; {found.misdirected} chunks reach a wrong server"),
    )
    printed.say(document, parts)
    if not agrees:
        raise typer.Exit(ANSWER_IS_NO)


def _make_comparison_rows(compared: dict[str, Comparison]) -> Iterator[tuple[str, ...]]:
    for name, one in compared.items():
        verdict = "agrees" if one.agrees else f"off: |t| > {AGREES:g}"
        yield name, f"{one.observed:.5g}", f"{one.predicted:.5g}", f"{one.t:.2f}", verdict


def whole(text: str, option: str) -> int:
    """A whole number, as 65536 or 1e12. Raises BadInput that names the option."""
    if text.isdecimal():
        return int(text)
    value = _read_number(text)
    if value is None or not value.is_integer():
        raise BadInput(f"'{text}' is not a whole number such as 65536 or 1e12", place=option)
    return int(value)


def _read_point(text: str) -> tuple[float, float]:
    rules, share = (_read_number(part) for part in text.partition(":")[::2])
    if rules is None or share is None:
        raise BadInput(f"'{text}' is no point of a curve such as 25:0.9", place="--popularity")
    return rules, share


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _make_rows(found: Plan, cloud: Cloud) -> list[tuple[str, str]]:
    filters, paper, wan, servers = found.filters, found.paper, found.wan, found.servers
    return [
        ("chunks", f"{filters.chunks:,} of {found.chunk_size:,} addresses, {filters.chunks_a_line:.3g} a line"),
        ("IPv4", "they fit" if filters.fits_ipv4 else "they do not fit: IPv6"),
        ("entries", f"{found.heavy_entries:,} heavy hitters, {filters.lines:,} lines, {filters.functions} functions"),
        ("exact table instead", "fits: no filter is needed" if filters.exact_fits else "does not fit"),
        ("one line matches wrongly (paper's formula)", f"{paper.one_line_rate:.3g}"),
        ("one line matches wrongly (exactly)", f"{filters.one_line_rate:.3g}"),
        ("any line matches wrongly (exactly)", f"{filters.union_rate:.3g}"),
        ("of tenants' packets, to a wrong server, unrepaired", f"{filters.unrepaired:.3g}"),
        ("chunks kept apart by order and exact entries", f"{filters.contested:.4g}"),
        ("traffic that bypasses the servers", f"{found.bypass:.1%}"),
        ("added latency, mean", f"{found.added_ms:.2f} ms"),
        ("WAN in use, permitted traffic", f"{wan.permitted:.1%}"),
        ("WAN in use under attack (paper's reading)", f"{paper.wan_use:.2%}"),
        ("WAN in use under attack, misdirected to the WAN", f"{wan.use_wan:.2%}"),
        ("WAN in use under attack, misdirected rehomed", f"{wan.use_rehome:.2%}"),
        ("WAN in use under attack, misdirected dropped", f"{wan.use_drop:.2%}"),
        ("firewall servers", f"{servers.count:,}, for {servers.because}"),
        ("their memory", f"{servers.memory_gb:,.1f} GB for {servers.pairs:.3g} pairs"),
        ("their processors", f"{servers.cores:,.1f} cores, against {servers.gateway_cores:,.0f} of VPN gateways"),
        ("boxes a tenant no longer manages", _describe_boxes(found)),
        ("tenants", f"{cloud.tenants:,}"),
    ]


def _describe_boxes(found: Plan) -> str:
    relief = found.relief
    return f"{relief.vpcs} VPCs, {relief.gateways} gateways, {relief.peerings} peerings"


def _describe_advice(advice: Suggestion, target: float) -> Line:
    if advice.chunk_size is None:
        return Line(f"nothing reaches {target:g}: {advice.because}", bold=True)
    return Line(
        f"for {target:g}: chunks of {advice.chunk_size:,} addresses, {advice.heavy_share:.1%} for heavy hitters, then "
        f"{advice.union_rate:.3g}; {advice.because}"
    )
