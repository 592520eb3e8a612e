"""Whoever reaches the OpenFlow port: how many may come, how long they may be silent, and whose switch they are."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import aclflow
from enforce.launched import HOME, Observer, raw_switch, threads
from enforce.tls_links import certificates, tls  # noqa: F401 -- fixtures
from patience import PATIENCE_S, until

from orchestrator.client import Host
from orchestrator.enforce.drivers.openflow import channel as channels
from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import BARRIER_REPLY, AnswerMemory, Exchange, StreamChannel
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Limits, Listen
from orchestrator.enforce.drivers.openflow.stream import Tls
from orchestrator.enforce.fleet import Fleet
from orchestrator.enforce.standing import Timing
from orchestrator.errors import Unreachable

FEW = Limits(connections=8, of_address=6, strangers=5, strangers_of_address=4, handshake_s=0.5)


@contextlib.contextmanager
def launched(observer: Observer, limits: Limits, secured: Tls | None = None) -> Iterator[Launcher]:
    launcher = Launcher(Listen(HOME, 0, secured), observer, patience_s=60.0, limits=limits)
    launcher.start()
    try:
        yield launcher
    finally:
        launcher.stop()


def is_ended(sock: socket.socket) -> bool:
    """Whether the other side ends a connection within the patience of tests."""
    sock.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionError):
        while sock.recv(4096):
            pass
    return True


def readers() -> int:
    return threads().count("openflow-read")


def test_silent_strangers_are_few_and_leave_room_for_switches(observer: Observer, switch: FakeSwitch) -> None:
    with launched(observer, FEW) as launcher, contextlib.ExitStack() as held:
        strangers = [held.enter_context(socket.create_connection((HOME, launcher.port))) for _ in range(100)]
        until(lambda: readers() > 0)
        assert readers() <= FEW.strangers_of_address
        assert all(map(is_ended, strangers)), "refused at once, or when the time for a handshake is over"
        until(lambda: readers() == 0)
        link = TcpLink(switch, (HOME, launcher.port))
        observer.wait("connected")
        link.close()


def test_strangers_of_many_addresses_give_way_to_newcomers(observer: Observer, switch: FakeSwitch) -> None:
    """The oldest of the address that has the most of them; none has reached its time for a handshake."""
    with launched(observer, replace(FEW, handshake_s=3600.0)) as launcher, contextlib.ExitStack() as held:
        there = HOME, launcher.port
        sources = ["127.0.0.3"] + ["127.0.0.2"] * FEW.strangers_of_address
        _, oldest, *_ = [
            held.enter_context(socket.create_connection(there, source_address=(source, 0))) for source in sources
        ]
        until(lambda: readers() == FEW.strangers)
        link = TcpLink(switch, there)
        observer.wait("connected")
        assert is_ended(oldest)
        link.close()


def test_a_stranger_that_trickles_is_ended_too(observer: Observer) -> None:
    """Every byte of a hello that never ends: a time-out of each read would be begun anew by each of them."""
    with launched(observer, FEW) as launcher, socket.create_connection((HOME, launcher.port)) as sock:
        began = time.monotonic()
        with contextlib.suppress(OSError):  # reset or broken, as it comes
            while time.monotonic() - began < PATIENCE_S / 2:
                sock.sendall(b"\x06")
                time.sleep(0.05)
        assert time.monotonic() - began < PATIENCE_S / 2


def test_a_tls_handshake_that_does_not_come_is_ended(observer: Observer, tls: Tls) -> None:  # noqa: F811
    with launched(observer, FEW, tls) as launcher, socket.create_connection((HOME, launcher.port)) as sock:
        sock.sendall(b"\x16\x03\x01")
        assert is_ended(sock)
        until(lambda: readers() == 0)


def test_switches_of_one_address_are_limited(observer: Observer) -> None:
    limits = Limits(of_address=2)
    with launched(observer, limits) as launcher, contextlib.ExitStack() as held:
        for _ in range(2):
            held.enter_context(raw_switch(launcher.port))
        with socket.create_connection((HOME, launcher.port)) as third:
            assert is_ended(third)
        until(lambda: [name for name, _ in observer.events] == ["connected"] * 2)


def test_what_answers_an_exchange_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES", 100)
    exchange = Exchange(0x11, range(7, 8), 5.0, None)
    for _ in range(50):
        exchange.take(messages.message(19, 7, bytes(32)))
    exchange.take(messages.message(BARRIER_REPLY, 7, b""))
    assert exchange.wait()
    with pytest.raises(Unreachable, match="more than 100 bytes"):
        exchange.answers()


def test_what_answers_all_exchanges_is_bounded_and_small_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MOST_BYTES_TOGETHER", 400)
    memory = AnswerMemory()
    large, small = (StreamChannel(number, {}, lambda _: None, memory=memory) for number in (0x11, 0x12))

    def say(channel: StreamChannel, xid: int, count: int) -> None:
        for _ in range(count):
            channel.deliver(messages.message(19, xid, bytes(32)))

    def answer(channel: StreamChannel, xid: int, count: int) -> None:
        say(channel, xid, count)
        channel.deliver(messages.message(BARRIER_REPLY, xid, b""))

    for _ in range(3):
        of_large, of_small = large.reserve(1), small.reserve(1)
        with (
            large.begin(b"", of_large, timeout_s=5.0) as first,
            small.begin(b"", of_small, timeout_s=5.0) as second,
        ):
            say(large, of_large[0], 9)
            answer(small, of_small[0], 4)
            answer(large, of_large[0], 1)
            assert first.wait()
            assert second.wait()
            assert len(second.answers()) == 5
            with pytest.raises(Unreachable, match="its part of 400 while others answer"):
                first.answers()
    with large.begin(b"", of_large, timeout_s=5.0) as first, small.begin(b"", of_small, timeout_s=5.0):
        answer(large, of_large[0], 7)
        assert len(first.answers()) == 8, "there is room, for nobody else keeps anything now"
    with large.begin(b"", of_large, timeout_s=5.0) as alone:
        answer(large, of_large[0], 9)
        assert len(alone.answers()) == 10, "all of it is there for one alone"


# ------------------------------------------------------------------------------------------------------- whose it is


HOSTS = (Host("host1", 0x11, "up0"),)


def fleet(hosts: tuple[Host, ...] = HOSTS) -> Fleet:
    quiet = Timing(observe_every_s=3600, count_every_s=3600, absent_after_s=3600)
    found = Fleet(lambda _: None, _Counting(), lambda: None, quiet)  # type: ignore[arg-type]
    found.set_hosts(hosts)
    return found


class _Counting:
    def forget(self, host: str) -> None:
        """Nothing is counted."""


def channel(hosts: frozenset[str] | None = None) -> StreamChannel:
    return StreamChannel(0x11, {}, lambda _: None, hosts=hosts)


@pytest.mark.parametrize("proven", [None, frozenset({"host1"})])
def test_a_datapath_id_that_is_alive_is_not_displaced(proven: frozenset[str] | None) -> None:
    found = fleet()
    first, second = channel(proven), channel(proven)
    try:
        found.switch_connected(first)
        found.switch_connected(second)
        assert found.devices[0x11].channel is first
        second.close()
        found.switch_disconnected(second)
        assert found.devices[0x11].channel is first
    finally:
        found.stop()


def test_who_waits_for_a_datapath_id_has_it_when_the_first_is_gone() -> None:
    """As a switch does that came back before its old connection was seen to be dead."""
    found = fleet()
    first, second = channel(), channel()
    try:
        found.switch_connected(first)
        found.switch_connected(second)
        first.close()
        found.switch_disconnected(first)
        assert found.devices[0x11].channel is second
    finally:
        found.stop()


@pytest.mark.parametrize("comes_late", [False, True])
def test_a_switch_that_came_before_its_host_was_known_keeps_nobody_out(comes_late: bool) -> None:
    """Its certificate is another host's: nobody could tell as long as there was no host of that datapath id."""
    found = fleet(())
    impostor, true, again = (channel(frozenset({name})) for name in ("host2", "host1", "host2"))
    try:
        for each in (impostor, *(() if comes_late else (true,)), again):
            found.switch_connected(each)
        found.set_hosts(HOSTS)
        if comes_late:
            assert not found.devices
            found.switch_connected(true)
        assert found.devices[0x11].channel is true
        for each in (impostor, again):
            each.close()
            found.switch_disconnected(each)
        assert found.devices[0x11].channel is true
    finally:
        found.stop()


# ----------------------------------------------------------------------------------------------------- in clear


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:6653", "[::]:6653", "host.example:6653"])
@pytest.mark.parametrize("more", [(), ("--tier", "edge"), ("--spreads", "00000000000000aa")])
def test_openflow_in_clear_stays_on_this_machine(tmp_path: Path, address: str, more: tuple[str, ...]) -> None:
    ended = aclflow("controller", "--listen", address, *more, environment={"ACLFLOW_STATE_DIR": str(tmp_path)})
    assert ended.code == 2
    assert "--plain-openflow" in ended.err
    aloud = ("controller", "--plain-openflow", "--listen", address, *more)
    ended = aclflow(*aloud, environment={"ACLFLOW_STATE_DIR": str(tmp_path)})
    assert (ended.code, "--plain-openflow" in ended.err) == (3, False), "it goes on, to where it lacks a service"
