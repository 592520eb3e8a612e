"""What brings lists up to date is built from: edits, labels, covers of address groups, numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile._index import alike
from orchestrator.compile.conjunctions import covers
from orchestrator.compile.conjunctions.covers import Cover, PrefixChange
from orchestrator.compile.lists import edits, labels
from orchestrator.compile.lists.edits import Hunk, hunks, widen_hunks
from orchestrator.compile.lists.labels import Labels
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.policy.numbers import RuleNumbers

SEQUENCES = st.lists(st.integers(0, 9), max_size=14).map(tuple)


def carried_out(old: tuple[int, ...], new: tuple[int, ...], edit: Iterable[Hunk]) -> tuple[int, ...]:
    found: list[int] = []
    done = 0
    for hunk in edit:
        found += old[done : hunk.first]
        assert len(found) == hunk.place, "a hunk says where in the new list it comes to lie"
        found += new[hunk.place : hunk.place + hunk.come]
        done = hunk.first + hunk.gone
    return (*found, *old[done:])


def longest_common(old: Sequence[int], new: Sequence[int]) -> int:
    """The length of the longest common subsequence, by the textbook."""
    best = [0] * (len(new) + 1)
    for left in old:
        diagonal = 0
        for place, right in enumerate(new, 1):
            diagonal, best[place] = best[place], diagonal + 1 if left == right else max(best[place], best[place - 1])
    return best[-1]


@given(SEQUENCES, SEQUENCES)
def test_edits_lead_from_one_list_to_the_other_and_are_the_shortest(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    edit = hunks(old, new)
    assert carried_out(old, new, edit) == new
    common = longest_common(old, new)
    assert sum(hunk.gone for hunk in edit) == len(old) - common
    assert sum(hunk.come for hunk in edit) == len(new) - common
    assert all(one.first + one.gone < other.first for one, other in pairwise(edit))


@given(SEQUENCES, SEQUENCES, st.data())
def test_a_wider_edit_is_the_same_edit(old: tuple[int, ...], new: tuple[int, ...], data: st.DataObject) -> None:
    edit = hunks(old, new)
    if edit:
        wider = widen_hunks(edit, data.draw(st.integers(0, len(edit) - 1)), data.draw(st.integers(0, 4)), len(old))
        assert carried_out(old, new, wider) == new


def test_too_long_an_edit_is_one_hunk(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tuple(range(10)), (0, 9, 8, 7, 6, 5, 4, 3, 2, 1)
    assert len(hunks(old, new)) > 1
    monkeypatch.setattr(edits, "_MOST_STEPS", 3)
    assert hunks(old, new) == (Hunk(1, 9, 1, 9),)


@pytest.mark.parametrize(
    ("arguments", "count"), [((0, 0, 1, 4), 2), ((3, 3, -1, 4), 1), ((0, 0, 1, 1), 1), ((2, 2, 1, 2), 0)]
)
def test_places_alike_are_counted_in_both_directions(arguments: tuple[int, int, int, int], count: int) -> None:
    i, j, step, most = arguments
    assert alike((1, 2, 3, 4), i, (1, 2, 9, 4), j, step, most) == count


@settings(max_examples=examples(60))
@given(st.integers(0, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 99)), max_size=60), st.sampled_from((2, 64)))
def test_labels_ascend_whatever_comes_and_goes(count: int, script: list[tuple[bool, int]], step: int) -> None:
    """Also where there is hardly room for one between two; and those that stay keep theirs, unless said otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels, "_STEP", step)
        patch.setattr(labels, "_CHUNK", 3)
        patch.setattr(labels, "_WIDER", 1)
        now = Labels.of(count)
        for comes, where in script:
            place = where % (len(now) + 1)
            gone = 0 if comes or place == len(now) else 1
            before = now.between(0, len(now)).tolist()
            followed = now.edit_labels([Hunk(place, gone, place, int(comes))])
            now = followed.labels
            after = now.between(0, len(now)).tolist()
            assert len(after) == len(before) - gone + comes
            assert all(one < other for one, other in pairwise(after))
            (hunk,), (fresh,) = followed.edit, followed.fresh
            assert after == [*before[: hunk.first], *fresh.tolist(), *before[hunk.first + hunk.gone :]]


