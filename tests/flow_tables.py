"""Hypothesis strategies for tables of flow entries with unique keys, and what two tables are compared by."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from orchestrator.program.delta import Delta, apply, between
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import encode_program

MATCHES = (b"", b"\x80\x00\x0a\x02\x08\x00", b"\x80\x00\x0a\x02\x86\xdd", b"\0", b"\0\0", bytes(range(40)))
COOKIES = (0, 1, 127, 128, 2**64 - 1)
"""Some share a block of a program, some do not."""
INSTRUCTIONS = (b"", b"\0\x01\0\x08\x0a\0\0\0", b"\0\x05\0\x08\0\0\0\0")


def flows() -> SearchStrategy[Flow]:
    """One row out of few, so that tables share keys and values often."""
    return st.builds(
        Flow,
        table=st.sampled_from((0, 10, 253)),
        priority=st.sampled_from((0, 300, 65535)),
        match=st.sampled_from(MATCHES),
        instructions=st.sampled_from(INSTRUCTIONS),
        cookie=st.sampled_from(COOKIES),
        tenant=st.sampled_from((0, 7, 2**32 - 1)),
    )


def tables(max_rows: int = 12) -> SearchStrategy[FlowTable]:
    """Tables in which no two rows have the same key."""
    return st.lists(flows(), max_size=max_rows, unique_by=lambda row: row.key).map(FlowTable.of)


PORT_TUPLES = ((), ("uplink",), ("uplink", "", "vm1"), ("uplink", "vm2", "vm1"))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    table, ports = draw(tables()), draw(st.sampled_from(PORT_TUPLES))
    generation = draw(st.integers(0, 2**63))
    return Program.of("d1", draw(st.sampled_from(list(Tier))), generation, table, ports)


def content(table: FlowTable) -> set[Flow]:
    """What a table says, whatever its row order, padding and instruction numbers."""
    rows = set(table.rows())
    assert len(rows) == len(table)
    return rows


def rows_by_tenant(table: FlowTable) -> Callable[[int], FlowTable]:
    """The rows that bear a tenant's number, as a program gives them out."""
    return lambda number: table.take(table.tenant == number)


def same_columns(left: FlowTable, right: FlowTable) -> bool:
    """Whether two tables are the same row by row."""
    return left.rows() == right.rows()


def check_change(before: Program | None, after: Program, change: Delta | None) -> None:
    """What a cache says of the last step is the difference, no row more, and leads from one program to the other."""
    assert (change is None) == (before is None)
    if before is not None and change is not None:
        right = between(before, after)
        assert content(change.removed) == content(right.removed)
        assert content(change.added) == content(right.added)
        assert encode_program(apply(before, change)) == encode_program(after)
