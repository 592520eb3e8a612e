"""The replicator's program, run by the kernel on one packet at a time: it decides as the oracle says."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from statesync import frames
from statesync.frames import (
    ICMP,
    ICMPV6,
    LOW_PORT,
    TCP,
    UDP,
    error_about,
    framed,
    key_of,
    message_frame,
    message_of,
    packet,
    upper,
)

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.statesync import kernel
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.layout import BATCH, ENTRY_BYTES, SLOTS, Settings, Stream, shift_seen
from orchestrator.statesync.messages import IN_TURN, WANTS_CONFIRMATION, Message, MessageKind, Word, open_sealed
from orchestrator.statesync.oracle import Connection, Kind, step
from orchestrator.statesync.siphash import siphash
from orchestrator.statesync.states import Level, State

PASS, DROP, REDIRECT = 0, 2, 7
LOOPBACK = 1
SECRET = bytes(range(16))
ALONE = Settings(1, "10.9.0.1", SECRET, level=Level.NONE)
few = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TCP_KINDS = (Kind.SYN, Kind.SYN_ACK, Kind.ACK, Kind.ACK, Kind.FIN, Kind.RST, Kind.BAD)
KINDS = {TCP: TCP_KINDS, UDP: (Kind.DATAGRAM,), ICMP: (Kind.REQUEST, Kind.REPLY), ICMPV6: (Kind.REQUEST, Kind.REPLY)}
OPENED = ((Kind.SYN, False, 0.0), (Kind.SYN_ACK, True, 0.0), (Kind.ACK, False, 0.0))
waits = st.sampled_from([0.0, 0.0, 0.0, 5.0, 15.0, 40.0, 70.0, 150.0, 200.0])


@st.composite
def traces(draw: st.DrawFn) -> tuple[int, int, Sequence[tuple[Kind, bool, float]]]:
    """IP version, protocol, and packets: kind, sender, seconds before it. Half of the TCP traces begin well."""
    version = draw(st.sampled_from([4, 6]))
    protocol = draw(st.sampled_from([TCP, TCP, UDP, ICMP if version == 4 else ICMPV6]))
    one = st.tuples(st.sampled_from(KINDS[protocol]), st.booleans(), waits)
    begun = OPENED if protocol == TCP and draw(st.booleans()) else ()
    return version, protocol, (*begun, *draw(st.lists(one, min_size=1, max_size=14)))


class Bench:
    """A replicator that is attached nowhere; frames are given to it by hand."""

    def __init__(self, file: Path = kernel.FILE) -> None:
        self.kernel = Replicator.new(file)
        self.kernel.configure(ALONE)

    def watch(self, frame: bytes, interface: int = LOOPBACK) -> int:
        return libbpf.run(self.kernel.program("watch"), frame, interface)[0]

    def hear(self, frame: bytes) -> tuple[int, bytes]:
        return libbpf.run(self.kernel.program("hear"), frame, LOOPBACK)

    def let_time_pass(self, seconds: float) -> None:
        for name in ("opened", "brief"):
            for key, value in list(self.kernel.entries(name)):
                self.kernel.put_entry(name, key, shift_seen(value, int(seconds * 1e9)))

    def counted(self, before: dict[str, int] | None = None) -> dict[str, int]:
        found = self.kernel.counters()
        return {
            name: count - (before or {}).get(name, 0)
            for name, count in found.items()
            if count != (before or {}).get(name, 0)
        }


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.kernel.close()


def play(bench: Bench, version: int, protocol: int, trace: Sequence[tuple[Kind, bool, float]]) -> None:
    """Give both the same packets; raises AssertionError at the first one that they see differently."""
    bench.kernel.forget_all()
    key, known, now = key_of(version, protocol).pack(), None, 0.0
    for kind, sender, wait in trace:
        if wait:
            now += wait
            bench.let_time_pass(wait)
        expected = step(known, kind, sender, now)
        verdict = bench.watch(framed(version, protocol, kind, sender))
        assert verdict == (DROP if expected is None else PASS), (kind, sender, known)
        known = expected or known
        agree(known, bench, key)


def agree(known: Connection | None, bench: Bench, key: bytes) -> None:
    entry = bench.kernel.connection(key)
    if known is None or entry is None:
        assert entry is None
        assert known is None
        return
    assert (entry.word.state, entry.word.opener) == (known.state, known.opener)
    if known.state in (State.FIN_WAIT, State.LAST_ACK):
        assert entry.word.closer == known.closer


@few
@given(traces())
def test_the_program_decides_as_the_oracle(
    bench: Bench, trace: tuple[int, int, Sequence[tuple[Kind, bool, float]]]
) -> None:
    play(bench, *trace)


def test_versions_of_a_connection_grow_with_each_change(bench: Bench) -> None:
    bench.kernel.forget_all()
    key, versions = key_of(4, TCP).pack(), []
    for kind, sender, _ in (
        *OPENED,
        (Kind.FIN, False, 0),
        (Kind.FIN, True, 0),
        (Kind.ACK, False, 0),
        (Kind.SYN, True, 0),
    ):
        assert bench.watch(framed(4, TCP, kind, sender)) == PASS
        entry = bench.kernel.connection(key)
        assert entry is not None
        versions.append(entry.word.version)
    assert versions == sorted(set(versions))


def test_errors_pass_that_quote_a_known_connection(bench: Bench) -> None:
    for version in (4, 6):
        bench.kernel.forget_all()
        quoted = packet(version, TCP, upper(TCP, Kind.ACK, False), False)[: 20 + 8 if version == 4 else 40 + 8]
        assert bench.watch(error_about(version, quoted, True)) == DROP
        for kind, sender, _ in OPENED:
            bench.watch(framed(version, TCP, kind, sender))
        assert bench.watch(error_about(version, quoted, True)) == PASS
        entry = bench.kernel.connection(key_of(version, TCP).pack())
        assert entry is not None
        assert entry.word.state is State.ESTABLISHED


UNREADABLE = {
    "a later fragment": frames.ethernet(packet(4, TCP, upper(TCP, Kind.SYN, False), False, fragment=0x00B9)),
    "a first fragment": frames.ethernet(packet(4, TCP, upper(TCP, Kind.SYN, False), False, fragment=0x2000)),
    "another protocol": frames.ethernet(packet(4, 132, bytes(20), False)),
    "IPv6 in an extension header": frames.ethernet(packet(6, 60, bytes(24), False)),
    "a TCP header cut short": frames.ethernet(packet(4, TCP, upper(TCP, Kind.SYN, False)[:12], False)),
    "ICMP of the other version": frames.ethernet(packet(4, ICMPV6, upper(ICMPV6, Kind.REQUEST, False), False)),
    "a redirect": frames.ethernet(packet(4, ICMP, bytes([5, 0, 0, 0, 0, 0, 0, 0]), False)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_not_understood_is_dropped_and_counted(bench: Bench, name: str) -> None:
    bench.kernel.forget_all()
    before = bench.kernel.counters()
    assert bench.watch(UNREADABLE[name]) == DROP
    assert bench.counted(before) == {"unreadable": 1}
    assert list(bench.kernel.connections()) == []


# ------------------------------------------------------------------------------------------------------------ messages

ESTABLISHED = Word(State.ESTABLISHED, version=5)
HEARING = replace(ALONE, level=Level.FULL, members=frozenset({2, 3}), waited=frozenset({2, 3}))


@pytest.fixture
def hearing(bench: Bench) -> Iterator[Bench]:
    bench.kernel.configure(HEARING)
    bench.kernel.forget_all()
    for sender in (2, 3):
        bench.kernel.set_stream(sender, 0, Stream(True, 100, 100))
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
        (sent(told(101, kind=MessageKind.COMMIT)), "unprepared"),
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


def test_a_new_life_begins_by_a_much_lower_version(hearing: Bench) -> None:
    """Its firewall's clock is behind that of the one before."""
    hearing.hear(sent(told(101, Word(State.TIME_WAIT, version=10_000))))
    hearing.hear(sent(told(102, Word(State.SYN_SENT, version=9_000))))
    assert held(hearing) == Word(State.SYN_SENT, version=9_000)


