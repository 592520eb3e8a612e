"""The cost of counting: polls of two switches with 20,000 rules each.

From the request for counters to the sums.

Both switches are real and hold the whole list; their counters are read over the controller's own connections, added up
as a controller does, and sent to a service in a process of its own, which keeps them. Because no generator here meets
20,000 rules within a second, growth is added to what was read. The clock is processor time of both processes, without
making up the growth and without the switches' daemon; a round lasts a second, so whatever else the processes do
meanwhile is part of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from orchestrator.bench.benchlab import channels, ground, processor_s
from orchestrator.bench.control_plane.sizes import TENANT
from orchestrator.bench.control_plane.suite import description
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.client import Client, Host
from orchestrator.enforce import gap
from orchestrator.enforce.countreport import CountReporter
from orchestrator.enforce.driver import Hits
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.errors import Unreachable
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, ControlPlane
from orchestrator.program.program import Program

_RULES = 20_000
_TARGET = Target(60.0)
_ROUND_S = 1.0
_SHARES: Mapping[str, float] = {"poll_20k_ms": 1.0, "poll_20k_busy_ms": 0.05, "poll_20k_quiet_ms": 0.0}
"""Figures, and which part of all counters moved since the poll before."""


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer rounds of the same sizes."""
    rounds = 10 if quick else 40
    steps = Steps(progress, 2 + rounds * len(_SHARES))
    results = Results("monitoring", {"rounds": rounds, "rules": _RULES, "switches": 2})
    with ground(description()) as lab:
        steps.next("service and access list")
        plane = ControlPlane(lab)
        plane.start_service()
        with (
            plane.client() as admin,
            Client(plane.url, _enrol(lab, admin), plain_http=True) as enforcer,
            channels(lab) as connected,
        ):
            steps.next("switches")
            (number,) = (each.id for each in admin.points.read_all(lab.spec.domain))
            epoch = enforcer.points.begin_epoch(lab.spec.domain, number)
            program = _program(lab, admin, enforcer)
            devices = {name: _load_switch(connected, lab, name, epoch, program) for name in connected}
            bench = _Polls(lab, enforcer, number, devices)
            for turn in range(rounds):  # interleaved, so that all meet the same machine
                for figure, share in _SHARES.items():
                    steps.next(f"{figure}, round {turn + 1} of {rounds}")
                    bench.round(figure, share)
            bench.stop()
    _record_polls(results, bench)
    return results


class _Polls:
    """Polls both switches, and reads what it cost."""

    def __init__(self, lab: Lab, enforcer: Client, number: int, devices: Mapping[str, Switch]) -> None:
        self._service = lab.state.process(SERVICE).pid
        self._devices = devices
        self._counts = CountReporter(enforcer.points, lab.spec.domain, number, lambda: None)
        self._counts.start()
        self._grown: dict[str, np.ndarray[tuple[int], np.dtype[np.uint64]]] = {}
        self._dice = np.random.default_rng(1)
        self.entries = 0
        self.own_ms: dict[str, list[float]] = {figure: [] for figure in _SHARES}
        self.service_ms: dict[str, list[float]] = {figure: [] for figure in _SHARES}
        for _ in range(2):  # the first poll has the hosts claimed, the second is where counting begins
            self._poll(0.0)
            time.sleep(_ROUND_S)

    def round(self, figure: str, share: float) -> None:
        """One poll of each switch and what follows from it."""
        own, service = time.process_time(), processor_s(self._service)
        made_up_s = self._poll(share)
        time.sleep(_ROUND_S)
        self.own_ms[figure].append((time.process_time() - own - made_up_s) * 1000)
        self.service_ms[figure].append((processor_s(self._service) - service) * 1000)

    def stop(self) -> None:
        """End the reporting thread."""
        self._counts.stop()

    def _poll(self, share: float) -> float:
        """Read both switches; seconds of this thread that making up the growth took."""
        made_up_s = 0.0
        for host, device in self._devices.items():
            began = time.monotonic()
            hits = device.hits()
            took_s = time.monotonic() - began
            made_up = time.thread_time()
            hits = self._grow_counters(host, hits, share)
            made_up_s += time.thread_time() - made_up
            self._counts.note_poll(host, hits, took_s)
        return made_up_s

    def _grow_counters(self, host: str, hits: Hits, share: float) -> Hits:
        """Return the counters with a share of them grown."""
        self.entries = len(hits)
        more = (self._dice.random(len(hits)) < share).astype(np.uint64)
        grown = self._grown[host] = self._grown.get(host, np.zeros(len(hits), np.uint64)) + more
        order = np.argsort(np.argsort(hits.key))  # the same entry grows, wherever the switch lists it
        return replace(hits, packets=hits.packets + grown[order], bytes=hits.bytes + grown[order] * np.uint64(100))


def _enrol(lab: Lab, admin: Client) -> str:
    """Make the domain, its hosts and the tenant; an enforcement point's token."""
    spec = lab.spec
    admin.domains.create(spec.domain)
    for host in spec.hosts:
        admin.domains.add_host(spec.domain, Host(host.name, int(host.datapath_id, 16), host.uplink))
    for tenant in spec.tenants:
        admin.tenants.create(tenant.id, domain=spec.domain, prefixes=tenant.prefixes)
    enrolment = admin.enrolment.enrol(admin.enrolment.invite(spec.domain), name="bench", kind="openflow")
    return enrolment.token


def _program(lab: Lab, admin: Client, enforcer: Client) -> Program:
    """The program of the whole list."""
    admin.acls.put(TENANT, synthetic(_RULES))
    program = enforcer.points.watch_program(lab.spec.domain)
    if not isinstance(program, Program):
        raise Unreachable("the service gives no program")
    return program


def _load_switch(connected: Mapping[str, Channel], lab: Lab, name: str, epoch: int, program: Program) -> Switch:
    """A host's switch, holding a program."""
    host = next(each for each in lab.spec.hosts if each.name == name)
    device = Switch(connected[name], uplink=host.uplink)
    device.claim(epoch)
    device.apply(gap.correction(device.observe(), program, device.resolve), gap.stamp_of(program))
    return device


def _record_polls(results: Results, bench: _Polls) -> None:
    for figure, share in _SHARES.items():
        own, service = bench.own_ms[figure], bench.service_ms[figure]
        both = [one + other for one, other in zip(own, service, strict=True)]
        results.figures[figure] = Figure.of(both, "ms", _TARGET)
        stem = figure.removesuffix("_ms")
        results.figures[f"{stem}_enforcer_ms"] = Figure.of(own, "ms")
        results.figures[f"{stem}_service_ms"] = Figure.of(service, "ms")
        rounds = tuple(float(turn) for turn in range(1, len(both) + 1))
        results.series.append(Series(f"{share:.0%} moved", rounds, tuple(both), "round", "processor time a poll (ms)"))
    results.notes.append(f"{bench.entries} flow entries on each of two switches; a poll reads every one of both")
    results.notes.append("growth is added to the counters as read: poll_20k_ms has every one move between two polls")
