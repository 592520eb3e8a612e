"""Read captures piece by piece: pcap, pcapng, IPFIX flow records, gzip or plain.

    file ──▶ pieces of bytes ──▶ unpacked ──▶ what is whole of it as a `Piece`, the rest before the next piece

A capture that ends inside a packet, as one does whose writer was stopped, is read up to there, which is told; whatever
else is wrong is refused with its place.
"""

from __future__ import annotations

import pickle
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.classify.records import GZIP, LONGEST_HEADER, Damaged, Found, Piece, Walk, walk_of
from orchestrator.errors import AclflowError, BadInput, Missing

PIECE = 8 << 20
"""Bytes of a capture that are read at once."""

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Mark:
    """A place between two packets of a plain capture, where another reader can start."""

    offset: int
    frames: int
    """So many are before it."""
    walk: bytes
    """The reader's state until then, pickled; empty at the beginning."""


BEGINNING = Mark(0, 0, b"")


class Capture:
    """A capture that is being read.

    `pieces` may be gone through once; then `remarks` says what was odd about it.
    """

    def __init__(
        self,
        name: str,
        file: BinaryIO,
        told: Callable[[int], None] = lambda _: None,
        *,
        since: Mark = BEGINNING,
        until: int | None = None,
    ) -> None:
        """`told` is given how many bytes of the file were read, time and again.

        `since` and `until`, an offset, are where a share of a plain capture begins and ends; the file is at `since`.
        """
        self.name = name
        self.remarks: list[str] = []
        self._file = file
        self._told = told
        self._since, self._until = since, until
        self.frames_before = since.frames
        """Packets of the capture before this share of it."""
        self._read = since.offset
        self._frames = since.frames

    def pieces(self) -> Iterator[Piece]:
        """Yield the frames or records of each piece; no piece is empty.

        Raises BadInput with the packet and its offset.
        """
        for data, found, _ in self._walk_pieces(PIECE):
            if len(found):
                yield found.piece(data)

    def marks(self, every: int) -> Iterator[Mark]:
        """Yield marks in a plain capture at least `every` bytes apart, except its beginning."""
        last = self._since.offset
        for _, _, (offset, walk) in self._walk_pieces(min(PIECE, every)):
            if offset - last >= every:
                yield Mark(offset, self._frames, pickle.dumps(walk))
                last = offset

    def _walk_pieces(self, size: int) -> Iterator[tuple[bytes, Found, tuple[int, Walk]]]:
        """Yield each piece of about `size` bytes with its content.

        Each comes with the place and the reader of the next one.
        """
        start = self._take(4)
        is_packed = start[:2] == GZIP and not self._since.walk
        read = _together(self._decompress(start) if is_packed else self._read_on(start, size), size)
        data, offset = next(read, b""), self._since.offset
        walk: Walk = pickle.loads(self._since.walk) if self._since.walk else walk_of(data, self.name)  # noqa: S301
        while True:
            found = Found()
            try:
                used = walk.walk(data, found)
            except Damaged as damage:
                raise self._damage_at(self._frames + len(found), offset + damage.place, damage.reason) from None
            self._frames += len(found)
            offset += used
            yield data, found, (offset, walk)
            data = data[used:]
            if used and data:
                continue  # a reader may stop where it has found enough for one piece
            more = next(read, None)
            if more is None:
                break
            data = data + more if data else more
        if data:
            self._ends_early(offset)
        if remark := walk.remark():
            self.remarks.append(f"{self.name}: {remark}")

    def _take(self, count: int) -> bytes:
        """The next bytes of the file. Raises Missing."""
        if self._until is not None:
            count = min(count, self._until - self._read)
        try:
            found = self._file.read(count)
        except OSError as error:
            raise Missing(f"it cannot be read: {error.strerror}", place=self.name) from None
        if found is None:  # somebody who shares it has made it non-blocking
            raise Missing("it cannot be read: it does not wait for what is yet to come", place=self.name)
        self._read += len(found)
        self._told(self._read)
        return found

    def _read_on(self, start: bytes, size: int) -> Iterator[bytes]:
        piece = start + self._take(size)
        while piece:
            yield piece
            piece = self._take(size)

    def _decompress(self, start: bytes) -> Iterator[bytes]:
        """Decompress gzip, member by member.

        Raises BadInput.
        """
        inflater = zlib.decompressobj(_OF_GZIP)
        packed, any_found, held_back = start, False, False
        while packed or held_back or (packed := self._take(PIECE // 4)):
            if inflater.eof:
                packed = packed.lstrip(b"\0")  # what tapes and some tools fill up with
                if not packed:
                    continue
                inflater = zlib.decompressobj(_OF_GZIP)
            try:
                found = inflater.decompress(packed, PIECE)
            except zlib.error:
                raise BadInput(f"what gzip packed is damaged near byte {self._read}", place=self.name) from None
            if found:
                any_found = True
                yield found
            packed = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            held_back = not inflater.eof and len(found) == PIECE  # perhaps: there was no room for more
        if not inflater.eof:
            if not any_found:
                raise BadInput("it ends before there is anything to unpack", place=self.name)
            self.remarks.append(f"{self.name} is cut off: what gzip packed does not end")

    def _ends_early(self, offset: int) -> None:
        """A frame that is not there whole is not decided."""
        self.remarks.append(
            f"{self.name} is cut off: it ends at byte {offset} inside what would be packet {self._frames + 1}"
        )

    def _damage_at(self, packets: int, offset: int, reason: str) -> AclflowError:
        return BadInput(f"packet {packets + 1}, at byte {offset}: {reason}", place=self.name)


@contextmanager
def open_capture(
    name: str, told: Callable[[int], None] = lambda _: None, *, since: Mark = BEGINNING, until: int | None = None
) -> Iterator[Capture]:
    """A capture by its path, or standard input for `-`; or one of its shares.

    Raises Missing, BadInput.
    """
    if name == STDIN:
        yield Capture("standard input", sys.stdin.buffer, told)
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 -- closed below; what is raised meanwhile is not of opening it
    except IsADirectoryError:
        raise BadInput("it is a directory", place=name) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Missing(f"it cannot be read: {reason}", place=name) from None
    with file:
        if since.offset:
            file.seek(since.offset)
        yield Capture(name, file, told, since=since, until=until)


_OF_GZIP = 31
"""zlib's word for gzip, with the largest window."""


def _together(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Join pieces into full ones of a size; the last may be short.

    Members of gzip may hold a packet each.
    """
    held: list[bytes] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece)
        if count >= max(size // 4, LONGEST_HEADER):
            yield b"".join(held)
            held.clear()
            count = 0
    if held:
        yield b"".join(held)
