"""Suite control-plane: how long a policy takes from columns to the switch, and from a REST call to two switches.

The baseline is `ovs-ofctl --bundle add-flows` of exactly the flows that ours makes, into a bridge of the same daemon,
whole process included, for it is what an operator would run. Runs alternate; every run starts from an empty table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from orchestrator.bench.ground import BASELINE_BRIDGES, channels, clear, flows_as_text, ground, ofctl_add
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.atoms import atoms
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.levels import levels
from orchestrator.compile.lists import INGRESS_STAGE, priorities
from orchestrator.compile.openflow import rule_flows
from orchestrator.compile.pipeline import HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.errors import Unreachable
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import SERVICE, ControlPlane
from orchestrator.lab.spec import PopSpec, parse
from orchestrator.policy.formats.native import acl_to_json
from orchestrator.policy.model import Acl, TenantId
from orchestrator.program.delta import Delta
from orchestrator.program.digest import DIGEST_BYTES
from orchestrator.program.flows import U16, U64, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import RuleTable

Progress = Callable[[str], None]

TENANT = TenantId("lab")

WIRE_TARGET = Target(0.6)
REST_TARGET = Target(2.5)
MEMORY_TARGET = Target(300)


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` takes fewer rounds of the same sizes."""
    rounds = 5 if quick else 15
    rules = 20_000
    results = Results("control-plane", {"rules": rules, "rounds": rounds})
    with ground(description()) as lab, TemporaryDirectory() as folder:
        _wire(lab, results, rules, rounds, Path(folder), progress)
        _rest(lab, results, rules, rounds, Path(folder), progress)
    return results


def description() -> PopSpec:
    """Two hosts, and a tenant that owns everything."""
    return parse("""
        domain: bench
        clients: [{name: outside, addresses: [192.0.2.1], silent: true}]
        hosts: [{name: host1}, {name: host2}]
        tenants: [{id: lab, prefixes: ["0.0.0.0/0", "::/0"]}]
        endpoints:
          - {name: inside1, tenant: lab, host: host1, addresses: [198.51.100.1], silent: true}
          - {name: inside2, tenant: lab, host: host2, addresses: [198.51.100.2], silent: true}
    """)


class _Columns:
    """A rule list in columns, with its priorities and cookies: where the wire measurement's clock starts."""

    def __init__(self, rules: int) -> None:
        acl = synthetic(rules)
        self.table: RuleTable = atoms(
            acl.rules, acl.groups, tenant=1, numbers={r.id: n for n, r in enumerate(acl.rules, 1)}
        )
        self.priority: U16 = priorities(
            levels(self.table), self.table, acl.rules, highest=HIGHEST_RULE_PRIORITY, lowest=LOWEST_RULE_PRIORITY
        )
        self.cookie: U64 = self.table.number | np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())

    def delta(self) -> Delta:
        """All of it as what is to be added to an empty switch."""
        added = rule_flows(self.table, INGRESS_STAGE, self.priority, self.cookie)
        nothing = FlowTable.of(())
        return Delta(bytes(DIGEST_BYTES), b"\1" * DIGEST_BYTES, 1, nothing, added, ())


def _wire(lab: Lab, results: Results, rules: int, rounds: int, folder: Path, progress: Progress) -> None:
    """Columns to barrier against `ovs-ofctl`, alternating."""
    columns, text = _Columns(rules), folder / "wire.flows"
    host, base = lab.spec.hosts[0], BASELINE_BRIDGES[0]
    ours, theirs = [], []
    with channels(lab) as connected:
        driver = OpenFlowDriver(connected[host.name], uplink=host.uplink)
        driver.start(1)
        for turn in range(rounds + 1):
            progress(f"wire, round {turn} of {rounds}")
            clear(lab, (host.name, base))
            started = time.perf_counter()
            delta = columns.delta()
            driver.apply(delta, Stamp(turn + 1, delta.target))
            seconds = time.perf_counter() - started
            if turn == 0:  # a first round warms both sides up, and gives the baseline its flows
                results.notes.append(
                    f"wire: {flows_as_text(lab, host.name, text)} flows of {rules} rules on either side"
                )
                ofctl_add(lab, base, text)
                continue
            ours.append(seconds)
            theirs.append(ofctl_add(lab, base, text))
    _record(results, "wire_20k", ours, theirs, WIRE_TARGET)


def _rest(lab: Lab, results: Results, rules: int, rounds: int, folder: Path, progress: Progress) -> None:
    """A whole list by REST until two switches were read back, against `ovs-ofctl` to two bridges in turn."""
    body = json.dumps(acl_to_json(synthetic(rules))).encode()
    domain, text = lab.spec.domain, folder / "rest.flows"
    ours, theirs = [], []
    plane = ControlPlane(lab)
    plane.start({TENANT: Acl()}, progress=progress)
    with plane.client() as client:
        for turn in range(rounds + 1):
            progress(f"REST, round {turn} of {rounds}")
            plane.wait_enforced(client, client.put_acl(TENANT, Acl()).generation)
            clear(lab, BASELINE_BRIDGES)
            started = time.perf_counter()
            plane.wait_enforced(client, client.put_acl(TENANT, body).generation)
            seconds = time.perf_counter() - started
            if turn == 0:
                results.notes.append(f"REST: {flows_as_text(lab, lab.spec.hosts[0].name, text)} flows on every switch")
                sum(ofctl_add(lab, bridge, text) for bridge in BASELINE_BRIDGES)
                continue
            ours.append(seconds)
            theirs.append(sum(ofctl_add(lab, bridge, text) for bridge in BASELINE_BRIDGES))
        resident = _resident_mib(lab.state.process(SERVICE).pid)
    results.figures["service_rss_mib"] = Figure.of([resident], "MiB", MEMORY_TARGET)
    results.notes.append(f"domain {domain}: the service's resident memory was read after {rounds + 1} such lists")
    _record(results, "rest_20k", ours, theirs, REST_TARGET)


def _resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise Unreachable(f"process {pid} is gone")


def _record(results: Results, name: str, ours: list[float], theirs: list[float], target: Target) -> None:
    """A ratio of paired runs, and both sides of it in seconds."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    results.figures[f"{name}_vs_ofctl"] = Figure.of(ratios, "ratio", target)
    results.figures[f"{name}_s"] = Figure.of(ours, "s")
    results.figures[f"{name}_ofctl_s"] = Figure.of(theirs, "s")
    rounds = tuple(float(turn) for turn in range(1, len(ours) + 1))
    for side, values in (("aclflow", ours), ("ovs-ofctl --bundle", theirs)):
        results.series.append(Series(side, rounds, tuple(values), "round", f"{name} seconds (s)"))
