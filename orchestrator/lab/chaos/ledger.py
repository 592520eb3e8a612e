"""The versions that may be in force at a moment, checked against arrivals.

Moments are numbers: each event (a write begins, all hosts hold a version) begins the next one. A packet carries the
moment in which it was sent; its catcher notes the moment in which it came.

    moment      3          4            5                6
    version 1   ───────────────────────────────────────▶| all hosts hold version 2
    version 2              |begun       |acknowledged  ...

A packet sent in moment 3 and seen in moment 4 may have met either version. The permitted packets of a version are a set
of kinds of packets, as the bits of a number.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum


class Fate(Enum):
    """The outcome of a version's write, as far as it is known."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    NEVER = "never committed"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the policy.

    `begun` and `over` are moments. Without `over` it may still be in force.
    """

    number: int
    permits: int
    begun: int
    fate: Fate = Fate.UNKNOWN
    generation: int = 0
    over: int | None = None

    def meets(self, sent: int, seen: int) -> bool:
        """Return whether it may have decided a packet that was under way between two moments."""
        is_late = self.over is not None and self.over <= sent
        return self.fate is Fate.COMMITTED and self.begun <= seen and not is_late


@dataclass(frozen=True, slots=True)
class Arrival:
    """Packets of one kind that arrived at a node.

    They were sent in one moment and seen in another.
    """

    kind: int
    node: str
    sent: int
    seen: int


class Ledger:
    """Versions and moments. May be used by any thread."""

    def __init__(self, permits: int, generation: int) -> None:
        """Begin with one version that all hosts hold."""
        self._lock = threading.Lock()
        self._versions = [Version(0, permits, 0, Fate.COMMITTED, generation)]
        self._enforced = generation
        self.moment = 0

    def mark(self) -> int:
        """Begin the next moment, and return its number."""
        with self._lock:
            self.moment += 1
            return self.moment

    def begin(self, permits: int) -> int:
        """Note that a write is about to be sent; return its version's number."""
        with self._lock:
            self.moment += 1
            number = len(self._versions)
            self._versions.append(Version(number, permits, self.moment))
            return number

    def commit(self, number: int, generation: int) -> None:
        """A version turned out to be committed, at a generation of its domain."""
        with self._lock:
            self._versions[number] = replace(self._versions[number], fate=Fate.COMMITTED, generation=generation)
            self._retire()

    def refuse(self, number: int) -> None:
        """A version turned out never to be committed."""
        with self._lock:
            self._versions[number] = replace(self._versions[number], fate=Fate.NEVER)

    def enforce(self, generation: int) -> None:
        """Note that all hosts were read back at a generation.

        None decides by an older one any more.
        """
        with self._lock:
            if generation > self._enforced:
                self._enforced = generation
                self.moment += 1
                self._retire()

    @property
    def newest(self) -> Version:
        """The newest version that is known to be committed."""
        with self._lock:
            return max(
                (each for each in self._versions if each.fate is Fate.COMMITTED), key=lambda each: each.generation
            )

    @property
    def enforced(self) -> int:
        """The generation that all hosts hold, as far as is known."""
        return self._enforced

    def permitted_kinds(self, sent: int, seen: int) -> int:
        """Return the kinds that some version permits that was perhaps in force between two moments."""
        with self._lock:
            permits = 0
            for each in self._versions:
                if each.meets(sent, seen):
                    permits |= each.permits
            return permits

    def wrong(self, arrivals: Mapping[Arrival, int], receivers: Mapping[int, str]) -> dict[Arrival, int]:
        """Return the arrivals that no version explains, or at a wrong node."""
        found, known = {}, {}
        for arrival, count in arrivals.items():
            span = arrival.sent, arrival.seen
            if span not in known:
                known[span] = self.permitted_kinds(*span)
            if arrival.node != receivers[arrival.kind] or not known[span] >> arrival.kind & 1:
                found[arrival] = count
        return found

    def _retire(self) -> None:
        """End every committed version that is older than the one that all hosts hold."""
        held = [each for each in self._versions if each.fate is Fate.COMMITTED and each.generation <= self._enforced]
        newest = max(held, key=lambda each: each.generation)
        for each in held:
            if each is not newest and each.over is None:
                self._versions[each.number] = replace(each, over=self.moment)
