"""The digest: equal for equal content however it is kept, different otherwise, and brought up to date exactly."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from flow_tables import COOKIES, PORT_TUPLES, content, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import difference
from orchestrator.program.digest import DIGEST_BYTES, digest
from orchestrator.program.flows import Flow, FlowTable

PORTS = st.sampled_from(PORT_TUPLES)


@settings(max_examples=120, deadline=None)
@given(tables(), tables(), PORTS, PORTS)
def test_equal_exactly_for_equal_content(
    left: FlowTable, right: FlowTable, one: tuple[str, ...], two: tuple[str, ...]
) -> None:
    same = content(left) == content(right) and one == two
    assert (digest(left, one) == digest(right, two)) == same
    assert len(digest(left, one)) == DIGEST_BYTES


@settings(max_examples=120, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_order_padding_and_numbering_do_not_count(table: FlowTable, random: Random) -> None:
    order = list(range(len(table)))
    random.shuffle(order)
    moved = table.take(np.array(order, np.intp))
    padded = replace(
        moved,
        match=np.pad(moved.match, ((0, 0), (0, 3))),
        instructions=moved.instructions + 1,
        instruction_set=(b"unused", *moved.instruction_set),
    )
    assert digest(padded, ()) == digest(table, ()) == digest(padded.compacted(), ())


@settings(max_examples=120, deadline=None)
@given(tables(), tables(), tables())
def test_replacing_rows_equals_starting_from_scratch(first: FlowTable, second: FlowTable, third: FlowTable) -> None:
    blocks = Blocks.of(first)
    before = blocks.digest(())
    after_one = blocks.replaced(*difference(first, second))
    after_two = after_one.replaced(*difference(second, third))
    assert after_one.digest(()) == digest(second, ())
    assert after_two.digest(()) == digest(third, ())
    assert blocks.digest(()) == before == digest(first, ())


@settings(max_examples=150, deadline=None)
@given(tables(), tables(), st.frozensets(st.sampled_from(COOKIES), max_size=3))
def test_blocks_brought_up_to_date_are_the_blocks_of_their_rows(
    old: FlowTable, new: FlowTable, cookies: frozenset[int]
) -> None:
    before, scratch = Blocks.of(old), Blocks.of(new)
    after = before.replaced(*difference(old, new))
    wanted = np.array(sorted(cookies), np.uint64)
    for blocks in (after, scratch):
        assert len(blocks) == len(new)
        assert blocks.joined().rows() == scratch.joined().rows()
        assert content(blocks.of_cookies(wanted)) == {row for row in content(new) if row.cookie in cookies}
    assert content(before.joined()) == content(old)


@settings(max_examples=150, deadline=None)
@given(tables(), tables())
def test_blocks_are_apart_by_what_differs(old: FlowTable, new: FlowTable) -> None:
    mine, theirs = Blocks.of(old).apart(Blocks.of(new))
    assert content(mine) - content(theirs) == content(old) - content(new)
    assert content(theirs) - content(mine) == content(new) - content(old)
    again = Blocks.of(new).replaced(*difference(new, old))
    assert all(not len(table) for table in Blocks.of(old).apart(again))


def test_every_column_counts() -> None:
    base = FlowTable.of([Flow(1, 2, b"\x01\0", b"instructions", 3, 4)])
    changed = [
        replace(base, table=base.table + 1),
        replace(base, priority=base.priority + 1),
        replace(base, cookie=base.cookie + 1),
        replace(base, tenant=base.tenant + 1),
        replace(base, match=base.match + 1),
        replace(base, match_length=base.match_length - 1, match=base.match * np.array([1, 0], np.uint8)),
        replace(base, instruction_set=(b"other",)),
    ]
    assert len({digest(each, ()) for each in (base, *changed)}) == 1 + len(changed)
