"""What a switch has cached ends with the program that it was cached for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from enforce.contract_driver import ByRow
from enforce.real_switch import RealSwitch

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import DROP, instructions, output
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.openflow.tracking import track
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import frames, ownrows
from orchestrator.enforce.drivers.openflow.driver import OpenFlowDriver
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.ownrows import OwnRows
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP
from orchestrator.program.delta import Delta
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier

OWN = OwnRows(Tier.HOST).cookie
RULE = Cookie(Tier.HOST, Kind.RULE, 1).pack()
SEND = instructions([output(2)])
IN = Term(oxm.IN_PORT, 1)
ASKED, OTHER = (Prefix.parse(address).network for address in ("10.0.0.2", "11.0.0.3"))
LOOK_UPS = [
    Flow(0, 5, oxm.pack([IN, Term(oxm.ETH_TYPE, version)]), instructions([track(7, Table.STATE)]), RULE)
    for version in (oxm.IPV4, oxm.IPV6)
]
ALL, NONE = (Flow(0, 5, oxm.pack([IN]), what, RULE) for what in (SEND, DROP))


def rows_of(table: int) -> tuple[Flow, Flow, Flow]:
    """All to be sent, none, and a rule about an address; each table has masks and an address of its own.

    So no packet meets what another test has left cached, nor the order of its masks.
    """
    asked = (IN, *([Term(oxm.ETH_DST, 2)] if table else ()))
    dns = (Term(oxm.ETH_TYPE, oxm.IPV4), Term(oxm.IP_PROTO, UDP), Term(oxm.IPV4_DST, ASKED + table))
    fine = oxm.pack([*asked, *dns, Term(oxm.UDP_DST, 53)])
    every, none = (Flow(table, 5, oxm.pack(asked), what, RULE) for what in (SEND, DROP))
    return every, none, Flow(table, 10, fine, SEND, RULE)


def frame(destination: int, family: Family = Family.IPV4) -> bytes:
    return frames.frame(Packet(family, 0x0A000001, destination, UDP, 1000, 99), src_mac=1, dst_mac=2)


def change(removed: list[Flow], added: list[Flow]) -> Delta:
    return Delta(b"", bytes(16), 1, FlowTable.of(removed), FlowTable.of(added), ())


@pytest.fixture
def switch(real_switch: RealSwitch) -> Iterator[RealSwitch]:
    """A switch that remembers the megaflow of every packet by its headers, not of one in a hundred."""
    real_switch.reset()
    real_switch.vsctl("set", "Open_vSwitch", ".", "other_config:emc-insert-inv-prob=1")
    yield real_switch
    real_switch.vsctl("remove", "Open_vSwitch", ".", "other_config", "emc-insert-inv-prob")


def passes_at_last(switch: RealSwitch, driver: OpenFlowDriver, table: int) -> bool:
    """A flow is cached under a fine mask, the rule for which it is so fine goes, another packet is cached under a
    coarse one, which covers the first; then all is denied. Whether the first flow goes on.

    The rules are in the first table, or in one in which packets go on when their connections were looked up.
    """
    every, none, fine = rows_of(table)
    asked = frame(ASKED + table)
    patience = (lambda: switch.control("revalidator/wait")), (lambda: time.sleep(0.1))

    def apply(removed: list[Flow], added: list[Flow]) -> None:
        driver.apply(change(removed, added), Stamp(1, bytes(16)))
        for wait in 3 * patience:
            wait()

    driver.observe()
    apply([], [every, fine, *(LOOK_UPS if table else ())])
    switch.forward(frame(OTHER, Family.IPV6), "vm1")  # the coarse mask is there before the fine one
    assert switch.forward(asked, "vm1")
    apply([fine], [])
    assert switch.forward(asked, "vm1")
    assert switch.forward(frame(OTHER), "vm1")
    apply([every], [none])
    assert not switch.forward(frame(OTHER), "vm1")
    return bool(switch.forward(asked, "vm1"))


@pytest.mark.system
@pytest.mark.parametrize("table", [0, Table.STATE])
@pytest.mark.parametrize("kind", [OpenFlowDriver, ByRow])
def test_no_cached_verdict_outlives_a_change(switch: RealSwitch, kind: type[OpenFlowDriver], table: int) -> None:
    link = switch.connect()
    driver = kind(link.channel, uplink="wan0")
    driver.start(next(switch.epochs))
    assert not passes_at_last(switch, driver, table)
    link.close()


@pytest.mark.system
@pytest.mark.parametrize("table", [0, Table.STATE])
def test_without_the_mark_one_does(switch: RealSwitch, table: int) -> None:
    """Where this fails, Open vSwitch has learnt to find megaflows by their names, and the mark may go."""
    link = switch.connect()
    driver = OpenFlowDriver(link.channel, uplink="wan0", in_kernel=True)
    driver.start(next(switch.epochs))
    assert passes_at_last(switch, driver, table)
    link.close()


def test_every_mark_looks_at_bits_that_no_other_one_looks_at() -> None:
    masks = [oxm.unpack(ownrows.mark_row(turn, OWN).match)[0].full_mask for turn in range(1 << 10)]
    assert len(set(masks)) == len(masks)
    assert {mask.bit_count() for mask in masks} == {16}, "so none contains another"


@pytest.mark.parametrize("turn", [0, 1, 0x8000, ownrows.MARK_TURNS - 1])
def test_a_mark_is_known_by_all_that_it_is(turn: int) -> None:
    mark = ownrows.mark_row(turn, OWN)
    assert ownrows.mark_turn(mark, OWN) == turn
    (term,) = oxm.unpack(mark.match)
    assert (term.field, term.value) == (oxm.PKT_MARK, term.full_mask), "a packet without a mark does not meet it"
    for other in (
        Flow(mark.table, mark.priority, mark.match, SEND, mark.cookie),
        Flow(mark.table, mark.priority, b"", mark.instructions, mark.cookie),
        Flow(mark.table, 7, mark.match, mark.instructions, mark.cookie),
        Flow(mark.table, mark.priority, mark.match, mark.instructions, mark.cookie ^ 1),
        Flow(1, mark.priority, mark.match, mark.instructions, mark.cookie),
    ):
        assert ownrows.mark_turn(other, OWN) is None


@pytest.mark.parametrize("kind", [OpenFlowDriver, ByRow])
def test_there_is_one_and_another_one_after_each_change(kind: type[OpenFlowDriver]) -> None:
    switch = FakeSwitch({"vm1": 1, "vm2": 2})
    seen = []
    for _ in range(2):  # as many controllers
        driver = kind(channel_to(switch), uplink="vm2")
        driver.start(1)
        assert len(driver.observe().flows) == (1 if seen else 0), "it is no part of a program"
        for removed, added in (([], [ALL]), ([ALL], [NONE]), ([NONE], [ALL])):
            driver.apply(change(removed, added), Stamp(1, bytes(16)))
            (mark,) = [entry for entry in switch.entries() if entry.priority == ownrows.MARK_PRIORITY]
            seen.append(mark.match_bytes)
    assert all(one != next_one for one, next_one in itertools.pairwise(seen))


@pytest.mark.parametrize("kind", [OpenFlowDriver, ByRow])
def test_where_connections_are_looked_up_there_is_one_in_each_table_in_which_packets_go_on(
    kind: type[OpenFlowDriver],
) -> None:
    switch = FakeSwitch({"vm1": 1, "vm2": 2})
    state = replace(ALL, table=Table.STATE)
    for first, steps in ((False, (([], [state]), ([], [ALL]))), (True, (([ALL], []),))):
        driver = kind(channel_to(switch), uplink="vm2")
        driver.start(1)
        driver.observe()
        for removed, added in steps:
            driver.apply(change(removed, added), Stamp(1, bytes(16)))
            marks = [entry for entry in switch.entries() if entry.priority == ownrows.MARK_PRIORITY]
            assert {entry.table for entry in marks} == {0, Table.STATE, Table.LIFTED, Table.SEND}, first
            assert len({entry.match_bytes for entry in marks}) == 1
    driver.apply(change([state], []), Stamp(1, bytes(16)))
    assert not driver.observe().flows.rows()
    driver.apply(change([], [ALL]), Stamp(1, bytes(16)))
    assert [entry.table for entry in switch.entries() if entry.priority == ownrows.MARK_PRIORITY] == [0]


def test_what_only_looks_like_one_is_foreign() -> None:
    switch = FakeSwitch({"vm1": 1, "vm2": 2})
    driver = OpenFlowDriver(channel_to(switch), uplink="vm2")
    driver.start(1)
    door = Flow(0, ownrows.MARK_PRIORITY, oxm.pack([IN]), SEND, OWN + 3)
    driver.apply(change([], [door]), Stamp(1, bytes(16)))
    assert driver.observe().flows.rows() == [door]


def test_a_switch_that_forwards_in_the_kernel_has_none() -> None:
    switch = FakeSwitch({"vm1": 1, "vm2": 2}, in_kernel=True)
    driver = OpenFlowDriver(channel_to(switch), uplink="vm2")
    driver.start(1)
    driver.apply(change([], [ALL]), Stamp(1, bytes(16)))
    assert {entry.table for entry in switch.entries() if entry.priority != ALL.priority} == {253}
