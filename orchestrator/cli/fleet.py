"""`aclflow fleet`: as many firewall VNFs as the traffic needs, made and removed automatically."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import complete
from orchestrator.cli.connection import service
from orchestrator.cli.options import AsJson, DomainName, Url, taking
from orchestrator.cli.tables import Line, Report, Shown, Table
from orchestrator.cli.terminal import at_work, say, say_json
from orchestrator.client import Client
from orchestrator.errors import BadInput, Missing
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.lifecycle import Patience
from orchestrator.wire.firewalls import CapacityVersion, Fleet, FleetMember, Plane

VnfName = Annotated[
    str,
    typer.Argument(metavar="VNF", help="Its name, as `aclflow fleet show` tells it.", autocompletion=complete.vnfs),
]
Count = Annotated[int, typer.Argument(metavar="COUNT", min=1, help="How many.")]
_AUTO, _ALARMS = "auto", "alarms"
_LOOK_S = 0.5
_AT_THE_CLOUD = ("requested", "building", "leaving", "failed")
_WAITED_FOR = {"requested": "order_s", "building": "build_s"}
"""The states that last minutes in some clouds, and the settings with how long they may."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a fleet is to be, as far as it is said."""

    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="N|auto|alarms",
            help="So many VNFs; auto: as many as the load needs; alarms: as many as the cloud's alarms make.",
        ),
    ] = None
    plane: Annotated[
        Plane | None, typer.Option("--plane", help="The packet filter of VNFs that are made from now on.")
    ] = None
    spread: Annotated[
        bool | None, typer.Option("--spread/--no-spread", help="Wait for an aclflow switch that gives each its share.")
    ] = None
    stateful: Annotated[
        bool | None, typer.Option("--stateful/--stateless", help="Both directions of a connection meet the same VNF.")
    ] = None
    decide_every: Annotated[float | None, typer.Option("--decide-every", help="Decide so often, in seconds.")] = None
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME=VALUE", help=f"One of {', '.join(each.name for each in fields(Limits))}."
        ),
    ] = None
    patience: Annotated[
        list[str] | None,
        typer.Option(
            "--patience", metavar="NAME=VALUE", help=f"One of {', '.join(each.name for each in fields(Patience))}."
        ),
    ] = None

    def changes(self) -> Mapping[str, Any]:
        """The options that were given. Raises BadInput."""
        said: dict[str, Any] = {
            "plane": self.plane and self.plane.value,
            "spread": self.spread,
            "stateful": self.stateful,
            "decide_every_s": self.decide_every,
            "limits": _parse_named(self.limit, Limits, "--limit"),
            "patience": _parse_named(self.patience, Patience, "--patience"),
        }
        found = {name: value for name, value in said.items() if value is not None}
        if self.size is not None:
            found["alarms"] = self.size == _ALARMS
            found["size"] = None if self.size in (_AUTO, _ALARMS) else _read_number(self.size, "--size")
        return found


def _parse_named(words: list[str] | None, of: type[Limits | Patience], option: str) -> dict[str, float] | None:
    if not words:
        return None
    known = {each.name: each.type for each in fields(of)}
    found: dict[str, float] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            raise BadInput(f"'{word}' is none of them: NAME=VALUE with one of {', '.join(known)}", place=option)
        found[name] = _read_number(value, option) if known[name] == "int" else _read_rate(value, option)
    return found


def _read_number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"'{text}' is not a whole number", place=option) from None


def _read_rate(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"'{text}' is not a number", place=option) from None


# ------------------------------------------------------------------------------------------------------------- a fleet


@taking
def show(domain: DomainName, report: Report, url: Url = None) -> None:
    """Show a domain's VNFs, and why the fleet has its size.

    Of each VNF: where it is in its life, and what it carries.
    """
    with service(url) as client:
        found = client.fleet.read(domain)
    _say_fleet(found, report)


@taking
def set_up(domain: DomainName, wishes: Wishes, url: Url = None, as_json: AsJson = False) -> None:
    """Configure a domain's fleet; the first time makes it.

    Settings that are not named stay as they are.
    """
    with service(url) as client:
        found = client.fleet.configure(domain, wishes.changes())
    _say_fleet(found, Report(Shown(as_json=as_json)))


@taking
def grow(domain: DomainName, count: Count = 1, url: Url = None, as_json: AsJson = False) -> None:
    """Add VNFs to the fleet, whatever the load is.

    `set --size auto` leaves its size to the load again.
    """
    _resize_fleet(domain, count, url, as_json=as_json)


@taking
def shrink(domain: DomainName, count: Count = 1, url: Url = None, as_json: AsJson = False) -> None:
    """Remove VNFs from the fleet, whatever the load is.

    Those that hold least leave, drained first.
    """
    _resize_fleet(domain, -count, url, as_json=as_json)


def _resize_fleet(domain: str, more: int, url: str | None, *, as_json: bool) -> None:
    with service(url) as client:
        known = client.fleet.read(domain)
        now = known.wanted if known.wanted is not None else len(known.members)
        found = client.fleet.configure(domain, {"size": max(now + more, 0)})
    _say_fleet(found, Report(Shown(as_json=as_json)))


