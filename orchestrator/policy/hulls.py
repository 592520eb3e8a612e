"""Bounds of rules in columns, to find rules that may share packets, thousands at once.

A rule's hull is the least interval that holds what it names, on five axes and for each IP version: protocol, source,
destination, source port, destination port; of IPv6 addresses the upper 64 bits. Hulls may meet where the rules do not,
never the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.model import AddressGroup, Rule, families
from orchestrator.policy.space import side

Places = npt.NDArray[np.intp]
Bits = npt.NDArray[np.bool_]
_Ends = npt.NDArray[np.uint64]
_Groups = Mapping[str, AddressGroup]

_AXES = 5
_NOTHING = (1,) * _AXES, (0,) * _AXES
_ANY_PROTOCOL = 0, 255


@dataclass(frozen=True, slots=True, eq=False)
class Hulls:
    """Each rule's lowest and highest values: uint64[IP versions][axes][rules].

    Crossed where it has none.
    """

    low: _Ends
    high: _Ends

    @classmethod
    def of(cls, rules: Sequence[Rule], groups: _Groups) -> Hulls:
        ends = np.array([[_hull(rule, family, groups) for rule in rules] for family in Family], np.uint64)
        shaped = ends.reshape(len(Family), len(rules), 2, _AXES).transpose(2, 0, 3, 1)
        return cls(np.ascontiguousarray(shaped[0]), np.ascontiguousarray(shaped[1]))

    def edit_hulls(self, kept: Places, into: Places, count: int, fresh: Hulls, places: Places) -> Hulls:
        """Return the hulls of `count` rules after an edit.

        Of `kept` here, which are at `into` there, and of `fresh` at `places`.
        """
        shape = len(Family), _AXES, count
        low, high = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
        for made, old, new in ((low, self.low, fresh.low), (high, self.high, fresh.high)):
            made[:, :, into] = old[:, :, kept]
            made[:, :, places] = new
        return Hulls(low, high)

    def meeting(self, places: Places) -> Bits:
        """Which rules may share a packet with one of those in some places."""
        found = np.zeros(self.low.shape[-1], np.bool_)
        for place in places.tolist():
            for family in range(len(Family)):
                low, high = self.low[family], self.high[family]
                found |= ((low <= high[:, place, None]) & (high >= low[:, place, None])).all(axis=0)
        return found


def _hull(rule: Rule, family: Family, groups: _Groups) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if family not in families(rule, groups):
        return _NOTHING
    protocol = _ANY_PROTOCOL if rule.protocol is None else (rule.protocol, rule.protocol)
    source, destination = (_around(each, groups, family) for each in (rule.source, rule.destination))
    from_port, to_port = ((ports[0].low, ports[-1].high) for ports in (rule.source_ports, rule.destination_ports))
    low, high = zip(protocol, source, destination, from_port, to_port, strict=True)
    return low, high


def _around(addresses: Addresses, groups: _Groups, family: Family) -> tuple[int, int]:
    named = side(addresses, groups, family)
    shift = 64 if family is Family.IPV6 else 0
    return named[0].low >> shift, named[-1].high >> shift
