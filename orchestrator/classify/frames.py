"""Frames as packets, read the way data planes read a link, in C (`_native/frames.c`).

VLAN tags are looked through. Behind an IPv6 header the upper-layer protocol is searched past hop-by-hop and destination
options, routing, authentication and fragment headers, as Open vSwitch does. A later fragment shows no ports. Ports,
ICMP types and TCP flags are read only from a transport header that is whole: the datagram is as long as the IP header
says, whatever padding follows, and where that is longer than the frame was, or ends inside the transport header, the
packet is broken. Where the IP header says a length of zero, as in a host's own captures of segments that its card will
cut, it is as long as the frame.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _frames
from orchestrator.classify.packets import PACKET, Packets

NO_TIME = -(1 << 63)
"""The time of a frame whose capture says none."""


class Link(enum.IntEnum):
    """Kinds of link that are read, by their LINKTYPE numbers; see tcpdump.org/linktypes.html."""

    NULL = 0
    ETHERNET = 1
    RAW_12 = 12
    """The number that BSDs write for RAW."""
    RAW_14 = 14
    """The number that OpenBSD writes for RAW."""
    RAW = 101
    LOOP = 108
    LINUX_SLL = 113
    IPV4 = 228
    IPV6 = 229
    LINUX_SLL2 = 276


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a piece of a capture: starts in `data`, and their link type."""

    data: bytes | npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    captured: npt.NDArray[np.uint32]
    """Bytes that the capture has of each."""
    wire: npt.NDArray[np.uint32]
    """Bytes that each had."""
    links: npt.NDArray[np.uint32]
    times: npt.NDArray[np.int64] | None = None
    """Nanoseconds since 1970, NO_TIME where a capture does not say; None where nobody asks."""

    def __len__(self) -> int:
        return len(self.starts)


def read_frames(frames: Frames) -> Packets:
    """The packets of many frames, in order. Other threads run meanwhile."""
    found = np.zeros(len(frames), PACKET)
    _frames.read(frames.data, frames.starts, frames.captured, frames.wire, frames.links, found.view(np.uint8))
    return found
