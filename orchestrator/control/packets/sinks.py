"""Receivers of the packet log: a file of JSON lines, an IPFIX collector."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import structlog

from orchestrator.control.packets.ipfix import Exporter
from orchestrator.control.pauses import Resting
from orchestrator.errors import BadInput, Missing
from orchestrator.program.sightings import packet_to_json
from orchestrator.store.packetlog import LoggedPacket

log = structlog.get_logger()

TEMPLATES_EVERY_S = 60.0
"""How often a collector is told again what records look like: it may have been started since."""


def record_json(domain: str, record: LoggedPacket) -> dict[str, object]:
    """A record as a line of JSON has it."""
    return {
        "time": record.time.isoformat(),
        "domain": domain,
        "tenant": record.tenant,
        "rule": record.rule,
        "action": record.action.value,
        "direction": None if record.direction is None else record.direction.value,
        "host": record.host,
        **packet_to_json(record.packet),
        "octets": record.length,
    }


class JsonLines:
    """Appends records to a file, a line each.

    It is opened for every report, so it may be moved away at any time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.open("ab").close()
        except OSError as error:
            raise Missing(f"the packet log cannot be written there: {error.strerror}", place=str(path)) from None

    def write(self, domain: str, records: Sequence[LoggedPacket]) -> None:
        """Append records.

        Records that cannot be written are lost, and that is logged.
        """
        lines = b"".join(orjson.dumps(record_json(domain, each)) + b"\n" for each in records)
        try:
            with self._lock, self._path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            log.warning("packets.not_written", path=str(self._path), records=len(records), error=error.strerror)


class Collector:
    """Sends records to a collector in datagrams, templates first and again every minute.

    All come from one port: to a collector that is the session, and templates hold in theirs alone (RFC 7011, section
    8). Where sending fails a new one begins, with templates, after a pause: nobody's report waits for a name that
    cannot be looked up. `clock` never goes back, in seconds.
    """

    def __init__(self, address: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise BadInput("it is HOST:PORT, as in 192.0.2.7:4739", place="ipfix_collector")
        self._address = (host.strip("[]"), int(port))
        self._clock = clock
        self._resting = Resting(clock)
        self._session: _Session | None = None
        self._lock = threading.Lock()

    def write(self, domain: str, records: Sequence[LoggedPacket]) -> None:
        """Send records.

        Records that cannot be sent are lost, as datagrams are.
        """
        host = self._address[0]
        with self._lock:
            if host in self._resting or not records:
                return
            try:
                self._open(self._clock()).send(domain, records, self._clock())
            except (OSError, UnicodeError) as error:  # the latter for a name that no name can be
                self._close()
                wait_s = self._resting.note_failure(host)
                log.warning(
                    "packets.not_sent", collector=host, records=len(records), error=str(error), again_in_s=wait_s
                )
            else:
                self._resting.over(host)

    def _open(self, now: float) -> _Session:
        """Return the session, or a new one where the collector's name resolves elsewhere."""
        session = self._session
        if session is not None and not session.is_to_tell(now):
            return session
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)[0]
        except OSError:
            if session is None:
                raise
            return session  # nobody knows the name just now: where it led a minute ago will do
        if session is None or session.address != address:
            self._close()
            self._session = session = _Session(socket.socket(family, kind, protocol), address)
            session.begin()
        return session

    def _close(self) -> None:
        if self._session is not None:
            self._session.end()
        self._session = None


class _Session:
    """A collector's session from one port."""

    def __init__(self, sock: socket.socket, address: Any) -> None:
        self.address = address
        self._sock = sock
        self._exporter = Exporter()
        self._told_at = float("-inf")

    def begin(self) -> None:
        """Open the way to the collector.

        Raises OSError where there is no way to the collector.
        """
        self._sock.connect(self.address)

    def end(self) -> None:
        """Give the port back."""
        self._sock.close()

    def is_to_tell(self, now: float) -> bool:
        """Whether it is time to say what records look like."""
        return now - self._told_at >= TEMPLATES_EVERY_S

    def send(self, domain: str, records: Sequence[LoggedPacket], now: float) -> None:
        """Send records. Raises OSError."""
        with_templates = self.is_to_tell(now)
        for message in self._exporter.messages(domain, records, int(time.time()), with_templates=with_templates):
            self._sock.send(message)
        if with_templates:
            self._told_at = now
