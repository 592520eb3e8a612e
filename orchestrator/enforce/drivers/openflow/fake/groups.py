"""Select groups of the fake switch: one bucket acts, the same for a flow.

Which bucket that is, Open vSwitch leaves to its datapath; here it is a checksum over the five-tuple, and no test may
ask for more than that a flow keeps to its bucket and that buckets get their shares.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.enforce.drivers.openflow.fake.actions import Action, read_actions
from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason

SELECT = 1
ALL, NO_BUCKET = 0xFFFFFFFC, 0xFFFFFFFF
_LAST = 0xFFFFFF00
_ADD, _MODIFY, _DELETE, _ADD_OR_MODIFY = 0, 1, 2, 0x8000
_WEIGHT = 0
_FIVE_TUPLE = (
    "eth_type", "ipv4_src", "ipv4_dst", "ipv6_src", "ipv6_dst", "ip_proto", "tcp_src", "tcp_dst", "udp_src", "udp_dst",
    "sctp_src", "sctp_dst",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """A group: the actions of each bucket, and how the switch describes buckets and properties."""

    number: int
    kind: int
    buckets: tuple[tuple[Action, ...], ...]
    data: bytes
    properties: bytes

    def chosen(self, values: Mapping[str, int]) -> tuple[Action, ...]:
        """Return the actions for a packet's values; none without a bucket."""
        if not self.buckets:
            return ()
        flow = repr([values.get(name) for name in _FIVE_TUPLE]).encode()
        return self.buckets[zlib.crc32(flow) % len(self.buckets)]

    def describe(self) -> bytes:
        """Return its part of a description."""
        length = 16 + len(self.data) + len(self.properties)
        head = struct.pack("!HBxIH6x", length, self.kind, self.number, len(self.data))
        return head + self.data + self.properties


@dataclass(frozen=True, slots=True)
class GroupMod:
    """A group-mod; `group` where it adds one."""

    command: int
    number: int
    group: Group | None

    def after(self, groups: Mapping[int, Group]) -> dict[int, Group]:
        """The switch's groups after it. Raises Complaint."""
        if self.group is None:
            return {number: group for number, group in groups.items() if self.number not in (ALL, number)}
        if self.command == _ADD and self.number in groups:
            raise Complaint(Reason.GROUP_EXISTS)
        if self.command == _MODIFY and self.number not in groups:
            raise Complaint(Reason.UNKNOWN_GROUP)
        return {**groups, self.number: self.group}


def read_group_mod(raw: bytes) -> GroupMod:
    """A whole group-mod message taken apart. Raises Complaint."""
    command, kind, number, size, _ = struct.unpack_from("!HBxIHxxI", raw, 8)
    if command == _DELETE:
        return GroupMod(command, number, None)
    if command not in (_ADD, _MODIFY, _ADD_OR_MODIFY):
        raise Complaint(Reason.BAD_GROUP_COMMAND)
    if number > _LAST:
        raise Complaint(Reason.INVALID_GROUP)
    if kind != SELECT:
        raise Complaint(Reason.BAD_GROUP_TYPE)
    data, properties = raw[24 : 24 + size], raw[24 + size :]
    return GroupMod(command, number, Group(number, kind, _read_buckets(data), data, properties))


def _read_buckets(data: bytes) -> tuple[tuple[Action, ...], ...]:
    found = []
    numbers: set[int] = set()
    at = 0
    while at < len(data):
        length, size, number = struct.unpack_from("!HHI", data, at)
        if length < 8 + size or length % 8 or at + length > len(data):
            raise Complaint(Reason.BAD_BUCKET)
        if number in numbers:
            raise Complaint(Reason.BUCKET_EXISTS)
        numbers.add(number)
        found.append(read_actions(data[at + 8 : at + 8 + size]))
        at += length
    return tuple(found)


ALL_METERS = 0xFFFFFFFF
_ADD_METER, _MODIFY_METER, _DELETE_METER = range(3)


def change_meters(meters: Mapping[int, bytes], raw: bytes) -> dict[int, bytes]:
    """The meters after a meter-mod: flags and bands by number. Raises Complaint."""
    command, flags, number = struct.unpack_from("!HHI", raw, 8)
    described = struct.pack("!H", flags) + raw[16:]
    if command == _DELETE_METER:
        return {} if number == ALL_METERS else {other: each for other, each in meters.items() if other != number}
    if command not in (_ADD_METER, _MODIFY_METER):
        raise Complaint(Reason.BAD_METER_COMMAND)
    if command == _ADD_METER and number in meters:
        raise Complaint(Reason.METER_EXISTS)
    if command == _MODIFY_METER and number not in meters:
        raise Complaint(Reason.UNKNOWN_METER)
    return {**meters, number: described}


def meter_descriptions(meters: Mapping[int, bytes], raw: bytes) -> list[bytes]:
    """Return descriptions of one meter, or of all.

    Raises Complaint.
    """
    (asked,) = struct.unpack_from("!I", raw, 16)
    if asked != ALL_METERS and asked not in meters:
        raise Complaint(Reason.UNKNOWN_METER)
    chosen = meters if asked == ALL_METERS else {asked: meters[asked]}
    return [struct.pack("!H2sI", 6 + len(each), each[:2], number) + each[2:] for number, each in chosen.items()]
