"""A thread that reads questions from a host's services port and answers them."""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import structlog

from orchestrator.enforce.services import dhcp, dhcpv6, routers
from orchestrator.enforce.services.hostservices import HostServices
from orchestrator.enforce.services.requestframes import ETHERTYPES, Question, read_question
from orchestrator.policy.addresses import Family
from orchestrator.policy.protocols import UDP

log = structlog.get_logger()

_AGAIN_S, _LOOK_S, _LONGEST, _AT_ONCE = 0.2, 0.5, 2048, 64


def answer(question: Question, services: HostServices) -> bytes | None:
    """Return the frame that answers an endpoint's question; None: it gets no answer."""
    if question.caller.family is Family.IPV4:
        return dhcp.answer(question, services) if question.destination == dhcp.SERVER_PORT else None
    if question.protocol == UDP:
        return dhcpv6.answer(question, services) if question.destination == dhcpv6.SERVER_PORT else None
    return routers.answer(question, services)


@dataclass(slots=True)
class Answerer:
    """Answers by one port, made anew or not.

    Its sockets ask for one protocol each, so that they hear a packet after the limits of nftables: one that asks for
    all hears it before.
    """

    services: HostServices
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Start answering, in the network namespace of the calling thread."""
        self._thread = threading.Thread(target=self._run, name="services-answers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def send(self, frames: Iterable[bytes]) -> None:
        """Send frames that nobody asked for. Raises OSError."""
        with _open_socket(self.services.port, 0) as port:
            for frame in frames:
                port.send(frame)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve(socket.if_nametoindex(self.services.port))
            except OSError:  # no port (yet), or it went: the keeper says so
                self._stopping.wait(_AGAIN_S)
            except Exception:
                log.exception("services.fault")  # of ours, and one question must not end the answers to others
                self._stopping.wait(_AGAIN_S)

    def _serve(self, index: int) -> None:
        """Answer until the port is another, or to stop. Raises OSError."""
        with ExitStack() as held:
            ports = [held.enter_context(_open_socket(self.services.port, kind)) for kind in ETHERTYPES.values()]
            while not self._stopping.is_set():
                ready, _, _ = select.select(ports, (), (), _LOOK_S)
                for port in ready:
                    self._answer_some(port)
                if not ready and socket.if_nametoindex(self.services.port) != index:
                    return

    def _answer_some(self, port: socket.socket) -> None:
        with suppress(BlockingIOError):
            for _ in range(_AT_ONCE):
                question = read_question(port.recv(_LONGEST, socket.MSG_DONTWAIT))
                frame = None if question is None else answer(question, self.services)
                if frame is not None:
                    _send(port, frame)


def _send(port: socket.socket, frame: bytes) -> None:
    """Send an answer, and lose it where the queue is full. Raises OSError.

    Any packet may be lost.
    """
    try:
        port.send(frame)
    except OSError as error:
        if error.errno not in (errno.ENOBUFS, errno.EAGAIN):
            raise


def _open_socket(port: str, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        made.bind((port, kind))
    except OSError:
        made.close()
        raise
    return made
