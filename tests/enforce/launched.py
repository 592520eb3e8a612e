"""os-ken in a test's own process: an observer of switches, a launcher, and switches that connect to it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from patience import PATIENCE_S

from orchestrator.enforce.drivers.openflow import compat, messages
from orchestrator.enforce.drivers.openflow.channel import HEADER, Channel
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.messages import Type

HOME = "127.0.0.1"
SILENCE_S = 0.6
"""How long a switch may say nothing."""

on_native_threads = pytest.mark.skipif(not compat.NATIVE_THREADS, reason="about the system's own threads")


@dataclass
class Observer:
    """Notes what happens to switches."""

    events: list[tuple[str, Channel]] = field(default_factory=list)
    fail: Callable[[str], None] = lambda _: None
    shown: list[bytes] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def switch_connected(self, channel: Channel) -> None:
        self._note("connected", channel)

    def switch_disconnected(self, channel: Channel) -> None:
        self._note("disconnected", channel)

    def ports_changed(self, channel: Channel) -> None:
        self._note("ports_changed", channel)

    def links_changed(self, channel: Channel) -> None:
        self._note("links_changed", channel)

    def switch_demoted(self, channel: Channel) -> None:
        self._note("demoted", channel)

    def seen(self, channel: Channel, message: bytes) -> None:
        self.shown.append(message)
        self._note("seen", channel)

    def _note(self, event: str, channel: Channel) -> None:
        with self._changed:
            self.events.append((event, channel))
            self._changed.notify_all()
        self.fail(event)

    def wait(self, *events: str) -> Channel:
        """Wait until exactly these things have happened; the channel of the last."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.events) >= len(events), PATIENCE_S)
            assert [name for name, _ in self.events] == list(events), arrived
            return self.events[-1][1]

    def forget(self) -> None:
        self.events.clear()


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def launcher(observer: Observer) -> Iterator[Launcher]:
    launcher = Launcher(Listen(HOME, 0), observer, patience_s=SILENCE_S)
    launcher.start()
    yield launcher
    launcher.stop()


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch({"p1": 1, "p2": 2}, datapath_id=0x11)


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def raw_switch(port: int) -> socket.socket:
    """A switch that shakes hands as number 0x22 and then says nothing any more."""
    sock = socket.create_connection((HOME, port), timeout=PATIENCE_S)
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
