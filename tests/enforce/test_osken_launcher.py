"""os-ken in our process: its native hub's defects stay mended, and whatever switches do, the others do not notice."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest
import structlog
from enforce.programs import large_program, program, rule

from orchestrator.compile.instructions import reporting
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import compat, frames, messages, packetin
from orchestrator.enforce.drivers.openflow.channel import HEADER, Channel, StreamChannel
from orchestrator.enforce.drivers.openflow.device import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.fake.session import Session
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.enforce.drivers.openflow.stream import PIECE_BYTES, Stream, Tls, TlsStream
from orchestrator.enforce.gap import correction
from orchestrator.errors import Missing, Unreachable
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.program.delta import between

T = TypeVar("T")

HOME = "127.0.0.1"
PATIENCE_S = 0.6


@dataclass
class Observer:
    """Notes what happens to switches."""

    events: list[tuple[str, Channel]] = field(default_factory=list)
    fail: Callable[[str], None] = lambda _: None
    shown: list[bytes] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def connected(self, channel: Channel) -> None:
        self._note("connected", channel)

    def disconnected(self, channel: Channel) -> None:
        self._note("disconnected", channel)

    def ports_changed(self, channel: Channel) -> None:
        self._note("ports_changed", channel)

    def demoted(self, channel: Channel) -> None:
        self._note("demoted", channel)

    def seen(self, channel: Channel, message: bytes) -> None:
        self.shown.append(message)
        self._note("seen", channel)

    def _note(self, event: str, channel: Channel) -> None:
        with self._changed:
            self.events.append((event, channel))
            self._changed.notify_all()
        self.fail(event)

    def wait(self, *events: str, timeout_s: float = 5.0) -> Channel:
        """Wait until exactly these things have happened; the channel of the last."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.events) >= len(events), timeout_s)
            assert [name for name, _ in self.events] == list(events), arrived
            return self.events[-1][1]

    def forget(self) -> None:
        self.events.clear()


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def launcher(observer: Observer) -> Iterator[Launcher]:
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=PATIENCE_S)
    launcher.start()
    yield launcher
    launcher.stop()


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch({"p1": 1, "p2": 2}, datapath_id=0x11)


def eventually(holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def raw_switch(port: int) -> socket.socket:
    """A switch that shakes hands as number 0x22 and then says nothing any more."""
    sock = socket.create_connection((HOME, port), timeout=5)
    sock.sendall(messages.hello(1))
    stream = sock.makefile("rb")
    answered = 0
    while answered < 2:
        _, kind, length, xid = HEADER.unpack(stream.read(8))
        stream.read(length - 8)
        if kind == Type.FEATURES_REQUEST:
            sock.sendall(messages.message(Type.FEATURES_REPLY, xid, struct.pack("!QIBBxxII", 0x22, 0, 254, 0, 0, 0)))
            answered += 1
        elif kind == Type.MULTIPART_REQUEST:
            sock.sendall(messages.message(Type.MULTIPART_REPLY, xid, struct.pack("!HH4x", 13, 0)))
            answered += 1
    return sock


# ------------------------------------------------------------------------------------------- the native hub's defects


def test_twenty_reconnections_leave_no_thread_and_each_end_is_told(
    launcher: Launcher, observer: Observer, switch: FakeSwitch
) -> None:
    before = threads()
    for _ in range(20):
        observer.forget()
        link = TcpLink(switch, (HOME, launcher.port))
        observer.wait("connected")
        link.close()
        assert observer.wait("connected", "disconnected").closed
    eventually(lambda: threads() == before)


def test_an_exception_in_a_handler_is_seen_counted_and_does_not_end_the_application(
    launcher: Launcher, observer: Observer, switch: FakeSwitch
) -> None:
    def fail(event: str) -> None:
        if event == "connected":
            raise ZeroDivisionError("a bug in a handler")

    observer.fail = fail
    with structlog.testing.capture_logs() as logs:
        link = TcpLink(switch, (HOME, launcher.port))
        observer.wait("connected")
        eventually(lambda: launcher.faults == 1)
    assert any(entry["event"] == "openflow.fault" and "state_changed" in entry["text"] for entry in logs)
    link.close()
    observer.wait("connected", "disconnected")


@pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the native hub")
def test_an_exception_in_a_hub_thread_is_seen_and_counted(launcher: Launcher) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a bug in a thread")

    compat.hub.joinall([compat.hub.spawn(fail)])
    assert launcher.faults == 1


@pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the native hub")
def test_waiting_for_a_hub_event_ends(launcher: Launcher) -> None:
    began = time.monotonic()
    assert not compat.hub.Event().wait(0.05)
    assert time.monotonic() - began < 1


def test_stopping_leaves_nothing_and_another_may_start(observer: Observer, switch: FakeSwitch) -> None:
    before = threads()
    for _ in range(2):
        observer.forget()
        launcher = Launcher(Listen(HOME, 0), observer)
        launcher.start()
        link = TcpLink(switch, (HOME, launcher.port))
        observer.wait("connected")
        silent = socket.create_connection((HOME, launcher.port))
        port = launcher.port
        launcher.stop()
        eventually(lambda: not link.is_open)  # noqa: B023
        silent.close()
        observer.wait("connected", "disconnected")
        assert threads() == before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOME, port))
        assert launcher.faults == 0


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server((HOME, 0)) as taken, pytest.raises(Missing, match=r"cannot listen on 127\.0\.0\.1 port"):
        Launcher(Listen(HOME, taken.getsockname()[1]), Observer())


