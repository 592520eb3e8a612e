"""A switch that forwards in the kernel: it holds all of a program, and asks back where others answer solicitations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from enforce.loop_bench import SLOW, Bench, goal_after

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import SERVICES_PORT, Table
from orchestrator.enforce.changing import finish
from orchestrator.enforce.drivers.openflow import ownrows
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.gap import stamp_of
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Action, Endpoint, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.program.delta import Delta
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program
from orchestrator.wire.points import PointState

PORTS = {"p1": 1, "wan0": 2, SERVICES_PORT: 3}
SHOP = Tenant(TenantId("shop"), 7, (Prefix.parse("2001:db8::/64"), Prefix.parse("192.0.2.0/24")))
WEB = Endpoint("web", SHOP.id, "p1", 0x020000000001, (Prefix.parse("2001:db8::1/128"), Prefix.parse("192.0.2.1/32")))


def program(*rules: Rule, generation: int = 1) -> Program:
    numbers = {rule.id: number for number, rule in enumerate(rules, 1)}
    tenant = replace(SHOP, acl=Acl(rules), rule_numbers=numbers)
    return compile_host(Policy((tenant,), endpoints=(WEB,)), domain="pop1", generation=generation)


def driven(switch: FakeSwitch) -> OpenFlowDriver:
    driver = OpenFlowDriver(channel_to(switch), uplink="wan0")
    driver.start(1)
    return driver


def whole(wanted: Program) -> Delta:
    return Delta(b"", wanted.digest, wanted.generation, FlowTable.of(()), wanted.flows, wanted.ports)


def answers(flows: FlowTable) -> list[Flow]:
    return [row for row in flows.rows() if ownrows.is_answer(row)]


def askings(flows: FlowTable) -> list[Flow]:
    return [row for row in flows.rows() if row.instructions == ownrows.ASKING_BACK]


def test_a_program_has_one_row_that_the_kernel_does_not_know() -> None:
    (answer,) = answers(program().flows)
    assert ownrows.adapt_row(answer) == replace(answer, instructions=ownrows.ASKING_BACK)


def test_all_other_rows_stay_as_they_are() -> None:
    """An endpoint whose MAC address reads like the header of a field that the kernel does not know, among them."""
    wanted = compile_host(
        Policy((SHOP,), endpoints=(replace(WEB, mac=0x021000040102),)), domain="pop1", generation=1
    ).flows
    (answer,) = answers(wanted)
    adapted = ownrows.adapt_rows(wanted)
    assert adapted.rows() == [ownrows.adapt_row(row) if row == answer else row for row in wanted.rows()]
    assert ownrows.adapt_rows(adapted) is adapted


def test_it_asks_back_and_holds_all_else_as_it_is() -> None:
    driver, wanted = driven(FakeSwitch(dict(PORTS), in_kernel=True)), program()
    driver.apply(whole(wanted), stamp_of(wanted))
    seen, there = driver.observe(), driver.resolve(wanted.flows, wanted.ports)
    assert set(seen.flows.rows()) == set(there.rows())
    assert seen.stamp == stamp_of(wanted)
    assert len(there) == len(wanted.flows)
    assert len(askings(there)) == 1
    assert not answers(there)


def test_the_next_controller_sees_it_by_what_the_switch_holds() -> None:
    """Nothing needs to be refused once more, which would show the switch as wrong until then."""
    switch, wanted = FakeSwitch(dict(PORTS), in_kernel=True), program()
    driven(switch).apply(whole(wanted), stamp_of(wanted))
    following = driven(switch)
    seen = following.observe()
    assert set(seen.flows.rows()) == set(following.resolve(wanted.flows, wanted.ports).rows())


def test_few_rows_at_once_are_what_it_can_hold() -> None:
    """The row alone, as a program brings it that has it anew."""
    switch, wanted = FakeSwitch(dict(PORTS), in_kernel=True), program()
    driver = driven(switch)
    driver.apply(whole(wanted), stamp_of(wanted))
    row = FlowTable.of(answers(wanted.flows))
    anew = Delta(wanted.digest, wanted.digest, 2, row, row, wanted.ports, wanted.ports)
    changed = finish(driver.change(anew, stamp_of(wanted)))
    assert changed.found == changed.wanted == tuple(askings(driver.resolve(row, ())))


def test_where_packets_are_forwarded_in_the_daemon_it_answers() -> None:
    driver, wanted = driven(FakeSwitch(dict(PORTS))), program()
    driver.apply(whole(wanted), stamp_of(wanted))
    assert len(answers(driver.observe().flows)) == 1


def test_what_is_refused_for_another_reason_is_refused() -> None:
    switch, wanted = FakeSwitch(dict(PORTS), limits={Table.RESPONDER: 0}, in_kernel=True), program()
    with pytest.raises(Refused, match="table is full"):
        driven(switch).apply(whole(wanted), stamp_of(wanted))


def test_the_loop_brings_it_to_every_next_program() -> None:
    bench = Bench(SLOW)
    try:
        bench.switch.ports, bench.switch.in_kernel = dict(PORTS), True
        bench.device = bench.connection()
        first = program()
        second = program(Rule(RuleId("all"), Action.PERMIT), generation=2)
        bench.attach(first)
        bench.loop.aim(goal_after(first, second))
        bench.wait(PointState.ENFORCED, 2)
        assert bench.flows() == bench.wanted(second)
    finally:
        bench.close()
