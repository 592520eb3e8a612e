"""From columns to barrier: encode, send one atomic bundle, wait for its confirmation."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from orchestrator.bench.control_plane.library import library_add
from orchestrator.bench.control_plane.sizes import Sizes, name_of, record_ratio
from orchestrator.bench.ground import BASELINE_BRIDGES, channels, clear, flows_as_text, ofctl_add
from orchestrator.bench.results import Results, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.compile.lists.lists import INGRESS_STAGE, priorities
from orchestrator.compile.openflow.encoder import rule_flows
from orchestrator.compile.pipelines.host import HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.lab.pop import Lab
from orchestrator.program.delta import Delta
from orchestrator.program.digest import DIGEST_BYTES
from orchestrator.program.flows import U16, U64, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import RuleTable

OFCTL = ("ofctl", "ovs-ofctl --bundle")
LIBRARY = ("osken", "os-ken's objects")
_TARGET = Target(0.6)


class _Columns:
    """A rule list in columns, with its priorities and cookies: where the clock starts."""

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


def measure(lab: Lab, results: Results, sizes: Sizes, folder: Path, progress: Callable[[str], None]) -> None:
    """Against `ovs-ofctl`, alternating; and against the library's own objects, fewer times, for that takes seconds."""
    columns, text = _Columns(sizes.rules), folder / "wire.flows"
    host, base = lab.spec.hosts[0], BASELINE_BRIDGES[0]
    ours, theirs, library = [], [], []
    with channels(lab) as connected:
        driver = OpenFlowDriver(connected[host.name], uplink=host.uplink)
        driver.start(1)
        for turn in range(sizes.rounds + 1):
            progress(f"wire, round {turn} of {sizes.rounds}")
            clear(lab, (host.name, base))
            started = time.perf_counter()
            delta = columns.delta()
            driver.apply(delta, Stamp(turn + 1, delta.target))
            seconds = time.perf_counter() - started
            if turn == 0:  # a first round warms both sides up, and gives the baseline its flows
                flows = flows_as_text(lab, host.name, text)
                results.notes.append(f"wire: {flows} flows of {sizes.rules} rules on either side")
                ofctl_add(lab, base, text)
                continue
            ours.append(seconds)
            theirs.append(ofctl_add(lab, base, text))
            if turn <= sizes.slow_rounds:
                clear(lab, (host.name,))
                library.append(library_add(connected[host.name], columns.delta().added))
    name = f"wire_{name_of(sizes.rules)}"
    record_ratio(results, name, ours, theirs, OFCTL, _TARGET)
    record_ratio(results, name, ours[: len(library)], library, LIBRARY)
    results.notes.append("wire: os-ken's objects carry no fragment matches, which that library does not know")