# ------------------------------------------------------------------------------------------------- what switches do


def test_a_switch_is_told_with_its_name_and_ports(launcher: Launcher, observer: Observer, switch: FakeSwitch) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    channel = observer.wait("connected")
    assert channel.datapath_id == 0x11
    assert {name: channel.ports.get(name) for name in ("p1", "p2")} == {"p1": 1, "p2": 2}
    link.close()


def test_ports_that_change_are_told(launcher: Launcher, observer: Observer, switch: FakeSwitch) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    observer.wait("connected")
    switch.set_ports({"p1": 1, "p2": 2, "p9": 9})
    assert observer.wait("connected", "ports_changed").ports["p9"] == 9
    switch.set_ports(switch.ports)
    link.close()
    observer.wait("connected", "ports_changed", "disconnected")


def test_the_loss_of_mastership_is_told(launcher: Launcher, observer: Observer, switch: FakeSwitch) -> None:
    older, newer = TcpLink(switch, (HOME, launcher.port)), TcpLink(switch, (HOME, launcher.port))
    eventually(lambda: len(observer.events) == 2)
    (_, first), (_, second) = observer.events
    observer.forget()
    assert Switch(first, uplink="p2").claim(3)
    assert Switch(second, uplink="p2").claim(4)
    assert observer.wait("demoted") is first
    assert not Switch(first, uplink="p2").claim(3)
    older.close()
    newer.close()


def test_a_switch_that_falls_silent_is_given_up(launcher: Launcher, observer: Observer) -> None:
    sock = raw_switch(launcher.port)
    observer.wait("connected")
    began = time.monotonic()
    observer.wait("connected", "disconnected")
    assert PATIENCE_S * 0.5 < time.monotonic() - began < PATIENCE_S + 1
    sock.close()


def test_a_switch_that_answers_echoes_is_kept(launcher: Launcher, observer: Observer, switch: FakeSwitch) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    observer.wait("connected")
    time.sleep(PATIENCE_S * 2.5)
    assert link.is_open
    observer.wait("connected")
    link.close()


def test_who_never_says_hello_is_given_up(launcher: Launcher) -> None:
    with socket.create_connection((HOME, launcher.port), timeout=5) as sock:
        while sock.recv(100):
            pass


def test_an_exchange_ends_when_the_switch_dies(launcher: Launcher, observer: Observer) -> None:
    sock = raw_switch(launcher.port)
    channel = observer.wait("connected")
    threading.Timer(0.1, lambda: (sock.shutdown(socket.SHUT_RDWR), sock.close())).start()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=30)
    assert time.monotonic() - began < PATIENCE_S / 2 + 1


