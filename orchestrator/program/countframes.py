"""Counts from an enforcement point to the service: a frame a device.

    | whole u8 | notes u8 | host u16 | counts u32 | chunk u32 | sequence u64 | now i64 |          little-endian; sizes
    | notes x (loss u8, entries u32, within_s f64) | host, UTF-8 | counts (`counts.py`) | chunk |     are in bytes

`sequence` grows by one from frame to frame of a device, so that each counts once. The last hits in the counts are times
of the sender's own monotonic clock, and so is `now`: how long ago a packet came is their difference, whatever anybody's
wall clock says.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.errors import BadInput
from orchestrator.program.counts import Counts, counts_of

MEDIA_TYPE = "application/octet-stream"

_HEAD = struct.Struct("<BBHIIQq")
_NOTE = struct.Struct("<BId")
_CLAIM = struct.Struct("<QdB")


class Loss(enum.Enum):
    """Why packets may be missing from the sums."""

    RENEWED = "renewed"
    """Counters began anew: the device restarted, or somebody replaced its entries."""
    VANISHED = "vanished"
    """Entries were gone that nobody here removed."""
    UNREAD = "unread"
    """Entries were removed by a change that was too large to read them first."""


_LOSSES = tuple(Loss)


@dataclass(frozen=True, slots=True)
class Note:
    """Entries whose counts may be short of what they counted within `within_s` seconds."""

    loss: Loss
    entries: int
    within_s: float


@dataclass(frozen=True, slots=True)
class CountFrame:
    """The counts of one device since its last frame.

    `chunk` is appended to its checkpoint, or replaces it if `whole`.
    """

    host: str
    sequence: int
    counts: Counts
    notes: tuple[Note, ...]
    chunk: bytes
    whole: bool

    def of_time(self, shift_us: int, latest_us: int) -> CountFrame:
        """Return the frame with last hits of another clock, none after `latest_us`."""
        hits = self.counts.last_hit
        shifted = np.where(hits > 0, np.clip(hits + shift_us, 1, latest_us), 0)
        return replace(self, counts=replace(self.counts, last_hit=shifted))


@dataclass(frozen=True, slots=True)
class CountClaim:
    """The point from which to go on counting a device.

    The number of its last frame, that frame's age, and the chunks of its checkpoint; None where nobody ever counted it.

    | sequence u64 | silent_s f64 | known u8 | chunks, each behind its length u32 |
    """

    sequence: int
    silent_s: float
    chunks: tuple[bytes, ...] | None

    def to_bytes(self) -> bytes:
        """Return the claim's wire form."""
        chunks = (len(chunk).to_bytes(4, "little") + chunk for chunk in self.chunks or ())
        return _CLAIM.pack(self.sequence, self.silent_s, self.chunks is not None) + b"".join(chunks)

    @classmethod
    def of(cls, data: bytes) -> CountClaim:
        """Read a claim from its bytes. Raises BadInput."""
        if len(data) < _CLAIM.size:
            raise BadInput("a claim's answer is cut off", place="counts")
        sequence, silent_s, known = _CLAIM.unpack_from(data)
        chunks, at = [], _CLAIM.size
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "little")
            chunks.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        if at != len(data):
            raise BadInput("a claim's answer is cut off", place="counts")
        return cls(sequence, silent_s, tuple(chunks) if known else None)


def encode_frames(frames: Iterable[CountFrame], now_us: int) -> bytes:
    """The bytes of frames that are sent now."""
    parts: list[bytes] = []
    for frame in frames:
        host, counts = frame.host.encode(), frame.counts.to_bytes()
        notes = [_NOTE.pack(_LOSSES.index(note.loss), note.entries, note.within_s) for note in frame.notes]
        sizes = len(notes), len(host), len(counts), len(frame.chunk)
        parts += (_HEAD.pack(frame.whole, *sizes, frame.sequence, now_us), *notes, host, counts, frame.chunk)
    return b"".join(parts)


def decode_frames(data: bytes, now_us: int) -> Iterator[CountFrame]:
    """Decode frames, with last hits by the clock that says `now_us`.

    Raises BadInput for other bytes.
    """
    at = 0
    while at < len(data):
        frame, at = _decode_frame(data, at, now_us)
        yield frame


def _decode_frame(data: bytes, at: int, now_us: int) -> tuple[CountFrame, int]:
    if len(data) - at < _HEAD.size:
        raise BadInput("a frame is cut off", place="counts")
    whole, notes, host, counts, chunk, sequence, sent_us = _HEAD.unpack_from(data, at)
    sizes = (notes * _NOTE.size, host, counts, chunk)
    ends = [at + _HEAD.size + sum(sizes[: index + 1]) for index in range(len(sizes))]
    if ends[-1] > len(data):
        raise BadInput("a frame is cut off", place="counts")
    try:
        frame = CountFrame(
            data[ends[0] : ends[1]].decode(),
            sequence,
            counts_of(data[ends[1] : ends[2]]),
            tuple(_make_note(*_NOTE.unpack_from(data, at + _HEAD.size + _NOTE.size * index)) for index in range(notes)),
            data[ends[2] : ends[3]],
            bool(whole),
        )
    except UnicodeDecodeError:
        raise BadInput("a host's name is not UTF-8", place="counts") from None
    return frame.of_time(now_us - sent_us, now_us), ends[-1]


def _make_note(loss: int, entries: int, within_s: float) -> Note:
    if loss >= len(_LOSSES) or not 0 <= within_s < float("inf"):
        raise BadInput("a note says nothing that is known", place="counts")
    return Note(_LOSSES[loss], entries, within_s)
