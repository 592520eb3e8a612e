"""ClassBench sets in the fake switch: headers of every trace get the oracle's verdict, by the rule it names.

The sets have no actions; rules permit and deny in turn, so that every wrong order shows. A set without a trace is tried
with the headers of the others: most meet its wide rules, and `aims` adds packets made for the narrow ones.
"""

from __future__ import annotations

from collections import Counter

import pytest
from public_data import DATA

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.frames import frame
from orchestrator.lab.aims import aims
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Endpoint,
    Packet,
    Policy,
    ReturnTraffic,
    Tenant,
    TenantId,
)
from orchestrator.policy.oracle import ask
from orchestrator.program.delta import between
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier

CLASSBENCH = DATA / "classbench"
TENANT = TenantId("lab")
SINK_MAC, OUTSIDE_MAC = 0x020000000001, 0x020000000002


@pytest.mark.parametrize("name", ["acl1_1k", "fw1_1k", "ipc1_1k"])
def test_every_header_gets_the_oracles_verdict_by_the_rule_it_names(name: str) -> None:
    acl = load(name)
    packets = headers(name) + [
        aim.packet for aim in aims(acl, ReturnTraffic.ESTABLISHED, 400) if is_ingress(aim.direction)
    ]
    policy = policy_of(acl)
    switch, driver = loaded(policy)
    decided: Counter[int] = Counter()
    steps = {packet: ask(acl, packet, Direction.INGRESS, ReturnTraffic.ESTABLISHED) for packet in set(packets)}
    wrong = []
    for packet in packets:
        arrived = switch.forward(frame(packet, src_mac=OUTSIDE_MAC, dst_mac=GATEWAY_MAC), "wan0")
        step = steps[packet]
        if [port for port, _ in arrived] != (["sink"] if step.action is Action.PERMIT else []):
            wrong.append((packet, step))
        if step.rule in policy.tenants[0].rule_numbers:
            decided[policy.tenants[0].rule_numbers[step.rule]] += 1
    assert wrong == []
    assert len({step.rule for step in steps.values()}) > 100
    assert counted(driver) == decided


def is_ingress(direction: Direction) -> bool:
    return direction is Direction.INGRESS


def load(name: str) -> Acl:
    rules = CLASSBENCH / f"{name}.rules"
    if not rules.exists():
        pytest.skip(f"{rules} is not there: set ACLFLOW_DATA to the folder that holds classbench/")
    return read(rules.read_bytes(), "classbench", name=rules.name, options=Options(classbench_action=None)).acl


def headers(name: str) -> list[Packet]:
    """The packets of a set's own trace, and of the others each fourth."""
    traces = {path.stem: read_trace(path.read_text()) for path in sorted(CLASSBENCH.glob("*_1k.trace"))}
    return [each.packet for of, trace in traces.items() for each in (trace if of == name else trace[::4])]


def policy_of(acl: Acl) -> Policy:
    """One tenant that owns everything, and one endpoint that receives everything."""
    everything = (EVERY_IPV4, EVERY_IPV6)
    numbers = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Policy(
        tenants=(Tenant(TENANT, 1, everything, acl, numbers),),
        endpoints=(Endpoint("sink", TENANT, "sink", SINK_MAC, everything),),
    )


def loaded(policy: Policy) -> tuple[FakeSwitch, OpenFlowDriver]:
    """A switch that holds the policy's program."""
    switch = FakeSwitch({"sink": 1, "wan0": 2})
    driver = OpenFlowDriver(channel_to(switch), uplink="wan0")
    driver.start(1)
    program = compile_host(policy, domain="pop", generation=1)
    empty = Program.of("pop", Tier.HOST, 0, FlowTable.of(()), ())
    driver.apply(between(empty, program), Stamp(1, program.digest))
    return switch, driver


def counted(driver: OpenFlowDriver) -> Counter[int]:
    """Packets by rule number, as the switch's counters say."""
    hits = driver.hits()
    found: Counter[int] = Counter()
    for raw, packets in zip(hits.cookie.tolist(), hits.packets.tolist(), strict=True):
        cookie = Cookie.unpack(raw)
        if cookie is not None and cookie.kind is Kind.RULE and packets:
            found[cookie.number] += packets
    return found
