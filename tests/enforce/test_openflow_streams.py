"""What goes over a switch's connection: answers as they came, who reads and who writes, and the same over TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from enforce.launched import HOME, Observer, raw_switch
from enforce.programs import large_program, program, rule
from patience import PATIENCE_S, until

from orchestrator.compile.openflow.instructions import reporting
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import compat, frames, messages, packetin
from orchestrator.enforce.drivers.openflow import launcher as launching
from orchestrator.enforce.drivers.openflow.app import Connection
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.device import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.fake.session import Session
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.enforce.drivers.openflow.stream import (
    PIECE_BYTES,
    SharedStream,
    Stream,
    Tls,
    TlsStream,
    serial_of,
    tls_context,
)
from orchestrator.enforce.gap import correction
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.program.delta import between

T = TypeVar("T")

on_native_threads = pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the system's own threads")


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
    stream = Stream(ours, PATIENCE_S)
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
def tls(certificates: Path) -> Tls:
    return Tls(certificates / "controller.key", certificates / "controller.pem", certificates / "ca.pem")


@pytest.fixture
def tls_launcher(tls: Tls, observer: Observer) -> Iterator[Launcher]:
    launcher = Launcher(Listen(HOME, 0, tls), observer)
    launcher.start()
    yield launcher
    launcher.stop()


def client_context(folder: Path, name: str) -> ssl.SSLContext:
    """Who a switch believes, and the certificate that it shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(folder / "ca.pem")
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


class TlsLink:
    """A fake switch's end of a connection over TLS. Its own reading and writing share a thread."""

    def __init__(self, switch: FakeSwitch, port: int, folder: Path, name: str) -> None:
        plain = socket.create_connection((HOME, port), timeout=PATIENCE_S)
        self._plain = plain.dup()
        self._socket = client_context(folder, name).wrap_socket(plain)
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
    reader.join(PATIENCE_S)
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

    def getpeercert(self) -> None:
        """Nothing was shown."""

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


@on_native_threads
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
        assert channel.exchange(
            messages.barrier_request(7 + number), range(7 + number, 8 + number), timeout_s=PATIENCE_S
        )
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


@on_native_threads
@pytest.mark.parametrize("end", [shut, reset])
def test_a_connection_that_ends_while_somebody_reads_it_ends_for_everybody(
    observer: Observer, end: Callable[[socket.socket], None]
) -> None:
    """The end comes as the other side's last octet, which wakes only who reads; or as the reset of who was killed."""
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=2 * PATIENCE_S)
    launcher.start()
    silent = raw_switch(launcher.port)
    channel = observer.wait("connected")
    threading.Timer(0.1, end, (silent,)).start()
    began = time.monotonic()
    with pytest.raises(Unreachable, match="closed"):
        channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=PATIENCE_S)
    observer.wait("connected", "disconnected")
    assert time.monotonic() - began < PATIENCE_S / 2
    silent.close()
    launcher.stop()


@on_native_threads
def test_who_asks_over_a_stream_just_closed_is_told_so_each_time() -> None:
    """Between the end of who serves and word of it there is a moment; the second to ask must not wait for the first."""
    ours, theirs = socket.socketpair()
    stream = SharedStream(ours, PATIENCE_S)
    channel = StreamChannel(7, {}, stream.sendall, lambda: stream.borrowed(lambda _: None))  # as if not told yet
    stream.close()
    for _ in range(2):
        with pytest.raises(Unreachable):
            channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=PATIENCE_S)
    assert stream._reading.acquire(blocking=False), "whoever asked last still holds the reader's place"
    theirs.close()


@on_native_threads
def test_a_tls_stream_closed_between_reading_and_waiting_has_ended() -> None:
    class Closing(Touchy):
        def recv(self, size: int) -> bytes:
            self._sock.close()
            raise ssl.SSLWantReadError(size)

    ours, theirs = socket.socketpair()
    with pytest.raises(OSError, match="closed"):
        TlsStream(Closing(ours), PATIENCE_S).serve(lambda _: None)  # type: ignore[arg-type]
    theirs.close()


