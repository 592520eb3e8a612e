"""Boxes of packet space in small integers: what `cover` computes with.

The values at which some box begins or ends cut each axis into stretches that no box tells apart. Number these
stretches, and a set of addresses is a set of such *ranks*, whichever the IP version:

    10.0.0.0/8                 |-----------------------------------|
    10.1.0.0/16                      |-----------|
    rank          0            1     2           3                 4

The axes that a box keeps as bits (fragments, protocol, ICMP type and code, TCP flags and so on) become one: a rank
there is a *kind* of header, such as "tcp with SYN alone", "icmp 3/4" or "a later fragment of udp". Kinds that go
together are neighbours, so nearly every box is a product of five single spans.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter, getitem
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import BITS_AXES, FRAGMENTS, OWN_ICMP, PROTOCOL, SPAN_AXES
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import IPV6_FRAGMENT, TCP, UDP
from orchestrator.policy.space import Box, StandIns, possible
from orchestrator.policy.spans import Spans

AXES = 1 + len(SPAN_AXES)
"""Kind of header, source, destination, source port, destination port."""

U32 = npt.NDArray[np.uint32]
_Header = tuple[int, ...]
"""A box's part of the header: its sets of `BITS_AXES`."""

_BESIDES = tuple(field for field in BITS_AXES if field not in (FRAGMENTS, PROTOCOL))
"""The fields that tell kinds of one protocol apart."""

_KNOWN = (TCP, UDP, 47)
"""Protocols to show rather than others; a family's own ICMP is put before the last."""


_SPAN_NAMES = tuple(field.name for field in SPAN_AXES)
_BIT_NAMES = tuple(field.name for field in BITS_AXES)
_BIT_VALUES = attrgetter(*_BIT_NAMES)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The meaning of ranks.

    `kinds` are headers without addresses and ports; `cuts` the first value of every rank of the other axes.
    """

    family: Family
    kinds: tuple[Packet, ...]
    cuts: tuple[tuple[int, ...], ...]

    def packet(self, point: Sequence[int]) -> Packet:
        """The first packet of the ranks on the five axes."""
        kind, *ranks = point
        values: dict[str, Any] = dict(zip(_SPAN_NAMES, map(getitem, self.cuts, ranks), strict=True))
        values.update(zip(_BIT_NAMES, _BIT_VALUES(self.kinds[kind]), strict=True))
        return possible(Packet(self.family, **values))


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


def rank_boxes(boxes: Sequence[Box]) -> Ranked:
    """Boxes, at least one and all of one IP version, as ranks."""
    family = boxes[0].family
    headers = [_header(box) for box in boxes]
    kinds = _Kinds(family, set(headers))
    standins = StandIns()
    axes = [_Axis([getattr(box, field.axis) for box in boxes], field.shown[family][0], standins) for field in SPAN_AXES]
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
    """One axis: its cuts, each box's set of ranks, and the ranks of familiar values."""

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
    """The headers that some boxes distinguish, and each description's set of them."""

    def __init__(self, family: Family, headers: set[_Header]) -> None:
        self.kinds = tuple(_list_headers(family, headers))
        of = {field.name: np.array([getattr(kind, field.name) for kind in self.kinds], np.intp) for field in BITS_AXES}
        carried = {
            field.name: np.array(
                [field.is_carried(family, kind.protocol, later=kind.later_fragment) for kind in self.kinds], np.bool_
            )
            for field in _BESIDES
        }
        self.ranks = {header: array("I", _spans_of(_chosen(header, of, carried))) for header in headers}
        first: dict[int, int] = {}
        for rank, kind in enumerate(self.kinds):
            if not kind.later_fragment:
                first.setdefault(kind.protocol, rank)
        self.preferred = [first[protocol] for protocol in (*_KNOWN[:2], OWN_ICMP[family], *_KNOWN[2:])]


def _list_headers(family: Family, headers: set[_Header]) -> Iterator[Packet]:
    """Return one header of each distinguished kind, for each protocol with its fields."""
    places = {field: place for place, field in enumerate(BITS_AXES)}
    alike = {
        field: _alike({header[places[field]] for header in headers}, 1 << field.bits[family], field.shown[family])
        for field in _BESIDES
    }
    for protocol, later in product(dict.fromkeys((*PROTOCOL.shown[family], *range(256))), (False, True)):
        if family is Family.IPV6 and later != (protocol == IPV6_FRAGMENT):
            continue
        carried = [field for field in _BESIDES if field.is_carried(family, protocol, later=later)]
        for values in product(*(alike[field] for field in carried)):
            named = {field.name: value for field, value in zip(carried, values, strict=True)}
            yield Packet(family, 0, 0, protocol, later_fragment=later, **named)


def _chosen(
    header: _Header, of: dict[str, npt.NDArray[np.intp]], carried: dict[str, npt.NDArray[np.bool_]]
) -> npt.NDArray[np.bool_]:
    """Return the kinds that a header description matches.

    `of` has the kinds' values, `carried` the fields that they carry.
    """
    chosen = np.ones(len(of[PROTOCOL.name]), np.bool_)
    for field, bits in zip(BITS_AXES, header, strict=True):
        held = _unpack_members(bits)[of[field.name]]
        chosen &= held if field not in _BESIDES else ~carried[field.name] | held
    return chosen


_header = attrgetter(*(field.axis for field in BITS_AXES))
"""A box's part of the header."""


def _alike(sets: set[int], end: int, preferred: Sequence[int] = ()) -> list[int]:
    """Return one number below `end` for each class that sets distinguish, preferred ones first."""
    listed = sorted(sets)
    classes: dict[tuple[int, ...], int] = {}
    for number in (*preferred, *range(end)):
        classes.setdefault(tuple(each >> number & 1 for each in listed), number)
    return list(classes.values())


def _unpack_members(bits: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(bits.to_bytes(32, "little"), np.uint8), bitorder="little").view(np.bool_)


def _spans_of(chosen: npt.NDArray[np.bool_]) -> list[int]:
    """The runs of a choice, as first and last rank in turn."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    edges[1::2] -= 1
    found: list[int] = edges.tolist()
    return found
