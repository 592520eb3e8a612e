"""Small stand-ins for sets of addresses, to compare rows by the thousand.

A group of thousands of prefixes is a tuple of thousands of spans, and each dict that has it for a key goes through all
of it. But rules that name one group have the same object, so it is gone through once.
"""

from __future__ import annotations

from typing import TypeAlias

from orchestrator.policy.space.box import Box
from orchestrator.policy.spans import Spans

StandIn: TypeAlias = "Spans | int"

_FEW = 16
"""A set of up to so many spans stands for itself."""


class StandIns:
    """Keys that are equal exactly where sets, or boxes, are; good among themselves."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Spans]] = {}
        """Sets by identity, with their numbers. They are kept, so that no other comes to have the identity."""
        self._numbers: dict[Spans, int] = {}

    def of(self, members: Spans) -> StandIn:
        """Return the stand-in of a set."""
        if len(members) <= _FEW:
            return members
        seen = self._seen.get(id(members))
        if seen is None:
            seen = self._seen[id(members)] = self._numbers.setdefault(members, len(self._numbers)), members
        return seen[0]

    def of_box(self, box: Box) -> tuple[object, ...]:
        """Return the stand-in of a box."""
        sets = box.source, box.destination, box.source_ports, box.destination_ports
        if max(map(len, sets)) <= _FEW:
            return box
        return *box[: -len(sets)], *map(self.of, sets)
