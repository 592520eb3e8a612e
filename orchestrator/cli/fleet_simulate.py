"""`aclflow fleet simulate`: what a fleet would do under a generated or recorded load."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.fleet import Wishes, measurements_in
from orchestrator.cli.options import Url, taking
from orchestrator.cli.tables import Line, Report, Table
from orchestrator.client import Client
from orchestrator.errors import BadInput, Missing
from orchestrator.scaling.capacity import CapacityModel, fit
from orchestrator.scaling.simulate import Outcome, Scenario, simulate
from orchestrator.store.firewalls.fleetrecords import FleetSettings, settings_from
from orchestrator.wire.firewalls import Plane

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """The load that is to be met."""

    ramp: Annotated[
        str,
        typer.Option("--ramp", metavar="PPS:SECONDS,..", help="From rate to rate, each reached after so many seconds."),
    ] = "0:0,300000:120,300000:60,10000:60,10000:300"
    recorded: Annotated[
        str | None,
        typer.Option(
            "--recorded",
            metavar="DOMAIN",
            help="The load that this domain's fleet carried of late.",
            autocompletion=complete.domains,
        ),
    ] = None
    rules: Annotated[int, typer.Option("--rules", min=0, help="Rules that each VNF holds.")] = 2000
    octets: Annotated[float, typer.Option("--octets", min=1, help="Bytes of a packet on average.")] = 512.0
    serves_after: Annotated[float, typer.Option("--serves-after", min=0, help="Seconds until a new VNF serves.")] = 3.0
    drains: Annotated[float, typer.Option("--drains", min=0, help="Seconds that one takes to leave.")] = 10.0


@taking
def run(
    load: Load,
    wishes: Wishes,
    report: Report,
    capacity: Annotated[
        Path | None, typer.Option("--capacity", metavar="FILE", help="Measurements; by default those of the service.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Draw size, load and loss there.")] = None,
    url: Url = None,
) -> None:
    """Simulate a fleet under a load: its size, its load and its losses.

    The load is replayed against the decisions that the service would take. With measurements in a file and a load of
    your own no service is needed.
    """
    settings, model, pps = _ground(load, wishes, capacity, url)
    scenario = Scenario(
        pps,
        packet_bytes=load.octets,
        rules=load.rules,
        start=max(settings.limits.fewest, 1),
        interval_s=max(settings.decide_every_s, 1.0),
        serves_after_s=load.serves_after,
        drains_s=load.drains,
    )
    outcome = simulate(scenario, model, settings.limits)
    paths = [] if plot is None else drawn(outcome, scenario, plot)
    error = "unknown" if model.error is None else f"{model.error:.0%}"
    decisions = [(f"{at_s:g}", each.size, each.because) for at_s, each in outcome.decisions]
    parts: list[Line | Table] = [
        Table("decisions", ("at (s)", "VNFs", "because"), decisions),
        Line(f"at most {int(outcome.size.max())} VNFs; {outcome.lost_share:.3%} of all packets lost", bold=True),
        Line(f"capacity model {model.version}: its predictions err by {error}"),
    ]
    if model.is_beyond(load.rules):
        text = f"only up to {model.most_rules} rules were measured: beyond, the line is extended"
        parts.append(Line(text, colour="yellow"))
    parts += [Line(f"drawn: {path}") for path in paths]
    report.say(_write_outcome(outcome, model) | {"plots": [*map(str, paths)]}, parts)


def _ground(load: Load, wishes: Wishes, file: Path | None, url: str | None) -> tuple[FleetSettings, CapacityModel, F64]:
    """Settings, capacity and load, from the service where they are not said."""
    plane = wishes.plane if wishes.plane is not None else FleetSettings().plane
    if load.recorded is None and file is not None:
        return FleetSettings().with_changes(wishes.changes()), _model_in(file, plane), ramp(load.ramp)
    with service(url) as client:
        model = _model_in(file, plane) if file is not None else _current(client, plane.value)
        if load.recorded is None:
            return FleetSettings().with_changes(wishes.changes()), model, ramp(load.ramp)
        settings = settings_from(client.fleet.read(load.recorded).settings).with_changes(wishes.changes())
        samples = client.fleet.read_samples(load.recorded)
    if len(samples) < 2:
        raise Missing(f"nothing was recorded of {load.recorded} yet: its fleet must have been there for a while")
    at_s = np.array([(each.at - samples[0].at).total_seconds() for each in samples])
    pps = np.array([float(each.packets_pps) for each in samples])
    return settings, model, np.interp(np.arange(0.0, at_s[-1] + 1.0), at_s, pps)


def _model_in(file: Path, plane: Plane) -> CapacityModel:
    """Read a plane's capacity model from a file. Raises Missing, BadInput."""
    measured = measurements_in(file, plane)
    if plane.value not in measured:
        raise Missing(f"it says what one carries with {', '.join(measured)}, not with {plane.value}", place=str(file))
    return fit(measured[plane.value], version=0)


def _current(client: Client, plane: str) -> CapacityModel:
    """The model that counts for a plane. Raises Missing."""
    for each in client.fleet.read_capacities():
        if each.plane == plane and each.current:
            times = each.base_s, each.per_rule_s, each.per_octet_s
            return CapacityModel(each.version, *times, each.error, each.most_rules)
    raise Missing(f"nobody has measured what a VNF with {plane} carries: give --capacity FILE")


def ramp(text: str) -> F64:
    """A load of one value a second from ``0:0,1000:60``. Raises BadInput."""
    rates, seconds = [], []
    for word in text.split(","):
        rate, colon, lasts = word.partition(":")
        try:
            rates.append(float(rate))
            seconds.append(float(lasts) if colon else 0.0)
        except ValueError:
            raise BadInput(f"'{word}' is not PPS:SECONDS", place="--ramp") from None
    if min(rates) < 0 or min(seconds) < 0 or not 1 <= sum(seconds) <= 86_400 * 7:
        raise BadInput("rates and times are not below zero, and it lasts a second to a week", place="--ramp")
    ends = np.cumsum(seconds)
    return np.interp(np.arange(0.0, ends[-1] + 1.0), ends, rates)


def drawn(outcome: Outcome, scenario: Scenario, folder: Path) -> list[Path]:
    """Plots of size, load and loss over time. Raises Missing without matplotlib."""
    from orchestrator.bench.plots import draw_plots  # noqa: PLC0415  (only a plot needs it)
    from orchestrator.bench.results import Series  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    at_s = tuple(step * scenario.step_s for step in range(len(scenario.pps)))
    lines: list[tuple[str, npt.NDArray[Any], str]] = [
        ("offered", scenario.pps, "packets a second"),
        ("carried", outcome.carried_pps, "packets a second"),
        ("capacity", outcome.capacity_pps, "packets a second"),
        ("lost", outcome.lost_pps, "packets lost a second"),
        ("serving", outcome.serving, "firewall VNFs"),
        ("asked for", outcome.size, "firewall VNFs"),
    ]
    series = [Series(name, at_s, tuple(map(float, values)), "seconds", y_label) for name, values, y_label in lines]
    return draw_plots(series, (), folder)


def _write_outcome(outcome: Outcome, model: CapacityModel) -> dict[str, object]:
    return {
        "serving": outcome.serving.tolist(),
        "size": outcome.size.tolist(),
        "carried_pps": outcome.carried_pps.tolist(),
        "lost_pps": outcome.lost_pps.tolist(),
        "lost_share": outcome.lost_share,
        "decisions": [{"at_s": at_s, "size": each.size, "because": each.because} for at_s, each in outcome.decisions],
        "model": asdict(model),
    }
