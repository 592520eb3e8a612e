"""Packets by source, destination, protocol and service, with the deciding rules.

The service is the lower of the two ports, so that a thousand connections to it are one flow, and all that it answers
is another; TCP flags are no part of a flow. A capture may hold more flows than memory should, so the smallest are
forgotten where there are too many, which is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.classify.grouping import I32, I64, groups
from orchestrator.classify.packets import ADDRESS, Packets, join_halves
from orchestrator.policy.addresses import Family, format_address
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.protocols import WITH_PORTS, format_protocol

MOST_FLOWS = 1_000_000
"""Where there are more, the half that has the most packets is kept."""

_FLOW = np.dtype(
    [
        ("source", *ADDRESS), ("destination", *ADDRESS), ("port", np.uint16), ("answers", np.uint8),
        ("protocol", np.uint8), ("family", np.uint8), ("icmp_type", np.uint8), ("icmp_code", np.uint8),
        ("later", np.uint8), ("decider", np.int32), ("before", np.int32),
    ]
)  # fmt: skip
_OF_PACKETS = ("source", "destination", "protocol", "family", "icmp_type", "icmp_code", "later")


@dataclass(frozen=True, slots=True)
class Count:
    """Packets, and the bytes of their frames."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.packets + other.packets, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Place:
    """A packet of a capture; they are numbered from 1 on."""

    capture: str
    packet: int


@dataclass(frozen=True, slots=True)
class Flow:
    """Packets between the same ends for the same service, decided by the same rules."""

    family: Family
    source: int
    destination: int
    protocol: int
    port: int
    """The service's; 0 where the protocol has none."""
    answers: bool
    """Whether the port is the source's: these come from the service."""
    icmp_type: int
    icmp_code: int
    later_fragment: bool
    decider: int
    """By its number in `Deciding.deciders`."""
    before: int
    """Likewise, of the list that is compared with; NOBODY where there is none."""
    count: Count
    first: Place

    @property
    def has_ports(self) -> bool:
        return self.protocol in WITH_PORTS and not self.later_fragment

    @property
    def is_icmp(self) -> bool:
        """Whether it has a type and a code."""
        return self.protocol == OWN_ICMP[self.family] and not self.later_fragment

    def __str__(self) -> str:
        """As in `tcp 192.0.2.1 > 198.51.100.7:22`, and `tcp 198.51.100.7:22 > 192.0.2.1` what comes back."""
        source, destination = (format_address(self.family, end) for end in (self.source, self.destination))
        protocol = format_protocol(self.protocol)
        if self.later_fragment:
            return f"later fragment, {protocol} {source} > {destination}"
        if self.has_ports:
            joint = "{}:{}" if self.family is Family.IPV4 else "[{}]:{}"
            if self.answers:
                return f"{protocol} {joint.format(source, self.port)} > {destination}"
            return f"{protocol} {source} > {joint.format(destination, self.port)}"
        more = f" type {self.icmp_type} code {self.icmp_code}" if self.is_icmp else ""
        return f"{protocol} {source} > {destination}{more}"


@dataclass(frozen=True, slots=True, eq=False)
class FlowCounts:
    """The flows of a piece of a capture, each once."""

    records: npt.NDArray[Any]
    packets: I64
    byte_counts: I64
    first: I64
    """The first packet of each, counted from the beginning of the piece."""


def flows_of(kinds: Packets, packets: I64, byte_counts: I64, first: I64, decider: I32, before: I32) -> FlowCounts:
    """Return the flows of kinds of packets, with counts and first packets, in order."""
    records = np.zeros(len(kinds), _FLOW)
    for name in _OF_PACKETS:
        records[name] = kinds[name]
    records["answers"] = kinds["source_port"] < kinds["destination_port"]
    records["port"] = np.minimum(kinds["source_port"], kinds["destination_port"])
    records["decider"], records["before"] = decider, before
    one, group = groups(records, _FLOW.itemsize)
    return FlowCounts(
        records.take(one), add_values(group, packets, len(one)), add_values(group, byte_counts, len(one)), first[one]
    )


