"""What the replicator's program does with other members' messages, one packet at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from statesync.frames import (
    LOW_PORT,
    TCP,
    UDP,
    framed,
    key_of,
    message_frame,
    message_of,
)
from statesync.programbench import ALONE, DROP, OPENED, PASS, REDIRECT, SECRET, Bench

from orchestrator.statesync.layout import BATCH, CARRIED_MOST, ENTRY_BYTES, SLOTS, Stream
from orchestrator.statesync.messages import (
    IN_TURN,
    MESSAGE_BYTES,
    WANTS_CONFIRMATION,
    Message,
    MessageKind,
    Word,
    open_sealed,
    siphash,
)
from orchestrator.statesync.oracle import Connection, Kind, step
from orchestrator.statesync.states import HELD, OPEN, Confirmation, Level, State

few = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

ESTABLISHED = Word(State.ESTABLISHED, version=5)
HEARING = replace(ALONE, level=Level.FULL, members=frozenset({2, 3}), waited=frozenset({2, 3}))


def hear_others(bench: Bench) -> None:
    """Make it a member that believes two others, from their message 101 on."""
    bench.kernel.configure(HEARING)
    bench.kernel.forget_all()
    for sender in (2, 3):
        bench.kernel.set_stream(sender, 0, Stream(True, 100, 100))


@pytest.fixture
def hearing(bench: Bench) -> Iterator[Bench]:
    hear_others(bench)
    yield bench
    bench.kernel.configure(ALONE)
    for sender in (2, 3):
        bench.kernel.set_stream(sender, 0, Stream(False))


def told(sequence: int, word: Word = ESTABLISHED, **other: object) -> Message:
    message = Message(MessageKind.WRITE, 2, 0, sequence, key_of(4, TCP).pack(), word.pack())
    return replace(message, **other)  # type: ignore[arg-type]


def sent(message: Message, secret: bytes = SECRET) -> bytes:
    return message_frame(message.seal(secret), "10.9.0.1")


def held(bench: Bench) -> Word | None:
    entry = bench.kernel.connection(key_of(4, TCP).pack())
    return None if entry is None else entry.word


def test_a_message_is_stored_and_confirmed(hearing: Bench) -> None:
    verdict, after = hearing.hear(sent(told(101, flags=WANTS_CONFIRMATION, slot=77)))
    assert verdict == REDIRECT
    answer = open_sealed(message_of(after), SECRET)
    assert answer is not None
    assert (answer.kind, answer.answer, answer.slot, answer.sender) == (MessageKind.CONFIRM, MessageKind.WRITE, 77, 1)
    assert held(hearing) == ESTABLISHED
    assert hearing.hear(sent(told(102)))[0] == DROP  # nobody waits for a confirmation


@pytest.mark.parametrize(
    ("frame", "counter"),
    [
        (sent(told(101), SECRET[::-1]), "wrong_mac"),
        (message_frame(told(101).seal(SECRET)[:-1], "10.9.0.1"), "wrong_mac"),
        (sent(told(101, sender=4)), "unready"),
        (sent(told(101, sender=1)), "not_member"),
        (sent(told(101, lane=1)), "unready"),
        (sent(told(100)), "late"),
        (sent(told(101, kind=MessageKind.COMMIT, flags=WANTS_CONFIRMATION)), "unprepared"),
    ],
    ids=["another key", "cut short", "a stranger", "itself", "a lane not opened", "before the floor", "not prepared"],
)
def test_what_is_not_to_be_believed_is_counted_and_dropped(hearing: Bench, frame: bytes, counter: str) -> None:
    before = hearing.kernel.counters()
    assert hearing.hear(frame)[0] == DROP
    assert hearing.counted(before) == {counter: 1}
    assert held(hearing) is None


@few
@given(st.lists(st.integers(1, 5000) | st.integers(1, 80), min_size=1, max_size=60))
def test_each_message_is_heard_once_in_whatever_order(hearing: Bench, offsets: list[int]) -> None:
    hearing.kernel.set_stream(2, 0, Stream(True, 100, 100))
    seen: set[int] = set()
    for sequence in (100 + offset for offset in offsets):
        before = hearing.kernel.counters()
        hearing.hear(sent(told(sequence)))
        counted = hearing.counted(before)
        if sequence in seen:
            assert counted.keys() & {"replayed", "late"}
        elif max(seen, default=0) // 64 - sequence // 64 >= 16:
            assert "late" in counted
        else:
            assert not counted.keys() & {"replayed", "late"}, sequence
            seen.add(sequence)
    stream = hearing.kernel.stream(2, 0)
    assert (stream.highest, stream.received) == (max(seen), len(seen))


@few
@given(st.integers(0, MESSAGE_BYTES * 8 - 1))
def test_a_message_that_was_changed_anywhere_changes_nothing(hearing: Bench, bit: int) -> None:
    hearing.kernel.set_stream(2, 0, Stream(True, 100, 100))
    frame = bytearray(sent(told(101)))
    frame[-MESSAGE_BYTES + bit // 8] ^= 1 << bit % 8
    before = hearing.kernel.counters()
    assert hearing.hear(bytes(frame))[0] == DROP
    assert hearing.counted(before) == {"wrong_mac": 1}
    assert hearing.kernel.stream(2, 0).received == 0


def test_an_older_version_changes_nothing(hearing: Bench) -> None:
    hearing.hear(sent(told(101)))
    hearing.hear(sent(told(102, Word(State.FIN_WAIT, version=4))))
    assert held(hearing) == ESTABLISHED
    hearing.hear(sent(told(103, Word(State.CLOSED, version=6))))
    assert held(hearing) == Word(State.CLOSED, version=6)


LIFE = [
    State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED, State.FIN_WAIT, State.LAST_ACK, State.TIME_WAIT,
]  # fmt: skip


@few
@given(st.permutations(range(len(LIFE))), st.lists(st.integers(0, len(LIFE) - 1), max_size=6), st.integers(1, 6))
def test_words_that_come_late_twice_or_in_another_order_never_lead_back(
    hearing: Bench, order: list[int], twice: list[int], lived: int
) -> None:
    """Of one life of a connection a member holds the newest word that has come."""
    hearing.kernel.forget_all()
    sequence, newest = hearing.kernel.stream(2, 0).highest, -1
    for at in (each for each in (*order, *twice) if each < lived):
        sequence += 1
        hearing.hear(sent(told(sequence, Word(LIFE[at], version=1000 + at))))
        newest = max(newest, at)
        assert held(hearing) == Word(LIFE[newest], version=1000 + newest)


@pytest.mark.parametrize("state", [State.SYN_SENT, State.SYN_RECEIVED, State.ESTABLISHED], ids=lambda each: each.name)
def test_a_new_life_begins_by_a_much_lower_version(hearing: Bench, state: State) -> None:
    """Its firewall's clock is behind that of the one before; the state is the first that it tells by itself."""
    hearing.hear(sent(told(101, Word(State.TIME_WAIT, version=10_000))))
    hearing.hear(sent(told(102, Word(state, version=9_000))))
    assert held(hearing) == Word(state, version=9_000)


