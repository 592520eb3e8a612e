"""Kinds of packets: packets that no rule can tell apart are one kind, with sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _frames
from orchestrator.classify.flowrecords import FlowRecords
from orchestrator.classify.flows import Count, add_values
from orchestrator.classify.frames import Frames
from orchestrator.classify.grouping import I32, I64, groups
from orchestrator.classify.packets import PACKET, SEEN, Packets
from orchestrator.classify.records import Piece


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """The kinds of a piece, in the order of their first frames."""

    packets: Packets
    count: I64
    octets: I64
    first: I64
    group: I32
    """The kind of each frame, while no kind was left out."""

    def take(self, which: npt.NDArray[np.bool_]) -> Kinds:
        """Some of the kinds."""
        some = np.flatnonzero(which)
        return Kinds(self.packets.take(some), self.count[some], self.octets[some], self.first[some], self.group)

    def total(self, which: npt.NDArray[np.bool_]) -> Count:
        """Packets and bytes of some of the kinds."""
        return Count(int(self.count[which].sum()), int(self.octets[which].sum()))


def kinds_of(piece: Piece) -> Kinds:
    """Return the packets of frames or of flow records, each kind once.

    Other threads run meanwhile.
    """
    return _kinds_of_records(piece) if isinstance(piece, FlowRecords) else _kinds_of_frames(piece)


def _kinds_of_records(records: FlowRecords) -> Kinds:
    first, group = groups(records.packets, SEEN)
    count, octets = (add_values(group, each, len(first)) for each in (records.count, records.octets))
    return Kinds(records.packets.take(first), count, octets, first, group)


def _kinds_of_frames(frames: Frames) -> Kinds:
    records, *sums, group = _frames.kinds(frames.data, frames.starts, frames.captured, frames.wire, frames.links)
    count, octets, first = (np.frombuffer(each, np.int64) for each in sums)
    return Kinds(np.frombuffer(records, PACKET), count, octets, first, np.frombuffer(group, np.int32))
