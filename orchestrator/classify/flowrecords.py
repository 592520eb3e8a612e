"""IPFIX flow records (RFC 7011), message after message in a file (RFC 5655).

The packet log exports such files.

    message: header 16 bytes | set | set ...    a set: id, length, then templates (2), options (3) or records (256 on)

Records are read by their templates, of any exporter: addresses, protocol, ports, ICMP type, TCP flags, DSCP, fragment
offset, packets, bytes and a time. A record says less than a packet's headers do. TCP flags of a record are those of its
packet only where it has one packet; and a packet without ports may be a later fragment, unless the record says its
offset. `unread` holds what a record does not say, and `Deciding.knows` says whether it matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np

from orchestrator.classify.frames import NO_TIME
from orchestrator.classify.grouping import I64
from orchestrator.classify.packets import FLAGS, FRAGMENT, PACKET, SERVICE, Packets, Unread, halves
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.protocols import IPV6_FRAGMENT, TCP, WITH_PORTS

MAGIC = b"\x00\x0a"
"""The version, with which each message begins."""

MOST_AT_ONCE = 50_000
"""Records of a piece, but for those of its last message."""

_HEADER, _SET, _FIELD = Struct("!HHIII"), Struct("!HH"), Struct("!HH")
_TEMPLATES, _OPTIONS, _DATA = 2, 3, 256
_VARIABLE, _LONG, _ENTERPRISE = 0xFFFF, 0xFF, 0x8000
_MOST_TEMPLATES = 1 << 16

_BYTES, _PACKETS = (1, 85), (2, 86)
_PROTOCOL, _FLAGS, _OFFSET, _SERVICE, _DSCP = 4, 6, 88, 5, 195
_SOURCE_PORTS, _DESTINATION_PORTS = (7, 180, 182), (11, 181, 183)
_ADDRESSES = {Family.IPV4: (8, 12), Family.IPV6: (27, 28)}
_ICMP = {Family.IPV4: 32, Family.IPV6: 139}
_TIMES = {323: 10**6, 152: 10**6, 150: 10**9, 322: 10**9, 154: 0, 156: 0, 324: 0, 325: 0}
"""Elements with a packet's or a flow's first time, and the nanoseconds of their unit; 0 is NTP's fixed point."""
_NTP_EPOCH = 2_208_988_800
_LATEST = 1 << 62
_MOST_COUNT = 1 << 40
"""Packets and bytes of a record: more are damage."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowRecords:
    """The records of a piece of a file."""

    packets: Packets
    """The account that each gives of its packets; see `unread` of PACKET."""
    count: I64
    byte_counts: I64
    times: I64
    """Nanoseconds since 1970, NO_TIME where a record does not say."""

    def __len__(self) -> int:
        return len(self.packets)


class Broken(Exception):
    """A message, set or record that contradicts itself, and where in the data it begins."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place, self.reason = place, reason


Read = tuple[tuple[object, ...], int, int, int]
"""A record as one of PACKET, its packets, bytes and time."""
_Template = tuple[tuple[int, int], ...]
"""Elements and their lengths; those of enterprises have no number of ours."""


