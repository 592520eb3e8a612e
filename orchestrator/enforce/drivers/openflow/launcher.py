"""Run os-ken inside this process: listen, run the application, stop without stray threads.

os-ken 4 has no manager command any more, and its native hub (real threads) has defects that a controller cannot live
with. Each is mended here and pinned by a test:

    what os-ken does                                          what is done about it
    a dead switch is never signalled and leaks two threads    `Connection.serve` wakes and joins its own sender
    echo requests come from one more thread a connection      `Launcher._watch` asks on all connections
    an exception in a hub thread, and the first one in an     `mend_native_hub`: the exception that a hub thread
      application's handler, vanishes and ends the thread       ends with is one that nobody raises
    hub.Event.wait(timeout) waits for ever                    `mend_native_hub`: it is threading.Event
    the listening loop cannot be stopped                      `Launcher` accepts connections itself
    one SSL object is used by two threads                     `stream.TlsStream`
    who sends meets a queue that was taken away meanwhile     `Connection.send`

What the library logs as an error is counted (`Launcher.faults`) and appears among our events. Under ryu the same code
runs on eventlet's threads, and there is nothing to mend.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from cryptography import x509

from orchestrator.enforce.drivers.openflow import compat
from orchestrator.enforce.drivers.openflow.app import Connection, Switches, SwitchObserver
from orchestrator.enforce.drivers.openflow.channel import AnswerMemory
from orchestrator.enforce.drivers.openflow.stream import Stream, Tls, hosts_named, open_stream, serial_of, tls_context
from orchestrator.errors import BadInput, Missing
from orchestrator.identity.authority import is_signed_by
from orchestrator.identity.files import parsed_certificates
from orchestrator.policy.addresses import find_network

log = structlog.get_logger()

WATCH_PERIOD_S = 0.5
"""How often a silent switch is asked whether it is there."""

PATIENCE_S = 3.0
"""A switch that has said nothing for so long is dead..."""

PATIENT_BYTES_PER_S = 1_000_000
"""...but one that was just given a lot to do may take a second longer for every so many bytes of it."""


_OF_NOBODY = "of an authority that is believed no more"


@dataclass(frozen=True, slots=True)
class Listen:
    """The listening address for switches.

    Port 0 takes any free one (`Launcher.port` tells); without `tls` it is plain TCP.
    """

    address: str
    port: int = 6653
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for unknown peers of a controller.

    Connections, those of one address, and those that have not shaken hands yet; and how long the hello, TLS included,
    may take in seconds.
    """

    connections: int = 4096
    of_address: int = 256
    strangers: int = 256
    strangers_of_address: int = 32
    handshake_s: float = 10.0


@dataclass(slots=True)
class _Guest:
    """An accepted connection: its socket, where it comes from, since when, and what it became."""

    sock: socket.socket
    address: str
    since_s: float
    connection: Connection | None = None
    is_ended: bool = False
    """Whether it gave way to a newcomer; its thread is about to end."""

    @property
    def is_stranger(self) -> bool:
        """Whether it has not shaken hands yet."""
        return self.connection is None or self.connection.channel is None


@dataclass(frozen=True, slots=True)
class _Silence:
    """A switch's silence, counted in checks instead of time.

    Where this machine stood still for a while, which makes one check come late, no switch had the time to answer.
    """

    heard: int = -1
    seconds: float = 0.0

    def after(self, heard: int, period_s: float) -> _Silence:
        """Return the silence at the next look, a period later."""
        return _Silence(heard, self.seconds + period_s if heard == self.heard else 0.0)


class _NeverRaised(BaseException):
    """Stands for the normal end of a native hub thread."""


def mend_native_hub() -> None:
    """Make exceptions in hub threads and handlers visible, and waiting with a time-out end. Idempotent."""
    if compat.NATIVE_THREADS:
        compat.hub.TaskExit = _NeverRaised
        compat.hub.Event = threading.Event


class _Faults(logging.Handler):
    """Counts what the library logs as errors and repeats it as an event of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Note a fault of a thread that serves. Called by `logging`, in any thread."""
        self.count += 1
        log.error("openflow.fault", logger=record.name, text=record.getMessage(), exc_info=record.exc_info)


class _Handshake(compat.OFPHandler):  # type: ignore[misc]  # the library is untyped
    """os-ken's own application for hello, features, ports and echoes, without its listening loop."""

    LOGGER_NAME = f"{compat.PROJECT}.handshake"

    def start(self) -> None:
        """Start the event loop only: the launcher listens."""
        super(compat.OFPHandler, self).start()