def test_writing_to_a_switch_that_stopped_reading_ends(launcher: Launcher, observer: Observer) -> None:
    sock = raw_switch(launcher.port)
    channel = observer.wait("connected")
    load = messages.message(Type.ECHO_REPLY, 1, bytes(60000)) * 400
    began = time.monotonic()
    with pytest.raises(Unreachable):
        channel.exchange(load + messages.barrier_request(7), range(7, 8), timeout_s=30)
    assert time.monotonic() - began < 10
    sock.close()


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(64), b"\x06\x00\x00\x08\0\0\0\0" + b"\xff" * 64, messages.hello(1)[:-1]],
    ids=["another protocol", "zeros", "ones", "half a hello"],
)
def test_garbage_ends_its_own_connection_only(
    launcher: Launcher, observer: Observer, switch: FakeSwitch, garbage: bytes
) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    channel = observer.wait("connected")
    with socket.create_connection((HOME, launcher.port), timeout=5) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(garbage)
        while sock.recv(1000):
            pass
    assert channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=5)
    link.close()


def test_a_switch_of_another_version_is_turned_away(launcher: Launcher, observer: Observer) -> None:
    with socket.create_connection((HOME, launcher.port), timeout=5) as sock:
        sock.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
        received = b""
        while data := sock.recv(1000):
            received += data
    assert b"version" in received
    assert observer.events == []


# ----------------------------------------------------------------------------------------------------- the raw path