class MessageReader:
    """Reads messages in their order, for records mean what a template before them says."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, int], _Template] = {}
        self.unknown = 0
        """Sets that were left out, for no template was there for them."""

    def read(self, data: bytes, found: list[Read]) -> int:
        """Add the records of whole messages, and return where the next one begins. Raises Broken.

        It stops after the message with which there are `MOST_AT_ONCE`, for records may be of one byte each.
        """
        place = 0
        while place + _HEADER.size <= len(data) and len(found) < MOST_AT_ONCE:
            version, length, _time, _sequence, domain = _HEADER.unpack_from(data, place)
            if version != MAGIC[1] or length < _HEADER.size:
                raise Broken(place, "no message of IPFIX begins so: the file is damaged here")
            if place + length > len(data):
                break
            self._read_message(data, place + _HEADER.size, place + length, domain, found)
            place += length
        return place

    def _read_message(self, data: bytes, place: int, end: int, domain: int, found: list[Read]) -> None:
        while place + _SET.size <= end:
            number, length = _SET.unpack_from(data, place)
            if length < _SET.size or place + length > end:
                raise Broken(place, f"no set is {length} bytes long here: the file is damaged")
            body = place + _SET.size, place + length
            if number == _TEMPLATES:
                self._learn(data, *body, domain)
            elif number >= _DATA:
                self._read_records(data, *body, self._templates.get((domain, number)), found)
            place += length
        if place != end:
            raise Broken(place, "a message ends inside a set's header: the file is damaged here")

    def _learn(self, data: bytes, place: int, end: int, domain: int) -> None:
        """Keep templates. One of no fields withdraws another."""
        while place + _SET.size <= end:
            number, fields = _SET.unpack_from(data, place)
            if number < _DATA:
                return  # what fills up a set
            begin, place = place, place + _SET.size
            template = []
            for _ in range(fields):
                if place + _FIELD.size > end:
                    raise Broken(begin, "a template ends inside its fields: the file is damaged here")
                element, size = _FIELD.unpack_from(data, place)
                place += _FIELD.size
                if element & _ENTERPRISE:
                    element, place = -1, place + 4
                template.append((element, size))
            if len(self._templates) >= _MOST_TEMPLATES:
                raise Broken(begin, f"no file has more than {_MOST_TEMPLATES} templates")
            if template:
                self._templates[domain, number] = tuple(template)
            else:
                self._templates.pop((domain, number), None)

    def _read_records(self, data: bytes, place: int, end: int, template: _Template | None, found: list[Read]) -> None:
        if template is None:
            self.unknown += 1
            return
        shortest = sum(1 if size == _VARIABLE else size for _, size in template)
        if not shortest:
            raise Broken(place, "records without a length: the file is damaged here")
        while place + shortest <= end:  # what is shorter fills up the set
            fields: dict[int, bytes] = {}
            begin = place
            for element, fixed in template:
                size = fixed
                if fixed == _VARIABLE:
                    size, place = data[place] if place < end else end, place + 1
                    if size == _LONG:
                        size, place = int.from_bytes(data[place : place + 2], "big"), place + 2
                if place + size > end:
                    raise Broken(begin, "a record ends behind its set: the file is damaged here")
                fields.setdefault(element, data[place : place + size])
                place += size
            found.append(_record(fields))


def records_of(found: Sequence[Read]) -> FlowRecords:
    """Return flow records as columns."""
    packets, *sums = zip(*found, strict=True)
    return FlowRecords(np.array(list(packets), PACKET), *(np.array(each, np.int64) for each in sums))


def _record(fields: Mapping[int, bytes]) -> Read:
    """The packet of a record, with what is missing of it, and its counts."""
    count, length, time = _number(fields, *_PACKETS, otherwise=1), _number(fields, *_BYTES), _time(fields)
    if max(count, length) > _MOST_COUNT:
        return _make_unread(Unread.BROKEN), 1, 0, time
    family = next((each for each, ends in _ADDRESSES.items() if all(end in fields for end in ends)), None)
    if family is None or _PROTOCOL not in fields:
        return _make_unread(Unread.NOT_IP), count, length, time
    source, destination = (_number(fields, end) for end in _ADDRESSES[family])
    if max(source, destination) >> family.bits or _number(fields, _PROTOCOL) > 0xFF:
        return _make_unread(Unread.BROKEN), count, length, time
    protocol = _number(fields, _PROTOCOL)
    later = (family is Family.IPV6 and protocol == IPV6_FRAGMENT) or bool(_number(fields, _OFFSET))
    service = _number(fields, _DSCP) & 0x3F if _DSCP in fields else _number(fields, _SERVICE) >> 2 & 0x3F
    missing = 0 if _DSCP in fields or _SERVICE in fields else SERVICE
    ports = icmp = flags = (0, 0)
    if not later:
        if protocol in WITH_PORTS:
            ports = _number(fields, *_SOURCE_PORTS) & 0xFFFF, _number(fields, *_DESTINATION_PORTS) & 0xFFFF
        elif protocol == OWN_ICMP[family]:
            icmp = divmod(_number(fields, _ICMP[family]) & 0xFFFF, 256)
        if protocol == TCP:
            flags = _number(fields, _FLAGS) & 0xFF, 0
            missing |= FLAGS if _FLAGS not in fields or count > 1 else 0
        if family is Family.IPV4 and _OFFSET not in fields and not any((*ports, *icmp)):
            missing |= FRAGMENT
    packet = (
        halves(family, source), halves(family, destination), *ports, protocol, family.value, *icmp,
        0 if missing & FLAGS else flags[0], int(later), int(Unread.READ) | missing, service, 0,
    )  # fmt: skip
    return packet, count, length, time


def _make_unread(why: Unread) -> tuple[object, ...]:
    return ((0, 0), (0, 0), 0, 0, 0, 0, 0, 0, 0, 0, int(why), 0, 0)


def _number(fields: Mapping[int, bytes], *elements: int, otherwise: int = 0) -> int:
    """Return the number of the first element that a record has."""
    for element in elements:
        if element in fields:
            return int.from_bytes(fields[element], "big")
    return otherwise


def _time(fields: Mapping[int, bytes]) -> int:
    """Return the time of a record, in nanoseconds since 1970."""
    for element, unit in _TIMES.items():
        if element in fields:
            number = _number(fields, element)
            since = number * unit if unit else ((number >> 32) - _NTP_EPOCH) * 10**9 + (number % 2**32 * 10**9 >> 32)
            return max(-_LATEST, min(since, _LATEST))
    return NO_TIME
