"""Sinks of the audit trail's anchors: a file of JSON lines, or syslog (RFC 5424).

    audit_file: /mnt/worm/aclflow.anchors                   a line each, on the disk before it counts as taken
    audit_syslog: udp://logs:514, tcp://logs:601, unix:///dev/log
    neither of them                                         the machine's own log (/dev/log), where it has one

Over TCP a message is framed by its length (RFC 6587). Over UDP nobody says whether it came; take TCP where it matters.
The text of a message is the line of the file, so that `aclflow audit verify --anchors` reads what a collector wrote.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from orchestrator.errors import BadInput, Missing
from orchestrator.wire.audit import AuditAnchor
from orchestrator.wire.codec import encode

LOCAL_LOG = Path("/dev/log")
"""Where a machine's syslog or journal listens."""
NOWHERE = "none"
"""The value of `audit_syslog` that asks for no sink."""
_LOG_AUDIT_NOTICE = 13 * 8 + 5
_TIMEOUT_S = 5.0


def open_sinks(file: Path | None, syslog: str, local: Path) -> tuple[AnchorFile | Syslog, ...]:
    """Return the sinks that the settings name; where they name none, the machine's own log.

    `local` is the socket of that. Raises BadInput, Missing.
    """
    found: list[AnchorFile | Syslog] = [] if file is None else [AnchorFile(file)]
    if syslog not in ("", NOWHERE):
        found.append(Syslog(syslog))
    elif not syslog and not found and local.is_socket():
        found.append(Syslog(f"unix://{local}"))
    return tuple(found)


def anchor_line(anchor: AuditAnchor) -> bytes:
    """Return an anchor as a line of JSON, without its end."""
    return orjson.dumps({"anchor": orjson.loads(encode(anchor))})


class AnchorFile:
    """Appends anchors to a file.

    It is opened each time, so it may be moved away.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.open("ab").close()
        except OSError as error:
            raise Missing(f"anchors cannot be written there: {error.strerror}", place=str(path)) from None

    def __str__(self) -> str:
        return str(self._path)

    def send(self, anchor: AuditAnchor) -> None:
        """Append an anchor and bring it to the disk. Raises OSError."""
        with self._path.open("ab", buffering=0) as file:
            line = anchor_line(anchor) + b"\n"
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())


class Syslog:
    """Sends anchors to a syslog collector."""

    def __init__(self, address: str) -> None:
        self._address = address
        parts = urlsplit(address)
        self._scheme = parts.scheme
        try:
            port = parts.port
        except ValueError:
            port = None
        is_remote = parts.scheme in ("udp", "tcp") and bool(parts.hostname) and port is not None
        if not is_remote and not (parts.scheme == "unix" and parts.path):
            raise BadInput("it is udp://HOST:PORT, tcp://HOST:PORT, unix:///PATH or none", place="audit_syslog")
        self._place: tuple[str, int] | str = (parts.hostname or "", port or 0) if is_remote else parts.path
        self._socket: socket.socket | None = None

    def __str__(self) -> str:
        return self._address

    def send(self, anchor: AuditAnchor) -> None:
        """Send an anchor. Raises OSError, and tries anew with the next."""
        message = message_of(anchor)
        if self._scheme == "tcp":
            message = b"%d %s" % (len(message), message)
        try:
            if self._socket is None:
                self._socket = self._connect_sink()
            self._socket.sendall(message)
        except OSError:
            if self._socket is not None:
                self._socket.close()
            self._socket = None
            raise

    def _connect_sink(self) -> socket.socket:
        if isinstance(self._place, str):
            return _connect_socket(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), self._place)
        kind = socket.SOCK_DGRAM if self._scheme == "udp" else socket.SOCK_STREAM
        family, kind, protocol, _, address = socket.getaddrinfo(*self._place, type=kind)[0]
        return _connect_socket(socket.socket(family, kind, protocol), address)


def message_of(anchor: AuditAnchor) -> bytes:
    """Return a message of syslog (RFC 5424) with an anchor."""
    time = anchor.time.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = f"<{_LOG_AUDIT_NOTICE}>1 {time} {socket.gethostname()[:255] or '-'} aclflow {os.getpid()} audit-anchor - "
    return head.encode("ascii", "replace") + anchor_line(anchor)


def _connect_socket(made: socket.socket, address: object) -> socket.socket:
    made.settimeout(_TIMEOUT_S)
    try:
        made.connect(address)  # type: ignore[arg-type]  # of its own family
    except BaseException:
        made.close()
        raise
    return made
