"""Flow entries on their way back: the parts of a flow-desc reply become columns.

One entry (sizes in bytes, everything big-endian; lengths in the entry say where each piece ends):

    0        2   4       5   6          8 ...            16        24             24 + m            + s
    | length | 0 | table | 0 | priority | times and flags | cookie | match (OXM) m | stats (OXS) s   | instructions |

Match and statistics begin with four bytes of type and length and are padded to eight. The walk from entry to entry is
the only loop over rows; everything else is gathered column by column. Statistics are TLVs like match fields: rows whose
statistics are equally long are taken to have the same fields in the same order, which is then checked. The few entries
that a small change is read back by are taken apart one by one (`entries`), without their statistics.

Read a poll's counters from the parts of a flow-desc reply.

`decode` takes whole flow entries apart, to compare them with a program; `read_counters` reads names and counters only,
in C (`_native/flowstats.c`), for this is done every few seconds with every entry of a switch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.enforce import _flowstats
from orchestrator.enforce.driver import F64, UNKNOWN_IDLE_S, Hits
from orchestrator.enforce.drivers.openflow.messages import (
    ALL_TABLES,
    ANY_GROUP,
    ANY_PORT,
    MULTIPART_BODY,
    Multipart,
    multipart_request,
)
from orchestrator.errors import Drifted
from orchestrator.program.flows import U8, U32, U64, Flow, FlowTable

_KINDS = (np.uint64, np.uint64, np.uint64, np.uint64, np.uint32, np.float64)


def read_counters(replies: Sequence[bytes]) -> Hits:
    """Return the counters of every entry in flow-desc replies.

    Raises Drifted for other bytes.
    """
    try:
        columns = _flowstats.counters(list(replies), MULTIPART_BODY)
    except ValueError as error:
        raise Drifted(f"the switch's flow description is {error}") from None
    key, cookie, packets, byte_counts, idle_s, age_s = map(np.frombuffer, columns, _KINDS)
    return Hits(key, cookie, packets, byte_counts, idle_s, np.where(age_s < 0, np.nan, age_s))


EVERY_BIT = (1 << 64) - 1

_DURATION, _IDLE_TIME, _PACKET_COUNT, _BYTE_COUNT = 0, 1, 4, 5
_BASIC_STATISTICS = 0x8002
_LONGEST_MATCH = 255

_HEAD = np.dtype(
    [
        ("length", ">u2"), ("pad1", "V2"), ("table", "u1"), ("pad2", "V1"), ("priority", ">u2"),
        ("idle", ">u2"), ("hard", ">u2"), ("flags", ">u2"), ("importance", ">u2"), ("cookie", ">u8"),
        ("match_type", ">u2"), ("match_size", ">u2"),
    ]
)  # fmt: skip
_MATCH_AT = 24
_ENTRY = struct.Struct("!HxxBxH8xQ2xH")
_GARBLED = "the switch's flow description is cut off or garbled"


@dataclass(frozen=True, slots=True)
class FlowStats:
    """Flow entries with counters, as columns.

    Tenants are unknown to a switch: all 0.
    """

    flows: FlowTable
    packets: U64
    bytes: U64
    idle_s: U32
    age_s: F64

    def take(self, rows: npt.NDArray[np.bool_]) -> FlowStats:
        """Select some rows, by mask."""
        counts = self.packets[rows], self.bytes[rows]
        return FlowStats(self.flows.take(rows), *counts, self.idle_s[rows], self.age_s[rows])


def request(xid: int, *, table: int = ALL_TABLES, cookie: int = 0, cookie_mask: int = 0, match: bytes = b"") -> bytes:
    """Return a request for flow entries of a table, cookies and a match."""
    body = struct.pack("!B3xII4xQQHH", table, ANY_PORT, ANY_GROUP, cookie, cookie_mask, 1, 4 + len(match)) + match
    body += bytes(-(4 + len(match)) % 8)
    return multipart_request(Multipart.FLOW_DESC, xid, body)


def entries(replies: Sequence[bytes]) -> list[Flow]:
    """Return flow entries one by one; `decode` gives columns.

    Raises Drifted for other bytes.
    """
    try:
        return [flow for reply in replies for flow in _read_entries(memoryview(reply)[MULTIPART_BODY:])]
    except struct.error:
        raise Drifted(_GARBLED) from None


def _read_entries(data: memoryview) -> Iterator[Flow]:
    at = 0
    while at < len(data):
        length, table, priority, cookie, match_size = _ENTRY.unpack_from(data, at)
        match_at = at + _HEAD.itemsize
        stats_at = at + _MATCH_AT + (match_size + 7) // 8 * 8
        (stats_size,) = struct.unpack_from("!H", data, stats_at + 2)
        instructions_at, end = stats_at + (stats_size + 7) // 8 * 8, at + length
        if match_size < 4 or not at < instructions_at <= end <= len(data):
            raise Drifted(_GARBLED)
        match = bytes(data[match_at : match_at + match_size - 4])
        yield Flow(table, priority, match, bytes(data[instructions_at:end]), cookie)
        at = end


def decode(replies: Sequence[bytes]) -> FlowStats:
    """Decode the parts of flow-desc replies to columns.

    Raises Drifted for other bytes.
    """
    whole = b"".join([reply[MULTIPART_BODY:] for reply in replies])
    starts = _starts(whole)
    # Rows are gathered with a fixed width that may reach behind the last entry: hence the padding.
    data = np.frombuffer(whole + bytes(_LONGEST_MATCH + 64), np.uint8)
    head = _gather(data, starts, _HEAD.itemsize).view(_HEAD).ravel()
    match_length = head["match_size"].astype(np.intp) - 4
    stats_at = starts + _MATCH_AT + _round_sizes(match_length + 4)
    stats_size = _gather(data, stats_at, 4)[:, 2:].copy().view(">u2").ravel().astype(np.intp)
    instructions_at = stats_at + _round_sizes(stats_size)
    ends = starts + head["length"]
    _check(head, (match_length < 0) | (match_length > _LONGEST_MATCH) | (instructions_at > ends))
    indices, instruction_set = _instructions(whole, instructions_at, ends)
    flows = FlowTable(
        table=head["table"].copy(),
        priority=head["priority"].astype(np.uint16),
        cookie=head["cookie"].astype(np.uint64),
        tenant=np.zeros(len(starts), np.uint32),
        match_length=match_length.astype(np.uint8),
        match=_gather_matches(data, starts + _HEAD.itemsize, match_length),
        instructions=indices,
        instruction_set=instruction_set,
    )
    counters = _counters(data, stats_at, stats_size)
    return FlowStats(flows, *counters)


def _check(head: npt.NDArray[np.void], wrong: npt.NDArray[np.bool_]) -> None:
    """Refuse entries that columns cannot hold; whoever reads this has to remove them by hand."""
    if wrong.any():
        first = head[wrong][0]
        raise Drifted(
            f"the switch holds a flow (cookie {first['cookie']:#x}, priority {first['priority']}) in table "
            f"{first['table']} whose match is garbled or longer than {_LONGEST_MATCH} bytes"
        )


def _starts(whole: bytes) -> npt.NDArray[np.intp]:
    """Where each entry begins."""
    starts = []
    at, end = 0, len(whole)
    while at < end:
        starts.append(at)
        length = whole[at] << 8 | whole[at + 1] if at + 2 <= end else 0
        if length < _HEAD.itemsize:
            raise Drifted(_GARBLED)
        at += length
    if at != end:
        raise Drifted(_GARBLED)
    return np.array(starts, np.intp)


def _gather(data: U8, starts: npt.NDArray[np.intp], width: int) -> U8:
    """`width` bytes from each start, as a matrix of its own."""
    return np.lib.stride_tricks.sliding_window_view(data, width)[starts]


def _round_sizes(sizes: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    return (sizes + 7) // 8 * 8


def _gather_matches(data: U8, starts: npt.NDArray[np.intp], lengths: npt.NDArray[np.intp]) -> U8:
    width = int(lengths.max(initial=0))
    if not width:
        return np.zeros((len(starts), 0), np.uint8)
    matches = _gather(data, starts, width)
    matches[np.arange(width) >= lengths[:, None]] = 0
    return matches


def _instructions(
    whole: bytes, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]
) -> tuple[U32, tuple[bytes, ...]]:
    """Each row's index into the distinct instruction lists, and these."""
    known: dict[bytes, int] = {}
    number = known.setdefault
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    indices = [number(whole[start:end], len(known)) for start, end in pairs]
    return np.array(indices, np.uint32), tuple(known)


