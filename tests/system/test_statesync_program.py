"""The replicator's program, run by the kernel on one packet at a time: it decides as the oracle says."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from statesync import frames
from statesync.frames import (
    ICMP,
    ICMPV6,
    TCP,
    UDP,
    error_about,
    framed,
    key_of,
    packet,
    upper,
)
from statesync.programbench import DROP, LOOPBACK, OPENED, PASS, REDIRECT, Bench, built

from orchestrator.enforce.drivers.bpf import libbpf
from orchestrator.statesync.layout import Columns
from orchestrator.statesync.messages import Word
from orchestrator.statesync.oracle import Connection, Kind, step
from orchestrator.statesync.states import State

few = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TCP_KINDS = (Kind.SYN, Kind.SYN_ACK, Kind.ACK, Kind.ACK, Kind.FIN, Kind.RST, Kind.BAD)
KINDS = {TCP: TCP_KINDS, UDP: (Kind.DATAGRAM,), ICMP: (Kind.REQUEST, Kind.REPLY), ICMPV6: (Kind.REQUEST, Kind.REPLY)}
waits = st.sampled_from([0.0, 0.0, 0.0, 5.0, 15.0, 40.0, 70.0, 150.0, 200.0])


@st.composite
def traces(draw: st.DrawFn) -> tuple[int, int, Sequence[tuple[Kind, bool, float]]]:
    """IP version, protocol, and packets: kind, sender, seconds before it. Half of the TCP traces begin well."""
    version = draw(st.sampled_from([4, 6]))
    protocol = draw(st.sampled_from([TCP, TCP, UDP, ICMP if version == 4 else ICMPV6]))
    one = st.tuples(st.sampled_from(KINDS[protocol]), st.booleans(), waits)
    begun = OPENED if protocol == TCP and draw(st.booleans()) else ()
    return version, protocol, (*begun, *draw(st.lists(one, min_size=1, max_size=14)))


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


def test_a_handshake_that_passes_on_a_closing_entry_has_a_version_above_all_before(bench: Bench) -> None:
    """Other members may hold a newer word of the connection before."""
    bench.kernel.forget_all()
    key = key_of(4, TCP).pack()
    assert bench.watch(framed(4, TCP, Kind.SYN, False)) == PASS
    now = bench.kernel.connection(key)
    assert now is not None
    bench.kernel.forget_all()
    word = Word(State.FIN_WAIT, version=(now.word.version - 10_000) % (1 << 32))  # some seconds old
    seen = time.monotonic_ns().to_bytes(8, "little")
    bench.kernel.put_entry("opened", key, word.pack().to_bytes(8, "little") + seen * 2 + bytes(8))
    for kind, sender in ((Kind.SYN, False), (Kind.SYN_ACK, True)):
        assert bench.watch(framed(4, TCP, kind, sender)) == PASS
    entry = bench.kernel.connection(key)
    assert entry is not None
    assert entry.word.state is State.SYN_RECEIVED
    assert (entry.word.version - now.word.version) % (1 << 32) < 1 << 31


def test_a_sweep_spares_a_connection_that_began_anew_meanwhile(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the ends of a new connection with the ports of an old one go on, and their firewall knows it no more."""
    bench.kernel.forget_all()
    real = Columns.over

    def begin_anew(columns: Columns, *when: object) -> Iterator[bytes]:
        found = list(real(columns, *when))  # type: ignore[arg-type]
        if found:
            assert bench.watch(framed(4, TCP, Kind.SYN, False)) == PASS
        return iter(found)

    for kind, sender, _ in (*OPENED, (Kind.RST, False, 0.0)):
        bench.watch(framed(4, TCP, kind, sender))
    bench.let_time_pass(20.0)
    monkeypatch.setattr(Columns, "over", begin_anew)
    assert bench.kernel.sweep() == 0
    monkeypatch.undo()
    agree(Connection(State.SYN_SENT, False, False, 0.0), bench, key_of(4, TCP).pack())
    bench.let_time_pass(40.0)
    assert bench.kernel.sweep() == 1
    assert list(bench.kernel.connections()) == []


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


def with_options(inner: bytes) -> bytes:
    """An IPv4 packet whose header is four bytes longer, which say nothing."""
    return bytes([inner[0] + 1]) + inner[1:20] + b"\x01" * 4 + inner[20:]


