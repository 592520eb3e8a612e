"""What few rules decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.edge.planner import Popularity
from orchestrator.errors import BadInput

POINTS = st.lists(
    st.tuples(st.integers(1, 10**6), st.floats(0.001, 0.999)), min_size=1, max_size=6, unique_by=lambda each: each[0]
).map(lambda drawn: tuple(zip(sorted(float(count) for count, _ in drawn), sorted({s for _, s in drawn}), strict=False)))


@given(POINTS)
def test_the_curve_goes_through_its_points(points: tuple[tuple[float, float], ...]) -> None:
    curve = Popularity(points)
    for rules, share in points:
        assert curve.decided_share(rules) == pytest.approx(share)


@given(POINTS, st.floats(0, 1e7), st.floats(0, 1e7))
def test_more_rules_never_decide_less_and_nothing_decides_all(
    points: tuple[tuple[float, float], ...], few: float, many: float
) -> None:
    curve = Popularity(points)
    low, high = curve.decided_share(min(few, many)), curve.decided_share(max(few, many))
    assert 0 <= low <= high + 1e-12 <= 1 + 1e-12


def test_the_papers_curve() -> None:
    assert Popularity().decided_share(25) == pytest.approx(0.9)
    assert Popularity().decided_share(0) == 0


def test_a_curve_of_counts_is_what_was_counted() -> None:
    curve = Popularity.of_counts([10, 0, 60, 30])
    assert curve.points == ((1.0, 0.6), (2.0, 0.9))


@pytest.mark.parametrize(
    "points",
    [(), ((1.0, 1.0),), ((0.0, 0.5),), ((5.0, 0.5), (5.0, 0.6)), ((5.0, 0.5), (6.0, 0.5)), ((1.0, float("nan")),)],
)
def test_what_is_no_curve_is_refused(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(BadInput, match="popularity"):
        Popularity(points)


def test_counts_of_one_rule_make_no_curve() -> None:
    with pytest.raises(BadInput, match="two rules"):
        Popularity.of_counts([7, 0])
