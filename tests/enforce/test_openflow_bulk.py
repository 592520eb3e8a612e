"""Bulk work: 20,000 flows go through encoder, switch and decoder unchanged (`aclflow bench` says how fast)."""

from __future__ import annotations

import numpy as np

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions
from orchestrator.compile.openflow.oxm import Term
from orchestrator.enforce.drivers.openflow import flowdesc, flowmods, messages
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.flowmods import Command
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.program.flows import SYMBOL_BASE, Flow, FlowTable

ROWS = 20_000

GO_ON, DROP = instructions(goto=60), b""


def row(number: int) -> Flow:
    """Rules of a few shapes, as a long list has them."""
    bits, ports = 16 + number % 4 * 4, (0xFFFF, 0xFFF0, 0xFF00)[number % 3]
    mask = (1 << 32) - (1 << 32 - bits)
    terms = [
        Term(oxm.REGISTERS[1], 7),
        Term(oxm.ETH_TYPE, oxm.IPV4),
        Term(oxm.IPV4_SRC, number << 8 & mask, mask),
        Term(oxm.IPV4_DST, 0x0A000000 | number),
        Term(oxm.IP_FRAG, 0, oxm.NOT_LATER_MASK),
        Term(oxm.IP_PROTO, 6),
        Term(oxm.TCP_DST, number & ports, ports),
    ]
    return Flow(50, 301 + number % 29_000, oxm.pack(terms), GO_ON if number % 3 else DROP, 0xAC11 << 48 | number, 7)


FLOWS = FlowTable.of([row(number) for number in range(ROWS)])


def test_what_is_written_is_read() -> None:
    channel = channel_to(FakeSwitch({}))
    adds = flowmods.bundle_flows(Command.ADD, FLOWS, bundle=1, first_xid=1)
    xids = channel.reserve(3)
    channel.exchange(
        messages.bundle_control(xids[0], 1, messages.BundleControl.OPEN)
        + adds.data
        + messages.bundle_control(xids[1], 1, messages.BundleControl.COMMIT)
        + messages.barrier_request(xids[2]),
        xids,
        timeout_s=60,
    )
    xids = channel.reserve(2)
    asked = flowdesc.request(xids[0]) + messages.barrier_request(xids[1])
    replies = messages.multipart_replies(channel.exchange(asked, xids, timeout_s=60), xids)
    held = flowdesc.decode(replies).flows
    assert {flow.key for flow in held.rows()} == {flow.key for flow in FLOWS.rows()}


def test_resolving_touches_only_the_rows_with_symbols() -> None:
    symbols = tuple(f"vm{number}" for number in range(100))
    ports = {name: number for number, name in enumerate(symbols, 1)}
    ends = FlowTable.of(
        [Flow(0, 1, oxm.pack([Term(oxm.IN_PORT, SYMBOL_BASE + number)]), GO_ON, 1) for number in range(100)]
    )
    program = FlowTable.join_tables((FLOWS, ends))
    resolved = resolve(program, symbols, ports, "wan0")
    assert np.array_equal(resolved.match[:ROWS], program.match[:ROWS])
