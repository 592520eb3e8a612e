"""The OpenFlow application: turns os-ken's (or ryu's) connections into announced channels.

os-ken shakes hands, answers echoes and keeps the list of ports. Everything that answers an exchange of ours goes to the
channel as raw bytes, in the thread that reads the connection: os-ken's message objects are 12 to 25 times slower than
decoding columns, and its event queues are two more threads to wait for.

    switch ── Stream ── Connection (who reads) ──┬─ answers one of our exchanges ──▶ StreamChannel.deliver
                                                 └─ anything else ──▶ os-ken's parser ──▶ Switches' handlers
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import structlog

from orchestrator.enforce.drivers.openflow import compat
from orchestrator.enforce.drivers.openflow.channel import (
    BARRIER_REPLY,
    HEADER,
    AnswerMemory,
    Channel,
    Pump,
    StreamChannel,
)
from orchestrator.enforce.drivers.openflow.stream import Stream

log = structlog.get_logger()

OPENFLOW_1_5 = compat.ofproto_v1_5.OFP_VERSION

PACKET_IN = 10
_NEVER_AN_ANSWER = frozenset({0, 2, 3, 10, 11, 12, 30, 31, 32})
"""Hello, echoes, packet-in, flow-removed, port, role and table status, requestforward: the library's own business."""


class SwitchObserver(Protocol):
    """An observer of switches.

    Called in the application's thread: return soon, and do not raise.
    """

    def switch_connected(self, channel: Channel) -> None:
        """Take a switch that may be talked to."""
        ...

    def switch_disconnected(self, channel: Channel) -> None:
        """Let go of a switch whose connection is gone, and its channel closed."""
        ...

    def ports_changed(self, channel: Channel) -> None:
        """Take note that `channel.ports` is new."""
        ...

    def links_changed(self, channel: Channel) -> None:
        """Take note that `channel.down_ports` is new."""
        ...

    def switch_demoted(self, channel: Channel) -> None:
        """Learn that another controller has become the switch's master."""
        ...

    def seen(self, channel: Channel, message: bytes) -> None:
        """Receive a packet-in of a rule that logs.

        Called in the thread that reads.
        """
        ...


