"""Lines: every chunk reaches its own server, and what else they match is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.edge.hashing import positions
from orchestrator.edge.lines import Lines, Shape, bases, build, matches
from orchestrator.errors import BadInput, TooLarge


@st.composite
def allocations(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Chunks, of few servers, close enough to one another to match foreign lines."""
    keys = sorted(draw(st.sets(st.integers(0, 4000), min_size=1, max_size=60)))
    servers = draw(st.lists(st.integers(0, 4), min_size=len(keys), max_size=len(keys)))
    return np.array(keys, np.uint64), np.array(servers, np.int64)


SHAPES = st.builds(
    Shape,
    st.sampled_from([16, 40, 64, 288]),
    st.sets(st.integers(0, 999), min_size=1, max_size=4).map(tuple),
    st.integers(1, 8),
)


def asked_one_by_one(lines: Lines, key: int) -> int:
    """The server that a packet of a chunk is sent to, by the text: exceptions, then lines in order, then nobody."""
    for exception, server in zip(lines.exception.tolist(), lines.exception_server.tolist(), strict=True):
        if exception == key:
            return int(server)
    wanted = positions(np.array([key], np.uint64), lines.shape.bases, lines.shape.width)[0]
    for stars, server in zip(lines.bits, lines.server.tolist(), strict=True):
        if all(stars[bit] for bit in wanted.tolist()):
            return int(server)
    return -1


@settings(max_examples=examples(150))
@given(allocations(), SHAPES)
def test_every_chunk_reaches_its_own_server(allocation: tuple[np.ndarray, np.ndarray], shape: Shape) -> None:
    keys, servers = allocation
    lines = build(keys, servers, [shape], most_exceptions=len(keys))
    assert lines.server_of(keys).tolist() == servers.tolist()


@settings(max_examples=examples(100))
@given(allocations(), SHAPES)
def test_lines_answer_as_a_tcam_would(allocation: tuple[np.ndarray, np.ndarray], shape: Shape) -> None:
    keys, servers = allocation
    lines = build(keys, servers, [shape], most_exceptions=len(keys))
    asked = np.arange(0, 4001, 97, dtype=np.uint64)
    assert lines.server_of(asked).tolist() == [asked_one_by_one(lines, key) for key in asked.tolist()]


@given(allocations(), SHAPES)
def test_lines_hold_what_they_are_for_and_are_shared_out_evenly(
    allocation: tuple[np.ndarray, np.ndarray], shape: Shape
) -> None:
    keys, servers = allocation
    lines = build(keys, servers, [shape], most_exceptions=len(keys))
    assert (lines.server[lines.holds] == servers).all()
    where = positions(keys, shape.bases, shape.width)
    expected = np.zeros_like(lines.bits)
    expected[lines.holds[:, None], where] = True
    assert (lines.bits == expected).all()
    held = np.bincount(lines.holds, minlength=len(lines))
    assert held.max() <= shape.per_line
    for server in set(servers.tolist()):
        of_server = held[lines.server == server]
        assert of_server.max() - of_server.min() <= 1
        assert len(of_server) == -(-int((servers == server).sum()) // shape.per_line)


@given(
    st.integers(0, 700).flatmap(
        lambda count: st.tuples(st.just(count), st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
    )
)
def test_matches_are_those_found_by_hand(drawn: tuple[int, int, int, int]) -> None:
    count, width, k, seed = drawn
    random = np.random.default_rng(seed)
    bits = random.random((count, width)) < 0.6
    where = random.integers(0, width, (50, k)).astype(np.uint16)
    fast = matches(bits, where, 10**7)
    by_hand = [(c, line) for c in range(50) for line in range(count) if bits[line, where[c]].all()]
    assert list(zip(*(column.tolist() for column in fast), strict=True)) == by_hand
    if by_hand:
        with pytest.raises(TooLarge):
            matches(bits, where, len(by_hand) - 1)


def test_ordering_does_what_exceptions_would_cost() -> None:
    """1,024 chunks over 4 servers in lines of 16: some match foreign lines, and order alone sends all of them right."""
    keys = np.arange(0, 65536, 64, dtype=np.uint64)
    servers = (np.arange(len(keys)) % 4).astype(np.int64)
    shape = Shape(288, tuple(range(1, 9)), 16)
    lines = build(keys, servers, [shape], most_exceptions=0)
    where = positions(keys, shape.bases, shape.width)
    chunk, line = matches(lines.bits, where, 1 << 20)
    assert (lines.server[line] != servers[chunk]).sum() > 5
    assert lines.server_of(keys).tolist() == servers.tolist()


def test_too_full_lines_are_refused_with_what_would_fit() -> None:
    keys = np.arange(200, dtype=np.uint64)
    servers = (np.arange(200) % 5).astype(np.int64)
    with pytest.raises(TooLarge, match=r"\d+ chunks would reach a wrong server .* 3 entries are free"):
        build(keys, servers, [Shape(16, (1, 2), 8)], most_exceptions=3)


def test_the_first_shape_that_will_do_is_taken() -> None:
    keys = np.arange(60, dtype=np.uint64)
    servers = (np.arange(60) % 3).astype(np.int64)
    full, roomy = Shape(16, (1, 2), 10), Shape(288, (5, 6, 7), 4)
    assert build(keys, servers, [full, roomy], most_exceptions=0).shape is roomy


def test_nothing_allocated_means_everything_is_dropped() -> None:
    empty = build(np.empty(0, np.uint64), np.empty(0, np.int64), [Shape(288, (1,), 4)], most_exceptions=0)
    assert empty.server_of(np.arange(5, dtype=np.uint64)).tolist() == [-1] * 5
    assert (len(empty), empty.fill, empty.union_rate) == (0, 0.0, 0.0)


def test_the_union_rate_is_what_is_found() -> None:
    random = np.random.default_rng(7)
    keys = np.sort(random.choice(1 << 40, 1024, replace=False).astype(np.uint64))
    servers = random.integers(0, 4, 1024)
    lines = build(keys, servers, [Shape(288, tuple(range(50, 58)), 16)], most_exceptions=1024)
    asked = random.integers(1 << 40, 1 << 41, 200_000).astype(np.uint64)
    found = (lines.first(asked) >= 0).mean()
    assert found == pytest.approx(lines.union_rate, rel=0.1)


@pytest.mark.parametrize(
    ("width", "of", "per_line", "place"),
    [(4, (1, 2, 3, 4, 5), 1, "bases"), (8, (1, 1), 1, "bases"), (8, (), 1, "bases"), (8, (1,), 0, "per_line")],
)
def test_shapes_that_cannot_be_are_refused(width: int, of: tuple[int, ...], per_line: int, place: str) -> None:
    with pytest.raises(BadInput) as refused:
        Shape(width, of, per_line)
    assert refused.value.place == place


def test_bases_are_dealt_out_of_what_was_drawn() -> None:
    assert bases([5, 6, 7, 8], 2, 2) == [(5, 6), (7, 8)]
    with pytest.raises(BadInput):
        bases([5, 6, 7], 2, 2)
    with pytest.raises(BadInput):
        bases([5, 5, 7, 8], 2, 2)
