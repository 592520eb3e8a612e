"""Messages to the kernel's nf_tables without a library, for cheap single elements.

`nft` reads words, and lists sets with all that they hold. A message that names a set and its elements costs the same
whatever the set holds. Messages of a batch are one transaction, all or nothing.

    socket ── batch: BEGIN | message ... message (acknowledged) | END ──▶ kernel
           ◀── an error for each message that was refused, and the acknowledgement of the last ──

Numbers in attributes have the highest byte first; lengths and types are in the machine's order.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence

from orchestrator.errors import Missing, Refused, Unreachable

NEWTABLE, GETTABLE, DELTABLE, NEWCHAIN, GETCHAIN, _, NEWRULE, GETRULE = range(8)
NEWSET, GETSET, _, NEWSETELEM, GETSETELEM, DELSETELEM, _, GETGEN = range(9, 17)

REQUEST, ACK, DUMP, CREATE, APPEND = 0x1, 0x4, 0x300, 0x400, 0x800
NESTED = 0x8000

_FAMILY_WORDS = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_NETFILTER = 12
_SUBSYSTEM = 10
_BEGIN, _END = 16, 17
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHIIBBH")
_BUFFER_BYTES = 1 << 24
_RECEIVED_BYTES = 1 << 17
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_PATIENCE_S = 60.0


class NotThere(Refused):
    """The kernel has no such table, chain, set or element."""


def attribute(kind: int, data: bytes) -> bytes:
    """Return a netlink attribute, padded."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def nest_attributes(kind: int, *inside: bytes) -> bytes:
    """An attribute made of attributes."""
    return attribute(kind | NESTED, b"".join(inside))


def number(kind: int, value: int) -> bytes:
    """An attribute with 32 bits."""
    return attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def text(kind: int, words: str) -> bytes:
    """An attribute with a name."""
    return attribute(kind, words.encode() + b"\0")


def message(kind: int, flags: int, family: int, body: bytes, sequence: int = 0) -> bytes:
    """A message about nf_tables."""
    return (
        _HEADER.pack(_HEADER.size + len(body), _SUBSYSTEM << 8 | kind, REQUEST | flags, sequence, 0, family, 0, 0)
        + body
    )


def batch(messages: Sequence[bytes]) -> bytes:
    """Messages as one transaction, the last of them acknowledged; numbered from 1 on."""
    numbered = [_pack_edge(_BEGIN, 0)]
    for place, each in enumerate(messages, 1):
        flags = struct.unpack_from("=H", each, 6)[0] | (ACK if place == len(messages) else 0)
        numbered.append(each[:6] + struct.pack("=HI", flags, place) + each[12:])
    return b"".join([*numbered, _pack_edge(_END, len(messages) + 1)])


def _pack_edge(kind: int, sequence: int) -> bytes:
    return _HEADER.pack(_HEADER.size, kind, REQUEST, sequence, 0, 0, 0, socket.htons(_SUBSYSTEM))


class Netlink:
    """A way to the kernel of the network namespace that it was opened in."""

    def __init__(self) -> None:
        self._socket = _open_socket()

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def commit(self, messages: Sequence[bytes]) -> None:
        """One transaction. Raises NotThere, Refused, Missing, Unreachable; then nothing of it was done."""
        if messages:
            self.send(batch(messages), len(messages))

    def send(self, data: bytes, last: int) -> None:
        """Send a finished batch; `last` is the number of its last message."""
        try:
            self._socket.send(data)
            refused = 0
            while True:
                received = self._socket.recv(_RECEIVED_BYTES)
                for kind, sequence, body in replies(received):
                    if kind != _ERROR:
                        continue
                    refused = refused or -struct.unpack_from("=i", body)[0]
                    if sequence in (0, last):
                        if refused:
                            raise _make_error(refused)
                        return
        except OSError as error:
            raise self._forget_answers(error) from None

    def ask(self, kind: int, flags: int, family: int, body: bytes = b"") -> Iterator[tuple[int, bytes]]:
        """Yield the kernel's answers: kind and body behind the family.

        Raises as `commit`.
        """
        try:
            yield from self._exchange_messages(kind, flags, family, body)
        except OSError as error:
            raise self._forget_answers(error) from None

    def _exchange_messages(self, kind: int, flags: int, family: int, body: bytes) -> Iterator[tuple[int, bytes]]:
        self._socket.send(message(kind, flags | (0 if flags & DUMP else ACK), family, body, sequence=1))
        while True:
            for found, _sequence, inside in replies(self._socket.recv(_RECEIVED_BYTES)):
                if found == _DONE:
                    return
                if found == _ERROR:
                    code = -struct.unpack_from("=i", inside)[0]
                    if code:
                        raise _make_error(code)
                    return
                yield found & 0xFF, inside[4:]

    def generation(self) -> int:
        """A number that every transaction of anybody in this network namespace moves on by one."""
        ((_, answer),) = self.ask(GETGEN, 0, 0)
        return int(struct.unpack_from(">I", dict(attributes(answer))[1])[0])

    def reopen(self) -> None:
        """Forget answers that are still under way."""
        self._socket.close()
        self._socket = _open_socket()

    def _forget_answers(self, error: OSError) -> Unreachable:
        """Forget outstanding answers after the kernel has not answered in time."""
        self.reopen()
        return Unreachable(f"netlink: {error.strerror or 'the kernel does not answer'}")


def _open_socket() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
    opened.settimeout(_PATIENCE_S)
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        try:
            opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        except PermissionError:
            raise Missing("nf_tables needs the right CAP_NET_ADMIN") from None
    opened.bind((0, 0))
    return opened


def tables() -> list[tuple[str, str]]:
    """The tables that there are in this network namespace, by family (``ip``, ``inet``) and name."""
    link = Netlink()
    try:
        found = []
        for number_of, words in _FAMILY_WORDS.items():
            for _, answer in link.ask(GETTABLE, DUMP, number_of):
                found.append((words, dict(attributes(answer))[1].rstrip(b"\0").decode()))
        return found
    finally:
        link.close()


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes one after the other: kind and content."""
    place = 0
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        yield kind & 0x3FFF, data[place + 4 : place + length]
        place += (length + 3) & ~3


def replies(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Kind, number and body of each message of a datagram."""
    place = 0
    while place + 16 <= len(data):
        length, kind, _flags, sequence = struct.unpack_from("=IHHI", data, place)
        yield kind, sequence, data[place + 16 : place + length]
        place += (length + 3) & ~3


def _make_error(code: int) -> Exception:
    if code == errno.ENOENT:
        return NotThere("nf_tables: no such table, set or element")
    if code == errno.EPERM:
        return Missing("nf_tables needs the right CAP_NET_ADMIN")
    return Refused(f"nf_tables: {os.strerror(code)}")