# ---------------------------------------------------------------------------------------------------- covers


@st.composite
def crowded(draw: st.DrawFn) -> Prefix:
    """A prefix among so few addresses that most have their neighbours."""
    family = draw(st.sampled_from(Family))
    shorter = draw(st.integers(0, 4))
    offset = draw(st.integers(0, 31)) >> shorter << shorter
    base = 0x0A000000 if family is Family.IPV4 else 0x20010DB8 << 96
    return Prefix(family, base | offset, family.bits - shorter)


def check_covers(start: list[Prefix], script: list[tuple[list[int], list[Prefix]]]) -> None:
    now, cover = list(start), Cover.of(start)
    for going, coming in script:
        gone = [now.pop(each % len(now)) for each in going if now]
        now += coming
        after, change = cover.change_members(PrefixChange(tuple(gone), tuple(coming)))
        before, cover = cover, after
        assert tuple(cover.prefixes) == aggregate(tuple(now))
        assert tuple(before.prefixes) == aggregate(tuple(before.members)), "the old cover has changed"
        assert set(change.gone) == set(before.prefixes) - set(cover.prefixes)
        assert set(change.come) == set(cover.prefixes) - set(before.prefixes)


SCRIPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 99), max_size=2), st.lists(crowded(), max_size=3)), min_size=1, max_size=4
)


@settings(max_examples=examples(200))
@given(st.lists(crowded(), max_size=20), SCRIPTS)
def test_covers_are_followed_member_by_member(start: list[Prefix], script: Any) -> None:
    check_covers(start, script)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("_buddy", lambda prefix: Prefix.parse("127.0.0.1/32")),
        ("_let_go", lambda prefixes, gone, members: set()),
        ("_holder", lambda prefixes, wanted: None),
    ],
)
def test_the_law_of_covers_notices(name: str, bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covers, name, bug)

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.lists(crowded(), max_size=20), SCRIPTS)
    def law(start: list[Prefix], script: Any) -> None:
        check_covers(start, script)

    with pytest.raises(AssertionError):
        law()


# ---------------------------------------------------------------------------------------------------- numbers


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9)),
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcdef")), st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9)))
    ),
)
def test_numbers_are_a_mapping_that_knows_what_differs(start: dict[str, int], script: Any) -> None:
    plain, numbers = dict(start), RuleNumbers(start)
    first = numbers
    for some, come in script:
        gone = some & plain.keys()
        after = numbers.exchange_ids(gone, come)
        assert dict(numbers) == plain
        plain = {key: number for key, number in plain.items() if key not in gone} | come
        numbers = after
        assert dict(numbers) == plain
        assert len(numbers) == len(plain)
    assert first.differing(numbers) == {key for key in "abcdefgh" if start.get(key) != plain.get(key)}
    assert numbers.differing(RuleNumbers(plain)) is None


def test_numbers_are_laid_down_anew_when_many_differ() -> None:
    plain: dict[str, int] = {}
    numbers = first = RuleNumbers(plain)
    for number in range(1, 600):
        numbers = numbers.exchange_ids((), {f"r{number}": number})
        plain[f"r{number}"] = number
        if number % 3 == 0:
            gone = f"r{number - 1}"
            numbers = numbers.exchange_ids((gone,), {})
            del plain[gone]
    assert dict(numbers) == plain
    assert len(numbers) == len(plain)
    assert numbers.differing(first) is None
    assert len(numbers.overlay) < 300


def test_labels_in_the_middle_have_room_for_long() -> None:
    """Forty rules fit between two before any other gets a new label."""
    now = Labels.of(100)
    for _ in range(39):
        followed = now.edit_labels([Hunk(50, 0, 50, 1)])
        assert followed.edit == (Hunk(50, 0, 50, 1),)
        now = followed.labels
    whole = now.between(0, len(now))
    assert (whole[1:] > whole[:-1]).all()
    assert whole.dtype == np.uint64
