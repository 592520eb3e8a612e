"""A switch's connection over TLS: one thread at a time in the SSL object, and who is let in."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from enforce.launched import HOME, Observer, on_native_threads
from enforce.programs import large_program, program
from enforce.tls_links import TlsLink, client_context
from patience import PATIENCE_S, until

from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import launcher as launching
from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.stream import Tls, TlsStream, serial_of, tls_context
from orchestrator.program.delta import between

T = TypeVar("T")


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

    def getpeercert(self, *, binary_form: bool = False) -> None:
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
def test_a_switch_of_an_authority_that_is_believed_no_more_is_cut_off(
    certificates: Path,
    tls: Tls,
    observer: Observer,
    switch: FakeSwitch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of its connection, and when it comes again, by a controller that runs all the while."""
    monkeypatch.setattr(launching, "hosts_named", lambda *_: frozenset({"h1"}))
    former, present = ((certificates / name).read_text() for name in ("ca.pem", "stranger.pem"))
    believed = tmp_path / "authority.pem"
    believed.write_text(present + former)
    launcher = Launcher(Listen(HOME, 0, replace(tls, authority=believed, domain="d")), observer)
    launcher.start()
    link = TlsLink(switch, launcher.port, certificates, "switch")
    observer.wait("connected")
    launcher.show_certificate()
    believed.write_text(present)
    launcher.show_certificate()
    observer.wait("connected", "disconnected")
    link.close()
    with contextlib.suppress(OSError):
        TlsLink(switch, launcher.port, certificates, "switch").close()
    launcher.stop()
    assert [kind for kind, _ in observer.events] == ["connected", "disconnected"]


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
