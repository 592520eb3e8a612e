"""The fake switch's connection tracking: the Nicira action `ct`, as our programs use it.

A connection is remembered in a zone by its two ends, so both directions of it are the same one, together with the
packet that began it and how far each end has come. This follows Open vSwitch 3.1's datapath in the daemon as measured:

* a connection may begin with any segment of TCP but SYN and ACK together, and flags that no stack sends; with a
  request of ICMP; with anything else. All of it is *new* until the other end has answered;
* TCP and UDP from or to port 0 is invalid;
* an ICMP error belongs to the connection of the packet that it quotes, if it goes to that packet's sender.

The fake knows neither sequence numbers nor identifiers of ICMP nor time, and it does not put fragments together: it
calls them invalid. All numbers are the right ones for it, a SYN's that is repeated late, too.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason
from orchestrator.enforce.drivers.openflow.fake.fields import IP_TYPES, read_header

CT, MARK = 35, "ct_mark"
NEW, ESTABLISHED, RELATED, REPLY, INVALID, TRACKED = (1 << bit for bit in range(6))
"""Bits of `ct_state`."""
OF_CONNECTION = NEW | ESTABLISHED | REPLY
"""Of a packet that opens, continues or answers a connection; an ICMP error about one may have none of these."""

_COMMIT, _FORCE, _NO_TABLE = 1, 2, 0xFF
_SET_FIELD = 25
_HEAD = struct.Struct("!10xHIHB3xH")
_IPV4 = 0x0800
_FIN, _SYN, _RST, _PSH, _ACK, _URG = (1 << bit for bit in range(6))
_TCP, _UDP, _ICMP, _ICMPV6 = 6, 17, 1, 58
_REQUESTS = {_ICMP: {8: 0, 13: 14, 15: 16}, _ICMPV6: {128: 129}}
"""By ICMP's protocol number: the types that ask for something, and those of their answers."""
_ERRORS = {_ICMP: (3, 4, 5, 11, 12), _ICMPV6: (1, 2, 3, 4)}


@dataclass(frozen=True, slots=True)
class Track:
    """Look a packet's connection up and go on, remember it, or both.

    The look-up goes on in `table`; the bits of `mask` in the mark become those of `mark`.

    `force`: as opened by this packet, even if it is known the other way round.
    """

    zone: int
    table: int | None = None
    mark: int | None = None
    mask: int = 0xFFFFFFFF
    force: bool = False


class Way(NamedTuple):
    """A packet's source and destination: addresses and ports, or ICMP type and code."""

    eth_type: int
    protocol: int
    source: int
    destination: int
    source_port: int
    destination_port: int


Connection = tuple[int, int, int, int, frozenset[tuple[int, int]]]
"""Zone, Ethernet type, protocol, kind of request, and both ends: address, and port or which of both asks by ICMP."""


class Stage(enum.IntEnum):
    """How far one end of a TCP connection has come, as the switch orders it."""

    SILENT = 0
    SENT = 1
    ESTABLISHED = 2
    CLOSING = 3
    CLOSED = 4
    OVER = 5


@dataclass(frozen=True, slots=True)
class Known:
    """A known connection: first packet, mark, and the progress of both sides.

    Of what is not TCP only whether the answerer has sent anything counts.
    """

    first: Way
    mark: int
    opener: Stage = Stage.SENT
    answerer: Stage = Stage.SILENT


class Found(NamedTuple):
    """A look-up's result: state bits, the connection's first packet, mark and new state."""

    state: int
    first: Way | None
    mark: int
    known: Known | None


def read_track(whole: bytes) -> Track:
    """Take the action apart. Raises Complaint for what our programs never say."""
    flags, source, zone, table, helper = _HEAD.unpack_from(whole)
    if source or helper or flags not in (0, _COMMIT, _COMMIT | _FORCE):
        raise Complaint(Reason.BAD_ARGUMENT)
    following = None if table == _NO_TABLE else table
    if not flags:
        if following is None or len(whole) > _HEAD.size:
            raise Complaint(Reason.BAD_ARGUMENT)
        return Track(zone, table=following)
    return Track(zone, following, *_written_mark(whole[_HEAD.size :]), force=bool(flags & _FORCE))


