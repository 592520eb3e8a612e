"""The digest: equal for equal content however it is kept, different otherwise, and brought up to date exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from unittest import mock

import numpy as np
import pytest
from flow_tables import COOKIES, PORT_TUPLES, content, tables
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.errors import Stale
from orchestrator.program import blocks as tree
from orchestrator.program.blocks import Blocks, digest
from orchestrator.program.canonical import DIGEST_BYTES
from orchestrator.program.delta import difference
from orchestrator.program.flows import Flow, FlowTable

PORTS = st.sampled_from(PORT_TUPLES)
LINE_BY_LINE, BY_COLUMN = 64, 0
UNDIVIDED, DIVIDED_EARLY = 1024, 2
"""How many rows count as few, and how many a bucket takes before it is divided."""

each_way = pytest.mark.parametrize(
    ("few", "most"), [(few, most) for few in (LINE_BY_LINE, BY_COLUMN) for most in (UNDIVIDED, DIVIDED_EARLY)]
)


@contextmanager
def limits(few: int, most: int) -> Iterator[None]:
    """Blocks are made and changed as they are elsewhere only where rows come in great numbers."""
    with mock.patch.object(tree, "FEW_ROWS", few), mock.patch.object(tree, "MOST_ROWS", most):
        yield


@settings(max_examples=examples(120), deadline=None)
@given(tables(), tables(), PORTS, PORTS)
def test_equal_exactly_for_equal_content(
    left: FlowTable, right: FlowTable, one: tuple[str, ...], two: tuple[str, ...]
) -> None:
    same = content(left) == content(right) and one == two
    assert (digest(left, one) == digest(right, two)) == same
    assert len(digest(left, one)) == DIGEST_BYTES


@settings(max_examples=examples(120), deadline=None)
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
    compacted = padded.compact_sets()
    assert digest(padded, ()) == digest(table, ()) == digest(compacted, ())
    assert compacted.rows() == padded.rows()
    used = tuple(dict.fromkeys(row.instructions for row in padded.rows()))
    assert compacted.instruction_set == used or len(padded.instruction_set) == min(len(padded), 1)


@settings(max_examples=examples(120), deadline=None)
@given(tables(), tables(), st.data())
def test_joined_tables_have_their_rows_and_no_instructions_that_nobody_uses(
    one: FlowTable, other: FlowTable, data: st.DataObject
) -> None:
    """Parts of a table share its set, as blocks of a program do, also where only some of them are joined."""
    parts = [table.part(place, place + 1) for table in (one, other) for place in range(len(table))]
    chosen = data.draw(st.lists(st.sampled_from(parts), unique_by=id)) if parts else []
    joined = FlowTable.join_tables(chosen)
    assert joined.rows() == [row for part in chosen for row in part.rows()]
    few = [len(chosen) < len(table.instruction_set) for table in (one, other)]
    if all(few):
        assert set(joined.instruction_set) == {row.instructions for row in joined.rows()}


@each_way
@settings(max_examples=examples(80), deadline=None)
@given(tables(), tables(), tables())
def test_replacing_rows_equals_starting_from_scratch(
    few: int, most: int, first: FlowTable, second: FlowTable, third: FlowTable
) -> None:
    with limits(few, most):
        blocks = Blocks.of(first)
        before = blocks.digest(())
        after_one = blocks.replace_rows(*difference(first, second))
        after_two = after_one.replace_rows(*difference(second, third))
        assert after_one.digest(()) == digest(second, ())
        assert after_two.digest(()) == digest(third, ())
        assert blocks.digest(()) == before == digest(first, ())


@each_way
@settings(max_examples=examples(80), deadline=None)
@given(tables(), tables(), st.frozensets(st.sampled_from(COOKIES), max_size=3))
def test_blocks_brought_up_to_date_are_the_blocks_of_their_rows(
    few: int, most: int, old: FlowTable, new: FlowTable, cookies: frozenset[int]
) -> None:
    with limits(few, most):
        before, scratch = Blocks.of(old), Blocks.of(new)
        after = before.replace_rows(*difference(old, new))
    wanted = np.array(sorted(cookies), np.uint64)
    for blocks in (after, scratch):
        assert len(blocks) == len(new)
        assert blocks.join_rows().rows() == scratch.join_rows().rows()
        assert content(blocks.of_cookies(wanted)) == {row for row in content(new) if row.cookie in cookies}
    assert content(before.join_rows()) == content(old)


@each_way
@settings(max_examples=examples(60), deadline=None)
@given(tables(), tables())
def test_only_rows_that_are_there_can_be_replaced(few: int, most: int, held: FlowTable, gone: FlowTable) -> None:
    with limits(few, most):
        blocks = Blocks.of(held)
        if content(gone) <= content(held):
            assert content(blocks.replace_rows(gone, FlowTable.of(())).join_rows()) == content(held) - content(gone)
        else:
            with pytest.raises(Stale):
                blocks.replace_rows(gone, FlowTable.of(()))


@settings(max_examples=examples(150), deadline=None)
@given(tables(), tables())
def test_blocks_are_apart_by_what_differs(old: FlowTable, new: FlowTable) -> None:
    mine, theirs = Blocks.of(old).apart(Blocks.of(new))
    assert content(mine) - content(theirs) == content(old) - content(new)
    assert content(theirs) - content(mine) == content(new) - content(old)
    again = Blocks.of(new).replace_rows(*difference(new, old))
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


def test_the_digest_is_the_same_in_every_process() -> None:
    """Service and enforcement points compare it: among the rows are more of one cookie than a block holds."""
    many = [Flow(10, 5, number.to_bytes(4, "big"), b"allow", 7, 1) for number in range(1500)]
    few = [Flow(50, 6, b"", b"", cookie, tenant) for cookie in (0, 127, 128, 1 << 20) for tenant in (0, 1)]
    assert digest(FlowTable.of([*many, *few]), ("uplink", "vm1")).hex() == "b8cde07dd77b91c4d993a4b96506b4bc"
