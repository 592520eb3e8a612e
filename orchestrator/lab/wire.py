"""Crafted frames into a lab, and where they come out.

A `Wire` holds one raw socket in each node's namespace. `fire` sends a volley of frames, each with a marker of its own
somewhere in its bytes, and says at which nodes every marker was seen. Frames go in batches, and each batch is followed
by an ARP request for an address that nobody has: the bridge answers it itself, after the frames before it, so the
answer says that those were taken from the switch's queue. So nothing is lost by haste, and a frame that was not seen
was dropped. Where hosts' uplinks are routed, hosts have switches of their own: there every node asks, after each batch
as often as a way has bridges.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.pop import Lab
from orchestrator.lab.spec import ClientSpec, EndpointSpec
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6

MARKER_BYTES = 16
_MAGIC = b"aclflow\xf1"
_EVERY_PROTOCOL = 0x0003
_OUTGOING = 4
_RECEIVE_BUFFER = 8 << 20
_BATCH = 64
_LONGEST_FRAME = 65536
_BROADCAST = 0xFFFFFFFFFFFF
_NOBODY = 0xA9FE8000
"""169.254.128.0/18: addresses that no node has, to ask for."""
_FENCE_PATIENCE_S = 1.0
_QUIET_S = 0.1
_ROUTED_QUIET_S = 0.3
"""Kernels that forward say nothing about what they still hold."""
_ICMP_ERRORS = frozenset({3, 4, 5, 11, 12})
_LONGEST_WAY = 3
"""Bridges on the longest way through a lab: host, edge, host."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One frame to send.

    `craft` puts the marker it is given into the frame it returns.
    """

    sender: str
    craft: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Landing:
    """The nodes that a shot reached, and the frame as it arrived at the first."""

    nodes: tuple[str, ...] = ()
    frame: bytes = b""


def shot(lab: Lab, sender: str, packet: Packet) -> Shot:
    """Turn a packet into a frame to the sender's gateway, with the marker as payload."""
    mac = lab.spec.node(sender).mac
    return Shot(sender, lambda marker: frames.frame(packet, src_mac=mac, dst_mac=GATEWAY_MAC, payload=marker))


class Wire:
    """Raw sockets in some or all nodes of a lab.

    Close it when done, or use it in a `with` statement.
    """

    def __init__(self, lab: Lab, nodes: Iterable[str] | None = None) -> None:
        names = tuple(nodes) if nodes is not None else tuple(node.name for node in lab.spec.nodes)
        self._ports = {name: _Port(lab, lab.spec.node(name)) for name in names}
        self._all_ask = lab.spec.routed
        self._selector = selectors.DefaultSelector()
        for port in self._ports.values():
            self._selector.register(port.socket, selectors.EVENT_READ, port)
        self._run = os.urandom(4)
        self._next = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._selector.close()
        for port in self._ports.values():
            port.socket.close()

    def fire(self, shots: Sequence[Shot]) -> tuple[Landing, ...]:
        """Send every shot once, in order, and say where each was seen."""
        volley = _Volley(self._run, self._next, len(shots))
        self._next += len(shots)
        senders = {shot.sender: self._ports[shot.sender] for shot in shots}
        asking = tuple((self._ports if self._all_ask else senders).values())
        for port in asking:
            port.fenced = port.address is not None
        for start in range(0, len(shots), _BATCH):
            for index, shot in enumerate(shots[start : start + _BATCH], start):
                senders[shot.sender].socket.send(shot.craft(volley.marker(index)))
            for _ in range(_LONGEST_WAY if self._all_ask else 1):
                self._fence(volley, asking)
        for _ in range(_LONGEST_WAY - 1):
            self._fence(volley, asking)
        self._await_quiet(volley)
        return tuple(Landing(tuple(seen), next(iter(seen.values()), b"")) for seen in volley.seen)

    def _fence(self, volley: _Volley, asking: Iterable[_Port]) -> None:
        """Wait until the bridges in front of these nodes have taken all frames so far."""
        for port in asking:
            port.ask()
        until = time.monotonic() + _FENCE_PATIENCE_S
        while any(port.waiting for port in self._ports.values()) and time.monotonic() < until:
            self._collect(volley, 0.05)
        for port in self._ports.values():
            port.give_up()
        if not all(port.fenced for port in asking):
            self._collect(volley, 0.05)

    def _await_quiet(self, volley: _Volley) -> None:
        """Collect until none of the volley has arrived for a while, whatever else does."""
        quiet_s = _ROUTED_QUIET_S if self._all_ask else _QUIET_S
        until = time.monotonic() + quiet_s
        while (left_s := until - time.monotonic()) > 0:
            if self._collect(volley, left_s):
                until = time.monotonic() + quiet_s

    def _collect(self, volley: _Volley, patience_s: float) -> bool:
        """Take what has arrived; whether any of it was of the volley."""
        arrived = False
        for key, _ in self._selector.select(patience_s):
            port: _Port = key.data
            for frame in port.frames():
                arrived = volley.note(port.name, frame) or arrived
        return arrived


