"""Real conversations between a lab's nodes by the kernel's network stacks: TCP, UDP, ping.

Each is set up inside the two namespaces and then watched from here, all at once: a TCP handshake needs nobody to accept
it, UDP datagrams are echoed by this module, echo requests by the other side's kernel.
"""

from __future__ import annotations

import abc
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.lab.pop import Lab
from orchestrator.policy.addresses import Family, format_address
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.policy.tcpflags import TcpFlag

_GREETING = b"aclflow lab"
_ECHO_REQUEST = {Family.IPV4: 8, Family.IPV6: 128}
_ECHO_REPLY = {Family.IPV4: 0, Family.IPV6: 129}
_ICMP_OF = {Family.IPV4: ICMP, Family.IPV6: ICMPV6}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A sender, a receiver, and the protocol: TCP, UDP, ICMP or ICMPV6.

    `port` means nothing to the last two.
    """

    client: str
    server: str
    family: Family
    protocol: int
    port: int = 0

    def __post_init__(self) -> None:
        if self.protocol not in (TCP, UDP, _ICMP_OF[self.family]):
            raise BadInput(f"protocol {self.protocol} over IPv{self.family} is not spoken here", place="protocol")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a conversation.

    `request` is the first packet as sent, `reply` its answer as expected.
    """

    request: Packet
    reply: Packet
    answered: bool


def converse(lab: Lab, conversations: Sequence[Conversation], patience_s: float = 0.9) -> tuple[Outcome, ...]:
    """Try all conversations at once.

    The patience is shorter than TCP's first repetition (1 s): one packet each.
    """
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        talks = [_TALKS[item.protocol](lab, item, stack, selector) for item in conversations]
        until = time.monotonic() + patience_s
        while not all(talk.answered for talk in talks) and time.monotonic() < until:
            for key, _ in selector.select(max(until - time.monotonic(), 0)):
                key.data()
        return tuple(Outcome(talk.request, talk.reply, talk.answered) for talk in talks)


class _Talk(abc.ABC):
    """One conversation under way: the client's socket, what it sends, what the answer looks like."""

    def __init__(self, lab: Lab, item: Conversation, stack: ExitStack, selector: selectors.BaseSelector) -> None:
        self.answered = False
        self._item = item
        self._lab = lab
        self._stack = stack
        self._selector = selector
        self._here = address_of(lab, item.client, item.family)
        self._there = address_of(lab, item.server, item.family)
        self._begin_talk()

    @abc.abstractmethod
    def _begin_talk(self) -> None:
        """Open the sockets and send the first packet."""

    def _open(self, node: str, kind: socket.SocketKind, address: int, port: int, protocol: int = 0) -> socket.socket:
        """A socket in a node's namespace, bound to an address of that node."""
        family = self._item.family

        def open_there() -> socket.socket:
            opened = socket.socket(family.socket_family, kind, protocol)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            opened.bind((format_address(family, address), port))
            opened.setblocking(False)
            return opened

        return self._stack.enter_context(self._lab.inside(node, open_there))

    @property
    def _target(self) -> tuple[str, int]:
        return format_address(self._item.family, self._there), self._item.port

    @property
    @abc.abstractmethod
    def request(self) -> Packet:
        """The first packet, as it was sent."""

    @property
    @abc.abstractmethod
    def reply(self) -> Packet:
        """The first packet that comes back, or would come back."""


class _Tcp(_Talk):
    """A handshake; the client's end is reset afterwards, so that nothing lingers."""

    def _begin_talk(self) -> None:
        item = self._item
        listener = self._open(item.server, socket.SOCK_STREAM, self._there, item.port)
        listener.listen()
        self._client = self._open(item.client, socket.SOCK_STREAM, self._here, 0)
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._port = self._client.getsockname()[1]
        self._client.connect_ex(self._target)
        self._selector.register(self._client, selectors.EVENT_WRITE, self._connect_socket)

    def _connect_socket(self) -> None:
        self._selector.unregister(self._client)
        self.answered = self._client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0

    @property
    def request(self) -> Packet:
        item = self._item
        return Packet(item.family, self._here, self._there, TCP, self._port, item.port, tcp_flags=TcpFlag.SYN)

    @property
    def reply(self) -> Packet:
        item = self._item
        return Packet(
            item.family, self._there, self._here, TCP, item.port, self._port, tcp_flags=TcpFlag.SYN | TcpFlag.ACK
        )


class _Udp(_Talk):
    """A datagram and its echo."""

    def _begin_talk(self) -> None:
        item = self._item
        self._server = self._open(item.server, socket.SOCK_DGRAM, self._there, item.port)
        self._client = self._open(item.client, socket.SOCK_DGRAM, self._here, 0)
        self._port = self._client.getsockname()[1]
        self._selector.register(self._server, selectors.EVENT_READ, self._echo_message)
        self._selector.register(self._client, selectors.EVENT_READ, self._note_answer)
        self._client.sendto(_GREETING, self._target)

    def _echo_message(self) -> None:
        message, sender = self._server.recvfrom(2048)
        self._server.sendto(message, sender)

    def _note_answer(self) -> None:
        self.answered = self._client.recv(2048) == _GREETING

    @property
    def request(self) -> Packet:
        item = self._item
        return Packet(item.family, self._here, self._there, UDP, self._port, item.port)

    @property
    def reply(self) -> Packet:
        item = self._item
        return Packet(item.family, self._there, self._here, UDP, item.port, self._port)


class _Ping(_Talk):
    """An echo request and its reply, over the kernel's own ping sockets."""

    def _begin_talk(self) -> None:
        item = self._item
        self._client = self._open(item.client, socket.SOCK_DGRAM, self._here, 0, item.protocol)
        self._selector.register(self._client, selectors.EVENT_READ, self._note_answer)
        self._client.sendto(struct.pack("!BBHHH", _ECHO_REQUEST[item.family], 0, 0, 0, 1) + _GREETING, self._target)

    def _note_answer(self) -> None:
        self.answered = self._client.recv(2048).endswith(_GREETING)

    @property
    def request(self) -> Packet:
        item = self._item
        return Packet(item.family, self._here, self._there, item.protocol, icmp_type=_ECHO_REQUEST[item.family])

    @property
    def reply(self) -> Packet:
        item = self._item
        return Packet(item.family, self._there, self._here, item.protocol, icmp_type=_ECHO_REPLY[item.family])


_TALKS: Mapping[int, type[_Talk]] = {TCP: _Tcp, UDP: _Udp, ICMP: _Ping, ICMPV6: _Ping}


def address_of(lab: Lab, node: str, family: Family) -> int:
    """Return the first single address of a node in one family.

    Raises BadInput where it has none.
    """
    for prefix in lab.spec.node(node).addresses:
        if prefix.family is family and prefix.length == family.bits:
            return prefix.network
    raise BadInput(f"{node} has no IPv{family} address of its own")
