"""Read the records of a capture: pcap, pcapng, and flow records of IPFIX.

Both byte orders, micro- and nanoseconds; of pcapng all sections and interfaces, each with its own kind of link and
clock, and every kind of packet block. `_native/records.c` goes through the long runs of plain packets and leaves to
this module whatever else there is.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _records
from orchestrator.classify.flowrecords import MAGIC, Broken, FlowRecords, MessageReader, Read, records_of
from orchestrator.classify.frames import NO_TIME, Frames, Link
from orchestrator.errors import BadInput

MOST_OF_FRAME, MOST_OF_BLOCK = 1 << 20, 64 << 20
"""No frame, and no block of pcapng, is longer: a length beyond it is damage."""

MOST_INTERFACES = 1 << 16
"""No section of pcapng has more, for they are held until it ends."""


class Layout(Struct):
    """A struct that can be pickled, as part of a `Walk` that another process continues."""

    def __reduce__(self) -> tuple[type[Layout], tuple[str]]:
        return Layout, (self.format,)


GZIP = b"\x1f\x8b"
"""How begins what gzip packed."""

_OTHER = {
    b"\x28\xb5\x2f\xfd": "it is packed with zstd; unpack it first",
    b"\xfd7zX": "it is packed with xz; unpack it first",
    b"BZh9": "it is packed with bzip2; unpack it first",
    b"\x04\x22\x4d\x18": "it is packed with lz4; unpack it first",
    b"PK\x03\x04": "it is a zip archive; unpack it first",
    b"snoo": "it is a snoop capture; make pcap of it first",
    b"\x34\xcd\xb2\xa1": "it is of an old Linux' own kind; make pcap of it first",
    b"\xa1\xb2\xcd\x34": "it is of an old Linux' own kind; make pcap of it first",
}


class Damaged(Exception):
    """Becomes a BadInput where the file's name is known."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


_Words = npt.NDArray[np.uint32]
_Run = tuple[npt.NDArray[np.int64], _Words, _Words, _Words, npt.NDArray[np.int64]]
"""Frames in a row: the fields of `Frames` behind the data."""


Piece = Frames | FlowRecords
"""The content of a piece of a capture."""


class Found:
    """The frames of a piece, one by one or in runs, or its flow records."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._single: list[tuple[int, int, int, int, int]] = []
        self._frames = 0
        self.records: list[Read] = []

    def __len__(self) -> int:
        return self._frames or len(self.records)

    def add(self, start: int, captured: int, wire: int, link: int, time: int) -> None:
        """A frame, by the fields of `Frames` behind the data."""
        self._single.append((start, captured, wire, link, time))
        self._frames += 1

    def add_run(self, told: tuple[int, bytes, bytes, bytes, bytes, bytes]) -> int:
        """Frames as the extension tells of them; how far they reach."""
        self._settle()
        place, starts, *rest, times = told
        captured, wire, links = (np.frombuffer(each, np.uint32) for each in rest)
        self._runs.append((np.frombuffer(starts, np.int64), captured, wire, links, np.frombuffer(times, np.int64)))
        self._frames += len(captured)
        return place

    def piece(self, data: bytes) -> Piece:
        """All of them; there is one at least."""
        if self.records:
            return records_of(self.records)
        self._settle()
        if len(self._runs) == 1:
            return Frames(data, *self._runs[0])
        return Frames(data, *(np.concatenate(each) for each in zip(*self._runs, strict=True)))

    def _settle(self) -> None:
        """Turn frames added one by one into a run."""
        if self._single:
            starts, captured, wire, links, times = np.array(self._single, np.int64).T
            words = (each.astype(np.uint32) for each in (captured, wire, links))
            self._runs.append((starts, *words, times))
            self._single.clear()


class Walk(Protocol):
    """Reads bytes record by record. A copy goes on where the original was."""

    def walk(self, data: bytes, found: Found) -> int:
        """Add the frames that are there whole; how many bytes were gone through. Raises Damaged."""

    def remark(self) -> str | None:
        """The oddities of what was read, as words to put behind the capture's name."""


LONGEST_HEADER = 28
"""Bytes that tell what a capture is: the header of a pcap file is 24 long, the shortest one of pcapng 28."""

_SECOND = 1_000_000_000

_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
"""How pcap files begin; the byte order that this tells, and the nanoseconds that a time's second word counts."""

_PCAPNG = b"\x0a\x0d\x0d\x0a"


