"""Frames of an interface as they come, from a ring of the kernel's blocks.

    kernel ──▶ block 0 │ block 1 │ ... │ block 63 ──▶ a block that is full, or 100 ms old, as `Frames`

The ring is all the memory that it takes. Frames that come while every block is full are lost, which `remarks` says. Of
each frame the first bytes are copied, enough for all headers but those of odd length.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Iterator

import numpy as np

from orchestrator.classify.frames import Frames, Link
from orchestrator.errors import BadInput, Missing

BLOCK, BLOCKS = 1 << 20, 64
"""Bytes of a block, and how many there are."""
SEEN_BYTES = 512

_RETIRE_MS = 100
_LOOK_S = 0.2
_ETH_P_ALL = 3
_SOL_PACKET, _RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 263, 5, 6, 10, 23
_TPACKET_V3 = 2
_SO_ATTACH_FILTER = 26
_SIOCGIFHWADDR = 0x8927
_LONGEST_NAME = 15
_RETURN = 0x06
_OURS = 1
"""A block's state: this process may read it. 0 gives it back to the kernel."""
_STATE, _HEAD = 8, struct.Struct("=8xIIII")
_FRAME = struct.Struct("=5I4xH")
"""Where the next frame begins, its time, bytes copied, bytes that there were, where the link's header begins."""
_SECOND = 1_000_000_000
_STATISTICS_WORDS = struct.Struct("=III")
_ETHERNET_KINDS = frozenset({1, 772})
"""ARPHRD_ETHER and ARPHRD_LOOPBACK; what has no header of its own is a tunnel."""
_NO_HEADER = frozenset({65534, 768, 769, 776, 778})


class LiveCapture:
    """An interface that is listened to for some time.

    `pieces` may be gone through once; then `remarks` says what was odd about it.
    """

    def __init__(self, interface: str, seconds: float) -> None:
        """Open an interface.

        Raises BadInput and Missing where there is no such interface, or no right to listen to it.
        """
        self.name = interface
        self.remarks: list[str] = []
        self.frames_before = 0
        self._seconds = seconds
        self._link = _link_of(interface)
        self._socket, self._ring = _ring_of(interface, ignores_outgoing=_is_loopback(interface))

    def pieces(self) -> Iterator[Frames]:
        """Yield the frames of each block, until the time is up or it is interrupted."""
        ends = time.monotonic() + self._seconds
        place = 0
        try:
            while (left := ends - time.monotonic()) > -_LOOK_S:  # the last block is given once it is old enough
                found = self._block(place)
                if found is not None:
                    place = (place + 1) % BLOCKS
                    if len(found):
                        yield found
                elif not select.select([self._socket], [], [], min(_LOOK_S, max(left, _LOOK_S / 2)))[0] and left <= 0:
                    break
        except KeyboardInterrupt:
            self.remarks.append(f"{self.name}: it was interrupted before its time was up")
        self._close()

    def _block(self, place: int) -> Frames | None:
        """Return a block's frames and give it back; None while the kernel has it."""
        begin = place * BLOCK
        state, count, first, length = _HEAD.unpack_from(self._ring, begin)
        if not state & _OURS:
            return None
        data = self._ring[begin : begin + length]
        struct.pack_into("=I", self._ring, begin + _STATE, 0)
        (starts, times), (captured, wire) = np.empty((2, count), np.int64), np.empty((2, count), np.uint32)
        for frame in range(count):
            following, seconds, parts, copied, whole, link = _FRAME.unpack_from(data, first)
            starts[frame], captured[frame], wire[frame] = first + link, copied, whole
            times[frame] = seconds * _SECOND + parts
            first += following
        return Frames(data, starts, captured, wire, np.full(count, self._link, np.uint32), times)

    def _close(self) -> None:
        _, lost, _ = _STATISTICS_WORDS.unpack(self._socket.getsockopt(_SOL_PACKET, _STATISTICS, _STATISTICS_WORDS.size))
        if lost:
            self.remarks.append(f"{self.name}: {lost} packets came faster than they were taken, and are not counted")
        self._ring.close()
        self._socket.close()


def _link_of(interface: str) -> Link:
    """Return the link type of an interface.

    Raises BadInput and Missing.
    """
    name = interface.encode(errors="surrogateescape")
    if not 0 < len(name) <= _LONGEST_NAME or b"\0" in name:
        raise BadInput(f"'{interface[:40]}' cannot be an interface's name", place="--interface")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            told = fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("16s24x", name))
    except OSError:
        raise Missing(f"there is no interface '{interface}' here", place="--interface") from None
    (kind,) = struct.unpack_from("=H", told, 16)
    if kind in _ETHERNET_KINDS:
        return Link.ETHERNET
    if kind in _NO_HEADER:
        return Link.RAW
    raise BadInput(f"frames of '{interface}' (ARPHRD {kind}) are not read", place="--interface")


def _is_loopback(interface: str) -> bool:
    """Whether each packet would be seen twice: as it leaves and as it arrives."""
    return interface == "lo"


def _ring_of(interface: str, *, ignores_outgoing: bool) -> tuple[socket.socket, mmap.mmap]:
    """A socket that hears an interface, and its ring. Raises Missing."""
    found = None
    try:
        found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        found.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        frame = 1 << 11
        ring = struct.pack("=7I", BLOCK, BLOCKS, frame, BLOCK // frame * BLOCKS, _RETIRE_MS, 0, 0)
        found.setsockopt(_SOL_PACKET, _RX_RING, ring)
        if ignores_outgoing:
            found.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        _cut_frames(found)
        mapped = mmap.mmap(found.fileno(), BLOCK * BLOCKS, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        found.bind((interface, _ETH_P_ALL))
    except OSError as error:
        if found is not None:
            found.close()
        why = "it takes the right CAP_NET_RAW" if error.errno == errno.EPERM else os.strerror(error.errno or 0)
        raise Missing(f"'{interface}' cannot be listened to: {why}", place="--interface") from None
    return found, mapped


def _cut_frames(sock: socket.socket) -> None:
    """Have the kernel copy the first bytes of each frame alone."""
    program = struct.pack("=HBBI", _RETURN, 0, 0, SEEN_BYTES)
    kept = ctypes.create_string_buffer(program)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(kept)))
