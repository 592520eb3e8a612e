"""A sequence in pieces says what a plain list says, however it was changed, and shares what did not change."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policy.listed import Listed
from orchestrator.policy.model import Acl, Action, Rule, RuleId, trusted_acl

lengths = st.sampled_from([0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 3000])
changes = st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=12)
crowding = st.lists(st.tuples(st.just(True), st.integers(505, 515)), min_size=520, max_size=700)
"""So many items at about one place that their piece is cut in two."""


def changed(items: list[object], listed: Listed[object], steps: list[tuple[bool, int]]) -> Listed[object]:
    for comes, where in steps:
        if comes:
            place, item = where % (len(items) + 1), object()
            items.insert(place, item)
            listed = listed.with_one(place, item)
        elif items:
            place = where % len(items)
            del items[place]
            listed = listed.without(place)
    return listed


@given(lengths, st.one_of(changes, crowding))
def test_it_is_what_a_plain_list_is(length: int, steps: list[tuple[bool, int]]) -> None:
    plain: list[object] = [object() for _ in range(length)]
    first = Listed.of(plain)
    before = list(plain)
    listed = changed(plain, first, steps)
    assert list(listed) == plain
    assert len(listed) == len(plain)
    assert list(first) == before, "what is changed stays as it was"
    for place in {0, len(plain) // 2, len(plain) - 1, -1, -len(plain)}:
        if -len(plain) <= place < len(plain):
            assert listed[place] is plain[place]
    for part in (slice(1, -1), slice(0, 0), slice(510, 515), slice(5, 2), slice(None, None, -7), slice(1020, 99999)):
        assert listed[part] == tuple(plain[part])


@given(lengths, changes, changes)
def test_what_lies_apart_is_all_that_differs(
    length: int, one: list[tuple[bool, int]], other: list[tuple[bool, int]]
) -> None:
    items: list[object] = [object() for _ in range(length)]
    base = Listed.of(items)
    first, second = list(items), list(items)
    mine, theirs = changed(first, base, one), changed(second, base, other)
    here = there = 0
    for stretch in mine.apart(theirs):
        assert first[here : stretch.start] == second[there : stretch.place]
        here, there = stretch.start + len(stretch.gone), stretch.place + len(stretch.come)
        assert tuple(first[stretch.start : here]) == stretch.gone
        assert tuple(second[stretch.place : there]) == stretch.come
    assert first[here:] == second[there:]
    if len(one) + len(other) <= 1:
        touched = sum(len(part.gone) + len(part.come) for part in mine.apart(theirs))
        assert touched <= 4 * 1024, "only the pieces that were touched"


def sizes(piece: tuple[object, ...]) -> tuple[int, object]:
    """A fact of a piece that another piece does not have."""
    return len(piece), piece[0]


@given(lengths, st.lists(st.one_of(changes, crowding), min_size=1, max_size=3))
def test_what_is_remembered_of_pieces_is_so(length: int, parts: list[list[tuple[bool, int]]]) -> None:
    items: list[object] = [object() for _ in range(length)]
    listed = Listed.of(items)
    for steps in parts:
        assert listed.facts(sizes) == list(map(sizes, listed.pieces))
        listed = changed(items, listed, steps)
    assert listed.facts(sizes) == list(map(sizes, listed.pieces))


def test_a_fact_is_looked_for_in_new_pieces_alone() -> None:
    looked: list[int] = []

    def look(piece: tuple[int, ...]) -> int:
        looked.append(len(piece))
        return len(piece)

    base = Listed.of(range(100_000))
    base.facts(look)
    looked.clear()
    assert sum(base.without(70_000).with_one(5, 70_000).facts(look)) == 100_000
    assert len(looked) == 2
    base.facts(look)
    assert len(looked) == 2


def test_an_item_that_moves_far_costs_the_pieces_at_both_ends() -> None:
    base = Listed.of(range(100_000))
    moved = base.without(70_000).with_one(5, 70_000)
    near, far = base.apart(moved)
    assert (near.start, near.place, far.start, far.place) == (0, 0, far.start, far.start + 1)
    assert len(near.come) - len(near.gone) == len(far.gone) - len(far.come) == 1
    assert sum(map(len, (near.gone, near.come, far.gone, far.come))) <= 4 * 1024


@pytest.mark.parametrize("place", [3, -4])
def test_beyond_its_ends_there_is_nothing(place: int) -> None:
    with pytest.raises(IndexError):
        Listed.of("abc")[place]


def test_a_list_holds_its_rules_either_way() -> None:
    rules = tuple(Rule(RuleId(f"r{number}"), Action.PERMIT) for number in range(1200))
    plain, nothing = Acl(rules), Acl().groups
    piecewise = trusted_acl(Listed.of(rules), nothing, plain.ingress_default, plain.egress_default)
    assert piecewise == plain
    assert piecewise.rules == rules
    assert tuple(plain.listed) == rules
    assert plain.listed is plain.listed, "made once"
    fresh = trusted_acl(Listed.of(rules), nothing, plain.ingress_default, plain.egress_default)
    assert replace(fresh, ingress_default=Action.PERMIT).rules == rules
    assert copy.copy(fresh).rules == rules
    with pytest.raises(AttributeError):
        _ = fresh.nonsense  # type: ignore[attr-defined]
    acl = pickle.loads(pickle.dumps(replace(plain, groups={})))
    assert acl.rules == rules