def walk_of(data: bytes, name: str) -> Walk:
    """Return the reader of a capture that begins so.

    Raises BadInput.
    """
    magic = data[:4]
    if magic in _PCAP and len(data) >= _PcapWalk.HEADER:
        return _PcapWalk(data, *_PCAP[magic], name)
    if magic == _PCAPNG:
        return _PcapngWalk()
    if magic[:2] == MAGIC:
        return _IpfixWalk()
    if not data:
        raise BadInput("it is empty", place=name)
    if magic[:2] == GZIP:
        raise BadInput("it is packed with gzip twice; unpack it first", place=name)
    if magic in _PCAP:
        raise BadInput("it ends inside its own header", place=name)
    raise BadInput(_OTHER.get(magic, "it is no capture: neither pcap nor pcapng nor IPFIX begins so"), place=name)


def _is_swapped(order: str) -> bool:
    """Whether numbers of a byte order are not as this machine has them."""
    return (order == "<") != (sys.byteorder == "little")


class _PcapWalk:
    """Reads pcap: a 24-byte header, then packets, each behind 16 bytes.

    The 16 are time, bytes captured, bytes there were.
    """

    HEADER = 24

    def __init__(self, data: bytes, order: str, tick: int, name: str) -> None:
        major, _minor, _zone, _accuracy, _longest, network = Layout(order + "HHiIII").unpack_from(data, 4)
        if major != 2:
            raise BadInput(f"it is pcap of version {major}; 2 is read", place=name)
        self._link = network & _LINK_BITS
        if self._link not in frozenset(Link):
            known = ", ".join(f"{each.value} ({each.name.lower()})" for each in Link)
            raise BadInput(f"frames of link type {self._link} are not read, only {known}", place=name)
        self._skip = self.HEADER
        self._tick = tick
        self._swapped = _is_swapped(order)
        self._record = Layout(order + "IIII")

    def walk(self, data: bytes, found: Found) -> int:
        """Add the packets of this piece of a capture; return how far it was read."""
        place, size = self._skip, len(data)
        place = found.add_run(_records.records(data, place, self._swapped, MOST_OF_FRAME, self._link, self._tick))
        while place + 16 <= size:
            seconds, parts, captured, wire = self._record.unpack_from(data, place)
            if captured > MOST_OF_FRAME:
                raise Damaged(place, f"no packet is {captured} bytes long: the capture is damaged here")
            if place + 16 + captured > size:
                break
            found.add(place + 16, captured, wire, self._link, seconds * _SECOND + parts * self._tick)
            place += 16 + captured
        self._skip = 0
        return place

    def remark(self) -> None:
        """See `Walk.remark`: there is nothing."""


_LINK_BITS = 0x03FFFFFF
"""Of a pcap header's last word; above it stands whether frames end with a check sequence."""


