"""Frames as packets in plain Python: the oracle for what `orchestrator/classify/_native/frames.c` reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from orchestrator.classify.frames import Frames, Link
from orchestrator.classify.packets import PACKET, Packets, Unread, record
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP
from orchestrator.policy.space import possible


def read_frames(frames: Frames) -> Packets:
    """Read frames one by one, as `orchestrator.classify.frames.read_frames` reads them all in C."""
    rows = []
    for start, captured, wire, link in zip(
        frames.starts.tolist(), frames.captured.tolist(), frames.wire.tolist(), frames.links.tolist(), strict=True
    ):
        found = read_frame(bytes(frames.data[start : start + captured]), wire, link)
        rows.append(unread(found, wire) if isinstance(found, Unread) else record(found, wire))
    return np.array(rows, PACKET)


def read_frame(data: bytes, wire: int, link: int) -> Packet | Unread:
    """Return the packet of a frame of `wire` bytes, or why there is none.

    `data` was captured of it.
    """
    if link not in frozenset(Link):
        return Unread.OTHER_LINK
    try:
        return _Frame(data, max(wire, len(data))).packet(Link(link))
    except _Stop as stop:
        return stop.why


_IPV4, _IPV6 = 0x0800, 0x86DD
_TAGS = frozenset({0x8100, 0x88A8, 0x9100, 0x9200})
_FAMILIES = {2: _IPV4, 10: _IPV6, 24: _IPV6, 28: _IPV6, 30: _IPV6}
"""The IP versions by systems' numbers for them, in front of a packet of the loopback."""

_HOP_BY_HOP, _ROUTING, _AUTHENTICATION, _OPTIONS = 0, 43, 51, 60
_EXTENSIONS = frozenset({_HOP_BY_HOP, _ROUTING, _AUTHENTICATION, _OPTIONS})

_HEADER = {TCP: (20, 14), UDP: (8, 4), SCTP: (12, 4), ICMP: (8, 2), ICMPV6: (4, 2)}
"""How long a transport header is, and how much of it must be there to be read."""


class _Stop(Exception):
    """The end of reading a frame that is not decided."""

    def __init__(self, why: Unread) -> None:
        super().__init__(why)
        self.why = why