def _counters(data: U8, starts: npt.NDArray[np.intp], sizes: npt.NDArray[np.intp]) -> tuple[U64, U64, U32, F64]:
    """Packets, bytes, idle seconds and age in seconds of every row."""
    packets, volume = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    idle_s = np.full(len(starts), UNKNOWN_IDLE_S, np.uint32)
    age_s = np.full(len(starts), np.nan)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        stats = _gather(data, starts[rows], size)
        places = _places(stats)
        packets[rows] = _column(stats, places.get(_PACKET_COUNT), ">u8")
        volume[rows] = _column(stats, places.get(_BYTE_COUNT), ">u8")
        if _IDLE_TIME in places:
            idle_s[rows] = _column(stats, places[_IDLE_TIME], ">u4")
        if _DURATION in places:
            seconds, nanoseconds = (_column(stats, places[_DURATION] + at, ">u4") for at in (0, 4))
            age_s[rows] = seconds + nanoseconds * 1e-9
    return packets, volume, idle_s, age_s


def _places(stats: U8) -> dict[int, int]:
    """Return each field's place in rows of statistics.

    Raises Drifted if not every row has the same fields.
    """
    places: dict[int, int] = {}
    first = stats[0].tobytes()
    at = 4
    while at + 4 <= len(first):
        kind, field, length = struct.unpack_from("!HBB", first, at)
        if (stats[:, at : at + 4] != stats[0, at : at + 4]).any() or kind != _BASIC_STATISTICS:
            raise Drifted("the switch gives statistics in a form that this driver does not know")
        places[field >> 1] = at + 4
        at += 4 + length
    return places


def _column(stats: U8, place: int | None, kind: str) -> npt.NDArray[np.uint64]:
    """Return one counter of every row.

    One that the switch does not keep is 0 (absent), or all ones as the switch has it.
    """
    if place is None:
        return np.zeros(len(stats), np.uint64)
    size = np.dtype(kind).itemsize
    values = np.ascontiguousarray(stats[:, place : place + size]).view(kind).ravel()
    return values.astype(np.uint64)