class Connection(compat.Datapath):  # type: ignore[misc]  # the library is untyped
    """One switch's connection: os-ken's datapath over a stream, with a channel after the handshake."""

    channel: StreamChannel | None = None

    def __init__(
        self,
        stream: Stream,
        address: tuple[str, int],
        seen: Callable[[Channel, bytes], None],
        hosts: frozenset[str] | None = None,
        memory: AnswerMemory | None = None,
    ) -> None:
        super().__init__(stream, address)
        self._memory = memory
        self.stream = stream
        self._seen = seen
        self._hosts = hosts
        self._arrived = bytearray()
        self.xid = 0  # the library counts its own messages from here, far below the channel's

    def set_state(self, state: str) -> None:
        """Make the channel at the end of the handshake, in the reading thread.

        So no answer can be missed.
        """
        if state == compat.MAIN_DISPATCHER and self.channel is None:
            self.channel = StreamChannel(
                self.id,
                self.port_numbers(),
                self.stream.sendall,
                self._borrow_stream,
                hosts=self._hosts,
                address=self.address[0],
                down_ports=self.down_ports(),
                memory=self._memory,
            )
        super().set_state(state)

    def port_numbers(self) -> dict[str, int]:
        """Interface name -> port number of every port that os-ken knows of now."""
        return {port.name.rstrip(b"\0").decode(): number for number, port in list(self.ports.items())}

    def down_ports(self) -> frozenset[str]:
        """Names of the ports that the switch finds down: a group sends nothing there."""
        live = compat.ofproto_v1_5.OFPPS_LIVE
        ports = list(self.ports.values())
        return frozenset(port.name.rstrip(b"\0").decode() for port in ports if not port.state & live)

    def take(self, kind: int, message: bytes) -> bool:
        """Give a message to the exchange that waits for it. False: it is for os-ken."""
        if self.channel is None or kind in _NEVER_AN_ANSWER:
            return kind == PACKET_IN and self._see(message)
        if kind == BARRIER_REPLY:
            self.stream.unanswered_bytes = 0
        return self.channel.deliver(message)

    def _see(self, message: bytes) -> bool:
        """Pass on a packet of a logging rule.

        The library would make objects of its headers.
        """
        if self.channel is not None:
            self._seen(self.channel, message)
        return True

    def _borrow_stream(self) -> AbstractContextManager[Pump | None]:
        return self.stream.borrow_reading(self._pass_on)

    def _recv_loop(self) -> None:
        """Read until the connection ends, in large pieces.

        os-ken reads message by message.
        """
        try:
            with contextlib.suppress(OSError):
                self.stream.serve(self._pass_on)
        finally:
            self.stream.close()

    def _pass_on(self, data: bytes) -> None:
        """Dispatch every complete message.

        One thread at a time.
        """
        arrived = self._arrived
        arrived += data
        at = 0
        while len(arrived) - at >= HEADER.size:
            version, kind, length, xid = HEADER.unpack_from(arrived, at)
            length = max(length, HEADER.size)
            if at + length > len(arrived):
                break
            message = bytes(arrived[at : at + length])
            at += length
            if not self.take(kind, message):
                self._parse(version, kind, length, xid, message)
        del arrived[:at]

    def _parse(self, version: int, kind: int, length: int, xid: int, message: bytes) -> None:
        """Pass a message to the library's own handlers."""
        parsed = compat.ofproto_parser.msg(self, version, kind, length, xid, bytearray(message))
        if not parsed or self.ofp_brick is None:
            return
        event = compat.ofp_event.ofp_msg_to_ev(parsed)
        self.ofp_brick.send_event_to_observers(event, self.state)
        for handler in self.ofp_brick.get_handlers(event):
            if self.state in handler.callers[type(event)].dispatchers:
                handler(event)

    def serve(self) -> None:
        """Talk to the switch until either side ends the connection; leaves no thread behind."""
        sender = threading.Thread(target=self._send_loop, name="openflow-send", daemon=True)
        sender.start()
        try:
            self.send_msg(self.ofproto_parser.OFPHello(self))
            self._recv_loop()
        finally:
            self.close()
            self.send(b"", close_socket=True)
            sender.join()
            self.is_active = False

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Send as the library does.

        The library looks twice at a queue that the sending thread takes away at its end.
        """
        self._send_q_sem.acquire()
        queue = self.send_q
        if queue is None:
            self._send_q_sem.release()
            return False
        queue.put((buf, close_socket))
        return True

    def probe(self) -> None:
        """Ask whether the switch is there, unless it has not even taken earlier messages."""
        queue = self.send_q
        if self.state == compat.MAIN_DISPATCHER and queue is not None and not queue.full():
            self.send_msg(self.ofproto_parser.OFPEchoRequest(self))

    def close(self) -> None:
        """End the connection; the reading thread wakes and cleans up.

        May be called twice, from any thread.
        """
        if self.channel is not None:
            self.channel.close()
        self.set_state(compat.DEAD_DISPATCHER)
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)


class Switches(compat.App):  # type: ignore[misc]  # the library is untyped
    """The application proper: announces switches, port changes and the loss of mastership."""

    OFP_VERSIONS: ClassVar = [OPENFLOW_1_5]
    LOGGER_NAME: ClassVar = f"{compat.PROJECT}.aclflow"

    def __init__(self, *args: Any, observer: SwitchObserver, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._observer = observer

    @compat.on(compat.ofp_event.EventOFPStateChange, compat.MAIN_DISPATCHER, compat.DEAD_DISPATCHER)
    def state_changed(self, event: Any) -> None:
        """Take note that a handshake is over, or a connection."""
        channel = event.datapath.channel
        if channel is None:
            return
        if event.state == compat.MAIN_DISPATCHER:
            log.info("switch.connected", datapath=f"{channel.datapath_id:016x}", address=event.datapath.address[0])
            self._observer.switch_connected(channel)
        else:
            log.info("switch.disconnected", datapath=f"{channel.datapath_id:016x}")
            self._observer.switch_disconnected(channel)

    @compat.on(compat.ofp_event.EventOFPPortStateChange, compat.MAIN_DISPATCHER)
    def port_changed(self, event: Any) -> None:
        """A port came, went or changed. Names, numbers and whether it is down matter."""
        connection = event.datapath
        ports, down = connection.port_numbers(), connection.down_ports()
        if down != connection.channel.down_ports:
            connection.channel.set_down_ports(down)
            self._observer.links_changed(connection.channel)
        if ports != connection.channel.ports:
            connection.channel.set_ports(ports)
            log.info("switch.ports", datapath=f"{connection.id:016x}", ports=len(ports))
            self._observer.ports_changed(connection.channel)

    @compat.on(compat.ofp_event.EventOFPRoleStatus, compat.MAIN_DISPATCHER)
    def role_changed(self, event: Any) -> None:
        """The switch says that our role is another one: somebody else is master now."""
        message = event.msg
        if message.role != compat.ofproto_v1_5.OFPCR_ROLE_MASTER:
            log.warning("switch.demoted", datapath=f"{message.datapath.id:016x}", generation=message.generation_id)
            self._observer.switch_demoted(message.datapath.channel)

    @compat.on(compat.ofp_event.EventOFPErrorMsg, compat.MAIN_DISPATCHER)
    def error(self, event: Any) -> None:
        """An error that answers no exchange of ours."""
        message = event.msg
        log.warning("switch.error", datapath=f"{message.datapath.id}", type=message.type, code=message.code)
