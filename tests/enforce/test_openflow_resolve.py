"""Symbols become a switch's numbers, rows without their port go, and nothing else is touched."""

from __future__ import annotations

import struct

from enforce.contract_samples import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import (
    IN_PORT,
    copy_field,
    instructions,
    output,
    output_register,
    set_field,
)
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.pipelines import host as pipeline
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.program.flows import SYMBOL_BASE, Flow, FlowTable

SYMBOLS = ("vm1", "vm2", "uplink", "vm3")
NAMES = ("vm1", "vm2", "eth7", "vm3")
"""The interfaces that the symbols mean."""

PLACES = st.sampled_from([SYMBOL_BASE + index for index in range(4)] + [1, 7, IN_PORT])


@st.composite
def flows(draw: st.DrawFn) -> Flow:
    """A flow with symbols, or numbers, in any of their places; and with what looks like one elsewhere."""
    port = draw(st.one_of(st.none(), PLACES))
    terms = [Term(oxm.IN_PORT, port)] if port is not None else []
    terms += [Term(oxm.ETH_TYPE, oxm.IPV4), Term(oxm.IPV4_DST, draw(PLACES))] if draw(st.booleans()) else []
    actions = [draw(actions_with_ports()) for _ in range(draw(st.integers(0, 4)))]
    what = instructions(actions, goto=draw(st.sampled_from((None, 60))))
    return Flow(draw(st.integers(0, 50)), draw(st.integers(0, 9)), oxm.pack(terms), what, draw(st.integers(0, 99)), 7)


@st.composite
def actions_with_ports(draw: st.DrawFn) -> bytes:
    return draw(
        st.sampled_from(
            (
                output(draw(PLACES)),
                set_field(pipeline.OUTPUT_PORT.field, draw(PLACES)),
                set_field(oxm.REGISTERS[0], draw(PLACES)),
                set_field(oxm.ETH_DST, draw(PLACES) << 16 | 0xFE00),
                output_register(oxm.REGISTERS[4]),
                copy_field(oxm.REGISTERS[5], oxm.REGISTERS[4]),
            )
        )
    )


def by_hand(flow: Flow, ports: dict[str, int]) -> Flow | None:
    """One row, resolved by replacing every symbolic number in its known places, one place at a time."""
    match, what = flow.match, flow.instructions
    for index, name in enumerate(NAMES):
        symbol, number = SYMBOL_BASE + index, ports.get(name)
        for form in (
            struct.pack("!HHI", 0, 16, symbol),
            struct.pack("!HHI", 25, 16, pipeline.OUTPUT_PORT.field.header) + struct.pack("!I", symbol),
        ):
            if form in what and number is None:
                return None
            if number is not None:
                what = what.replace(form, form[:-4] + number.to_bytes(4, "big"))
        start = bytes.fromhex("80000004") + symbol.to_bytes(4, "big")
        if match.startswith(start):
            if number is None:
                return None
            match = start[:4] + number.to_bytes(4, "big") + match[8:]
    return Flow(flow.table, flow.priority, match, what, flow.cookie, 0)


@given(
    st.lists(flows(), max_size=8),
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 0xFEFF), max_size=4),
)
@settings(max_examples=examples(150), deadline=None)
def test_rows_are_resolved_as_by_hand(rows: list[Flow], ports: dict[str, int]) -> None:
    expected = [resolved for flow in rows if (resolved := by_hand(flow, ports)) is not None]
    assert resolve(FlowTable.of(rows), SYMBOLS, ports, "eth7").rows() == expected


def test_the_uplink_is_not_the_interface_of_that_name() -> None:
    flow = Flow(0, 1, oxm.pack([Term(oxm.IN_PORT, SYMBOL_BASE)]), b"", 1)
    rows = resolve(FlowTable.of([flow]), ("uplink",), {"uplink": 3, "eth7": 4}, "eth7").rows()
    assert rows == [Flow(0, 1, oxm.pack([Term(oxm.IN_PORT, 4)]), b"", 1)]


def test_a_symbol_that_the_program_does_not_explain_is_left_out() -> None:
    table = FlowTable.of([Flow(0, 1, b"", instructions([output(SYMBOL_BASE + 9)]), 1), Flow(0, 2, b"", b"", 2)])
    assert [flow.cookie for flow in resolve(table, ("vm1",), {"vm1": 1}, "eth7").rows()] == [2]


def test_rows_without_symbols_stay_as_they_are_but_for_the_tenant() -> None:
    plain = [flow for sample in SAMPLES for flow in sample.flows if not resolve_needed(flow)]
    assert len(plain) > 5
    assert resolve(FlowTable.of(plain), (), {}, "eth7").rows() == plain
    tenanted = FlowTable.of([Flow(0, 1, b"", b"", 1, tenant=5)])
    assert resolve(tenanted, (), {}, "eth7").tenant.tolist() == [0]
    assert len(resolve(FlowTable.of([]), SYMBOLS, {}, "eth7")) == 0


def resolve_needed(flow: Flow) -> bool:
    return any(SYMBOL_BASE.to_bytes(4, "big")[:3] in octets for octets in (flow.match, flow.instructions))


def test_delta_and_program_are_resolved_alike() -> None:
    """Rows resolved one by one are the rows of the whole resolved: a delta may be resolved by itself."""
    rows = [flow for sample in SAMPLES for flow in sample.flows]
    ports = {"vm1": 5, "eth7": 9}
    whole = resolve(FlowTable.of(rows), ("vm1", "vm2", "uplink"), ports, "eth7").rows()
    single = [resolve(FlowTable.of([row]), ("vm1", "vm2", "uplink"), ports, "eth7").rows() for row in rows]
    assert whole == [row for found in single for row in found]