class _Port:
    """One node's raw socket, and its question to the bridge in front of it."""

    def __init__(self, lab: Lab, node: ClientSpec | EndpointSpec) -> None:
        self.name = node.name
        self._mac = node.mac
        self.address = next((p.network for p in node.addresses if p.family is Family.IPV4), None)
        self.socket = lab.inside(node.name, raw_socket)
        self.fenced = True
        self._asked = 0
        self.waiting = False

    def ask(self) -> None:
        """Send an ARP request for an address that was not asked for before."""
        if self.address is None or not self.fenced:
            return
        self._asked = (self._asked + 1) % 0x4000
        self.waiting = True
        request = frames.arp(frames.ARP_REQUEST, self._mac, self.address, 0, _NOBODY + self._asked)
        self.socket.send(frames.ethernet(self._mac, _BROADCAST, frames.ARP, request))

    def _is_answer(self, frame: bytes) -> bool:
        """Return whether a frame answers the last question: an ARP reply without a sender."""
        asked = (_NOBODY + self._asked).to_bytes(4, "big")
        return frame[12:14] == b"\x08\x06" and frame[20:22] == b"\x00\x02" and frame[28:32] == asked

    def give_up(self) -> None:
        """No answer: this bridge is not programmed, so haste is avoided by waiting instead."""
        if self.waiting:
            self.waiting = self.fenced = False

    def frames(self) -> Iterable[bytes]:
        """Every frame that has arrived, answers to our own questions taken out."""
        while True:
            try:
                frame, origin = self.socket.recvfrom(_LONGEST_FRAME)
            except BlockingIOError:
                return
            if origin[2] == _OUTGOING:
                continue
            if self._is_answer(frame):
                self.waiting = False
                continue
            yield frame


class _Volley:
    """The markers of one volley, and where each was seen."""

    def __init__(self, run: bytes, first: int, count: int) -> None:
        self._stem = _MAGIC + run
        self._first = first
        self.seen: list[dict[str, bytes]] = [{} for _ in range(count)]

    def marker(self, index: int) -> bytes:
        """Return the bytes that mark a packet of the volley."""
        return self._stem + struct.pack("!I", self._first + index)

    def note(self, node: str, frame: bytes) -> bool:
        """Remember a frame if it carries a marker of this volley; whether it did."""
        at = frame.find(self._stem)
        if at < 0 or len(frame) < at + MARKER_BYTES or _quotes(frame, at):
            return False
        index = struct.unpack_from("!I", frame, at + len(self._stem))[0] - self._first
        if not 0 <= index < len(self.seen):
            return False
        self.seen[index].setdefault(node, frame)
        return True


def _quotes(frame: bytes, at: int) -> bool:
    """Return whether a frame is an ICMP error that quotes the marked frame."""
    if frame[12:14] == b"\x08\x00":
        return frame[23] == ICMP and frame[34] in _ICMP_ERRORS and at >= 34 + 8 + 20
    return frame[12:14] == b"\x86\xdd" and frame[20] == ICMPV6 and frame[54] < 128 and at >= 54 + 8 + 40


def raw_socket() -> socket.socket:
    """A socket for every frame of the interface. Called inside a node's namespace."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
    raw.setsockopt(socket.SOL_SOCKET, 33, _RECEIVE_BUFFER)  # SO_RCVBUFFORCE
    raw.bind((INTERFACE, _EVERY_PROTOCOL))
    raw.setblocking(False)
    return raw