def _written_mark(actions: bytes) -> tuple[int, int]:
    """Return the mark that the one set-field action behind the head writes, and its mask."""
    if len(actions) < 8:
        raise Complaint(Reason.BAD_ARGUMENT)
    kind, length = struct.unpack_from("!HH", actions)
    if length < 8 or length % 8 or length > len(actions):
        raise Complaint(Reason.BAD_ACTION_LENGTH)
    if kind != _SET_FIELD or length < len(actions):
        raise Complaint(Reason.BAD_ARGUMENT)
    known = read_header(actions[4:8])
    if known is None or known[0].name != MARK:
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    mark, is_masked = int.from_bytes(actions[8:12], "big"), known[1]
    mask = int.from_bytes(actions[12:16], "big") if is_masked else 0xFFFFFFFF
    if mark & ~mask:
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    return mark, mask


def can_track(values: Mapping[str, int]) -> bool:
    """Whether what has these values is an IP packet."""
    return values.get("eth_type") in IP_TYPES


def way_of(values: Mapping[str, int]) -> Way:
    """The way of a packet."""

    def read_first(*names: str) -> int:
        return next((values[name] for name in names if name in values), 0)

    protocol = values.get("ip_proto", 0)
    ports = (0, 0)
    if protocol in (_TCP, _UDP):
        ports = read_first("tcp_src", "udp_src"), read_first("tcp_dst", "udp_dst")
    elif protocol in _REQUESTS:
        ports = read_first("icmp_type", "icmpv6_type"), read_first("icmp_code", "icmpv6_code")
    addresses = read_first("ipv4_src", "ipv6_src"), read_first("ipv4_dst", "ipv6_dst")
    return Way(values.get("eth_type", 0), protocol, *addresses, *ports)


def connection(zone: int, way: Way) -> Connection:
    """Return the connection of a packet; ICMP requests of both directions are two."""
    kind, ports = 0, (way.source_port, way.destination_port)
    if way.protocol in _REQUESTS:
        asks = {answer: request for request, answer in _REQUESTS[way.protocol].items()}
        kind, ports = asks.get(way.source_port, way.source_port), (0, 1) if way.source_port not in asks else (1, 0)
    ends = frozenset(((way.source, ports[0]), (way.destination, ports[1])))
    return zone, way.eth_type, way.protocol, kind, ends


def quoted_way(frame: bytes, transport_at: int | None, values: Mapping[str, int]) -> Way | None:
    """The way of the packet that an ICMP error quotes; None for anything else."""
    way = way_of(values)
    if transport_at is None or way.source_port not in _ERRORS.get(way.protocol, ()):
        return None
    quoted = frame[transport_at + 8 :]
    if way.eth_type == _IPV4 and len(quoted) >= 28:
        protocol, size, begin = quoted[9], (quoted[0] & 0xF) * 4, 12
    elif way.eth_type != _IPV4 and len(quoted) >= 48:
        protocol, size, begin = quoted[6], 40, 8
    else:
        return None
    width = (size - begin) // 2 if way.eth_type != _IPV4 else 4
    source, destination = (int.from_bytes(quoted[at : at + width], "big") for at in (begin, begin + width))
    ports = struct.unpack_from("!HH", quoted, size) if protocol in (_TCP, _UDP) else (0, 0)
    if protocol in _REQUESTS:
        ports = quoted[size], quoted[size + 1]
    found = Way(way.eth_type, protocol, source, destination, *ports)
    return found if source == way.destination else None


def look_up(values: Mapping[str, int], known: Known | None) -> Found:
    """Look up a packet that is no ICMP error.

    `known` is the state of its connection.
    """
    way = way_of(values)
    flags = values.get("tcp_flags", 0) if way.protocol == _TCP else 0
    asks = _REQUESTS.get(way.protocol, {})
    odd_request = way.source_port in (*asks, *asks.values()) and bool(asks)
    without_port = way.protocol in (_TCP, _UDP) and not (way.source_port and way.destination_port)
    if (
        values.get("ip_frag")
        or without_port
        or (odd_request and way.destination_port)
        or (way.protocol == _TCP and _is_odd(flags))
    ):
        return _INVALID
    if known is not None:
        reply = _is_reply(way, known.first)
        found = _follow_segment(known, flags, reply) if way.protocol == _TCP else _follow_packet(known, reply)
        if found is not None:
            return found
    return Found(TRACKED | NEW, way, 0, None) if _may_begin(way, flags) else _INVALID