class Launcher:
    """Runs os-ken and the application in this process.

    One at a time: os-ken's registry of applications is global.
    """

    def __init__(
        self,
        listen: Listen,
        observer: SwitchObserver,
        *,
        patience_s: float = PATIENCE_S,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._listen = listen
        self._observer = observer
        self._patience_s = patience_s
        self._context = tls_context(listen.tls) if listen.tls else None
        self._listener = _bound(listen)
        self._port = int(self._listener.getsockname()[1])
        self._manager = compat.app_manager.AppManager()
        self._faults = _Faults()
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._refused: frozenset[str] = frozenset()
        self._authorities = _authorities_of(listen.tls)
        self._guests: dict[threading.Thread, _Guest] = {}
        self._memory = AnswerMemory()
        self.stopping = threading.Event()
        self._threads = (
            threading.Thread(target=self._accept_streams, name="openflow-accept", daemon=True),
            threading.Thread(target=self._watch, name="openflow-watchdog", daemon=True),
        )

    @property
    def port(self) -> int:
        """The TCP port that switches reach us on."""
        return self._port

    @property
    def faults(self) -> int:
        """How many exceptions the library met or swallowed so far."""
        return self._faults.count

    def start(self) -> None:
        """Start listening; switches are announced to the observer from now on."""
        mend_native_hub()
        compat.cfg.CONF([], project=compat.PROJECT, default_config_files=[], default_config_dirs=[])
        logging.getLogger(compat.PROJECT).addHandler(self._faults)
        apps = (self._manager.instantiate(_Handshake), self._manager.instantiate(Switches, observer=self._observer))
        for app in apps:
            app.start()
        for thread in self._threads:
            thread.start()
        log.info("openflow.listening", address=self._listen.address, port=self.port, tls=self._context is not None)

    def refuse(self, serials: frozenset[str]) -> None:
        """Refuse switches with one of these certificates, and end their connections."""
        self._refused = serials
        self._end_those(self._is_revoked, "revoked")

    def show_certificate(self) -> None:
        """Read the certificate and authorities anew for new connections. Raises OSError.

        Connections by no such authority end.
        """
        tls = self._listen.tls
        if tls is not None:
            self._context, self._authorities = tls_context(tls), _authorities_of(tls)
            self._end_those(self._is_of_nobody, _OF_NOBODY)

    def _end_those(self, are: Callable[[Stream], bool], why: str) -> None:
        """End the connections of switches whose certificates are taken no more."""
        for _, guest in self._list_serving():
            connection = guest.connection
            if connection is not None and are(connection.stream):
                log.warning("switch.revoked", address=connection.address[0], certificate=why)
                connection.close()

    def stop(self) -> None:
        """Close every connection, wait for every thread, stop the applications."""
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        for thread in self._threads:
            thread.join()
        self._listener.close()
        for thread, guest in self._list_serving():
            guest.connection.close() if guest.connection is not None else _end(guest.sock)
            thread.join()
        self._manager.close()
        logging.getLogger(compat.PROJECT).removeHandler(self._faults)

    def _list_serving(self) -> list[tuple[threading.Thread, _Guest]]:
        with self._lock:
            return list(self._guests.items())

    def _accept_streams(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, address = self._listener.accept()
            except OSError as error:
                if not self.stopping.wait(0.1):  # out of descriptors, or the peer is gone already
                    log.warning("openflow.accept", error=str(error))
                continue
            thread = threading.Thread(target=self._serve, args=(sock, address), name="openflow-read", daemon=True)
            with self._lock:
                refused = self._refusal(address[0])
                if refused is None:
                    self._guests[thread] = _Guest(sock, address[0], time.monotonic())
            if refused is None:
                thread.start()
                continue
            sock.close()
            if refused not in self._told:
                self._told.add(refused)
                log.warning("openflow.refused", address=address[0], reason=refused)

    def _refusal(self, address: str) -> str | None:
        """Return why a connection from an address is not taken; None where it is.

        It may take the place of a stranger.
        """
        limits, guests = self._limits, self._guests.values()
        mine = [guest for guest in guests if guest.address == address]
        if len(guests) >= limits.connections or len(mine) >= limits.of_address:
            return "too many connections"
        strangers = [guest for guest in guests if guest.is_stranger and not guest.is_ended]
        if sum(guest.address == address for guest in strangers) >= limits.strangers_of_address:
            return "too many connections that have not shaken hands"
        if len(strangers) >= limits.strangers:
            _end_oldest(strangers)
        return None

    def _serve(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """The life of one connection, in a thread of its own."""
        here = threading.current_thread()
        try:
            opened = open_stream(sock, self._context, self._patience_s, partial(self._took, here))
            with contextlib.closing(opened) as stream:
                connection = Connection(stream, address, self._observer.seen, self._hosts_of(stream), self._memory)
                with self._lock:
                    self._guests[here].connection = connection
                self._check_certificate(stream)  # after that: who revokes it ends the connections known by then
                if not self.stopping.is_set():
                    connection.serve()
        except OSError as error:
            log.warning("switch.unreachable", address=address[0], error=str(error))
        except Exception:
            # A switch that breaks the protocol, or a fault of the library: this connection ends, the others do not.
            logging.getLogger(compat.PROJECT).exception("the connection from %s broke", address[0])
        finally:
            sock.close()
            with self._lock:
                del self._guests[here]
                self._told.clear()

    def _took(self, thread: threading.Thread, sock: socket.socket) -> None:
        """Put another socket in the place of the accepted one."""
        with self._lock:
            self._guests[thread].sock = sock

    def _hosts_of(self, stream: Stream) -> frozenset[str] | None:
        """Return the hosts that a switch has proven to be.

        None where it was not asked to. Raises OSError for others.
        """
        tls = self._listen.tls
        if tls is None or tls.domain is None:
            return None
        return hosts_named(stream.certificate, tls.domain)

    def _check_certificate(self, stream: Stream) -> None:
        """Check that a switch's certificate is still believed. Raises OSError.

        The authorities may have changed since TLS looked.
        """
        if self._is_revoked(stream):
            raise OSError("its certificate was revoked")
        if self._is_of_nobody(stream):
            raise OSError(f"its certificate is {_OF_NOBODY}")

    def _is_revoked(self, stream: Stream) -> bool:
        return serial_of(stream.certificate) in self._refused

    def _is_of_nobody(self, stream: Stream) -> bool:
        signers = self._authorities
        return bool(signers) and not any(is_signed_by(stream.certificate_pem, each) for each in signers)

    def _watch(self) -> None:
        """Ask silent switches whether they are there, and give up those that do not answer."""
        period_s = min(WATCH_PERIOD_S, self._patience_s / 3)
        silences: dict[Connection, _Silence] = {}
        while not self.stopping.wait(period_s):
            guests = [guest for _, guest in self._list_serving()]
            self._end_late(guests)
            there = [guest.connection for guest in guests if guest.connection is not None]
            silences = {each: silences.get(each, _Silence()).after(each.stream.heard, period_s) for each in there}
            for connection, silence in silences.items():
                self._check_silence(connection, silence.seconds)

    def _end_late(self, guests: Sequence[_Guest]) -> None:
        """End the connections that have not shaken hands in time, whatever they were doing instead."""
        now = time.monotonic()
        for guest in guests:
            if guest.is_stranger and now - guest.since_s > self._limits.handshake_s:
                log.warning("switch.no_handshake", address=guest.address, seconds=round(now - guest.since_s, 1))
                _end(guest.sock)

    def _check_silence(self, connection: Connection, silent_s: float) -> None:
        if silent_s >= self._patience_s + connection.stream.unanswered_bytes / PATIENT_BYTES_PER_S:
            log.warning("switch.silent", address=connection.address[0], seconds=round(silent_s, 1))
            connection.close()
        elif silent_s > self._patience_s / 4:
            connection.probe()


def _end_oldest(strangers: Sequence[_Guest]) -> None:
    """End the oldest stranger of the address, or network, that has most of them.

    It gives way to a newcomer.
    """
    crowds = Counter(find_network(guest.address) for guest in strangers)
    most = max(crowds.values())
    oldest = next(guest for guest in strangers if crowds[find_network(guest.address)] == most)
    oldest.is_ended = True
    _end(oldest.sock)


def _end(sock: socket.socket) -> None:
    """End a connection below whatever is spoken over it: who reads or writes is woken."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _bound(listen: Listen) -> socket.socket:
    """A listening socket. Raises Missing where the address is not ours or is taken."""
    family = socket.AF_INET6 if ":" in listen.address else socket.AF_INET
    try:
        return socket.create_server((listen.address, listen.port), family=family, backlog=128)
    except OSError as error:
        raise Missing(
            f"cannot listen on {listen.address} port {listen.port}: {error.strerror}", place="listen"
        ) from None


def _authorities_of(tls: Tls | None) -> tuple[x509.Certificate, ...]:
    """Return the authorities that sign switches' certificates. Raises OSError.

    None are returned where the files may be of a chain.
    """
    if tls is None or tls.domain is None:
        return ()
    try:
        return tuple(parsed_certificates(tls.authority.read_bytes(), str(tls.authority)))
    except BadInput as error:
        raise OSError(str(error)) from None
