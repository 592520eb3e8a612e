"""The union over all lines: against counting everything, and against what must hold of any rate."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.edge.occupancy import different_bits, exact, functions, match_rates, one_line, spread, union, union_of
from orchestrator.errors import BadInput


@settings(max_examples=examples(40))
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2))
def test_the_union_is_that_of_all_lines_and_all_chunks(m: int, k: int, n: int, lines: int) -> None:
    hits = total = 0
    for asked in itertools.product(range(m), repeat=k):
        for held in itertools.product(itertools.product(range(m), repeat=k * n), repeat=lines):
            total += 1
            hits += any(set(asked) <= set(each) for each in held)
    assert union_of(m, k, {n: lines}) == pytest.approx(hits / total)


@given(st.integers(2, 64), st.integers(1, 12), st.integers(1, 6))
def test_one_line_is_the_mean_over_what_a_chunk_may_be(m: int, k: int, n: int) -> None:
    assert different_bits(m, k)[: min(k, m) + 1] @ match_rates(m, k, n) == pytest.approx(exact(m, k, n))
    assert one_line(m, k, {n: 3}) == pytest.approx(exact(m, k, n))
    assert union_of(m, k, {n: 1}) == pytest.approx(exact(m, k, n))


@given(st.integers(2, 64), st.integers(1, 12), st.integers(1, 6), st.integers(1, 10_000))
def test_lines_share_what_they_are_asked_for(m: int, k: int, n: int, lines: int) -> None:
    """Taken as independent from the start, the union is never less."""
    assert union_of(m, k, {n: lines}) <= union(exact(m, k, n), lines) * (1 + 1e-9)


@given(st.integers(0, 10**6), st.integers(1, 10**4))
def test_chunks_are_spread_evenly(chunks: int, lines: int) -> None:
    held = spread(chunks, lines)
    assert sum(n * count for n, count in held.items()) == chunks
    assert sum(held.values()) == min(chunks, lines)
    assert not held or max(held) - min(held) <= 1


def test_rates_too_small_to_be_added_are_still_there() -> None:
    assert union_of(288, 200, {1: 1_000_000}) == pytest.approx(1_000_000 * exact(288, 200, 1), rel=1e-6)
    assert 0 < union_of(288, 200, {1: 1}) < 1e-50


def test_full_lines_match_everything_and_cost_no_more_to_tell() -> None:
    assert union_of(288, 1, {10**9: 5}) == pytest.approx(1.0)


def test_functions_are_the_best_of_those_that_suit_some_line() -> None:
    held = spread(2_779, 1_000)
    assert functions(288, held, 288) in {67, 100}
    assert functions(288, held, 12) == 12
    assert functions(288, {}, 12) == 1


def test_no_lines_hold_no_chunks() -> None:
    with pytest.raises(BadInput, match="no line is left"):
        spread(10, 0)