UNREADABLE = {
    "a later fragment": frames.ethernet(packet(4, TCP, upper(TCP, Kind.SYN, False), False, fragment=0x00B9)),
    "a first fragment": frames.ethernet(packet(4, TCP, upper(TCP, Kind.SYN, False), False, fragment=0x2000)),
    "another protocol": frames.ethernet(packet(4, 132, bytes(20), False)),
    "IPv6 in an extension header": frames.ethernet(packet(6, 60, bytes(24), False)),
    "a TCP header cut short": frames.ethernet(packet(4, TCP, upper(TCP, Kind.SYN, False)[:12], False)),
    "ICMP of the other version": frames.ethernet(packet(4, ICMPV6, upper(ICMPV6, Kind.REQUEST, False), False)),
    "IPv4 with options": frames.ethernet(with_options(packet(4, TCP, upper(TCP, Kind.SYN, False), False))),
    "TCP from port 0": frames.ethernet(packet(4, TCP, bytes(2) + upper(TCP, Kind.SYN, False)[2:], False)),
    "UDP to port 0": frames.ethernet(packet(6, UDP, b"\x10\0\0\0" + bytes([0, 8, 0, 0]), False)),
    "an echo with a code": frames.ethernet(packet(4, ICMP, bytes([8, 1]) + bytes(6), False)),
    "a timestamp": frames.ethernet(packet(4, ICMP, bytes([13, 0]) + bytes(18), False)),
    "protocol 0": frames.ethernet(packet(4, 0, bytes(20), False)),
    "a redirect": frames.ethernet(packet(4, ICMP, bytes([5, 0, 0, 0, 0, 0, 0, 0]), False)),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_not_understood_is_dropped_and_counted(bench: Bench, name: str) -> None:
    bench.kernel.forget_all()
    before = bench.kernel.counters()
    assert bench.watch(UNREADABLE[name]) == DROP
    assert bench.counted(before) == {"unreadable": 1}
    assert list(bench.kernel.connections()) == []


# -------------------------------------------------------------------------------------------------------------- health

BFD_DOWN, BFD_INIT, BFD_UP = 1, 2, 3
BFD_POLL = 0x20
BFD_MAC = bytes.fromhex("002320000001")
"""Where Open vSwitch sends its questions."""


def asked(state: int, *, ttl: int = 255) -> bytes:
    """A spread switch's question whether this firewall is well."""
    bfd = struct.pack(">BBBBIIIII", 1 << 5, state << 6, 4, 24, 0x1234, 1, 10_000, 10_000, 0)
    above = struct.pack(">HHHH", 49152, 3784, 8 + len(bfd), 0) + bfd
    head = struct.pack(">BBHHHBBH", 0x45, 0xC0, 20 + len(above), 0, 0x4000, ttl, UDP, 0)
    return BFD_MAC + frames.ethernet(head + bytes([169, 254, 1, 1, 169, 254, 1, 0]) + above)[6:]


def answered(bench: Bench, state: int) -> int | None:
    """The state that the program answers with; None: it does not. Only the first answer asks for one at once."""
    verdict, frame = libbpf.run(bench.kernel.program("beat"), asked(state), LOOPBACK)
    if verdict != REDIRECT:
        return None
    assert struct.unpack_from(">II", frame, 46) == (1, 0x1234)
    assert bool(frame[43] & BFD_POLL) == (state == BFD_DOWN)
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


def test_what_anybody_sends_by_the_switch_is_no_question_of_its_own(healthy: Bench) -> None:
    """It bears the MAC address of the firewall's leg. Believed, it would fence the firewall."""
    assert answered(healthy, BFD_UP) == BFD_UP
    before = healthy.kernel.counters()
    for state in (BFD_INIT, BFD_UP, BFD_DOWN):
        passed_on = frames.ethernet(asked(state)[14:])
        assert libbpf.run(healthy.kernel.program("beat"), passed_on, LOOPBACK)[0] == PASS
    assert healthy.counted(before) == {}
    assert answered(healthy, BFD_UP) == BFD_UP


def test_answers_to_the_switch_are_no_connection(healthy: Bench) -> None:
    """Else lists, which permit them to nobody, would close it. One that was routed is a packet like any other."""
    _, frame = libbpf.run(healthy.kernel.program("beat"), asked(BFD_UP), LOOPBACK)
    known = len(list(healthy.kernel.connections()))
    assert healthy.watch(frame) == PASS
    assert len(list(healthy.kernel.connections())) == known
    assert healthy.watch(asked(BFD_UP, ttl=254)) == PASS
    assert len(list(healthy.kernel.connections())) == known + 1


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
    "nothing begins anew before its time-out": ("return kind == (from_opener ? SYN : SYN_ACK);", "return false;"),
    "a SYN ends what one end has closed": ("return kind == SYN ? FIN_WAIT : SYN_RECEIVED;", "return SYN_RECEIVED;"),
}


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
