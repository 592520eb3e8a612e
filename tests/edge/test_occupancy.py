"""How often lines match what they do not hold: against counting, and against the figures of the design's paper."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.edge.occupancy import best_k, different_bits, exact, formula, union


@given(st.integers(1, 4), st.integers(0, 4))
def test_the_distribution_is_that_of_all_ways_to_draw(m: int, draws: int) -> None:
    counted = np.zeros(m + 1)
    for way in itertools.product(range(m), repeat=draws):
        counted[len(set(way))] += 1
    assert different_bits(m, draws) == pytest.approx(counted / m**draws)


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2))
def test_the_rate_is_that_of_all_lines_and_all_chunks(m: int, k: int, n: int) -> None:
    hits = total = 0
    for held in itertools.product(range(m), repeat=k * n):
        for asked in itertools.product(range(m), repeat=k):
            total += 1
            hits += set(asked) <= set(held) and n > 0
    assert exact(m, k, n) == pytest.approx(hits / total)


@given(st.integers(2, 64), st.integers(1, 12), st.integers(1, 6))
def test_the_formula_is_never_above_the_truth(m: int, k: int, n: int) -> None:
    assert formula(m, k, n) <= exact(m, k, n) * (1 + 1e-9)


def test_the_papers_one_line_rate() -> None:
    """Scalable firewalls, section V: 11.1 chunks of 16,384 addresses a line of 288 bits give 0.0004 %."""
    assert best_k(288, 11.1) == 18
    assert formula(288, 18, 11.1) == pytest.approx(4.0e-6, rel=0.02)


def test_what_all_lines_together_come_to() -> None:
    """At 10^12 VMs, 5.49 million lines: the paper's chunks let everything pass, /16 chunks nothing to speak of."""
    lines = 5_490_000
    assert union(exact(288, 18, 11), lines) > 0.999999
    assert formula(288, 66, 3) == pytest.approx(1e-20, rel=0.05)
    assert exact(288, 66, 3) == pytest.approx(8e-20, rel=0.1)
    assert union(exact(288, 66, 3), lines) == pytest.approx(4.6e-13, rel=0.05)


@given(st.floats(0, 1), st.integers(0, 50))
def test_the_union_is_one_less_that_none_matches(rate: float, lines: int) -> None:
    assert union(rate, lines) == pytest.approx(1 - (1 - rate) ** lines, abs=1e-12)


def test_functions_for_no_chunks() -> None:
    assert best_k(288, 0) == 1
    assert exact(288, 5, 0) == 0
