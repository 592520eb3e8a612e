"""Example packets of a set: plain ones, known to readers, that can exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import CARRIED, FIELDS, FRAGMENTS, PROTOCOL
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.spans import Spans


def plain(members: int | Spans, preferred: Sequence[int]) -> int:
    """Return a member of a non-empty set: a preferred one if any, else the lowest.

    Of spans it is a preferred one only where they begin at zero: a set that somebody narrowed shows its own end.
    """
    if isinstance(members, int):
        return first_of(members, preferred)
    wide = members[0].low == 0
    return next((each for each in preferred if wide and spans.holds(members, each)), members[0].low)


def first_of(bits: int, preferred: Sequence[int] = ()) -> int:
    """Return a member of a non-empty bit set: the first preferred, else the lowest."""
    for member in preferred:
        if bits >> member & 1:
            return member
    return (bits & -bits).bit_length() - 1


def possible(packet: Packet) -> Packet:
    """Return the packet with zeros in absent fields, as `Packet` requires.

    IPv6 with protocol 44 becomes a later fragment, and an IPv6 later fragment gets protocol 44.
    """
    later, protocol = packet.later_fragment, packet.protocol
    if packet.family is Family.IPV6:
        later = later or protocol == IPV6_FRAGMENT
        protocol = IPV6_FRAGMENT if later else protocol
    absent = _ABSENT[packet.family][_LATER if later else protocol]
    if protocol == packet.protocol and later == packet.later_fragment and not any(absent.values_of(packet)):
        return packet
    values: dict[str, Any] = dict(zip(_NAMES, _VALUES(packet), strict=True))
    return Packet(packet.family, **values | absent.zeros | {PROTOCOL.name: protocol, FRAGMENTS.name: later})


_NAMES = tuple(field.name for field in FIELDS)
_VALUES = attrgetter(*_NAMES)


class _Absent(NamedTuple):
    """The fields absent from packets of a kind: their reader, and zeros for them."""

    values_of: Callable[[Packet], Iterable[int]]
    zeros: dict[str, Any]

    @classmethod
    def of(cls, names: Sequence[str]) -> _Absent:
        return cls(attrgetter(*names, *names[-1:]), dict.fromkeys(names, 0))  # of a single name it gives no tuple


_LATER = 256
_ABSENT = {
    family: [
        _Absent.of([field.name for field in CARRIED if not field.is_carried(family, protocol)])
        for protocol in range(_LATER)
    ]
    + [_Absent.of([field.name for field in CARRIED])]
    for family in Family
}
"""For each IP version: of whole packets by protocol, and of later fragments last."""
