"""The search in C says what its plain reference says, whichever of its ways it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from law_examples import examples
from references.cover import ReferenceCover, Set
from strategies import acls

from orchestrator.policy import cover, oracle
from orchestrator.policy.cover import FREE, HELD, UNDECIDED, Cover
from orchestrator.policy.model import Acl, Direction
from orchestrator.policy.ranks import AXES, rank_boxes
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.spans import Span, Spans, union

native = pytest.importorskip("orchestrator.policy._cover", reason="the extension was not built")
PLENTY = (1 << 40, 1 << 30)


@st.composite
def axes(draw: DrawFn, most: int) -> Spans:
    """A set of small numbers; mostly one span, as in rules."""
    if draw(st.integers(0, 5)):
        low = draw(st.integers(0, most))
        return (Span(low, draw(st.integers(low, most))),)
    return union(Span(each, each) for each in draw(st.sets(st.integers(0, most), min_size=1)))


@st.composite
def sets(draw: DrawFn) -> Set:
    """A product in a space so small that a few of them cover another."""
    return tuple(
        draw(axes(most)) for most in draw(st.sampled_from(((3, 3, 0, 0, 0), (1, 6, 6, 2, 0), (2, 3, 3, 2, 2))))
    )


lists = st.lists(sets(), min_size=1, max_size=12)


def columns(rows: list[Set]) -> tuple[Any, Any, Any]:
    spans = [span for row in rows for axis in row for span in axis]
    starts = np.cumsum([0, *(len(axis) for row in rows for axis in row)])
    return np.array(spans, np.uint32), starts.astype(np.uint32), np.zeros(AXES + 1, np.uint32)


def holds(row: Set, point: list[int]) -> bool:
    return all(any(span.low <= value <= span.high for span in axis) for axis, value in zip(row, point, strict=True))


def covered(of: Any, count: int, limits: tuple[int, int] = PLENTY) -> tuple[list[int], list[list[int]]]:
    state, points = np.full(count, FREE, np.uint8), np.zeros((count, AXES), np.uint32)
    of.covered(state, points, 0, count, *limits)
    return state.tolist(), points.tolist()


def crossings(
    of: Any, permits: Any, counts: Any, alone: Any, limits: tuple[int, int] = PLENTY
) -> tuple[dict[tuple[int, int], tuple[int, list[int]]], list[int]]:
    matters = np.zeros(len(permits), np.uint8)
    middle = len(permits) // 2
    found = []
    for start, stop in ((0, middle), (middle, len(permits))):
        pairs, _ = of.crossings(permits, counts, alone, matters, start, stop, *limits)
        found += np.frombuffer(pairs, np.uint32).reshape(-1, AXES + 3).tolist()
    return {(one, other): (flags, point) for one, other, *point, flags in found}, matters.tolist()


@settings(max_examples=examples(60), deadline=None)
@given(lists)
def test_covered_rows_are_those_of_the_reference(rows: list[Set]) -> None:
    states, points = covered(native.Cover(*columns(rows)), len(rows))
    assert states == covered(ReferenceCover(*columns(rows)), len(rows))[0]
    for number, (state, point) in enumerate(zip(states, points, strict=True)):
        if state == FREE:
            assert holds(rows[number], point)
            assert not any(holds(row, point) for row in rows[:number])


def test_a_row_that_is_known_to_be_covered_is_not_asked_about() -> None:
    rows = [tuple((Span(0, place),) for place in (0, end, 0, 0, 0)) for end in (1, 3)]
    for made in (native.Cover, ReferenceCover):
        state, points = np.array([FREE, HELD], np.uint8), np.zeros((2, AXES), np.uint32)
        made(*columns(rows)).covered(state, points, 0, 2, *PLENTY)
        assert state.tolist() == [FREE, HELD]


@settings(max_examples=examples(60), deadline=None)
@given(lists, st.data())
def test_crossings_are_those_of_the_reference(rows: list[Set], data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))
    permits, alone = (np.array(data.draw(flags), np.uint8) for _ in range(2))
    counts = 1 - np.array(data.draw(flags), np.uint8) * np.array(data.draw(flags), np.uint8)
    found, matters = crossings(native.Cover(*columns(rows)), permits, counts, alone)
    wanted, matter = crossings(ReferenceCover(*columns(rows)), permits, counts, alone)
    assert {pair: flags for pair, (flags, _) in found.items()} == {pair: flags for pair, (flags, _) in wanted.items()}
    assert matters == matter
    for (earlier, later), (_, point) in found.items():
        asked = [row for row in range(later) if counts[row] and row != earlier]
        assert holds(rows[earlier], point)
        assert holds(rows[later], point)
        assert not any(holds(rows[row], point) for row in asked)


@st.composite
def crowds(draw: DrawFn) -> list[Set]:
    """Many rows in one plane, so that they meet in dozens and are looked up on a board."""
    spans = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda ends: (Span(min(ends), max(ends)),))
    odd = st.sampled_from(((Span(0, 1), Span(4, 5)), (Span(2, 2), Span(7, 9))))
    planes = st.tuples(st.one_of(spans, spans, odd), spans)
    only = (Span(0, 0),)
    return [(*plane, only, only, only) for plane in draw(st.lists(planes, min_size=28, max_size=32))]


@settings(max_examples=examples(30), deadline=None)
@given(crowds())
def test_on_a_board_answers_are_those_of_the_reference(rows: list[Set]) -> None:
    fast, plain = native.Cover(*columns(rows)), ReferenceCover(*columns(rows))
    permits, none = np.arange(len(rows)).astype(np.uint8) % 2, np.zeros(len(rows), np.uint8)
    found, matters = crossings(fast, permits, none + 1, none)
    wanted, matter = crossings(plain, permits, none + 1, none)
    assert found.keys() == wanted.keys()
    assert matters == matter
    for (earlier, later), (_, point) in found.items():
        assert not any(holds(rows[row], point) for row in range(later) if row != earlier)
    assert fast.deciders(none + 1, len(rows) - 1, *PLENTY)[0] == plain.deciders(none + 1, len(rows) - 1, *PLENTY)[0]
    for pattern in ((1, 2, 3, 3, 3), (1, 2, 2)):
        of = np.resize(np.array(pattern, np.uint8), len(rows))
        for row in np.flatnonzero(of < 3).tolist():
            here, there = (each.changes(permits, of, row, *PLENTY)[0] for each in (fast, plain))
            assert _others(here) == _others(there)


def _others(pairs: bytes) -> list[int]:
    others: list[int] = np.frombuffer(pairs, np.uint32).reshape(-1, AXES + 3)[:, 1].tolist()
    return others


@settings(max_examples=examples(60), deadline=None)
@given(lists, st.data())
def test_deciders_and_heirs_are_those_of_the_reference(rows: list[Set], data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))
    permits, counts = (np.array(data.draw(flags), np.uint8) for _ in range(2))
    fast, plain = native.Cover(*columns(rows)), ReferenceCover(*columns(rows))
    for row in range(len(rows)):
        assert fast.deciders(counts, row, *PLENTY)[0] == plain.deciders(counts, row, *PLENTY)[0]
        assert fast.heirs(permits, counts, row, *PLENTY)[0] == plain.heirs(permits, counts, row, *PLENTY)[0]


@settings(max_examples=examples(60), deadline=None)
@given(lists, st.data())
def test_changes_are_those_of_the_reference(rows: list[Set], data: st.DataObject) -> None:
    def drawn(values: st.SearchStrategy[int]) -> Any:
        return np.array(data.draw(st.lists(values, min_size=len(rows), max_size=len(rows))), np.uint8)

    permits, of = drawn(st.integers(0, 1)), drawn(st.sampled_from((1, 2, 3, 3)))
    fast, plain = native.Cover(*columns(rows)), ReferenceCover(*columns(rows))
    for row in np.flatnonzero(of < 3).tolist():
        found, wanted = (
            {other: point for _, other, *point, _ in np.frombuffer(pairs, np.uint32).reshape(-1, AXES + 3).tolist()}
            for pairs in (each.changes(permits, of, row, *PLENTY)[0] for each in (fast, plain))
        )
        assert found.keys() == wanted.keys()
        for other, point in found.items():
            assert fast.before(of, row, other) == plain.before(of, row, other)
            first = np.frombuffer(plain.before(of, row, other), np.uint32).tolist()
            assert holds(rows[row], point)
            assert holds(rows[other], point)
            assert not any(holds(rows[each], point) for each in first)


@settings(max_examples=examples(40), deadline=None)
@given(lists, st.integers(0, 60), st.integers(0, 400))
def test_a_limit_leaves_questions_open_and_answers_none_wrongly(rows: list[Set], question: int, total: int) -> None:
    states, _ = covered(native.Cover(*columns(rows)), len(rows), (total, question))
    for limited, exact in zip(states, covered(ReferenceCover(*columns(rows)), len(rows))[0], strict=True):
        assert limited in (exact, UNDECIDED)
    permits, every = np.arange(len(rows)).astype(np.uint8) % 2, np.ones(len(rows), np.uint8)
    found, _ = crossings(native.Cover(*columns(rows)), permits, every, every, (total, question))
    exact_pairs, _ = crossings(ReferenceCover(*columns(rows)), permits, every, every)
    assert exact_pairs.keys() <= found.keys()
    assert all(flags & cover.UNKNOWN for pair, (flags, _) in found.items() if pair not in exact_pairs)


def test_no_work_at_all_decides_nothing() -> None:
    rows: list[Set] = [((Span(0, 1),),) * AXES, ((Span(0, 2),),) * AXES]
    assert covered(native.Cover(*columns(rows)), 2, (0, 0))[0] == [UNDECIDED, UNDECIDED]
    assert covered(native.Cover(*columns(rows)), 2)[0] == [FREE, FREE]
    assert covered(native.Cover(*columns(rows[::-1])), 2)[0] == [FREE, HELD]


@settings(max_examples=examples(60), deadline=None)
@given(acls(7, min_rules=1))
def test_ranks_keep_what_boxes_share_and_contain(acl: Acl) -> None:
    """Rows as boxes and rows as ranks: the same overlaps and containments, and points are packets."""
    for direction in Direction:
        for rows in rule_rows(acl, direction).values():
            boxes = [row.box for row in rows]
            whole = rank_boxes(boxes)
            found = Cover(boxes)
            state, points = found.find_covered()
            assert state[0] == FREE
            for number, row in enumerate(rows):
                packet = found.coordinates.packet(points[number].tolist())
                if state[number] == FREE:
                    assert row.box.holds(packet)
                    assert row.rule is None or oracle.matches(row.rule, packet, acl.groups)
                    assert not any(box.holds(packet) for box in boxes[:number])
            sets_of = ReferenceCover(whole.spans, whole.starts, whole.plain)
            for one in range(len(boxes)):
                for other in range(len(boxes)):
                    assert boxes[one].overlaps(boxes[other]) == (sets_of.common(one, other) is not None)
                    assert boxes[one].contains(boxes[other]) == sets_of.contains(one, other)


@pytest.mark.parametrize(
    ("spans", "starts", "plain"),
    [
        ([[1, 0]] * 5, range(6), 6),
        ([[0, 1]] * 5, [0, 1, 2, 3, 4, 4], 6),
        ([[0, 1]] * 5, range(5), 6),
        ([[0, 1]] * 5, range(6), 4),
        ([[0, 1], [2, 3], [0, 1], [0, 1], [0, 1], [0, 1]], [0, 2, 3, 4, 5, 6], 6),
        ([[0, 1]] * 5, [0, 3, 2, 3, 4, 5], 6),
    ],
)
def test_columns_that_do_not_fit_are_refused(spans: list[list[int]], starts: Any, plain: int) -> None:
    with pytest.raises(ValueError, match=r"columns|spans must"):
        native.Cover(np.array(spans, np.uint32), np.array([*starts], np.uint32), np.zeros(plain, np.uint32))
