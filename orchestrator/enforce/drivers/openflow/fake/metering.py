"""Meters of the fake switch: they are kept and described, and let everything through."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason

ALL_METERS = 0xFFFFFFFF
_ADD, _MODIFY, _DELETE = range(3)


def change_meters(meters: Mapping[int, bytes], raw: bytes) -> dict[int, bytes]:
    """The meters after a meter-mod: flags and bands by number. Raises Complaint."""
    command, flags, number = struct.unpack_from("!HHI", raw, 8)
    described = struct.pack("!H", flags) + raw[16:]
    if command == _DELETE:
        return {} if number == ALL_METERS else {other: each for other, each in meters.items() if other != number}
    if command not in (_ADD, _MODIFY):
        raise Complaint(Reason.BAD_METER_COMMAND)
    if command == _ADD and number in meters:
        raise Complaint(Reason.METER_EXISTS)
    if command == _MODIFY and number not in meters:
        raise Complaint(Reason.UNKNOWN_METER)
    return {**meters, number: described}


def descriptions(meters: Mapping[int, bytes], raw: bytes) -> list[bytes]:
    """Return descriptions of one meter, or of all.

    Raises Complaint.
    """
    (asked,) = struct.unpack_from("!I", raw, 16)
    if asked != ALL_METERS and asked not in meters:
        raise Complaint(Reason.UNKNOWN_METER)
    chosen = meters if asked == ALL_METERS else {asked: meters[asked]}
    return [struct.pack("!H2sI", 6 + len(each), each[:2], number) + each[2:] for number, each in chosen.items()]
