"""The first row that holds each packet: in C where it was built, else row by row in NumPy, with the same answer."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32
from orchestrator.classify.grouping import extension
from orchestrator.classify.packets import Packets, halves
from orchestrator.classify.space import Space
from orchestrator.policy.addresses import Family
from orchestrator.policy.space import ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box
from orchestrator.policy.spans import Spans

_Bools = npt.NDArray[np.bool_]


class Search:
    """A space that is ready to be asked, from any thread."""

    def __init__(self, space: Space) -> None:
        self._boxes = space.boxes
        self._index = None if extension is None else _index(space)

    def first(self, packets: Packets) -> I32:
        """The first row that holds each packet, -1 where none does. Packets are of the space's IP version."""
        if self._index is None:
            return reference(self._boxes, packets)
        found = np.empty(len(packets), np.int32)
        self._index.first(np.ascontiguousarray(packets).view(np.uint8), found)
        return found


def _index(space: Space) -> Any:
    assert extension is not None
    rows = space.columns
    return extension.Index(
        space.masks, space.lowest, space.shape_of, space.keys, space.starts, space.listed,
        rows.rows, rows.address_starts, rows.addresses, rows.port_starts, rows.ports, rows.sets,
    )  # fmt: skip


def reference(boxes: tuple[Box, ...], packets: Packets) -> I32:
    """`Search.first` in NumPy, which goes through all rows."""
    found = np.full(len(packets), -1, np.int32)
    left = np.arange(len(packets))
    for row, box in enumerate(boxes):
        if not len(left):
            break
        held = holds(box, packets[left])
        found[left[held]] = row
        left = left[~held]
    return found


def holds(box: Box, packets: Packets) -> _Bools:
    """Which packets of a box' IP version it holds."""
    fragments = np.where(packets["later"] != 0, LATER, WHOLE)
    held: _Bools = (fragments & box.fragments) != 0
    for name, bits in (
        ("protocol", box.protocols),
        ("icmp_type", box.icmp_types),
        ("icmp_code", box.icmp_codes),
        ("tcp_flags", box.tcp_flags),
    ):
        if bits != ALL_BYTES:
            held &= np.array([bits >> number & 1 for number in range(256)], np.bool_)[packets[name]]
    for name, spans in (("source_port", box.source_ports), ("destination_port", box.destination_ports)):
        if spans != ALL_PORTS:
            held &= _any((span.low <= packets[name]) & (packets[name] <= span.high) for span in spans)
    return (
        held
        & within(packets["source"], box.family, box.source)
        & within(packets["destination"], box.family, box.destination)
    )


def within(addresses: npt.NDArray[np.uint64], family: Family, spans: Spans) -> _Bools:
    """Which addresses, (n, 2) halves of one IP version, lie in a set."""
    if not spans:
        return np.zeros(len(addresses), np.bool_)
    return _any(
        _at_least(addresses, halves(family, low)) & _at_most(addresses, halves(family, high)) for low, high in spans
    )


def _at_least(addresses: npt.NDArray[np.uint64], low: tuple[int, int]) -> _Bools:
    upper, lower = addresses[:, 0], addresses[:, 1]
    found: _Bools = (upper > np.uint64(low[0])) | ((upper == np.uint64(low[0])) & (lower >= np.uint64(low[1])))
    return found


def _at_most(addresses: npt.NDArray[np.uint64], high: tuple[int, int]) -> _Bools:
    upper, lower = addresses[:, 0], addresses[:, 1]
    found: _Bools = (upper < np.uint64(high[0])) | ((upper == np.uint64(high[0])) & (lower <= np.uint64(high[1])))
    return found


def _any(found: Iterable[_Bools]) -> _Bools:
    """Of several, one after the other: a group may have thousands of spans, and there is not room for all at once."""
    return functools.reduce(operator.or_, found)
