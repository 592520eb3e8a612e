"""DHCP for IPv4 (RFC 2131) without leases: the question contains the answer's address.

    DISCOVER            OFFER
    REQUEST             ACK for the endpoint's own address, NAK for another; nothing where it chose another server
    INFORM              ACK without an address
    DECLINE, RELEASE    nothing: the address is the endpoint's, whatever it says

The same question has the same answer on every host, so an endpoint that moves renews where it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from orchestrator.compile.pipelines.host import SERVICES_IPV4
from orchestrator.enforce.services.hostservices import HostServices
from orchestrator.enforce.services.requestframes import Question, udp_frame

SERVER_PORT, CLIENT_PORT = 67, 68
DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM = range(1, 9)
_MASK, _ROUTER, _DNS, _MTU = 1, 3, 6, 26
_REQUESTED, _LEASE, _OVERLOAD, _TYPE, _SERVER, _CLIENT_ID = 50, 51, 52, 53, 54, 61
_PAD, _END = 0, 255
_COOKIE = b"\x63\x82\x53\x63"
_HEAD = struct.Struct("!BBBBIHHIIII16s64s128s")
_BROADCAST_FLAG, _EVERYBODY = 0x8000, 0xFFFFFFFF
_LEAST = 300
"""The least length that old clients and relays expect of a message."""


def answer(question: Question, services: HostServices) -> bytes | None:
    """Return the frame that answers a DHCP request; None: it gets no answer."""
    message = question.payload
    if len(message) < _HEAD.size + 4 or message[_HEAD.size : _HEAD.size + 4] != _COOKIE:
        return None
    operation, kind, length, _, number, _, flags, held, _, _, relay, hardware, _, _ = _HEAD.unpack_from(message)
    caller = question.caller
    if (operation, kind, length, relay) != (1, 1, 6, 0) or hardware[:6] != caller.mac_bytes:
        return None  # in the name of another, or by a relay, which endpoints have no business to be
    options = _read_options(message[_HEAD.size + 4 :])
    said = _reply_type(options, held, caller.address)
    if said is None:
        return None
    given = 0 if said == NAK or options[_TYPE] == bytes([INFORM]) else caller.address
    fields = (2, 1, 6, 0, number, 0, flags, 0 if said == NAK else held, given, 0, 0, hardware, b"", b"")
    body = b"".join(_write_options(said, options, services, caller.address, leases=bool(given)))
    target = _EVERYBODY if said == NAK or flags & _BROADCAST_FLAG or not (held or given) else held or given
    payload = (_HEAD.pack(*fields) + _COOKIE + body + bytes([_END])).ljust(_LEAST, b"\0")
    return udp_frame(caller, (SERVICES_IPV4, target), (SERVER_PORT, CLIENT_PORT), payload)


def _reply_type(options: Mapping[int, bytes], held: int, address: int) -> int | None:
    """Return the type of the reply to a message; None: no reply.

    `options` are the message's, `held` is the address that the client says it has, `address` the one it is to have.
    """
    server = options.get(_SERVER)
    if server not in (None, SERVICES_IPV4.to_bytes(4, "big")):
        return None
    match options.get(_TYPE):
        case b"\x01":
            return OFFER
        case b"\x03":
            wanted = int.from_bytes(options.get(_REQUESTED, b""), "big") or held
            return ACK if wanted == address else NAK
        case b"\x08":
            return ACK
        case _:
            return None


def _write_options(
    said: int, asked: Mapping[int, bytes], services: HostServices, address: int, *, leases: bool
) -> Iterator[bytes]:
    yield _write_option(_TYPE, bytes([said]))
    yield _write_option(_SERVER, SERVICES_IPV4.to_bytes(4, "big"))
    if _CLIENT_ID in asked:  # RFC 6842
        yield _write_option(_CLIENT_ID, asked[_CLIENT_ID])
    if said == NAK:
        return
    if leases:
        yield _write_option(_LEASE, services.lease_s.to_bytes(4, "big"))
    subnet = services.subnet_of(address)
    yield _write_option(_MASK, subnet.prefix.mask.to_bytes(4, "big"))
    yield _write_option(_ROUTER, subnet.router_of(address).to_bytes(4, "big"))
    yield _write_option(_DNS, SERVICES_IPV4.to_bytes(4, "big"))
    yield _write_option(_MTU, services.mtu.to_bytes(2, "big"))


def _write_option(number: int, value: bytes) -> bytes:
    return bytes([number, len(value)]) + value


def _read_options(data: bytes) -> dict[int, bytes]:
    """Read DHCP options up to their end, or to one that is cut off.

    The parts of an option that comes more than once are joined.
    """
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data) and data[at] != _END:
        if data[at] == _PAD:
            at += 1
            continue
        length = data[at + 1] if at + 1 < len(data) else len(data)
        if at + 2 + length > len(data):
            break
        number = data[at]
        found[number] = (found.get(number, b"") + data[at + 2 : at + 2 + length])[:255]
        at += 2 + length
    return found
