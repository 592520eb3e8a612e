"""Ten million chunks drawn against real lines agree with the formulas, and a wrong formula is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references.edge import count_matches

from orchestrator.edge.occupancy import exact, formula, union, union_of
from orchestrator.edge.sampling import Comparison, Model, Sampled, compare, count_matched, drawn, lines_of, sample
from orchestrator.errors import BadInput

CI = 10_000_000
MODEL = Model()
PAPERS = Model(lines=1_024, width=288, per_line=11, functions=18)


@pytest.fixture(scope="module")
def dense() -> Sampled:
    return sample(MODEL, CI, seed=1)


def test_ten_million_draws_agree(dense: Sampled) -> None:
    assert dense.total >= CI - 32
    assert dense.misdirected == 0
    assert compare(dense.one_line, exact(64, 11, 4)).agrees
    assert compare(dense.union, union_of(64, 11, MODEL.held)).agrees


def test_the_papers_lines_agree() -> None:
    found = sample(PAPERS, CI, seed=9)
    assert compare(found.one_line, exact(288, 18, 11)).agrees
    assert compare(found.union, union_of(288, 18, PAPERS.held)).agrees
    assert not compare(found.one_line, formula(288, 18, 11)).agrees


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(formula(64, 11, 4), id="the usual formula"),
        pytest.param(exact(64, 12, 4), id="a function more"),
        pytest.param(exact(63, 11, 4), id="a bit fewer"),
        pytest.param(exact(64, 11, 4) * 1.03, id="three per cent"),
    ],
)
def test_a_wrong_rate_of_one_line_is_noticed(dense: Sampled, wrong: float) -> None:
    assert not compare(dense.one_line, wrong).agrees


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(union(exact(64, 11, 4), 512), id="lines as independent"),
        pytest.param(exact(64, 11, 4) * 512, id="rates added up"),
        pytest.param(union_of(64, 11, {4: 480}), id="lines forgotten"),
        pytest.param(union_of(64, 11, {4: 256, 3: 256}), id="chunks forgotten"),
    ],
)
def test_a_wrong_union_is_noticed(dense: Sampled, wrong: float) -> None:
    assert not compare(dense.union, wrong).agrees


@settings(max_examples=20)
@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.sampled_from([16, 32, 48]),
    st.sampled_from([Model(40, 40, 3, 4), Model(9, 288, 11, 18), Model(600, 64, 4, 11)]),
)  # fmt: skip
def test_c_and_numpy_say_the_same(seed: int, first: int, bits: int, model: Model) -> None:
    lines, _, _ = lines_of(model, 7)
    assert count_matched(lines, seed, first, 3_000, bits) == count_matches(lines, seed, first, 3_000, bits)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 50), st.integers(1, 50))
def test_draws_can_be_made_in_parts(seed: int, first: int, some: int, more: int) -> None:
    parts = [drawn(seed, first, some), drawn(seed, first + some, more)]
    assert np.concatenate(parts).tolist() == drawn(seed, first, some + more).tolist()
    assert int(drawn(seed, first, some, 16).max()) < 1 << 16


def test_draws_are_what_the_lines_answer() -> None:
    lines, keys, wrong = lines_of(Model(60, 64, 4, 6), 3)
    assert wrong == 0
    asked = drawn(5, 0, 4_000)
    some, total = count_matched(lines, 5, 0, 4_000)
    assert some == int((lines.first(asked) >= 0).sum()) > 0
    assert total >= some
    assert (lines.first(keys) >= 0).all()


def test_progress_and_refusals() -> None:
    told: list[int] = []
    small = Model(4, 32, 2, 3)
    found = sample(small, 1_000, seed=1, sets=10, progress=told.append)
    assert told == [100 * turn for turn in range(1, 11)]
    assert found == sample(small, 1_000, seed=1, sets=10)
    assert found != sample(small, 1_000, seed=2, sets=10)
    for samples, sets, place in ((1_000, 1, "sets"), (5, 10, "samples"), (10**13, 10, "samples")):
        with pytest.raises(BadInput, match=place):
            sample(small, samples, seed=1, sets=sets)
    with pytest.raises(BadInput, match="per_line"):
        Model(per_line=0)


def test_no_scatter_leaves_no_doubt() -> None:
    assert compare([0.5, 0.5], 0.5) == Comparison(0.5, 0.5, 0.0)
    assert not compare([0.5, 0.5], 0.6).agrees
