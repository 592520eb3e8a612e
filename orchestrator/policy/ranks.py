"""Boxes of packet space in small integers: what `cover` computes with.

The values at which some box begins or ends cut each axis into stretches that no box tells apart. Number these
stretches, and a set of addresses is a set of such *ranks*, whichever the IP version:

    10.0.0.0/8                 |-----------------------------------|
    10.1.0.0/16                      |-----------|
    rank          0            1     2           3                 4

The axes that describe the header (fragments, protocol, ICMP type and code, TCP flags) become one: a rank there is a
*kind* of header, such as "tcp with SYN alone", "icmp 3/4" or "a later fragment of udp". Kinds that go together are
neighbours, so nearly every box is a product of five single spans.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import IPV6_FRAGMENT, TCP, UDP
from orchestrator.policy.space import (
    LATER,
    OWN_ICMP,
    PLAIN_ADDRESS,
    PLAIN_FLAGS,
    PLAIN_PORT,
    PLAIN_PROTOCOLS,
    PLAIN_SOURCE_PORT,
    WHOLE,
    Box,
    StandIns,
    possible,
)
from orchestrator.policy.spans import Spans

AXES = 5
"""Kind of header, source, destination, source port, destination port."""

U32 = npt.NDArray[np.uint32]
_Header = tuple[int, int, int, int, int]
"""What a box says of the header: fragments, protocols, ICMP types and codes, TCP flags."""

_FIELDS = ("source", "destination", "source_ports", "destination_ports")
_KNOWN = (TCP, UDP, 47)
"""Protocols to show rather than others; a family's own ICMP is put before the last."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """What ranks mean. `kinds` are headers without addresses and ports; `cuts` the first value of every rank of the
    other axes."""

    family: Family
    kinds: tuple[Packet, ...]
    cuts: tuple[tuple[int, ...], ...]

    def packet(self, point: Sequence[int]) -> Packet:
        """The first packet of the ranks on the five axes."""
        kind, source, destination, source_port, destination_port = point
        header = self.kinds[kind]
        return possible(
            Packet(
                family=self.family,
                source=self.cuts[0][source],
                destination=self.cuts[1][destination],
                protocol=header.protocol,
                source_port=self.cuts[2][source_port],
                destination_port=self.cuts[3][destination_port],
                icmp_type=header.icmp_type,
                icmp_code=header.icmp_code,
                tcp_flags=header.tcp_flags,
                later_fragment=header.later_fragment,
            )
        )


@dataclass(frozen=True, slots=True)
class Ranked:
    """Boxes of one IP version as spans of ranks.

    `spans`: uint32[m][2], first and last rank; `starts`: uint32[5 n + 1], where the spans of each box's axes begin in
    it; `plain`: a rank that readers know for each axis, then kinds in the order of preference.
    """

    coordinates: Coordinates
    spans: U32
    starts: U32
    plain: U32


def ranked(boxes: Sequence[Box]) -> Ranked:
    """Boxes, at least one and all of one IP version, as ranks."""
    family = boxes[0].family
    headers = [_header(box) for box in boxes]
    kinds = _Kinds(family, set(headers))
    known = (PLAIN_ADDRESS[family], PLAIN_ADDRESS[family], PLAIN_SOURCE_PORT, PLAIN_PORT)
    standins = StandIns()
    axes = [
        _Axis([getattr(box, field) for box in boxes], plain, standins)
        for field, plain in zip(_FIELDS, known, strict=True)
    ]
    spans = array("I")
    starts = [0]
    for parts in zip((kinds.ranks[header] for header in headers), *(axis.ranks for axis in axes), strict=True):
        for ranks in parts:
            spans += ranks
            starts.append(len(spans) // 2)
    return Ranked(
        coordinates=Coordinates(family, kinds.kinds, tuple(axis.cuts for axis in axes)),
        spans=np.frombuffer(spans, np.uint32).reshape(-1, 2),
        starts=np.array(starts, np.uint32),
        plain=np.array([0, *(axis.plain for axis in axes), *kinds.preferred], np.uint32),
    )


class _Axis:
    """One axis of addresses or ports: its cuts, the set of each box as ranks, and the rank of a value readers know."""

    def __init__(self, sets: Sequence[Spans], plain: int, standins: StandIns) -> None:
        keys = [standins.of(each) for each in sets]
        distinct = dict(zip(keys, sets, strict=True))
        ends = {0, plain, plain + 1}
        for each in distinct.values():
            for low, high in each:
                ends.add(low)
                ends.add(high + 1)
        self.cuts = tuple(sorted(ends))
        rank = {value: index for index, value in enumerate(self.cuts)}
        self.plain = rank[plain]
        found = {
            key: array("I", [end for low, high in each for end in (rank[low], rank[high + 1] - 1)])
            for key, each in distinct.items()
        }
        self.ranks = [found[key] for key in keys]


class _Kinds:
    """The headers that some boxes tell apart, and what every description of a header is among them."""

    def __init__(self, family: Family, headers: set[_Header]) -> None:
        self._icmp = OWN_ICMP[family]
        self.kinds = tuple(self._listed(family, headers))
        of = {
            name: np.array([getattr(kind, name) for kind in self.kinds], np.intp)
            for name in ("protocol", "icmp_type", "icmp_code", "tcp_flags", "later_fragment")
        }
        self.ranks = {header: array("I", _spans_of(self._chosen(header, of))) for header in headers}
        first: dict[int, int] = {}
        for rank, kind in enumerate(self.kinds):
            if not kind.later_fragment:
                first.setdefault(kind.protocol, rank)
        self.preferred = [first[protocol] for protocol in (*_KNOWN[:2], self._icmp, *_KNOWN[2:])]

    def _listed(self, family: Family, headers: set[_Header]) -> Iterator[Packet]:
        flags = _alike({header[4] for header in headers}, PLAIN_FLAGS)
        types, codes = _alike({header[2] for header in headers}), _alike({header[3] for header in headers})
        for protocol in dict.fromkeys((*PLAIN_PROTOCOLS, *range(256))):
            whole = Packet(family, 0, 0, protocol)
            if protocol == TCP:
                yield from (Packet(family, 0, 0, TCP, tcp_flags=byte) for byte in flags)
            elif protocol == self._icmp:
                for number in types:
                    yield from (Packet(family, 0, 0, protocol, icmp_type=number, icmp_code=code) for code in codes)
            elif (family, protocol) != (Family.IPV6, IPV6_FRAGMENT):
                yield whole
            if family is Family.IPV4 or protocol == IPV6_FRAGMENT:
                yield Packet(family, 0, 0, protocol, later_fragment=True)

    def _chosen(self, header: _Header, of: dict[str, npt.NDArray[np.intp]]) -> npt.NDArray[np.bool_]:
        """Which kinds a description of a header holds."""
        fragments, protocols, types, codes, flags = header
        later = of["later_fragment"] > 0
        icmp, tcp = (of["protocol"] == self._icmp) & ~later, (of["protocol"] == TCP) & ~later
        chosen: npt.NDArray[np.bool_] = (
            np.where(later, bool(fragments & LATER), bool(fragments & WHOLE))
            & _members(protocols)[of["protocol"]]
            & (~icmp | (_members(types)[of["icmp_type"]] & _members(codes)[of["icmp_code"]]))
            & (~tcp | _members(flags)[of["tcp_flags"]])
        )
        return chosen


def _header(box: Box) -> _Header:
    return box.fragments, box.protocols, box.icmp_types, box.icmp_codes, box.tcp_flags


def _alike(sets: set[int], preferred: Sequence[int] = ()) -> list[int]:
    """One number below 256 for each class that some sets (bits) tell apart, a preferred one where it has any."""
    listed = sorted(sets)
    classes: dict[tuple[int, ...], int] = {}
    for number in (*preferred, *range(256)):
        classes.setdefault(tuple(each >> number & 1 for each in listed), number)
    return list(classes.values())


def _members(bits: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(bits.to_bytes(32, "little"), np.uint8), bitorder="little").view(np.bool_)


def _spans_of(chosen: npt.NDArray[np.bool_]) -> list[int]:
    """The runs of a choice, as first and last rank in turn."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    edges[1::2] -= 1
    found: list[int] = edges.tolist()
    return found
