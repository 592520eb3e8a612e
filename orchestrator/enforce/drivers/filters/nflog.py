"""Packets that a filter's logging rules report, received from our NFLOG group over netlink.

    nlmsghdr 16 │ family 1, version 1, group 2 │ attributes: prefix (the rule's comment), payload (from the IP header)

The kernel gathers reports for a moment and sends several at once. Where we are too slow it throws reports away, and
says so with ENOBUFS: then packets go on being reported, and how many were lost nobody knows.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import structlog

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.compile.filters.limits import GROUP, OCTETS
from orchestrator.enforce.drivers.nftables.netlink import attribute, attributes, number, replies
from orchestrator.enforce.drivers.openflow import headers
from orchestrator.errors import Missing
from orchestrator.policy.model import Packet
from orchestrator.program.program import Tier

log = structlog.get_logger()

Seen = Callable[[int, Packet, int], None]
"""Gets the cookie of what reported a packet, the packet, and its length in bytes."""

_NETLINK_NETFILTER = 12
_ULOG = 4 << 8
_PACKET, _CONFIG = _ULOG, _ULOG | 1
_NLMSG_ERROR = 2
_REQUEST, _ACK = 1, 4
_HEADER = struct.Struct("=IHHII")
_GENERIC = struct.Struct("!BBH")
_COMMAND, _MODE, _TIMEOUT = 1, 2, 4
_BIND, _COPY_PACKETS = 1, 2
_GATHER_CENTISECONDS = 10
_PAYLOAD, _PREFIX = 9, 10
_MOST_OCTETS = 1 << 17
_WAIT_S = 0.5
_TAKEN = "somebody else listens to it in this network namespace, or the right CAP_NET_ADMIN is missing"
_ETHERNET = {4: bytes(12) + b"\x08\x00", 6: bytes(12) + b"\x86\xdd"}


class PacketReports:
    """Listens in a thread of its own, in the network namespace of its creation."""

    def __init__(self, seen: Seen, group: int = GROUP) -> None:
        self._seen = seen
        self._group = group
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="packet-reports", daemon=True)
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start to listen for reported packets.

        Raises Missing where the kernel has no NFLOG, or somebody else listens to our group.
        """
        try:
            self._socket = _bound(self._group)
        except OSError as error:
            because = _TAKEN if error.errno in (errno.EPERM, errno.EBUSY) else error.strerror
            raise Missing(f"NFLOG group {self._group}: {because}") from None
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting packets."""
        self._stopping.set()
        if self._socket is not None:
            self._thread.join()
            self._socket.close()

    def _listen(self) -> None:
        """Receive the kernel's reports until stopped."""
        assert self._socket is not None
        while not self._stopping.is_set():
            try:
                message = self._socket.recv(_MOST_OCTETS)
            except TimeoutError:
                continue
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    log.warning("packets.unheard", error=error.strerror)
                    return
                log.warning("packets.lost_in_kernel")
                continue
            for cookie, packet, data in reports_in(message):
                self._seen(cookie, packet, data)


def reports_in(message: bytes) -> Iterator[tuple[int, Packet, int]]:
    """Yield cookie, packet and length of each of our reports in a kernel's datagram."""
    for kind, _, body in replies(message):
        if kind != _PACKET:
            continue
        said = dict(attributes(body[_GENERIC.size :]))
        owner = read_comment(said.get(_PREFIX, b"").rstrip(b"\0").decode("ascii", "replace"))
        found = _packet(said.get(_PAYLOAD, b""))
        if owner is not None and found is not None:
            yield Cookie(Tier.SERVER, *owner).pack(), *found


def _packet(data: bytes) -> tuple[Packet, int] | None:
    """A packet from its beginning, and its whole length."""
    ethernet = _ETHERNET.get(data[0] >> 4) if len(data) >= 20 else None
    if ethernet is None:
        return None
    version_4 = data[0] >> 4 == 4
    whole = int.from_bytes(data[2:4] if version_4 else data[4:6], "big") + (0 if version_4 else 40)
    packet = headers.packet_of(headers.parse(ethernet + data.ljust(whole, b"\0")))
    return None if packet is None else (packet, whole)


def _bound(group: int) -> socket.socket:
    """A socket that hears a group. Raises OSError."""
    found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    try:
        found.bind((0, 0))
        found.settimeout(_WAIT_S)
        _configure(found, group, attribute(_COMMAND, bytes((_BIND,))))
        mode = attribute(_MODE, struct.pack("!IBB", OCTETS, _COPY_PACKETS, 0))
        _configure(found, group, mode + number(_TIMEOUT, _GATHER_CENTISECONDS))
    except OSError:
        found.close()
        raise
    return found


def _configure(sock: socket.socket, group: int, wanted: bytes) -> None:
    """Send the kernel settings of a group, and wait for its answer. Raises OSError."""
    body = _GENERIC.pack(socket.AF_UNSPEC, 0, group) + wanted
    sock.send(_HEADER.pack(_HEADER.size + len(body), _CONFIG, _REQUEST | _ACK, 0, 0) + body)
    for kind, _, answer in replies(sock.recv(_MOST_OCTETS)):
        code = -struct.unpack_from("=i", answer)[0] if kind == _NLMSG_ERROR else 0
        if code:
            raise OSError(code, os.strerror(code))
