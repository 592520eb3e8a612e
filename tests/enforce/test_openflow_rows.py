"""Row by row is what it is by column: the same bytes go to a switch, and the same rows come back."""

from __future__ import annotations

import struct

import pytest
from enforce.contract_samples import SAMPLES, SYMBOLS
from enforce.programs import program, rule
from flow_tables import flows
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from patience import PATIENCE_S

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions, output
from orchestrator.compile.openflow.oxm import Term
from orchestrator.enforce.changing import Changed
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import flowdesc, flowmods
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.flowmods import Command
from orchestrator.enforce.drivers.openflow.messages import Multipart, Type, message, multipart_replies
from orchestrator.enforce.drivers.openflow.resolve import PortNumbers, resolve, resolve_row
from orchestrator.enforce.gap import changed_otherwise
from orchestrator.errors import Drifted
from orchestrator.program.flows import SYMBOL_BASE, FewFlows, Flow, FlowTable

ROWS = [flow for sample in SAMPLES for flow in sample.flows]
SYMBOLIC = [
    Flow(0, 1, oxm.pack([Term(oxm.IN_PORT, SYMBOL_BASE + index)]), instructions([output(SYMBOL_BASE + other)]), 7, 3)
    for index in range(len(SYMBOLS) + 1)
    for other in range(len(SYMBOLS) + 1)
]


@settings(max_examples=examples(150), deadline=None)
@given(flows() | st.sampled_from(ROWS), st.sampled_from([Command.ADD, Command.DELETE_STRICT]), st.integers(1, 2**31))
def test_a_row_goes_out_as_it_does_by_column(flow: Flow, command: Command, xid: int) -> None:
    encoded = flowmods.bundle_flows(command, FlowTable.of([flow]), bundle=9, first_xid=xid)
    assert flowmods.bundled_row(command, flow, bundle=9, xid=xid) == encoded.data


@pytest.mark.parametrize("ports", [{"vm1": 1, "vm2": 2, "wan0": 4}, {"vm2": 9, "wan0": 1}, {}])
def test_symbols_mean_the_same_row_by_row(ports: dict[str, int]) -> None:
    rows = [*ROWS, *SYMBOLIC]
    numbers = PortNumbers(ports, SYMBOLS, "wan0")
    one_by_one = [row for flow in rows if (row := resolve_row(flow, numbers)) is not None]
    assert one_by_one == resolve(FlowTable.of(rows), SYMBOLS, ports, "wan0").rows()
    assert len(one_by_one) < len(rows), "some need a port that is not there"


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(ROWS), unique_by=lambda row: row.key, max_size=20))
def test_entries_come_back_as_they_do_by_column(rows: list[Flow]) -> None:
    replies = described(rows)
    assert flowdesc.entries(replies) == flowdesc.decode(replies).flows.rows()


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_garbled_entries_are_drift_and_nothing_else(data: st.DataObject) -> None:
    (reply,) = described(ROWS[:2])
    at = data.draw(st.integers(16, len(reply) - 1))
    garbled = reply[:at] + bytes([data.draw(st.integers(0, 255))]) + reply[at + 1 :]
    for octets in (garbled, garbled[:at]):
        try:
            found = flowdesc.entries([octets])
        except Drifted:
            continue
        assert all(isinstance(row, Flow) for row in found)


def described(rows: list[Flow]) -> list[bytes]:
    """What a switch answers that holds some rows."""
    switch = FakeSwitch({"vm1": 1, "vm2": 2, "vm3": 3, "wan0": 4})
    channel = channel_to(switch)
    placed = resolve(FlowTable.of(rows), SYMBOLS, switch.ports, "wan0")
    xids = channel.reserve(len(placed) + 3)
    adds = flowmods.bundle_flows(Command.ADD, placed, bundle=1, first_xid=xids[0]).data
    commit = message(Type.BUNDLE_CONTROL, xids[-3], struct.pack("!IHH", 1, 4, 3)) if len(placed) else b""
    asked = flowdesc.request(xids[-2]) + message(Type.BARRIER_REQUEST, xids[-1])
    answers = channel.exchange(adds + commit + asked, xids, timeout_s=PATIENCE_S)
    replies = multipart_replies(answers, xids)
    assert all(struct.unpack_from("!H", reply, 8)[0] == Multipart.FLOW_DESC for reply in replies)
    return replies


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(flows(), unique_by=lambda row: row.key, max_size=8))
def test_few_rows_are_a_table_like_any_other(rows: list[Flow]) -> None:
    few, table = FewFlows.of(rows), FlowTable.of(rows)
    assert (len(few), few.rows()) == (len(table), table.rows())
    assert few.compact_sets().rows() == few.part(0, len(few)).rows() == FlowTable.join_tables([few]).rows() == rows
    assert few.keys() == table.keys()
    assert not hasattr(few, "nothing of the kind")


def test_a_small_change_is_as_it_should_be_only_with_the_right_rows_and_stamp() -> None:
    stamp, rows = Stamp(3, bytes(16)), tuple(program([rule(1), rule(2)]).flows.rows())
    assert changed_otherwise(Changed(rows, rows[::-1], stamp), stamp) is None
    for found, seen in ((rows[1:], stamp), ((*rows, rule(3)), stamp), (rows, None), (rows, Stamp(4, bytes(16)))):
        assert changed_otherwise(Changed(rows, found, seen), stamp) is not None
