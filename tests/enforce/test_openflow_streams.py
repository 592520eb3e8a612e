"""What goes over a switch's connection: answers as they came, who reads and who writes."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from enforce.launched import HOME, Observer, on_native_threads, raw_switch
from enforce.programs import program, rule
from patience import PATIENCE_S

from orchestrator.compile.openflow.instructions import reporting
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import compat, frames, headers, messages
from orchestrator.enforce.drivers.openflow.app import Connection
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, TcpLink
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.enforce.drivers.openflow.messages import Type
from orchestrator.enforce.drivers.openflow.stream import PIECE_BYTES, SharedStream, Stream
from orchestrator.enforce.gap import correction
from orchestrator.errors import Unreachable
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.program.delta import between


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
    shown = headers.read_packet_in(message)
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
    """The end comes as the other side's last byte, which wakes only who reads; or as the reset of who was killed."""
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
    channel = StreamChannel(7, {}, stream.sendall, lambda: stream.borrow_reading(lambda _: None))  # as if not told yet
    stream.close()
    for _ in range(2):
        with pytest.raises(Unreachable):
            channel.exchange(messages.barrier_request(7), range(7, 8), timeout_s=PATIENCE_S)
    assert stream.reading.acquire(blocking=False), "whoever asked last still holds the reader's place"
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