def test_a_transaction_is_stored_when_it_is_committed(hearing: Bench) -> None:
    hearing.hear(sent(told(101, kind=MessageKind.PREPARE)))
    assert held(hearing) is None
    hearing.hear(sent(told(102, kind=MessageKind.COMMIT)))
    assert held(hearing) == ESTABLISHED


def test_a_commit_that_overtakes_its_first_phase_is_stored_where_nobody_waits(hearing: Bench) -> None:
    """Its number has come, so nobody would notice that the change is missing. Where packets wait it is asked again."""
    hearing.hear(sent(told(102, kind=MessageKind.COMMIT)))
    assert held(hearing) == ESTABLISHED
    hearing.hear(sent(told(101, kind=MessageKind.PREPARE)))
    hearing.hear(sent(told(103, Word(State.FIN_WAIT, version=6), kind=MessageKind.COMMIT)))
    assert held(hearing) == Word(State.FIN_WAIT, version=6)


def closings(sequence: int, *words: Word, secret: bytes = SECRET) -> bytes:
    """A frame with what became of connections whose lower ports count up."""
    entries = b"".join(
        replace(key_of(4, TCP), low_port=LOW_PORT + place).pack() + word.pack().to_bytes(8, "little")
        for place, word in enumerate(words)
    )
    digest = siphash(secret, entries)
    message = Message(MessageKind.CLOSINGS, 2, 0, sequence, bytes(40), len(words), digest)
    return message_frame(message.seal(SECRET) + entries, "10.9.0.1")


def test_connections_that_closed_are_told_many_at_a_time(hearing: Bench) -> None:
    hearing.hear(sent(told(101)))
    before = hearing.kernel.counters()
    assert hearing.hear(closings(102, Word(State.TIME_WAIT, version=6), Word(State.CLOSED, version=3)))[0] == DROP
    assert held(hearing) == Word(State.TIME_WAIT, version=6)
    assert hearing.kernel.states() == {(TCP, State.TIME_WAIT): 1, (TCP, State.CLOSED): 1}
    assert hearing.counted(before) == {"stored": 2}


def test_a_late_closing_ends_no_newer_connection(hearing: Bench) -> None:
    for newer in (Word(State.SYN_SENT, version=9), Word(State.ESTABLISHED, version=10)):
        hearing.hear(sent(told(100 + newer.version, newer)))
        hearing.hear(closings(120 + newer.version, Word(State.FIN_WAIT, version=8)))
        assert held(hearing) == newer


