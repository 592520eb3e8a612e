"""Where records of the packet log go besides the store: a file of JSON lines, a collector that speaks IPFIX."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import structlog

from orchestrator.control.packets.ipfix import Exporter
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
        "octets": record.octets,
    }


class JsonLines:
    """Appends records to a file, a line each. It is opened for every report, so it may be moved away at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.open("ab").close()
        except OSError as error:
            raise Missing(f"the packet log cannot be written there: {error.strerror}", place=str(path)) from None

    def write(self, domain: str, records: Sequence[LoggedPacket]) -> None:
        """Append records. What cannot be written is lost, and said."""
        lines = b"".join(orjson.dumps(record_json(domain, each)) + b"\n" for each in records)
        try:
            with self._lock, self._path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            log.warning("packets.not_written", path=str(self._path), records=len(records), error=error.strerror)


class Collector:
    """Sends records to a collector in datagrams, templates first and again every minute."""

    def __init__(self, address: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise BadInput("it is HOST:PORT, as in 192.0.2.7:4739", place="ipfix_collector")
        self._address = (host.strip("[]"), int(port))
        self._exporter = Exporter()
        self._clock = clock
        self._templates_at = float("-inf")
        self._lock = threading.Lock()

    def write(self, domain: str, records: Sequence[LoggedPacket]) -> None:
        """Send records. What cannot be sent is lost, as datagrams are."""
        with self._lock:
            now = self._clock()
            with_templates = now - self._templates_at >= TEMPLATES_EVERY_S
            messages = self._exporter.messages(domain, records, int(time.time()), with_templates=with_templates)
            if with_templates and messages:
                self._templates_at = now
        for message in messages:
            self._send(message)

    def _send(self, message: bytes) -> None:
        try:
            found = socket.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as sock:
                sock.sendto(message, address)
        except OSError as error:
            log.warning("packets.not_sent", collector=self._address[0], error=str(error))