def test_a_transaction_is_stored_when_it_is_committed(hearing: Bench) -> None:
    hearing.hear(sent(told(101, kind=MessageKind.PREPARE)))
    assert held(hearing) is None
    hearing.hear(sent(told(102, kind=MessageKind.COMMIT)))
    assert held(hearing) == ESTABLISHED


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


def test_a_connection_that_goes_on_closing_takes_one_place(hearing: Bench) -> None:
    hearing.kernel.configure(replace(SHARING, waited=frozenset()))
    before = hearing.kernel.closings()
    for kind, sender in (*((kind, sender) for kind, sender, _ in OPENED), *CLOSING):
        hearing.watch(framed(4, TCP, kind, sender))
    after = hearing.kernel.closings()
    assert (after.places - before.places, after.words - before.words) == (1, 3)
    at = before.places % BATCH * ENTRY_BYTES
    entry = hearing.kernel.closed(before.places // BATCH)[at : at + ENTRY_BYTES]
    assert entry[:40] == key_of(4, TCP).pack()
    assert Word.unpack(int.from_bytes(entry[40:], "little")).state is State.TIME_WAIT


def test_a_bulk_entry_never_overwrites_what_is_newer(hearing: Bench) -> None:
    key = key_of(4, TCP).pack()
    assert hearing.kernel.take(key, Word(State.ESTABLISHED, version=9).pack())
    assert hearing.kernel.take(key, Word(State.ESTABLISHED, version=8).pack())
    assert held(hearing) == Word(State.ESTABLISHED, version=9)


SHARING = replace(HEARING, hold_s=30.0)
PENDING = Word(State.ESTABLISHED, version=5, pending=True)


@pytest.mark.parametrize(("level", "verdict"), [(Level.FULL, PASS), (Level.ESTABLISHED, DROP)])
def test_data_that_overtakes_a_held_ack(hearing: Bench, level: Level, verdict: int) -> None:
    """At FULL members hold what leads on to it, so it passes; at ESTABLISHED they hold nothing, so it is held, too."""
    key = key_of(4, TCP).pack()
    for kind, sender, _ in OPENED:
        hearing.watch(framed(4, TCP, kind, sender))
    hearing.kernel.configure(replace(SHARING, level=level))
    hearing.kernel.put_entry("opened", key, PENDING.pack().to_bytes(8, "little") + _now() * 2 + bytes(8))
    before = hearing.kernel.counters()
    assert hearing.watch(framed(4, TCP, Kind.ACK, False, b"data")) == verdict
    assert hearing.counted(before).get("overtook", 0) == (level is Level.ESTABLISHED)


def _now() -> bytes:
    return time.monotonic_ns().to_bytes(8, "little")


def test_what_is_held_is_bounded(hearing: Bench) -> None:
    hearing.kernel.configure(SHARING)
    hearing.kernel.waiting()[:] = 0
    frame, before = bytearray(framed(4, TCP, Kind.SYN, False)), hearing.kernel.counters()
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
    hearing.watch(framed(4, TCP, Kind.SYN, False))
    held_now = int(hearing.kernel.waiting().max())
    assert held_now > began
    entry = hearing.kernel.connection(key_of(4, TCP).pack())
    assert entry is not None
    before = hearing.kernel.counters()
    old = told(5, replace(entry.word, pending=False), sender=1, flags=WANTS_CONFIRMATION | IN_TURN)
    assert hearing.hear(sent(replace(old, slot=held_now - SLOTS)))[0] == DROP
    assert hearing.counted(before) == {"unasked": 1}
    assert hearing.kernel.waiting().max() == held_now
    hearing.kernel.waiting()[:] = 0


# -------------------------------------------------------------------------------------------------------------- health

BFD_DOWN, BFD_INIT, BFD_UP = 1, 2, 3


def asked(state: int, *, ttl: int = 255) -> bytes:
    """A spread switch's question whether this firewall is well."""
    bfd = struct.pack(">BBBBIIIII", 1 << 5, state << 6, 4, 24, 0x1234, 1, 10_000, 10_000, 0)
    above = struct.pack(">HHHH", 49152, 3784, 8 + len(bfd), 0) + bfd
    head = struct.pack(">BBHHHBBH", 0x45, 0xC0, 20 + len(above), 0, 0x4000, ttl, UDP, 0)
    return frames.ethernet(head + bytes([169, 254, 1, 1, 169, 254, 1, 0]) + above)


def answered(bench: Bench, state: int) -> int | None:
    """The state that the program answers with; None: it does not."""
    verdict, frame = libbpf.run(bench.kernel.program("beat"), asked(state), LOOPBACK)
    if verdict != REDIRECT:
        return None
    assert struct.unpack_from(">II", frame, 46) == (1, 0x1234)
    return frame[43] >> 6


@pytest.fixture
def healthy(bench: Bench) -> Iterator[Bench]:
    bench.kernel.serve(True)
    yield bench
    bench.kernel.serve(False)


def test_a_firewall_answers_the_switch_only_while_it_serves(healthy: Bench) -> None:
    assert [answered(healthy, state) for state in (BFD_DOWN, BFD_INIT, BFD_UP)] == [BFD_INIT, BFD_UP, BFD_UP]
    healthy.kernel.serve(False)
    assert answered(healthy, BFD_UP) is None


def test_a_firewall_that_the_switch_gave_up_fences_itself(healthy: Bench) -> None:
    """It was frozen, say; now the switch says DOWN, and others have its connections."""
    assert answered(healthy, BFD_UP) == BFD_UP
    before = healthy.kernel.counters()
    assert answered(healthy, BFD_DOWN) is None
    assert answered(healthy, BFD_DOWN) is None
    assert healthy.counted(before) == {"fenced": 1}
    assert not healthy.kernel.health().serving
    healthy.kernel.serve(True)
    assert answered(healthy, BFD_DOWN) == BFD_INIT


def test_a_question_that_was_routed_is_not_answered(healthy: Bench) -> None:
    assert libbpf.run(healthy.kernel.program("beat"), asked(BFD_UP, ttl=254), LOOPBACK)[0] == DROP


# -------------------------------------------------------------------------------------------------------- planted bugs

BUGS = {
    "a SYN-ACK opens": (
        "if (kind == SYN && (state == LISTEN",
        "if ((kind == SYN || kind == SYN_ACK) && (state == LISTEN",
    ),
    "the opener may answer itself": ("return kind == SYN_ACK ? SYN_RECEIVED : REFUSED;", "return SYN_RECEIVED;"),
    "any ACK establishes": ("return from_opener ? ESTABLISHED : SYN_RECEIVED;", "return ESTABLISHED;"),
    "either end's FIN is the second": ("return from_closer ? FIN_WAIT : LAST_ACK;", "return LAST_ACK;"),
    "the closer is forgotten": ("(packet->sender ? CLOSER : 0)", "0"),
    "a time-out is not looked at": ("idle > (__s64)timeout_of(settings, state)", "false"),
    "a packet does not count as life": (
        "	known->seen = now;\n	if (!settings->active",
        "	if (!settings->active",
    ),
    "replies open": (
        "kind == DATAGRAM || kind == REQUEST ? ONE_WAY : REFUSED;\n	case SYN_SENT",
        "ONE_WAY;\n	case SYN_SENT",
    ),
    "flags are not masked": ("switch (flags & 0x17)", "switch (flags & 0x13)"),
}


def built(folder: Path, old: str, new: str) -> Path:
    """The program with some text of its source replaced."""
    source = Path(kernel.__file__).parent / "_native"
    for file in source.iterdir():
        shutil.copy(file, folder)
    program = folder / "statesync.bpf.c"
    texts = {file: file.read_text() for file in folder.glob("*.[ch]")}
    assert sum(text.count(old) for text in texts.values()) == 1, old
    for file, text in texts.items():
        file.write_text(text.replace(old, new))
    made = folder / "statesync.bpf.o"
    headers = f"-I/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", headers, "-c", program, "-o", made], check=True)
    return made


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_noticed(tmp_path: Path, name: str) -> None:
    changed = Bench(built(tmp_path, *BUGS[name]))

    @settings(max_examples=400, deadline=None, database=None, phases=[Phase.generate], report_multiple_bugs=False)
    @given(traces())
    def law(trace: tuple[int, int, Sequence[tuple[Kind, bool, float]]]) -> None:
        play(changed, *trace)

    with pytest.raises(AssertionError):
        law()
    changed.kernel.close()
