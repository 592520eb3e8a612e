"""CPU time to decide on the fleets of a thousand domains, on one core.

    decide_1000_ms        from what is known of each (five minutes of load, its VNFs, what was done lately, the
                          capacity model) to a thousand decisions with their reasons, in memory
    decide_1000_read_ms   the same with what is known read from a database (SQLite) first, in one transaction

Fleets are of one to eight VNFs under loads that rise and fall, each its own, so that some grow, some shrink, most stay.
"""

from __future__ import annotations

import datetime as dt
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import create_engine, insert, update

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.control.fleet.sizing import Ground, decide_size, grounds
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store import Store, open_store
from orchestrator.store.firewalls.fleetrecords import FleetSettings
from orchestrator.store.schema.firewalls import fleet_members, fleet_samples
from orchestrator.store.sql.keys import to_micros
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane

DOMAINS = 1000
TARGET = Target(100.0)
_SAMPLES = 60
_EVERY_S = 5.0
_MEASURED = [Measured(rules, octets, 1e6 / (5 + rules / 230)) for rules in (0, 500, 2000) for octets in (64, 1024)]


def measure(results: Results, *, rounds: int, domains: int = DOMAINS) -> None:
    """Add the figures and a note with what was decided."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{Path(folder, 'fleets.db')}"
        store = open_store(database, clock=clock)
        try:
            with store.write() as unit:
                _create_domains(unit, domains)
            clock.now += dt.timedelta(days=1)  # nothing was done lately: no decision is cut short
            _fill_database(database, domains, clock.now)
            reading, deciding, known = _time_rounds(store, rounds)
        finally:
            store.close()
    results.figures[f"decide_{domains}_ms"] = Figure.of(deciding, "ms", TARGET)
    results.figures[f"decide_{domains}_read_ms"] = Figure.of(reading, "ms")
    changes = [decide_size(each).size - each.fleet.size for each in known]
    grow, shrink = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    results.notes.append(
        f"of {domains} fleets {grow} were to grow and {shrink} to shrink; CPU time of one core, reading apart"
    )


def _time_rounds(store: Store, rounds: int) -> tuple[list[float], list[float], Sequence[Ground]]:
    reading: list[float] = []
    deciding: list[float] = []
    known: Sequence[Ground] = ()
    for _ in range(rounds):
        started = time.process_time()
        with store.read() as unit:
            read = grounds(unit, unit.fleets.looks())
        read_by = time.process_time()
        known = [replace(each, samples=each.samples[:-1]) for each in read]  # nobody is there who would tell a load now
        began = time.process_time()
        for ground in known:
            decide_size(ground)
        ended = time.process_time()
        reading.append((read_by - started) * 1e3)
        deciding.append((ended - began) * 1e3)
    return reading, deciding, known


def _create_domains(unit: Unit, domains: int) -> None:
    """Domains with fleets and VNFs that are wanted."""
    unit.capacities.add(Plane.NFTABLES, _MEASURED, source="made up")
    chance = random.Random(1)  # noqa: S311 -- no secret
    for number in range(domains):
        domain = _name_domain(number)
        unit.domains.create(domain)
        unit.fleets.put(domain, FleetSettings())
        unit.fleets.ask(domain, chance.randint(1, 8), Plane.NFTABLES, "the suite")


def _fill_database(database: str, domains: int, now: dt.datetime) -> None:
    """Fill the database with serving VNFs and five minutes of samples.

    Written at once, past the repository, which would take a transaction's work for each of the samples.
    """
    chance = random.Random(2)  # noqa: S311
    samples = []
    for number in range(domains):
        rate, slope = chance.uniform(0, 5e5), chance.uniform(-1000, 1000)
        for back in range(_SAMPLES, 0, -1):
            at = to_micros(now - dt.timedelta(seconds=back * _EVERY_S))
            pps = round(max(rate - slope * back, 0.0))
            carried = {"packets_pps": pps, "bits_bps": pps * 4096, "most_pps": pps}
            samples.append(
                {"domain": _name_domain(number), "at": at, "connections": 0, "serving": 1, "rules": 2000, **carried}
            )
    engine = create_engine(database)
    try:
        with engine.begin() as connection:
            connection.execute(update(fleet_members).values(state=MemberState.SERVING.value))
            connection.execute(insert(fleet_samples), samples)
    finally:
        engine.dispose()


def _name_domain(number: int) -> str:
    return f"domain{number}"


class _Clock:
    """A wall clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now
