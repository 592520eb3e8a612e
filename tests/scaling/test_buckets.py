"""Owners of buckets: fair shares, and nothing moves but what must."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.scaling.buckets import BUCKETS, NOBODY, Owners, assign, count_moved, share

NAMES = st.sampled_from([f"fw{index}" for index in range(9)])
MEMBERS = st.sets(NAMES, max_size=9)
WEIGHTS = st.dictionaries(NAMES, st.floats(0.01, 100.0), min_size=1)
OWNERS = st.lists(st.none() | NAMES, min_size=BUCKETS, max_size=BUCKETS).map(tuple)
"""Whatever was there before, however unfair."""


def equal(members: set[str]) -> Mapping[str, float]:
    return dict.fromkeys(members, 1.0)


@given(OWNERS, MEMBERS)
def test_equal_members_own_all_buckets_within_one(before: Owners, members: set[str]) -> None:
    after = assign(before, equal(members))
    held = share(after)
    assert held.keys() == members
    assert sum(held.values()) == (BUCKETS if members else 0)
    assert max(held.values(), default=0) - min(held.values(), default=0) <= 1


@given(OWNERS, MEMBERS)
def test_the_fewest_buckets_move(before: Owners, members: set[str]) -> None:
    """What no balanced assignment can leave: what is nobody's, what goers hold, and what is over a fair share."""
    if not members:
        assert assign(before, {}) == NOBODY
        return
    low, more = divmod(BUCKETS, len(members))
    held = sorted((share(before).get(name, 0) for name in members), reverse=True)
    kept = sum(min(count, low + (place < more)) for place, count in enumerate(held))
    assert count_moved(before, assign(before, equal(members))) == BUCKETS - kept


@given(OWNERS, WEIGHTS, WEIGHTS)
def test_who_comes_or_goes_moves_nothing_between_those_who_stay(
    start: Owners, weights: Mapping[str, float], other: Mapping[str, float]
) -> None:
    before = assign(start, equal(set(weights)))
    for wanted in (equal({*weights, *other}), equal(set(weights) - set(other))):
        after = assign(before, wanted)
        came, stay = wanted.keys() - weights.keys(), wanted.keys() & weights.keys()
        for old, new in zip(before, after, strict=True):
            assert old == new or new in came or old not in stay


@given(OWNERS, WEIGHTS)
def test_shares_go_by_weight_and_are_reached_at_once(before: Owners, weights: Mapping[str, float]) -> None:
    after = assign(before, weights)
    total = sum(weights.values())
    exact = {name: BUCKETS * weight / total for name, weight in weights.items()}
    lifted = sum(1 for part in exact.values() if part < 1)
    for name, count in share(after).items():
        assert max(1, exact[name] - 1 - lifted) <= count < max(2, exact[name] + 1)
    assert assign(after, weights) == after


@given(OWNERS, WEIGHTS)
def test_whose_weight_stays_keeps_its_buckets_where_another_goes(before: Owners, weights: Mapping[str, float]) -> None:
    settled = assign(before, weights)
    goer = min(weights)
    rest = {name: weight for name, weight in weights.items() if name != goer}
    after = assign(settled, rest)
    given_up = sum(old != goer and old != new for old, new in zip(settled, after, strict=True))
    assert given_up <= len(weights)  # fractions are rounded anew, a bucket each at most


@pytest.mark.parametrize(
    ("members", "steps"), [(("a",), 256), (("a", "b"), 128), (("a", "b", "c"), 85), (("a", "b", "c", "d"), 64)]
)
def test_one_by_one_they_take_just_their_share(members: tuple[str, ...], steps: int) -> None:
    before = assign(NOBODY, equal(set(members[:-1])))
    assert count_moved(before, assign(before, equal(set(members)))) == steps


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadInput):
        assign(NOBODY[1:], {"a": 1.0})
    with pytest.raises(BadInput):
        assign(NOBODY, {"a": 0.0})
    with pytest.raises(BadInput):
        assign(NOBODY, {"a": float("inf")})
    with pytest.raises(BadInput):
        assign(NOBODY, {f"fw{index}": 1.0 for index in range(BUCKETS + 1)})
