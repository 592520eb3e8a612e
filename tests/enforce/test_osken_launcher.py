"""os-ken in our process: its native hub's defects stay mended, and whatever switches do, the others do not notice."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

import pytest
import structlog
from enforce.launched import HOME, SILENCE_S, Observer, raw_switch, threads
from patience import PATIENCE_S, until

from orchestrator.enforce.drivers.openflow import compat, messages
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.errors import Missing, Unreachable

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
    until(lambda: threads() == before)


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
        until(lambda: launcher.faults == 1)
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
    assert not compat.hub.Event().wait(0.05)


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
        until(lambda: not link.is_open)  # noqa: B023
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
    until(lambda: len(observer.events) == 2)
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
    assert time.monotonic() - began > SILENCE_S / 2
    sock.close()


def test_a_switch_that_answers_echoes_is_kept(launcher: Launcher, observer: Observer, switch: FakeSwitch) -> None:
    link = TcpLink(switch, (HOME, launcher.port))
    observer.wait("connected")
    time.sleep(SILENCE_S * 2.5)
    assert link.is_open
    observer.wait("connected")
    link.close()


class LateOnce(threading.Event):
    """Who waits for it is late, once: as if this machine had stood still meanwhile."""

    late_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        late_s, self.late_s = self.late_s, 0.0
        return super().wait(None if timeout is None else timeout + late_s)


def test_where_this_machine_stood_still_nobody_is_given_up(observer: Observer, switch: FakeSwitch) -> None:
    """Nobody was asked in that time, so nobody could answer."""
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=SILENCE_S)
    launcher.stopping = stopping = LateOnce()
    launcher.start()
    link = TcpLink(switch, (HOME, launcher.port))
    observer.wait("connected")
    stopping.late_s = SILENCE_S * 2
    time.sleep(SILENCE_S * 4)
    assert link.is_open
    observer.wait("connected")
    launcher.stop()


def test_who_never_says_hello_is_given_up(launcher: Launcher) -> None:
    with socket.create_connection((HOME, launcher.port), timeout=PATIENCE_S) as sock:
        while sock.recv(100):
            pass


def test_an_exchange_ends_when_the_switch_dies(launcher: Launcher, observer: Observer) -> None:
    sock = raw_switch(launcher.port)
    channel = observer.wait("connected")
    threading.Timer(0.1, lambda: (sock.shutdown(socket.SHUT_RDWR), sock.close())).start()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2


def test_writing_to_a_switch_that_stopped_reading_ends(launcher: Launcher, observer: Observer) -> None:
    sock = raw_switch(launcher.port)
    channel = observer.wait("connected")
    load = messages.message(Type.ECHO_REPLY, 1, bytes(60000)) * 400
    began = time.monotonic()
    with pytest.raises(Unreachable):
        channel.exchange(load + messages.barrier_request(7), range(7, 8), timeout_s=PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
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
    with (
        socket.create_connection((HOME, launcher.port), timeout=PATIENCE_S) as sock,
        contextlib.suppress(ConnectionError),
    ):
        sock.sendall(garbage)
        while sock.recv(1000):
            pass
    assert channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=PATIENCE_S)
    link.close()


def test_a_switch_of_another_version_is_turned_away(launcher: Launcher, observer: Observer) -> None:
    with socket.create_connection((HOME, launcher.port), timeout=PATIENCE_S) as sock:
        sock.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
        received = b""
        while data := sock.recv(1000):
            received += data
    assert b"version" in received
    assert observer.events == []