_ORDERS: Mapping[bytes, str] = MappingProxyType({b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"})
"""How a section of pcapng says its byte order."""


_LATEST = 1 << 62
"""Nanoseconds since 1970, in 2116. A time beyond it counts as this one."""


class _Interface(NamedTuple):
    """A pcapng interface: its link type, captured bytes per packet (0: all), its clock."""

    link: int
    longest: int
    ticks: int
    offset: int

    def time(self, ticks: int) -> int:
        """Nanoseconds since 1970."""
        if not self.ticks:
            return NO_TIME
        whole, part = divmod(ticks, self.ticks)
        return max(-_LATEST, min((whole + self.offset) * _SECOND + part * _SECOND // self.ticks, _LATEST))


class _PcapngWalk:
    """pcapng: blocks, each with its type, its length, what it says, and its length again."""

    SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, PACKET = 0x0A0D0D0A, 1, 2, 3, 6
    END, RESOLUTION, OFFSET = 0, 9, 14
    """Options of an interface."""

    def __init__(self) -> None:
        self._order, self._packets = "", b""
        self._interfaces: list[_Interface] = []
        self._told = array("q")
        """The interfaces once more, for the extension: three words each."""

    def walk(self, data: bytes, found: Found) -> int:
        """Add the packets of this piece of a capture; return how far it was read."""
        place, size = 0, len(data)
        while place + 12 <= size:
            if data[place : place + 4] == self._packets:
                place = found.add_run(self._read_packet_blocks(data, place))
                if place + 12 > size:
                    break
            if data[place : place + 4] == _PCAPNG:
                self._begin_section(data, place)
            kind, length = self._head.unpack_from(data, place)
            if length < 12 or length % 4 or length > MOST_OF_BLOCK:
                raise Damaged(place, f"no block is {length} bytes long: the capture is damaged here")
            if place + length > size:
                break
            if self._length.unpack_from(data, place + length - 4)[0] != length:
                raise Damaged(place, "a block says two lengths: the capture is damaged here")
            self._take(kind, data, place + 8, place + length - 4, found)
            place += length
        return place

    def _read_packet_blocks(self, data: bytes, place: int) -> tuple[int, bytes, bytes, bytes, bytes, bytes]:
        """Return how far a row of packet blocks goes, and their columns."""
        return _records.blocks(data, place, self._swapped, MOST_OF_BLOCK, self._told)

    def _begin_section(self, data: bytes, place: int) -> None:
        """Begin a section, which may have another byte order and has its own interfaces."""
        order = _ORDERS.get(data[place + 8 : place + 12])
        if order is None:
            raise Damaged(place, "a section does not say its byte order: the capture is damaged here")
        self._order, self._interfaces, self._told = order, [], array("q")
        self._swapped, self._packets = _is_swapped(order), Layout(order + "I").pack(self.PACKET)
        self._head, self._length = Layout(order + "II"), Layout(order + "I")
        self._packet, self._old_packet = Layout(order + "IIIII"), Layout(order + "HHIIII")
        self._interface = Layout(order + "HHI")

    def _take(self, kind: int, data: bytes, start: int, end: int, found: Found) -> None:
        """One block: what it says lies from `start` to `end`."""
        if kind == self.PACKET:
            interface, high, low, captured, wire = self._read_fields(self._packet, data, start, end)
            self._add_packet(interface, start + self._packet.size, end, captured, wire, high << 32 | low, found)
        elif kind == self.OLD_PACKET:
            interface, _drops, high, low, captured, wire = self._read_fields(self._old_packet, data, start, end)
            self._add_packet(interface, start + self._old_packet.size, end, captured, wire, high << 32 | low, found)
        elif kind == self.SIMPLE_PACKET:
            (wire,) = self._read_fields(self._length, data, start, end)
            longest = self._interfaces[0].longest if self._interfaces else 0
            self._add_packet(0, start + 4, end, min(wire, longest) if longest else wire, wire, None, found)
        elif kind == self.INTERFACE:
            link, _reserved, longest = self._read_fields(self._interface, data, start, end)
            if len(self._interfaces) >= MOST_INTERFACES:
                raise Damaged(start - 8, f"no section has more than {MOST_INTERFACES} interfaces")
            ticks, offset = self._clock(data, start + self._interface.size, end)
            self._interfaces.append(_Interface(link, longest, ticks, offset))
            self._told.extend((offset, ticks, link))
        elif kind == self.SECTION:
            major, _minor = self._read_fields(Layout(self._order + "HH"), data, start + 4, end)
            if major != 1:
                raise Damaged(start - 8, f"a section is pcapng of version {major}; 1 is read")

    def _read_fields(self, fields: Layout, data: bytes, start: int, end: int) -> tuple[int, ...]:
        if start + fields.size > end:
            raise Damaged(start - 8, "a block is shorter than what it must say: the capture is damaged here")
        return fields.unpack_from(data, start)

    def _clock(self, data: bytes, place: int, end: int) -> tuple[int, int]:
        """Read an interface's clock: ticks per second (0: too many) and an offset in seconds."""
        ticks, offset = 1_000_000, 0
        option = Layout(self._order + "HH")
        while place + 4 <= end:
            code, length = option.unpack_from(data, place)
            if code == self.END or place + 4 + length > end:
                break
            if code == self.RESOLUTION and length == 1:
                power = data[place + 4]
                ticks = 1 << (power & 0x7F) if power & 0x80 else 10**power
            elif code == self.OFFSET and length == 8:
                (offset,) = Layout(self._order + "q").unpack_from(data, place + 4)
            place += 4 + length + -length % 4
        return (ticks if ticks < 1 << 63 else 0), offset

    def _add_packet(
        self, interface: int, start: int, end: int, captured: int, wire: int, ticks: int | None, found: Found
    ) -> None:
        if interface >= len(self._interfaces):
            raise Damaged(start, f"nothing is said of interface {interface}, which a packet is of")
        if captured > end - start:
            raise Damaged(start, f"a packet of {captured} bytes does not fit into its block")
        of = self._interfaces[interface]
        found.add(start, captured, wire, of.link, NO_TIME if ticks is None else of.time(ticks))

    def remark(self) -> None:
        """See `Walk.remark`: there is nothing."""


class _IpfixWalk:
    """Messages of IPFIX."""

    def __init__(self) -> None:
        self._reader = MessageReader()

    def walk(self, data: bytes, found: Found) -> int:
        """See `Walk.walk`."""
        try:
            return self._reader.read(data, found.records)
        except Broken as broken:
            raise Damaged(broken.place, broken.reason) from None

    def remark(self) -> str | None:
        """See `Walk.remark`."""
        unknown = self._reader.unknown
        return f"{unknown} sets of records are left out, for no template says what is in them" if unknown else None