class _Frame:
    """A frame being read: its captured bytes, and the end of the present part."""

    def __init__(self, data: bytes, wire: int) -> None:
        self._data = data
        self._end = wire

    def packet(self, link: Link) -> Packet:
        """Read the frame as a packet; raises _Stop where it is none."""
        kind, start = self._network(link)
        if kind == _IPV4:
            return self._ipv4(start)
        if kind == _IPV6:
            return self._ipv6(start)
        raise _Stop(Unread.NOT_IP)

    def _number(self, start: int, count: int) -> int:
        """A number in network order. Raises _Stop where it is not there."""
        self._need(start, count, count)
        return int.from_bytes(self._data[start : start + count], "big")

    def _need(self, start: int, whole: int, read: int) -> None:
        """Require a header of `whole` bytes, with its first `read` captured.

        Raises _Stop.
        """
        if start + whole > self._end:
            raise _Stop(Unread.BROKEN)
        if start + read > len(self._data):
            raise _Stop(Unread.CUT_OFF)

    def _network(self, link: Link) -> tuple[int, int]:
        """The type of what a link carries, as Ethernet numbers it, and where it begins."""
        if link in (Link.NULL, Link.LOOP):
            family = self._number(0, 4)
            swapped = int.from_bytes(family.to_bytes(4, "big"), "little")
            return _FAMILIES.get(family, _FAMILIES.get(swapped, 0)), 4
        if link is Link.IPV4:
            return _IPV4, 0
        if link is Link.IPV6:
            return _IPV6, 0
        if link in (Link.RAW, Link.RAW_12, Link.RAW_14):
            return {4: _IPV4, 6: _IPV6}.get(self._number(0, 1) >> 4, 0), 0
        kind, start = {Link.ETHERNET: (12, 14), Link.LINUX_SLL: (14, 16), Link.LINUX_SLL2: (0, 20)}[link]
        self._need(0, start, start)
        found = self._number(kind, 2)
        while found in _TAGS:
            found = self._number(start + 2, 2)
            start += 4
        return found, start

    def _ipv4(self, start: int) -> Packet:
        """Read the IPv4 packet that begins at a byte."""
        first = self._number(start, 1)
        self._need(start, 20, 20)
        header, total = (first & 0xF) * 4, self._number(start + 2, 2)
        if first >> 4 != 4 or header < 20:
            raise _Stop(Unread.BROKEN)
        self._ends(start + total if total else self._end)
        self._need(start, header, 20)
        return self._transport(
            Packet(
                Family.IPV4,
                source=self._number(start + 12, 4),
                destination=self._number(start + 16, 4),
                protocol=self._number(start + 9, 1),
                dscp=self._number(start + 1, 1) >> 2,
                later_fragment=bool(self._number(start + 6, 2) & 0x1FFF),
            ),
            start + header,
        )

    def _ipv6(self, start: int) -> Packet:
        """Read the IPv6 packet that begins at a byte."""
        first = self._number(start, 1)
        self._need(start, 40, 40)
        payload = self._number(start + 4, 2)
        if first >> 4 != 6:
            raise _Stop(Unread.BROKEN)
        self._ends(start + 40 + payload if payload else self._end)
        protocol, place, later = self._upper_layer(self._number(start + 6, 1), start + 40)
        source, destination = self._number(start + 8, 16), self._number(start + 24, 16)
        dscp = self._number(start, 2) >> 6 & 0x3F
        found = Packet(Family.IPV6, source, destination, protocol, dscp=dscp, later_fragment=later)
        return self._transport(found, place)

    def _ends(self, end: int) -> None:
        """Note where the datagram ends: in front of padding at most."""
        if end > self._end:
            raise _Stop(Unread.BROKEN)
        self._end = end

    def _upper_layer(self, found: int, start: int) -> tuple[int, int, bool]:
        """Return the protocol behind extension headers, its start, and whether a later fragment."""
        while True:
            if found == IPV6_FRAGMENT:
                self._need(start, 8, 4)
                if self._number(start + 2, 2) & 0xFFF8:
                    return IPV6_FRAGMENT, start, True
                found, start = self._number(start, 1), start + 8
            elif found in _EXTENSIONS:
                self._need(start, 8, 2)
                length = self._number(start + 1, 1)
                count = (length + 2) * 4 if found == _AUTHENTICATION else (length + 1) * 8
                self._need(start, count, 2)
                found, start = self._number(start, 1), start + count
            else:
                return found, start, False

    def _transport(self, packet: Packet, start: int) -> Packet:
        """The packet with what its transport header says."""
        protocol = packet.protocol
        foreign = protocol in (ICMP, ICMPV6) and protocol != OWN_ICMP[packet.family]
        if packet.later_fragment or foreign or protocol not in _HEADER:
            return packet
        self._need(start, *_HEADER[protocol])
        return possible(
            Packet(
                packet.family, packet.source, packet.destination, protocol,
                source_port=self._number(start, 2),
                destination_port=self._number(start + 2, 2) if protocol in (TCP, UDP, SCTP) else 0,
                icmp_type=self._number(start, 1),
                icmp_code=self._number(start + 1, 1),
                tcp_flags=self._number(start + 13, 1) if protocol == TCP else 0,
                dscp=packet.dscp,
            )
        )  # fmt: skip


def unread(why: Unread, size: int) -> tuple[Any, ...]:
    """The record of a frame that is not decided."""
    return ((0, 0), (0, 0), 0, 0, 0, 0, 0, 0, 0, 0, int(why), 0, size)
