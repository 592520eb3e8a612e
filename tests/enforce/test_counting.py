"""A device's tally: what it notes, and what its bookmark takes up."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.enforce.bookmark import NO_MARKS, Marks, replay_chunks
from orchestrator.enforce.counting import SMALLEST_JOURNAL, Change, Letter, Tally
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Hits
from orchestrator.enforce.reading import Reading
from orchestrator.errors import BadInput
from orchestrator.program.countframes import Loss, Note
from orchestrator.program.flows import U64
from orchestrator.program.program import Tier

RULE = Cookie(Tier.HOST, Kind.RULE, 1).pack()


def hits(packets: dict[int, int], *, age_s: float | tuple[float, ...] = np.nan, idle_s: int = 0) -> Hits:
    keys, counts = np.array(list(packets), np.uint64), np.array(list(packets.values()), np.uint64)
    cookies, idle = np.full(len(keys), RULE, np.uint64), np.full(len(keys), idle_s, np.uint32)
    return Hits(keys, cookies, counts, counts, idle, np.broadcast_to(np.asarray(age_s, float), len(keys)).copy())


def polled(packets: dict[int, int], at: float = 10.0) -> Tally:
    """A tally that has seen these and told them."""
    tally = Tally()
    tally.claim(NO_MARKS, 0.0)
    tally.poll(hits(packets), at, 0.0)
    tally.take()
    return tally


def taken(tally: Tally) -> Letter:
    letter = tally.take()
    assert letter is not None
    return letter


def keys(*of: int) -> U64:
    return np.array(of, np.uint64)


def test_losses_are_noted_with_their_longest_time() -> None:
    tally = polled({1: 5, 2: 5, 3: 5})
    tally.note_change(Change(None, keys(1)), 12.0)
    tally.note_change(Change(hits({2: 6}), keys(2)), 13.0)
    tally.poll(hits({}), 14.5, 0.0)
    letter = taken(tally)
    assert set(letter.notes) == {Note(Loss.UNREAD, 1, 2.0), Note(Loss.VANISHED, 1, 4.5)}
    assert (letter.counts.packets.tolist(), letter.counts.resets.tolist()) == ([1], [2])
    assert len(replay_chunks([letter.chunk])) == 0


def begun(*of: int) -> Marks:
    """Entries that were put in just now: of the rule, and one that counts for nobody."""
    cookies = [RULE] * len(of)
    return Marks.new_marks(keys(*of, 1000), np.array([*cookies, 0], np.uint64))


def test_an_entry_that_comes_and_goes_between_two_polls_is_missed() -> None:
    """Nobody knows what it counted."""
    tally = polled({1: 5})
    tally.note_change(Change(None, keys(), begun(2, 3)), 11.0)
    tally.note_change(Change(None, keys(2), begun(4)), 12.0)
    tally.note_change(Change(hits({4: 7}), keys(4), begun(3)), 13.0)  # somebody had removed 3
    letter = taken(tally)
    assert set(letter.notes) == {Note(Loss.UNREAD, 1, 2.0), Note(Loss.VANISHED, 1, 3.0)}
    assert (letter.counts.packets.tolist(), letter.counts.resets.tolist()) == ([7], [2])
    tally.poll(hits({1: 5}), 14.0, 0.0)
    assert taken(tally).notes == (Note(Loss.VANISHED, 1, 4.0),)


def test_a_device_that_cannot_say_what_goes_is_read_as_a_whole() -> None:
    tally = polled({1: 5, 2: 5})
    tally.note_change(Change(hits({1: 6, 2: 7}), None), 11.0)
    tally.poll(hits({2: 8, 9: 1}), 12.0, 0.0)
    letter = taken(tally)
    assert letter.counts.packets.tolist() == [1 + 3 + 1]
    assert letter.notes == ()


def test_a_count_that_is_not_known_for_a_while_adds_nothing() -> None:
    tally = polled({1: 500})
    tally.poll(hits({1: 2**64 - 1}), 11.0, 0.0)
    assert tally.take() is None
    tally.poll(hits({1: 501}), 12.0, 0.0)
    assert taken(tally).counts.packets.tolist() == [1]


@pytest.mark.parametrize(("age_s", "more", "resets"), [(25.0, 3, 0), (2.0, 8, 1)], ids=["as the others", "younger"])
def test_an_entry_that_grew_older_by_less_than_the_others_began_anew(age_s: float, more: int, resets: int) -> None:
    """Its counter alone does not tell: the new one has counted more by now than the old one had."""
    tally = Tally()
    tally.claim(NO_MARKS, 0.0)
    tally.poll(hits({1: 5, 2: 5}, age_s=20.0), 10.0, 0.0)
    tally.take()
    tally.poll(hits({1: 8, 2: 5}, age_s=(age_s, 25.0)), 15.0, 0.0)
    counts = taken(tally).counts
    assert (counts.packets.tolist(), counts.resets.tolist()) == ([more], [resets])


def test_the_last_hit_is_when_the_device_says() -> None:
    tally = polled({1: 5})
    tally.poll(hits({1: 6}, idle_s=3), 20.0, 0.0)
    assert taken(tally).counts.last_hit.tolist() == [17_000_000]
    tally.poll(hits({1: 7}, idle_s=UNKNOWN_IDLE_S), 25.0, 0.0)
    assert taken(tally).counts.last_hit.tolist() == [25_000_000]


def test_counters_of_other_kinds_are_passed_over() -> None:
    tally = polled({})
    structure = Cookie(Tier.HOST, Kind.STRUCTURE).pack()
    found = hits({1: 5, 2: 6, 3: 7})
    foreign = np.array([RULE, structure, 0x77], np.uint64)
    tally.poll(Hits(found.key, foreign, found.packets, found.bytes, found.idle_s, found.age_s), 11.0, 0.0)
    assert taken(tally).counts.packets.tolist() == [5]


def test_a_bookmark_is_written_anew_before_it_grows_long() -> None:
    entries = 100
    tally = polled(dict.fromkeys(range(entries), 1))
    rows, longest = 0, 0
    for turn in range(2, 60):
        tally.poll(hits(dict.fromkeys(range(entries), turn)), 10.0 + turn, 0.0)
        letter = taken(tally)
        rows = entries if letter.whole else rows + entries
        longest = max(longest, rows)
        assert len(letter.chunk) < 100 * entries
    assert entries < longest <= SMALLEST_JOURNAL + 3 * entries


def test_while_nobody_takes_what_is_counted_it_does_not_pile_up() -> None:
    tally = polled({1: 0})
    for turn in range(1, 500):
        tally.poll(hits({1: turn}), 10.0 + turn, 0.0)
        tally.note_change(Change(None, keys(99)), 10.0 + turn)
    assert len(tally.grown) < 20
    assert taken(tally).counts.packets.tolist() == [499]


@pytest.mark.parametrize("damage", [lambda chunk: chunk[:-1], lambda chunk: chunk + b"x", lambda _: b""])
def test_a_garbled_bookmark_is_refused(damage: object) -> None:
    tally = Tally()
    tally.claim(NO_MARKS, 0.0)
    tally.poll(hits({1: 5}), 1.0, 0.0)
    with pytest.raises(BadInput):
        replay_chunks([damage(taken(tally).chunk)])  # type: ignore[operator]


def test_as_many_entries_need_not_be_the_same_ones() -> None:
    tally = polled({1: 5, 2: 5})
    tally.poll(hits({2: 6, 3: 1}), 11.0, 0.0)
    letter = taken(tally)
    assert letter.counts.packets.tolist() == [1 + 1]
    assert letter.notes == (Note(Loss.VANISHED, 1, 1.0),)
    tally.poll(hits({3: 2, 2: 6}), 12.0, 0.0)
    assert taken(tally).counts.packets.tolist() == [1]


def test_parts_of_one_rule_count_together() -> None:
    cookies = np.array([Cookie(Tier.HOST, Kind.INGRESS_RETURN, 7, part).pack() for part in range(3)], np.uint64)
    zeros, ones = np.zeros(3, np.int64), np.ones(3, np.int64)
    hits = Hits(
        np.arange(3, dtype=np.uint64), cookies, *(np.ones(3, np.uint64),) * 2, np.zeros(3, np.uint32), np.ones(3)
    )
    found = Reading.of(hits).sum_growth(ones, ones, zeros, zeros)
    assert found.cookie.tolist() == [Cookie(Tier.HOST, Kind.INGRESS_RETURN, 7).pack()]
    assert found.packets.tolist() == [3]