def test_closings_under_another_key_are_dropped(hearing: Bench) -> None:
    before = hearing.kernel.counters()
    hearing.hear(closings(101, Word(State.CLOSED, version=6), secret=SECRET[::-1]))
    assert hearing.counted(before) == {"wrong_mac": 1}
    assert hearing.kernel.states() == {}


CLOSING = ((Kind.FIN, True), (Kind.FIN, False), (Kind.ACK, True))


def test_a_short_connection_takes_one_place_from_syn_to_end(hearing: Bench) -> None:
    hearing.kernel.configure(replace(SHARING, waited=frozenset()))
    before = hearing.kernel.closings()
    for kind, sender in (*((kind, sender) for kind, sender, _ in OPENED), *CLOSING):
        hearing.watch(framed(4, TCP, kind, sender))
    after = hearing.kernel.closings()
    assert (after.places - before.places, after.words - before.words) == (1, 5)
    at = before.places % BATCH * ENTRY_BYTES
    entry = hearing.kernel.read_closed(before.places // BATCH)[at : at + ENTRY_BYTES]
    assert entry[:40] == key_of(4, TCP).pack()
    assert Word.unpack(int.from_bytes(entry[40:], "little")).state is State.TIME_WAIT


def test_a_bulk_entry_never_overwrites_what_is_newer(hearing: Bench) -> None:
    key = key_of(4, TCP).pack()
    assert hearing.kernel.take(key, Word(State.ESTABLISHED, version=9).pack())
    assert hearing.kernel.take(key, Word(State.ESTABLISHED, version=8).pack())
    assert held(hearing) == Word(State.ESTABLISHED, version=9)


SHARING = replace(HEARING, hold_s=30.0)
PENDING = Word(State.ESTABLISHED, version=5, pending=True)


@pytest.mark.parametrize("level", [Level.FULL, Level.ESTABLISHED], ids=lambda level: level.name)
def test_data_that_overtakes_a_held_ack_is_held_too(hearing: Bench, level: Level) -> None:
    """Members hold nothing yet; the level may have been another one when the ACK came."""
    key = key_of(4, TCP).pack()
    for kind, sender, _ in OPENED:
        hearing.watch(framed(4, TCP, kind, sender))
    hearing.kernel.configure(replace(SHARING, level=level))
    hearing.kernel.put_entry("opened", key, PENDING.pack().to_bytes(8, "little") + _now() * 2 + bytes(8))
    before = hearing.kernel.counters()
    assert hearing.watch(framed(4, TCP, Kind.ACK, False, b"data")) == DROP
    assert hearing.counted(before)["overtook"] == 1


@pytest.mark.parametrize("before", Level, ids=lambda level: level.name)
def test_the_ack_of_a_handshake_is_held_where_members_do_not_foresee_it(hearing: Bench, before: Level) -> None:
    """At FULL members hold SYN_RECEIVED, if that was the level when the SYN-ACK came and they have confirmed it."""
    hearing.kernel.configure(replace(SHARING, level=before, confirmation=Confirmation.ASYNCHRONOUS))
    for kind, sender, _ in OPENED[:2]:
        assert hearing.watch(framed(4, TCP, kind, sender)) == PASS
    hearing.kernel.configure(replace(SHARING, level=Level.FULL))
    verdict = hearing.watch(framed(4, TCP, Kind.ACK, False))
    assert verdict == (PASS if before is Level.FULL else DROP)
    hearing.kernel.waiting()[:] = 0


KINDS = {TCP: (Kind.SYN, Kind.SYN_ACK, Kind.ACK, Kind.FIN, Kind.RST), UDP: (Kind.DATAGRAM,)}


@pytest.mark.parametrize("confirmation", Confirmation, ids=lambda each: each.name)
@pytest.mark.parametrize("level", Level, ids=lambda level: level.name)
def test_the_program_holds_the_packets_that_the_levels_say(
    hearing: Bench, level: Level, confirmation: Confirmation
) -> None:
    """From every state in which members hold what the firewall does, with each packet of either end."""
    hearing.kernel.configure(replace(SHARING, level=level, confirmation=confirmation))
    is_held: dict[tuple[State, State], bool] = {}
    for protocol, before, sender in itertools.product(KINDS, State, (False, True)):
        for kind in KINDS[protocol] if (before in PSEUDO) <= (protocol == UDP) else ():
            known = None if before is State.LISTEN else Connection(before, False, True, 0.0)
            after = step(known, kind, sender, 0.0)
            if after is not None and (before, after.state) not in is_held:
                is_held[before, after.state] = _is_held(hearing, protocol, before, framed(4, protocol, kind, sender))
    waits = HELD[level] if confirmation is Confirmation.SYNCHRONOUS else frozenset()
    assert is_held == {(before, after): before is not after and after in waits for before, after in is_held}
    assert {after for _, after in is_held} == set(State) - {State.LISTEN}


PSEUDO = (State.ONE_WAY, State.BOTH_WAYS)


def _is_held(hearing: Bench, protocol: int, before: State, frame: bytes) -> bool:
    """Whether a packet of a connection in a state waits; members were told of that state."""
    hearing.kernel.forget_all()
    hearing.kernel.waiting()[:] = 0
    if before is not State.LISTEN:
        word = Word(before, opener=False, closer=True, version=5)
        value = word.pack().to_bytes(8, "little") + _now() * 2 + (5).to_bytes(4, "little") + bytes(4)
        hearing.kernel.put_entry("opened" if before in OPEN else "brief", key_of(4, protocol).pack(), value)
    counts = hearing.kernel.counters()
    hearing.watch(frame)
    found = hearing.counted(counts)
    assert found.keys().isdisjoint({"unexpected", "no_connection"}), (before, found)
    hearing.kernel.waiting()[:] = 0
    return "held" in found


def _now() -> bytes:
    return time.monotonic_ns().to_bytes(8, "little")


def opens_by(length: int) -> bytes:
    """A frame of this length with the first datagram of a connection."""
    return framed(4, UDP, Kind.DATAGRAM, False, bytes(length - len(framed(4, UDP, Kind.DATAGRAM, False))))


def test_what_does_not_fit_behind_a_message_passes_and_the_next_packet_carries_it(hearing: Bench) -> None:
    """The longest frame that fits waits; one byte more does not, nor what is segmented later."""
    hearing.kernel.configure(SHARING)
    hearing.kernel.waiting()[:] = 0
    assert hearing.watch(opens_by(CARRIED_MOST)) == DROP
    assert np.count_nonzero(hearing.kernel.waiting()) == 1
    hearing.kernel.waiting()[:] = 0
    for length, segment_bytes in ((CARRIED_MOST + 1, 0), (200, 100)):
        hearing.kernel.forget_all()
        before = hearing.kernel.counters()
        assert hearing.watch(opens_by(length), segment_bytes=segment_bytes) == PASS
        assert hearing.counted(before) == {"changes": 1, "unheld": 1}
        before = hearing.kernel.counters()
        assert hearing.watch(opens_by(length), segment_bytes=segment_bytes) == PASS
        assert hearing.counted(before) == {"passed": 1}, "members are told by what does not fit"
        before = hearing.kernel.counters()
        assert hearing.watch(opens_by(100)) == PASS
        counted = hearing.counted(before)
        assert counted.get("sent", 0) + counted.get("unresolved", 0) == len(HEARING.members)
        before = hearing.kernel.counters()
        assert hearing.watch(opens_by(100)) == PASS
        assert hearing.counted(before) == {"passed": 1}, "members are told twice"
    assert not hearing.kernel.waiting().any()


def test_what_is_held_is_bounded(hearing: Bench) -> None:
    hearing.kernel.configure(SHARING)
    hearing.kernel.waiting()[:] = 0
    frame, before = bytearray(framed(4, UDP, Kind.DATAGRAM, False)), hearing.kernel.counters()
    for number in range(SLOTS + 10):
        frame[34:36] = (1000 + number).to_bytes(2, "big")
        assert hearing.watch(bytes(frame)) == DROP
    counted = hearing.counted(before)
    assert (counted["held"], counted["held_full"]) == (SLOTS, 10)
    hearing.kernel.waiting()[:] = 0


def test_a_confirmation_from_before_a_restart_frees_no_packet(hearing: Bench) -> None:
    """Numbers of held packets go on where the last life's ended, so that nothing recorded then is one of now."""
    began = hearing.kernel.last_sequence() // SLOTS * SLOTS + 1000 * SLOTS
    hearing.kernel.begin_sequences(began)
    hearing.kernel.configure(SHARING)
    hearing.kernel.waiting()[:] = 0
    hearing.watch(framed(4, UDP, Kind.DATAGRAM, False))
    held_now = int(hearing.kernel.waiting().max())
    assert held_now > began
    entry = hearing.kernel.connection(key_of(4, UDP).pack())
    assert entry is not None
    before = hearing.kernel.counters()
    old = told(5, replace(entry.word, pending=False), sender=1, flags=WANTS_CONFIRMATION | IN_TURN)
    assert hearing.hear(sent(replace(old, slot=held_now - SLOTS)))[0] == DROP
    assert hearing.counted(before) == {"unasked": 1}
    assert hearing.kernel.waiting().max() == held_now
    hearing.kernel.waiting()[:] = 0