@on_native_threads
def test_who_sends_when_the_sending_thread_has_just_ended_sends_nothing() -> None:
    """The library looks at the queue, and then takes it from where its sender has put nothing by now."""

    class Ending(Connection):
        looks = 0

        @property
        def send_q(self) -> object:
            self.looks += 1
            return self._queue if self.looks == 1 else None

        @send_q.setter
        def send_q(self, queue: object) -> None:
            self._queue = queue

    with socket.create_server((HOME, 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        connection = Ending(Stream(ours, PATIENCE_S), (HOME, 6653), lambda *_: None)
        connection.looks = 0
        connection.send(b"a")
        assert not connection.send(b"b")


def wrapped(certificates: Path, tls: Tls) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Both ends of a connection over TLS: ours, and that of a switch."""
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        peer = pool.submit(client_context(certificates, "switch").wrap_socket, theirs)
        return tls_context(tls).wrap_socket(ours, server_side=True), peer.result(PATIENCE_S)


@on_native_threads
def test_a_switch_over_tls_is_known_by_its_certificate_after_its_end(certificates: Path, tls: Tls) -> None:
    """Who revokes certificates looks at connections that may end meanwhile."""
    ours, theirs = wrapped(certificates, tls)
    stream = TlsStream(ours, PATIENCE_S)
    shown = stream.certificate
    stream.close()
    assert shown
    assert stream.certificate == shown
    theirs.close()


@on_native_threads
def test_a_certificate_that_is_revoked_while_its_switch_connects_lets_nobody_in(
    certificates: Path, tls: Tls, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Launcher(Listen(HOME, 0, replace(tls, domain="d")), observer)

    def revoked_now(certificate: Mapping[str, object], _domain: str) -> frozenset[str]:
        launcher.refuse(frozenset(filter(None, (serial_of(certificate),))))
        return frozenset({"h1"})

    monkeypatch.setattr(launching, "hosts_named", revoked_now)
    launcher.start()
    with client_context(certificates, "switch").wrap_socket(socket.create_connection((HOME, launcher.port))) as link:
        link.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionResetError):
            assert link.recv(64) == b"", "it is greeted"
    launcher.stop()
    assert observer.events == []


@on_native_threads
def test_a_switch_that_answers_before_it_reads_on_is_read_while_it_is_written(observer: Observer) -> None:
    """It takes no more until its answers are taken: who writes much must not be the one who reads."""
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=PATIENCE_S)
    launcher.start()
    stubborn = raw_switch(launcher.port)
    stubborn.settimeout(PATIENCE_S)
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
    answers = channel.exchange(load + messages.barrier_request(8), range(7, 9), timeout_s=PATIENCE_S)
    assert len(answers) == 201
    switch.join()
    stubborn.close()
    launcher.stop()


@on_native_threads
def test_the_ssl_object_is_never_used_by_two_threads_at_once() -> None:
    ours, theirs = socket.socketpair()
    touchy = Touchy(ours)
    stream = TlsStream(touchy, PATIENCE_S)  # type: ignore[arg-type]
    echo = threading.Thread(target=lambda: [theirs.sendall(data) for data in iter(lambda: theirs.recv(1 << 16), b"")])
    writer = threading.Thread(target=lambda: [(stream.sendall(b"x" * 1000), time.sleep(0.001)) for _ in range(60)])
    received: list[bytes] = []
    reader = threading.Thread(target=stream.serve, args=(received.append,))
    for thread in (echo, writer, reader):
        thread.start()
    writer.join()
    until(lambda: sum(map(len, received)) == 60_000)
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
    with (
        socket.create_connection((HOME, tls_launcher.port), timeout=PATIENCE_S) as plain,
        contextlib.suppress(ConnectionError),
    ):
        plain.sendall(messages.hello(1))
        plain.recv(100)
    link = TlsLink(switch, tls_launcher.port, certificates, "switch")
    observer.wait("connected")
    link.close()