def test_answers_are_not_parsed_by_the_library(
    launcher: Launcher, observer: Observer, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    device = Switch(observer.wait("connected"), uplink="p2")
    assert device.claim(1)
    goal = program([rule(number) for number in range(50)])

    def refuse(*_: object) -> None:
        raise AssertionError("the library parses a bulk answer")

    parser = compat.ofproto_v1_5_parser
    for name in ("OFPMultipartReply", "OFPBundleCtrlMsg", "OFPErrorMsg", "OFPBarrierReply"):
        monkeypatch.setattr(getattr(parser, name), "parser", refuse)
    device.apply(between(program([]), goal), Stamp(1, goal.digest))
    observed = device.observe()
    assert len(observed.flows) == 50
    assert launcher.faults == 0
    link.close()


def test_a_packet_that_a_rule_shows_is_passed_on_as_it_came(
    launcher: Launcher, observer: Observer, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object of the library's is made of it: a flood of them would keep it busy."""
    link = TcpLink(switch, (HOME, launcher.port))
    device = Switch(observer.wait("connected"), uplink="p2")
    assert device.claim(1)
    goal = program([replace(rule(5), instructions=reporting(b"", 9))])
    device.apply(correction(device.observe(), goal, device.resolve), Stamp(1, goal.digest))

    def refuse(*_: object) -> None:
        raise AssertionError("the library parses a packet")

    monkeypatch.setattr(compat.ofproto_v1_5_parser.OFPPacketIn, "parser", refuse)
    packet = Packet(Family.IPV4, 1, 0x0A000000, TCP, 1024, 1005, tcp_flags=2)
    assert switch.forward(frames.frame(packet, src_mac=1, dst_mac=2, payload=b""), "p1") == []
    observer.wait("connected", "seen")
    (message,) = observer.shown
    shown = packetin.read(message)
    assert shown is not None
    assert shown[:2] == (rule(5).cookie, packet)
    assert launcher.faults == 0
    link.close()


def test_two_writers_do_not_mix_their_bytes() -> None:
    """One writes more than goes out in one piece, the other little and often."""
    ours, theirs = socket.socketpair()
    stream = Stream(ours, 5.0)
    long, short = b"L" * (PIECE_BYTES * 5 + 1), b"s" * 10
    writers = [threading.Thread(target=lambda: [stream.sendall(long) for _ in range(5)]),
               threading.Thread(target=lambda: [stream.sendall(short) for _ in range(500)])]  # fmt: skip
    for writer in writers:
        writer.start()
    received = bytearray()
    while len(received) < 5 * len(long) + 500 * len(short):
        received += theirs.recv(1 << 20)
    for writer in writers:
        writer.join()
    runs = [len(run) for run in bytes(received).replace(b"s", b" ").split()]
    assert all(length % len(long) == 0 for length in runs)
    assert sum(runs) == 5 * len(long)
    assert stream.unanswered_bytes == len(received)


# ---------------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates signed by it for the controller and for a switch."""
    folder = Path(tmp_path_factory.mktemp("tls"))

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    try:
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
        for name in ("controller", "switch"):
            signed = ("-CA", "ca.pem", "-CAkey", "ca.key")
            openssl(
                "req", "-x509", *key, *signed, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"
            )
        openssl("req", "-x509", *key, "-keyout", "stranger.key", "-out", "stranger.pem", "-subj", "/CN=stranger")
    except FileNotFoundError:
        pytest.skip("needs openssl")
    return folder


@pytest.fixture
def tls_launcher(certificates: Path, observer: Observer) -> Iterator[Launcher]:
    folder = certificates
    tls = Tls(folder / "controller.key", folder / "controller.pem", folder / "ca.pem")
    launcher = Launcher(Listen(HOME, 0, tls), observer)
    launcher.start()
    yield launcher
    launcher.stop()


class TlsLink:
    """A fake switch's end of a connection over TLS. Its own reading and writing share a thread."""

    def __init__(self, switch: FakeSwitch, port: int, folder: Path, name: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(folder / "ca.pem")
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        plain = socket.create_connection((HOME, port), timeout=5)
        self._plain = plain.dup()
        self._socket = context.wrap_socket(plain)
        self._socket.settimeout(None)
        self._session = Session(switch)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(self._session.hello())
            while data := self._socket.recv(1 << 16):
                self._socket.sendall(self._session.feed(data))
        self._session.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._plain.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self._plain.close()


def test_over_tls_much_is_written_and_read_at_the_same_time(
    tls_launcher: Launcher, observer: Observer, switch: FakeSwitch, certificates: Path
) -> None:
    link = TlsLink(switch, tls_launcher.port, certificates, "switch")
    device = Switch(observer.wait("connected"), uplink="p2")
    assert device.claim(1)
    empty, full = program([]), large_program(3000)
    device.apply(between(empty, full), Stamp(1, full.digest))
    readings: list[int] = []
    reader = threading.Thread(target=lambda: readings.extend(len(device.observe().flows) for _ in range(6)))
    reader.start()
    writer = Switch(device.channel, uplink="p2")
    for goal, base in ((empty, full), (full, empty), (empty, full), (full, empty)):
        writer.apply(between(base, goal), Stamp(1, goal.digest))
    reader.join(30)
    assert len(readings) == 6
    assert set(readings) <= {0, 3000}
    assert len(device.observe().flows) == 3000
    assert tls_launcher.faults == 0
    link.close()
    observer.wait("connected", "disconnected")


class Touchy:
    """An SSL object that notices two threads in it at the same time, over a real descriptor."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._inside = 0
        self.most_inside = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)

    def recv(self, size: int) -> bytes:
        return self._touch(lambda: self._sock.recv(size), ssl.SSLWantReadError)

    def send(self, data: bytes) -> int:
        return self._touch(lambda: self._sock.send(data), ssl.SSLWantWriteError)

    def _touch(self, work: Callable[[], T], wanted: type[Exception]) -> T:
        self._inside += 1
        self.most_inside = max(self.most_inside, self._inside)
        time.sleep(0.0005)
        try:
            return work()
        except BlockingIOError:
            raise wanted from None
        finally:
            self._inside -= 1


@pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the system's own threads")
def test_who_waits_for_an_answer_reads_it_itself_and_gives_its_place_back(
    launcher: Launcher, observer: Observer, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    channel = observer.wait("connected")
    readers: list[str] = []
    deliver = StreamChannel.deliver

    def noted(self: StreamChannel, message: bytes) -> bool:
        readers.append(threading.current_thread().name)
        return deliver(self, message)

    monkeypatch.setattr(StreamChannel, "deliver", noted)
    for number in range(50):
        assert channel.exchange(messages.barrier_request(7 + number), range(7 + number, 8 + number), timeout_s=5)
    assert set(readers) == {threading.current_thread().name}
    observer.forget()
    switch.set_ports({"p1": 1, "p2": 2, "p3": 3})
    observer.wait("ports_changed")
    link.close()


def shut(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the system's own threads")
@pytest.mark.parametrize("end", [shut, reset])
def test_a_connection_that_ends_while_somebody_reads_it_ends_for_everybody(
    observer: Observer, end: Callable[[socket.socket], None]
) -> None:
    """The end comes as the other side's last octet, which wakes only who reads; or as the reset of who was killed."""
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=60.0)
    launcher.start()
    silent = raw_switch(launcher.port)
    channel = observer.wait("connected")
    threading.Timer(0.1, end, (silent,)).start()
    began = time.monotonic()
    with pytest.raises(Unreachable, match="closed"):
        channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=30)
    observer.wait("connected", "disconnected")
    assert time.monotonic() - began < 10
    silent.close()
    launcher.stop()


@pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the system's own threads")
def test_a_switch_that_answers_before_it_reads_on_is_read_while_it_is_written(observer: Observer) -> None:
    """It takes no more until its answers are taken: who writes much must not be the one who reads."""
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=5.0)
    launcher.start()
    stubborn = raw_switch(launcher.port)
    stubborn.settimeout(10)
    channel = observer.wait("connected")
    complaint = messages.message(Type.ERROR, 7, bytes(60_000))
    load = messages.message(Type.FLOW_MOD, 7, bytes(60_000)) * 200

    def answer_first() -> None:
        stubborn.recv(1000)
        stubborn.sendall(complaint * 200)
        taken = 1000
        while taken < len(load) + 8:
            taken += len(stubborn.recv(1 << 20))
        stubborn.sendall(messages.message(Type.BARRIER_REPLY, 8))

    switch = threading.Thread(target=answer_first)
    switch.start()
    answers = channel.exchange(load + messages.barrier_request(8), range(7, 9), timeout_s=20)
    assert len(answers) == 201
    switch.join()
    stubborn.close()
    launcher.stop()


@pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the system's own threads")
def test_the_ssl_object_is_never_used_by_two_threads_at_once() -> None:
    ours, theirs = socket.socketpair()
    touchy = Touchy(ours)
    stream = TlsStream(touchy, 5.0)  # type: ignore[arg-type]
    echo = threading.Thread(target=lambda: [theirs.sendall(data) for data in iter(lambda: theirs.recv(1 << 16), b"")])
    writer = threading.Thread(target=lambda: [(stream.sendall(b"x" * 1000), time.sleep(0.001)) for _ in range(60)])
    received: list[bytes] = []
    reader = threading.Thread(target=stream.serve, args=(received.append,))
    for thread in (echo, writer, reader):
        thread.start()
    writer.join()
    eventually(lambda: sum(map(len, received)) == 60_000)
    theirs.shutdown(socket.SHUT_RDWR)
    echo.join()
    reader.join()
    ours.close()
    theirs.close()
    assert touchy.most_inside == 1


def test_a_switch_with_a_strangers_certificate_is_turned_away(
    tls_launcher: Launcher, observer: Observer, switch: FakeSwitch, certificates: Path
) -> None:
    with contextlib.suppress(OSError):
        TlsLink(switch, tls_launcher.port, certificates, "stranger").close()
    with socket.create_connection((HOME, tls_launcher.port), timeout=5) as plain, contextlib.suppress(ConnectionError):
        plain.sendall(messages.hello(1))
        plain.recv(100)
    link = TlsLink(switch, tls_launcher.port, certificates, "switch")
    observer.wait("connected")
    link.close()
