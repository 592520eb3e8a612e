"""ClassBench sets in real switches: every header of a trace, sent as a packet, gets the oracle's verdict and counter.

One tenant owns everything and one endpoint receives everything; the packets come from outside, so its ingress list
decides. The sets have no actions: rules permit and deny in turn, which makes every wrong order visible.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from system.direct import Direct

from orchestrator.lab import pop, spec
from orchestrator.lab.aims import OUTSIDE, TENANT, aims
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask

DATA = Path(os.environ.get("ACLFLOW_DATA", Path(__file__).parents[3] / "shared" / "data")) / "classbench"
SAMPLE = 500
INGRESS = Direction.INGRESS
POP = spec.parse(
    f"""
    hosts: [{{name: host1}}]
    clients: [{{name: {OUTSIDE}, addresses: [192.0.2.1, "2001:db8:ffff::1"], silent: true}}]
    tenants: [{{id: {TENANT}, prefixes: [0.0.0.0/0, "::/0"]}}]
    endpoints: [{{name: sink, tenant: {TENANT}, host: host1, addresses: [0.0.0.0/0, "::/0"], silent: true}}]
    """
)


@pytest.fixture(scope="module")
def direct(layout: Layout) -> Iterator[tuple[Lab, Direct]]:
    lab = pop.up(layout, POP)
    with Direct(lab) as running:
        yield lab, running


@pytest.mark.parametrize("name", ["acl1_1k", "fw1_1k", "ipc1_1k"])
def test_trace_headers_get_the_oracles_verdict(direct: tuple[Lab, Direct], name: str) -> None:
    acl, packets = load(name)
    lab, running = direct
    policy = policy_of(POP, {TENANT: acl})
    running.enforce(policy)
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, OUTSIDE, packet) for packet in packets])
    steps = [ask(acl, packet, INGRESS, ReturnTraffic.ESTABLISHED) for packet in packets]
    expected = [("sink",) if step.action is Action.PERMIT else () for step in steps]
    wrong = [index for index, (seen, want) in enumerate(zip(landed, expected, strict=True)) if seen.nodes != want]
    assert wrong == []
    assert 0.1 < sum(map(bool, expected)) / len(packets) < 0.9
    numbers = policy.tenants[0].rule_numbers
    decided = Counter(numbers[step.rule] for step in steps if step.rule in numbers)
    assert running.packets_by_rule("host1") == decided


def load(name: str) -> tuple[Acl, list[Packet]]:
    """A filter set with actions in turn, and an even sample of its trace; without a trace, packets for its rules."""
    rules, trace = DATA / f"{name}.rules", DATA / f"{name}.trace"
    if not rules.exists():
        pytest.skip(f"{rules} is not there: set ACLFLOW_DATA to the folder that holds classbench/")
    acl = read(rules.read_bytes(), "classbench", name=rules.name, options=Options(classbench_action=None)).acl
    if not trace.exists():
        return acl, [aim.packet for aim in aims(acl, ReturnTraffic.ESTABLISHED, SAMPLE) if aim.direction is INGRESS]
    headers = read_trace(trace.read_text())
    return acl, [headers[index * len(headers) // SAMPLE].packet for index in range(SAMPLE)]
