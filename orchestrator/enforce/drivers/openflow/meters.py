"""Bring a switch's meters to a program's, and find rows without their meter.

A meter changes outside of bundles, so it is made before the rows that use it and deleted after them. An entry keeps to
the meter that was there when it was added: a meter is changed in place, and where one was lost its entries count as
lost as well, so that they are written again.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from orchestrator.compile.openflow.instructions import list_meters
from orchestrator.compile.openflow.meters import Meter, meter_in
from orchestrator.compile.pipelines.host import Table
from orchestrator.enforce.drivers.openflow.messages import MULTIPART_BODY, Multipart, Type, message, multipart_request
from orchestrator.program.flows import FlowTable


class MeterCommand(enum.IntEnum):
    """The command of a meter-mod."""

    ADD = 0
    MODIFY = 1
    DELETE = 2


_ALL_METERS = 0xFFFFFFFF
_PACKETS_AND_BURST = 6
_DROP = 1
_MOD = struct.Struct("!HHI")
_BAND = struct.Struct("!HHII4x")
_DESCRIPTION = struct.Struct("!HHI")


def declared_meters(rows: FlowTable) -> dict[int, Meter]:
    """The meters that some rows declare, by number."""
    mine = rows.take(rows.table == Table.METERS).rows()
    return {meter.number: meter for row in mine if (meter := meter_in(row.match)) is not None}


def changes(wanted: Iterable[Meter], there: Mapping[int, Meter], xids: Sequence[int]) -> Iterator[bytes]:
    """Yield messages that add or change meters to the wanted ones; one each."""
    for xid, meter in zip(xids, wanted, strict=False):
        if meter.number not in there:
            yield _pack_mod(MeterCommand.ADD, meter, xid)
        elif there[meter.number] != meter:
            yield _pack_mod(MeterCommand.MODIFY, meter, xid)


def deletion(number: int, xid: int) -> bytes:
    """Forget a meter, if it is there."""
    return message(Type.METER_MOD, xid, _MOD.pack(MeterCommand.DELETE, 0, number))


def request(xid: int) -> bytes:
    """Ask for every meter."""
    return multipart_request(Multipart.METER_DESC, xid, struct.pack("!I4x", _ALL_METERS))


def read(replies: Iterable[bytes]) -> dict[int, Meter]:
    """Return a switch's meters by number.

    One of another kind than ours counts as one that nobody wants.
    """
    found: dict[int, Meter] = {}
    for reply in replies:
        at = MULTIPART_BODY
        while at < len(reply):
            length, flags, number = _DESCRIPTION.unpack_from(reply, at)
            found[number] = Meter(number, 0, 0)
            if flags == _PACKETS_AND_BURST and length == _DESCRIPTION.size + _BAND.size:
                kind, _, rate, burst = _BAND.unpack_from(reply, at + _DESCRIPTION.size)
                found[number] = Meter(number, rate if kind == _DROP else 0, burst)
            at += max(length, _DESCRIPTION.size)
    return found


def rows_in_force(rows: FlowTable, there: Mapping[int, Meter]) -> FlowTable:
    """Return the rows in force: those whose meter is as their row declares."""
    wanted = declared_meters(rows)
    lost = {number for number, meter in wanted.items() if there.get(number) != meter}
    if not lost:
        return rows
    broken = np.array([bool(lost.intersection(list_meters(each))) for each in rows.instruction_set], np.bool_)
    gone = broken[rows.instructions] if len(broken) else np.zeros(len(rows), np.bool_)
    for place in np.flatnonzero(rows.table == Table.METERS).tolist():
        meter = meter_in(rows.row(place).match)
        gone[place] = meter is not None and meter.number in lost
    return rows.take(~gone)


def _pack_mod(command: MeterCommand, meter: Meter, xid: int) -> bytes:
    band = _BAND.pack(_DROP, _BAND.size, meter.rate, meter.burst)
    return message(Type.METER_MOD, xid, _MOD.pack(command, _PACKETS_AND_BURST, meter.number) + band)