class Flows:
    """Flows of a whole replay, the most of them."""

    def __init__(self, most: int = MOST_FLOWS) -> None:
        self._most = most
        self._captures: list[str] = []
        self._held = _Held.none()
        self._new: list[_Held] = []
        self.forgotten = 0
        """How often a flow was forgotten. Where it is not 0, counts may lack what a flow had before it was."""

    def add(self, found: FlowCounts, capture: str, before: int) -> None:
        """Add the flows of a piece, after `before` packets of the capture."""
        if not len(found.records):
            return
        if self._captures[-1:] != [capture]:
            self._captures.append(capture)
        captures = np.full(len(found.records), len(self._captures) - 1, np.int64)
        self._new.append(_Held(found.records, found.packets, found.byte_counts, captures, found.first + before + 1))
        self._settle_some()

    def absorb(self, other: Flows) -> None:
        """Add the flows of a share that comes behind all that was added."""
        other._settle()
        if not len(other._held.records):
            return
        self.forgotten += other.forgotten
        numbers = []
        for capture in other._captures:
            if self._captures[-1:] != [capture]:
                self._captures.append(capture)
            numbers.append(len(self._captures) - 1)
        held = other._held
        self._new.append(replace(held, captures=np.array(numbers, np.int64)[held.captures]))
        self._settle_some()

    def __len__(self) -> int:
        """Those that are known."""
        self._settle()
        return len(self._held.records)

    def largest(self) -> Iterator[Flow]:
        """Yield all flows, the largest first; of equal ones, the earliest first."""
        self._settle()
        held = self._held
        for place in held.order().tolist():
            record = held.records[place]
            family = Family(int(record["family"]))
            yield Flow(
                family=family,
                source=join_halves(family, *map(int, record["source"])),
                destination=join_halves(family, *map(int, record["destination"])),
                protocol=int(record["protocol"]),
                port=int(record["port"]),
                answers=bool(record["answers"]),
                icmp_type=int(record["icmp_type"]),
                icmp_code=int(record["icmp_code"]),
                later_fragment=bool(record["later"]),
                decider=int(record["decider"]),
                before=int(record["before"]),
                count=Count(int(held.packets[place]), int(held.byte_counts[place])),
                first=Place(self._captures[held.captures[place]], int(held.first[place])),
            )

    def _settle_some(self) -> None:
        """Add up what was added once it is much."""
        if sum(len(each.records) for each in self._new) > self._most // 4:
            self._settle()

    def _settle(self) -> None:
        """Add up what was added, and forget the smallest where it is too many."""
        if not self._new:
            return
        self._held = _Held.sum_parts([self._held, *self._new])
        self._new.clear()
        if len(self._held.records) > self._most:
            kept = self._held.order()[: self._most // 2]
            self.forgotten += len(self._held.records) - len(kept)
            self._held = self._held.take(np.sort(kept))


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Flows of several pieces, in the order in which they came."""

    records: npt.NDArray[Any]
    packets: I64
    byte_counts: I64
    captures: I64
    """By number."""
    first: I64
    """The first packet's number in its capture."""

    @classmethod
    def none(cls) -> _Held:
        """Return no flows."""
        nothing = np.zeros(0, np.int64)
        return cls(np.zeros(0, _FLOW), nothing, nothing, nothing, nothing)

    @classmethod
    def sum_parts(cls, parts: Sequence[_Held]) -> _Held:
        """All of some, each flow once, where it came first."""
        records = np.concatenate([each.records for each in parts])
        one, group = groups(records, _FLOW.itemsize)
        return cls(
            records.take(one),
            add_values(group, np.concatenate([each.packets for each in parts]), len(one)),
            add_values(group, np.concatenate([each.byte_counts for each in parts]), len(one)),
            np.concatenate([each.captures for each in parts])[one],
            np.concatenate([each.first for each in parts])[one],
        )

    def order(self) -> npt.NDArray[np.intp]:
        """Return the places, those with the most packets first."""
        return np.argsort(-self.packets, kind="stable")

    def take(self, places: npt.NDArray[np.intp]) -> _Held:
        """Return the flows at these places."""
        return _Held(
            self.records.take(places),
            self.packets[places],
            self.byte_counts[places],
            self.captures[places],
            self.first[places],
        )


def add_values(which: npt.NDArray[Any], values: I64, length: int) -> I64:
    """Return the sums of values by number, of whatever size."""
    found = np.zeros(length, np.int64)
    np.add.at(found, which, values)
    return found