def _is_reply(way: Way, first: Way) -> bool:
    if way.protocol in _REQUESTS:
        return way.source_port not in _REQUESTS[way.protocol]
    return (way.source, way.source_port) != (first.source, first.source_port)


def _follow_packet(known: Known, reply: bool) -> Found:
    """A packet of a known connection that is not TCP."""
    known = replace(known, answerer=Stage.SENT) if reply else known
    return _look_up_result(known, new=known.answerer is Stage.SILENT, reply=reply)


def _follow_segment(known: Known, flags: int, reply: bool) -> Found | None:
    """Return a known connection's next state for a segment.

    None if the segment may begin another connection in its place.
    """
    sender, receiver = (known.answerer, known.opener) if reply else (known.opener, known.answerer)
    syn = flags & (_SYN | _ACK) == _SYN
    if syn and min(sender, receiver) >= Stage.CLOSED:
        return None
    new = syn and sender <= Stage.SENT
    if new:
        sender = Stage.SENT
    else:
        sender = max(sender, Stage.SENT)
        if flags & _FIN:
            sender = max(sender, Stage.CLOSING)
        if flags & _ACK and receiver in (Stage.SENT, Stage.CLOSING):
            receiver = Stage.ESTABLISHED if receiver is Stage.SENT else Stage.CLOSED
        if flags & _RST:
            sender = receiver = Stage.OVER
    opener, answerer = (receiver, sender) if reply else (sender, receiver)
    return _look_up_result(replace(known, opener=opener, answerer=answerer), new=new, reply=reply and not new)


def _look_up_result(known: Known, *, new: bool, reply: bool) -> Found:
    state = TRACKED | (NEW if new else ESTABLISHED) | (REPLY if reply else 0)
    return Found(state, known.first, known.mark, known)


def look_up_error(quoted: Way, known: Known | None) -> Found:
    """Look up an ICMP error about a packet.

    `known` is the state of that packet's connection.
    """
    if known is None:
        return _INVALID
    backwards = quoted == known.first
    return Found(TRACKED | RELATED | (REPLY if backwards else 0), known.first, known.mark, known)


def begin_connection(values: Mapping[str, int], action: Track, known: Known | None) -> Known | None:
    """Return the state of a connection that a packet begins, or None."""
    assert action.mark is not None
    way = way_of(values)
    if known is not None and not (action.force and _is_reply(way, known.first)):
        return replace(known, mark=known.mark & ~action.mask | action.mark)
    return Known(way, action.mark) if look_up(values, None).state & NEW else None


def fields_of(found: Found) -> dict[str, int]:
    """Return the fields that show the connection to the tables behind the look-up."""
    shown = {"ct_state": found.state, MARK: found.mark}
    if found.first is None:
        return shown
    first = found.first
    names = ("ct_nw_src", "ct_nw_dst") if first.eth_type == _IPV4 else ("ct_ipv6_src", "ct_ipv6_dst")
    shown |= dict(zip(names, (first.source, first.destination), strict=True))
    return shown | {
        "ct_nw_proto": first.protocol, "ct_tp_src": first.source_port, "ct_tp_dst": first.destination_port
    }  # fmt: skip


_INVALID = Found(TRACKED | INVALID, None, 0, None)


def _is_odd(flags: int) -> bool:
    """Whether no stack sends these flags together."""
    if flags & _SYN:
        return bool(flags & (_FIN | _RST))
    return not flags & (_ACK | _RST) or (not flags & _ACK and bool(flags & (_FIN | _PSH | _URG)))


def _may_begin(way: Way, flags: int) -> bool:
    if way.protocol == _TCP:
        return flags & (_SYN | _ACK) != _SYN | _ACK
    return way.protocol not in _REQUESTS or way.source_port in _REQUESTS[way.protocol]