@taking
def drain(
    domain: DomainName,
    vnf: VnfName,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Wait until it is gone, for so many seconds.")] = 0.0,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Take one VNF's traffic away and remove it.

    Another comes in its place where the fleet's size asks for it.
    """
    with service(url) as client:
        found = client.fleet.drain_member(domain, vnf)
        if wait:
            with at_work(f"until {vnf} is gone"):
                _wait_until_gone(client, domain, vnf, wait)
    if as_json:
        say_json(found)
    else:
        say(f"{vnf} is {'gone' if wait else found.state}")


def _wait_until_gone(client: Client, domain: str, vnf: str, most_s: float) -> None:
    until = time.monotonic() + most_s
    while any(each.name == vnf for each in client.fleet.read(domain).members):
        if time.monotonic() > until:
            raise Missing(f"{vnf} is not gone after {most_s:g} s: `aclflow fleet show {domain}` says how far it is")
        time.sleep(_LOOK_S)


@taking
def history(
    domain: DomainName,
    shown: Shown,
    last: Annotated[int, typer.Option("--last", min=1, help="How many.")] = 20,
    url: Url = None,
) -> None:
    """Show when the fleet grew and shrank, and why; the newest first."""
    with service(url) as client:
        found = [each for each, _ in zip(client.fleet.read_decisions(domain), range(last), strict=False)]
    rows = ((each.at.isoformat(timespec="seconds"), each.before, each.size, each.by, each.because) for each in found)
    shown.say(found, ("at", "from", "to", "by", "because"), rows)


@taking
def remove(domain: DomainName, url: Url = None) -> None:
    """Forget a domain's fleet, once its last VNF is gone."""
    with service(url) as client:
        client.fleet.remove(domain)
    say(f"{domain} has no fleet any more")


# ------------------------------------------------------------------------------------------------------------ capacity


@taking
def capacity(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Measurements, as `aclflow bench fw-vnf` writes results.json.")
    ] = None,
    plane: Annotated[
        Plane | None, typer.Option("--plane", help="The packet filter that was measured, where the file does not say.")
    ] = None,
    *,
    shown: Shown,
    url: Url = None,
) -> None:
    """Show by version what one VNF carries, or add measurements from a file.

    It also says how far to trust the versions.
    """
    found_there = {} if file is None else measurements_in(file, plane or Plane.NFTABLES)
    with service(url) as client:
        for of, measured in found_there.items():
            client.fleet.add_capacity(of, measured, "" if file is None else file.name)
        found = client.fleet.read_capacities()
    columns = ("version", "plane", "counts", "measured", "from", "us a packet", "ns a rule", "ns a byte", "error")
    shown.say(found, columns, map(_make_capacity_row, found))


def measurements_in(file: Path, unsaid: Plane) -> dict[str, list[Measured]]:
    """Return the measurements of a file, by plane.

    `unsaid` is the plane where the file does not say. The file has results of `aclflow bench fw-vnf`, or a plain list
    of {rules, octets, pps}. Raises Missing, BadInput.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(file)) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise BadInput("is not JSON", place=str(file)) from None
    if not isinstance(document, dict):
        return {unsaid.value: _read_measurements(document, file)}
    found = document.get("settings", {}).get("capacity", {})
    if not isinstance(found, dict) or not found:
        raise BadInput(f"holds no measurements: {_SHAPE}, or results of `aclflow bench fw-vnf`", place=str(file))
    return {plane: _read_measurements(rows, file) for plane, rows in found.items()}


_SHAPE = "a list of {rules, octets, pps}"


def _read_measurements(rows: object, file: Path) -> list[Measured]:
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"holds no measurements: {_SHAPE}", place=str(file))
    try:
        return [Measured(int(row["rules"]), int(row["octets"]), float(row["pps"])) for row in rows]
    except (KeyError, TypeError, ValueError):
        raise BadInput("a measurement is {rules, octets, pps}", place=str(file)) from None


def _make_capacity_row(one: CapacityVersion) -> tuple[object, ...]:
    error = "too few to tell" if one.error is None else f"{one.error:.0%}"
    times = f"{one.base_s * 1e6:.2f}", f"{one.per_rule_s * 1e9:.2f}", f"{one.per_octet_s * 1e9:.2f}"
    return (one.version, one.plane, "yes" if one.current else "", one.measurements, one.source, *times, error)


# ------------------------------------------------------------------------------------------------------------- saying


def _say_fleet(fleet: Fleet, report: Report) -> None:
    report.say(fleet, _make_parts(fleet))


def _make_parts(fleet: Fleet) -> Iterator[Line | Table]:
    wanted = "" if fleet.wanted is None else f"{fleet.wanted} wanted, "
    yield Line(f"{fleet.domain}: {wanted}{fleet.because}", bold=True)
    if fleet.cloud is None:
        yield Line("this service has no cloud to make VNFs in: set ACLFLOW_CLOUD", colour="yellow")
    columns = ("VNF", "state", "well", "since", "packets/s", "CPU", "connections", "because")
    yield Table("members", columns, [_make_row(each, fleet.settings["patience"]) for each in fleet.members])
    if fleet.prediction is not None:
        yield Line(fleet.prediction.in_words())
    for capped in sorted({each.capped for each in fleet.members if each.capped}):
        yield Line(f"capacity is capped: {capped}")


def _make_row(one: FleetMember, patience: Mapping[str, float]) -> tuple[object, ...]:
    numbers = ["" if each is None else f"{each:,}" for each in (one.packets_pps, one.connections)]
    cpu = "" if one.cpu_permille is None else f"{one.cpu_permille / 10:.1f} %"
    how_far = one.progress if one.state in _AT_THE_CLOUD else ""
    why = one.trouble or ": ".join(filter(None, (one.because, how_far)))
    if one.state in _WAITED_FOR:
        key = _WAITED_FOR[one.state]
        given_up = one.since + dt.timedelta(seconds=patience[key])
        why += f"; given up at {given_up.isoformat(timespec='seconds')} (--patience {key}={patience[key]:g})"
    since = one.since.isoformat(timespec="seconds")
    return (one.name, one.state, "yes" if one.well else "no", since, numbers[0], cpu, numbers[1], why)
