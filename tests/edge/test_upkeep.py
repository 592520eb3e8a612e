"""Lines that are kept up: whoever comes is reached at once, nobody reaches a wrong server, and what goes is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.edge import upkeep
from orchestrator.edge.hashing import positions
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.upkeep import NO_LINE, Kept, Standing, drawn, keep, rebuild, standing_of
from orchestrator.errors import BadInput, TooLarge

SEED = "pop"
TIGHT = EdgeSettings(width=24, functions=3, per_line=3, most_exceptions=400, most_lines=400, rebuild_share=0.4)
"""Lines so narrow that chunks meet foreign lines all the time."""

Owned = Mapping[int, int]
"""Chunk -> server."""


@st.composite
def histories(draw: st.DrawFn) -> list[Owned]:
    """Who has which chunks, one state after the other: each is the one before with a few that came, went or moved."""
    chunk, server = st.integers(0, 300), st.integers(0, 3)
    states = [draw(st.dictionaries(chunk, server, min_size=1, max_size=40))]
    for _ in range(draw(st.integers(0, 6))):
        state = dict(states[-1])
        for gone in draw(st.lists(st.sampled_from(sorted(state)), max_size=4)) if state else []:
            state.pop(gone, None)
        for moved in draw(st.lists(st.sampled_from(sorted(state)), max_size=4)) if state else []:
            state[moved] = draw(server)
        states.append(state | draw(st.dictionaries(chunk, server, max_size=8)))
    return states


def columns(owned: Owned) -> tuple[np.ndarray, np.ndarray]:
    keys = sorted(owned)
    return np.array(keys, np.uint64), np.array([owned[key] for key in keys], np.int64)


def followed(history: Sequence[Owned], given: EdgeSettings) -> list[Kept]:
    """The lines after each state of a history."""
    found: list[Kept] = []
    for owned in history:
        found.append(keep(found[-1].standing if found else None, *columns(owned), given, SEED))
    return found


def reached(standing: Standing, owned: Owned) -> dict[int, int]:
    keys, servers = columns(owned)
    return dict(zip(keys.tolist(), standing.lines(servers).server_of(keys).tolist(), strict=True))


@settings(max_examples=examples(80))
@given(histories(), st.sampled_from([4, 40, 400]))
def test_every_chunk_reaches_its_own_server_whatever_came_before(history: list[Owned], exceptions: int) -> None:
    room = replace(TIGHT, most_exceptions=exceptions)
    before: Standing | None = None
    for owned in history:
        try:
            kept = keep(before, *columns(owned), room, SEED)
        except TooLarge:
            continue
        before = kept.standing
        assert reached(before, owned) == owned
        assert int(before.exact.sum()) <= exceptions


@settings(max_examples=examples(80))
@given(histories())
def test_standing_lines_are_not_touched_until_they_are_built_anew(history: list[Owned]) -> None:
    states = followed(history, replace(TIGHT, most_exceptions=12, most_lines=4000, rebuild_share=1.0, tries=1))
    for earlier, later in pairwise(states):
        if later.because:
            assert later.standing.draw == earlier.standing.draw + 1
            assert not len(later.standing.gone)
            continue
        lines = len(earlier.standing.server)
        assert later.standing.server[:lines].tolist() == earlier.standing.server.tolist()
        assert (later.standing.bits[:lines] == earlier.standing.bits).all()


@settings(max_examples=examples(80))
@given(histories())
def test_what_went_is_counted_as_stale_and_keeps_matching(history: list[Owned]) -> None:
    for kept, owned in zip(followed(history, replace(TIGHT, rebuild_share=1.0)), history, strict=True):
        standing = kept.standing
        where = positions(standing.gone, standing.shape.bases, standing.shape.width)
        assert standing.bits[standing.gone_line[:, None], where].all()
        held = {(key, line) for key, line in zip(standing.key.tolist(), standing.line.tolist(), strict=True)}
        stale = list(zip(standing.gone.tolist(), standing.gone_line.tolist(), strict=True))
        assert not held & set(stale)
        assert standing.key.tolist() == sorted(owned)
        in_lines = int((standing.line != NO_LINE).sum())
        expected = len(stale) / (len(stale) + in_lines) if stale else 0.0
        assert standing.stale_share == pytest.approx(expected)


@settings(max_examples=examples(60))
@given(histories())
def test_more_stale_than_allowed_is_never_left_standing(history: list[Owned]) -> None:
    for kept in followed(history, replace(TIGHT, rebuild_share=0.2)):
        assert kept.standing.stale_share <= 0.2


@settings(max_examples=examples(60))
@given(histories())
def test_lines_survive_their_octets(history: list[Owned]) -> None:
    standing = followed(history, TIGHT)[-1].standing
    again = standing_of(standing.to_bytes())
    assert (again.shape, again.draw, again.misdirected) == (standing.shape, standing.draw, standing.misdirected)
    for name in ("server", "key", "line", "exact", "gone", "gone_line"):
        assert getattr(again, name).tolist() == getattr(standing, name).tolist()
    assert again.to_bytes() == standing.to_bytes()


@given(st.binary(max_size=40))
def test_octets_that_are_no_lines_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        standing_of(data)


def test_a_new_chunk_changes_no_line_and_a_removed_one_waits() -> None:
    owned = {key: key % 2 for key in range(0, 4000, 40)}
    room = EdgeSettings(functions=8, per_line=8)
    first = keep(None, *columns(owned), room, SEED)
    more = keep(first.standing, *columns(owned | {7: 1}), room, SEED)
    assert more.because == ""
    assert len(more.standing.server) == len(first.standing.server)
    assert more.standing.key[more.standing.exact].tolist() == [7]
    fewer = keep(more.standing, *columns({key: server for key, server in owned.items() if key}), room, SEED)
    assert fewer.standing.gone.tolist() == [0]
    assert not fewer.standing.exact.any()
    again = rebuild(fewer.standing, *columns(owned), room, SEED, "it was asked for")
    assert again.because == "it was asked for"
    assert (again.standing.draw, len(again.standing.gone)) == (1, 0)


def test_many_new_chunks_get_lines_behind_the_others() -> None:
    room = EdgeSettings(functions=8, per_line=8, most_exceptions=20)
    owned = dict.fromkeys(range(0, 800, 8), 0)
    first = keep(None, *columns(owned), room, SEED)
    came = dict.fromkeys(range(10001, 10020), 1)
    after = keep(first.standing, *columns(owned | came), room, SEED)
    assert after.because == ""
    assert after.standing.server.tolist() == [*first.standing.server.tolist(), 1, 1]
    assert int((after.standing.line == NO_LINE).sum()) == 3
    assert reached(after.standing, owned | came) == owned | came


def test_what_lines_that_count_would_buy_and_cost() -> None:
    """With a tenth of the chunks gone: about half the false matches, for a row in most removals."""
    drawn_keys = np.unique(np.random.default_rng(3).integers(0, 1 << 24, 4000).astype(np.uint64))
    servers = (np.arange(len(drawn_keys)) % 8).astype(np.int64)
    lasting = replace(EdgeSettings(), rebuild_share=1.0)
    full = keep(None, drawn_keys, servers, lasting, SEED).standing
    gone = np.arange(len(drawn_keys)) % 10 == 0
    stale = keep(full, drawn_keys[~gone], servers[~gone], lasting, SEED).standing
    none = np.empty(0, np.int64)
    counted = replace(stale, gone=none.astype(np.uint64), gone_line=none)
    rates = [each.lines(servers[~gone]).union_rate for each in (stale, counted)]
    assert rates[0] == full.lines(servers).union_rate
    assert 0.3 < rates[1] / rates[0] < 0.7
    changed = int((stale.bits != counted.bits).any(axis=1).sum())
    assert changed > int(gone.sum()) / 2


def test_the_same_history_gives_the_same_lines() -> None:
    history = [{key: key % 3 for key in range(start, 300, 7)} for start in (0, 1, 2)]
    one, other = (followed(history, TIGHT)[-1].standing.to_bytes() for _ in range(2))
    assert one == other
    assert drawn("a", 16) != drawn("b", 16)
    assert len(set(drawn("a", 64))) == 64


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    owned = dict.fromkeys(range(100), 0)
    with pytest.raises(TooLarge, match=r"100 chunks take 13 lines of 8, and there are entries for 4: with 26 chunks"):
        keep(None, *columns(owned), EdgeSettings(per_line=8, most_lines=4), SEED)
    crowded = {key: key % 5 for key in range(200)}
    narrow = EdgeSettings(width=16, functions=2, per_line=8, most_exceptions=3)
    with pytest.raises(TooLarge, match="would reach a wrong server"):
        keep(None, *columns(crowded), narrow, SEED)
    allowed = keep(None, *columns(crowded), replace(narrow, allow_misdirected=True), SEED).standing
    found = reached(allowed, crowded)
    wrong = [key for key, server in crowded.items() if found[key] != server]
    assert len(wrong) == allowed.misdirected > 0
    assert int(allowed.exact.sum()) == 3


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("functions", 300, "300 functions in a line of 288 bits"),
        ("width", 512, "512 bits a line: there can be 1 to 288"),
        ("ipv4_chunk", 33, "share 1 to 32 leading bits, not 33"),
        ("ipv6_chunk", 64, "share 1 to 48 leading bits, not 64"),
        ("per_line", 0, "0 chunks a line"),
        ("rebuild_share", 0.0, "not a share"),
        ("most_lines", 10**6, "lines: there can be"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(field: str, value: float, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        EdgeSettings(**{field: value})
    assert caught.value.place == field


def test_far_more_chunks_than_there_is_room_for_are_refused_before_lines_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant with a very large prefix comes to an edge with ordinary chunks: nobody waits for the refusal."""
    given = EdgeSettings(functions=4)
    before = keep(None, *columns({7: 1}), given, SEED).standing

    def never(*_: object, **__: object) -> None:
        raise AssertionError("lines are asked")

    monkeypatch.setattr(upkeep, "matches", never)
    keys = np.arange(1 << 20, dtype=np.uint64)
    with pytest.raises(TooLarge, match="holds no 257 chunks, as they") as caught:
        keep(before, keys, np.ones(len(keys), np.int64), replace(given, width=256), SEED)
    assert "32 times as large where they are neighbours" in str(caught.value)
    assert caught.value.place == "most_lines"
    fits = EdgeSettings(ipv4_chunk=24 - 5, functions=4)
    fits.check_lines(len(keys) // 32 // fits.per_line, len(keys) // 32)
