"""The gap between a device and its program: laws over small tables that share keys and values often."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from enforce.programs import change, program, rule
from flow_tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.enforce import gap
from orchestrator.enforce.driver import Observed, Stamp
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.program.delta import Delta, apply, between
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program

PORT_LISTS = (("p1", "p2"), ("p2", "p1"), ("", "p2", "p3"), ("p1",), ())
NUMBERS = ({"p1": 1, "p2": 2, "p3": 3}, {"p2": 9}, {})


@st.composite
def symbolic_programs(draw: st.DrawFn) -> Program:
    """Programs over few rules and changing ports; port symbols keep their names or do not."""
    ports = draw(st.sampled_from(PORT_LISTS))
    chosen = draw(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=6, unique_by=lambda each: each[0]))
    rows = [rule(number, permits=permits) for number, permits in chosen]
    whole = program(rows, generation=draw(st.integers(1, 9)), ports=ports)
    named = [row for row in whole.flows.rows() if not _is_of_a_hole(row, ports)]
    flows = FlowTable.of(named)
    return Program.of(whole.domain, whole.tier, whole.generation, flows, ports)


def _is_of_a_hole(row: Flow, ports: tuple[str, ...]) -> bool:
    symbols = [index for index, name in enumerate(ports) if not name]
    return any((0xFE000000 + index).to_bytes(4, "big") in row.match + row.instructions for index in symbols)


def place_on(numbers: dict[str, int]) -> gap.Place:
    return lambda flows, ports: resolve(flows, ports, numbers, "none")


def content(flows: FlowTable) -> list[Flow]:
    return sorted(flows.rows(), key=lambda row: (row.key, row.cookie, row.instructions))


def applied(held: FlowTable, delta: Delta) -> FlowTable:
    """What a device holds after a delta: removal by key, then addition by key."""
    rows = {row.key: row for row in held.rows()}
    for row in delta.removed.rows():
        rows.pop(row.key, None)
    rows |= {row.key: row for row in delta.added.rows()}
    return FlowTable.of(rows.values())


@settings(max_examples=examples(150))
@given(tables(), symbolic_programs(), st.sampled_from(NUMBERS))
def test_a_correction_leads_from_anything_to_the_program(
    found: FlowTable, goal: Program, numbers: dict[str, int]
) -> None:
    place = place_on(numbers)
    observed = Observed(replace(found, tenant=np.zeros(len(found), np.uint32)), None)
    after = applied(observed.flows, gap.correction(observed, goal, place))
    assert content(after) == content(place(goal.flows, goal.ports))


@settings(max_examples=examples(150))
@given(symbolic_programs(), symbolic_programs(), st.booleans(), st.sampled_from(NUMBERS))
def test_a_step_leads_from_one_program_to_the_other(
    held: Program, goal: Program, knows_how: bool, numbers: dict[str, int]
) -> None:
    place = place_on(numbers)
    trail = (between(held, goal),) if knows_how else ()
    delta = gap.step(held, goal, trail, place)
    after = applied(place(held.flows, held.ports), delta)
    assert content(after) == content(place(goal.flows, goal.ports))
    assert (delta.base, delta.target, delta.generation) == (held.digest, goal.digest, goal.generation)


@settings(max_examples=examples(150))
@given(symbolic_programs(), st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True), min_size=1, max_size=5))
def test_joined_deltas_are_the_deltas_one_after_the_other(start: Program, steps: Sequence[Sequence[int]]) -> None:
    versions = [start]
    for numbers in steps:
        rows = [rule(number, permits=number % 2 == len(versions) % 2) for number in numbers]
        flows = FlowTable.join_tables((start.flows.take(start.flows.table != 50), FlowTable.of(rows)))
        versions.append(Program.of(start.domain, start.tier, len(versions), flows, start.ports))
    deltas = [between(old, new) for old, new in itertools.pairwise(versions)]
    joined = gap.chain_deltas(deltas)
    assert joined is not None
    assert content(apply(start, joined).flows) == content(versions[-1].flows)
    assert len(joined.removed) + len(joined.added) <= sum(len(each.removed) + len(each.added) for each in deltas)


def test_deltas_are_not_joined_over_a_change_of_ports() -> None:
    one, two, three = program([]), program([], ports=("p2", "p1")), program([rule(1)], ports=("p2", "p1"))
    assert gap.chain_deltas([between(one, two), between(two, three)]) is None
    assert gap.chain_deltas([]) is None


def test_many_rows_are_compared_as_programs_instead() -> None:
    empty = program([])
    full = program([rule(number) for number in range(gap.LONGEST_CHAIN_ROWS)], generation=2)
    back = replace(empty, generation=3)
    assert gap.chain_deltas([between(empty, full), between(full, back)]) is None
    delta = gap.step(empty, back, (between(empty, full), between(full, back)), place_on({"p1": 1, "p2": 2}))
    assert (len(delta.removed), len(delta.added)) == (0, 0)


def test_a_step_uses_the_trail_only_from_where_the_device_is() -> None:
    """A trail that begins earlier is cut; one that does not pass by, or leads elsewhere, is not used."""
    a, b, c = program([]), program([rule(1)], generation=2), program([rule(1), rule(2)], generation=3)
    place = place_on({"p1": 1, "p2": 2})
    trail = (change(a, b), change(b, c))
    assert [row.cookie & 0xFF for row in gap.step(b, c, trail, place).added.rows()] == [2]
    assert len(gap.step(c, b, trail, place).removed) == 1
    assert len(gap.step(a, c, trail[1:], place).added) == 2


@pytest.mark.parametrize(
    ("shown", "stamp", "words"),
    [
        ([rule(1), rule(2)], Stamp(1, b"d"), None),
        ([rule(1)], Stamp(1, b"d"), "1 flows are missing and 0 are there that should not be"),
        ([rule(1), rule(2), rule(3)], Stamp(1, b"d"), "0 flows are missing and 1 are there that should not be"),
        ([rule(1, permits=False), rule(2)], Stamp(1, b"d"), "1 flows are missing and 1 are there that should not be"),
        (
            [rule(1), rule(2)],
            Stamp(2, b"d"),
            "0 flows are missing and 0 are there that should not be, and another stamp",
        ),
    ],
)
def test_what_is_read_back_must_be_what_was_meant(shown: list[Flow], stamp: Stamp, words: str | None) -> None:
    wanted = FlowTable.of([replace(rule(number), tenant=0) for number in (1, 2)])
    observed = Observed(FlowTable.of([replace(row, tenant=0) for row in shown]), stamp)
    found = gap.mismatch(observed, wanted, Stamp(1, b"d"))
    assert (found.text if found else None) == words


def test_expected_are_all_rows_of_a_touched_cookie_not_only_the_touched() -> None:
    twin = replace(rule(2), cookie=rule(1).cookie)
    whole = program([rule(1), twin, rule(3)])
    cookies = np.array([rule(1).cookie], np.uint64)
    assert len(gap.expected_rows(whole, cookies, place_on({}))) == 2
