"""DHCPv6 (RFC 8415) without leases: what an endpoint is to have stands in its question.

SOLICIT                    ADVERTISE, or at once REPLY where the client may skip a step
REQUEST, RENEW, REBIND     REPLY with the address
CONFIRM                    REPLY: whether the client's addresses are right here
INFORMATION-REQUEST        REPLY without an address
RELEASE, DECLINE           REPLY: the address stays the endpoint's, whatever it says
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from orchestrator.compile.pipelines.host import SERVICES_IPV6, SERVICES_MAC
from orchestrator.enforce.services.hostservices import ROUTER_IPV6, HostServices
from orchestrator.enforce.services.requestframes import Question, udp_frame

SERVER_PORT, CLIENT_PORT = 547, 546
SOLICIT, ADVERTISE, REQUEST, CONFIRM, RENEW, REBIND, REPLY, RELEASE, DECLINE = range(1, 10)
INFORMATION_REQUEST = 11
_CLIENT_ID, _SERVER_ID, _IA_NA, _IA_TA, _IA_ADDRESS, _STATUS, _RAPID, _DNS, _IA_PD = 1, 2, 3, 4, 5, 13, 14, 23, 25
_NO_ADDRESSES, _NOT_ON_LINK, _NO_PREFIXES = 2, 4, 6
_NAMES_SERVER = {REQUEST, RENEW, RELEASE, DECLINE}
"""Messages that name the server they are for."""
_NEEDS_CLIENT = {SOLICIT, REQUEST, CONFIRM, RENEW, REBIND, RELEASE, DECLINE}
SERVER_ID = struct.pack("!HH", 3, 1) + SERVICES_MAC.to_bytes(6, "big")
"""The same on every host, so that an endpoint that moved renews where it is."""
_OPTION = struct.Struct("!HH")


def answer(question: Question, services: HostServices) -> bytes | None:
    """Return the frame that answers a DHCPv6 request; None: it gets no answer."""
    if len(question.payload) < 4 or question.source >> 118 != 0xFE80 >> 6:
        return None
    kind, transaction = question.payload[0], question.payload[1:4]
    options = list(_read_options(question.payload[4:]))
    known = dict(options)
    if not _is_for_us(kind, known):
        return None
    said = ADVERTISE if kind == SOLICIT and _RAPID not in known else REPLY
    body = [_write_option(_SERVER_ID, SERVER_ID)]
    if _CLIENT_ID in known:
        body.append(_write_option(_CLIENT_ID, known[_CLIENT_ID]))
    if kind == SOLICIT and said == REPLY:
        body.append(_write_option(_RAPID, b""))
    address = question.caller.address
    if kind == CONFIRM:
        is_right = all(each == address for each in _addresses(options))
        body.append(_write_option(_STATUS, struct.pack("!H", 0 if is_right else _NOT_ON_LINK)))
    elif kind in (RELEASE, DECLINE):
        body.append(_write_option(_STATUS, struct.pack("!H", 0)))
    elif kind != INFORMATION_REQUEST:
        body += _give_address(options, address, services.lease_s)
    body.append(_write_option(_DNS, SERVICES_IPV6.to_bytes(16, "big")))
    payload = bytes([said]) + transaction + b"".join(body)
    return udp_frame(question.caller, (ROUTER_IPV6, question.source), (SERVER_PORT, CLIENT_PORT), payload)


def _is_for_us(kind: int, options: dict[int, bytes]) -> bool:
    server = options.get(_SERVER_ID)
    if kind in _NEEDS_CLIENT and _CLIENT_ID not in options:
        return False
    if kind in _NAMES_SERVER:
        return server == SERVER_ID
    if kind == INFORMATION_REQUEST:
        return server in (None, SERVER_ID)
    return kind in (SOLICIT, CONFIRM, REBIND) and server is None


def _give_address(options: list[tuple[int, bytes]], address: int, lease_s: int) -> Iterator[bytes]:
    """Yield an answer to each association: the first gets the address.

    All others are told that there is no more.
    """
    is_given = False
    for number, value in options:
        if number == _IA_NA and len(value) >= 12 and not is_given:
            is_given = True
            head = value[:4] + struct.pack("!II", lease_s // 2, lease_s * 4 // 5)
            held = [_write_option(_IA_ADDRESS, address.to_bytes(16, "big") + struct.pack("!II", lease_s, lease_s))]
            held += (  # an address that it has and must not have is over at once
                _write_option(_IA_ADDRESS, each.to_bytes(16, "big") + bytes(8))
                for each in _addresses([(number, value)])
                if each != address
            )
            yield _write_option(_IA_NA, head + b"".join(held))
        elif number in (_IA_NA, _IA_TA) and len(value) >= 4:
            head = value[:4] + (bytes(8) if number == _IA_NA else b"")
            yield _write_option(number, head + _write_option(_STATUS, struct.pack("!H", _NO_ADDRESSES)))
        elif number == _IA_PD and len(value) >= 4:
            yield _write_option(number, value[:4] + bytes(8) + _write_option(_STATUS, struct.pack("!H", _NO_PREFIXES)))


def _addresses(options: list[tuple[int, bytes]]) -> Iterator[int]:
    """The addresses that a client says it has."""
    for number, value in options:
        begin = {_IA_NA: 12, _IA_TA: 4}.get(number)
        if begin is not None:
            for inner, body in _read_options(value[begin:]):
                if inner == _IA_ADDRESS and len(body) >= 24:
                    yield int.from_bytes(body[:16], "big")


def _write_option(number: int, value: bytes) -> bytes:
    return _OPTION.pack(number, len(value)) + value


def _read_options(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Read options up to the first that is cut off."""
    at = 0
    while at + 4 <= len(data):
        number, length = _OPTION.unpack_from(data, at)
        if at + 4 + length > len(data):
            return
        yield number, data[at + 4 : at + 4 + length]
        at += 4 + length
