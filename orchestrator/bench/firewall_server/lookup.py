"""The CPU time of a look-up, from end to end of a router.

The same packets go through every router, in three patterns: between *few* pairs, as the paper's one stream was; between
a *thousand* in turn; and *spread* over a set, so that hardly any element is in the processor's caches. The list of a
large set begins with that of a small one, so what is looked up is the same too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.bench.firewall_server.pairs import evenly, interval_packets, packets, pairs
from orchestrator.errors import Drifted
from orchestrator.lab.router import Router
from orchestrator.policy.model import Packet

_FEW, _THOUSAND = 16, 1_000
_EACH_ROUND = 1_024
_ASKED = 64
NO_SET = 0
"""The number of pairs of a router without a set: everything passes."""


class Pattern(enum.Enum):
    """Between how many pairs packets go."""

    FEW = f"{_FEW} pairs"
    THOUSAND = f"{_THOUSAND:,} pairs"
    SPREAD = "spread over the set"


@dataclass(slots=True)
class Lookups:
    """CPU nanoseconds a packet, by number of pairs and pattern, in order of rounds.

    Interval sets are apart.
    """

    hashed: dict[tuple[int, Pattern], list[float]] = field(default_factory=dict)
    ranged: dict[int, list[float]] = field(default_factory=dict)

    def of(self, count: int, pattern: Pattern) -> Sequence[float]:
        return self.hashed.get((count, pattern), ())


def check(router: Router, count: int) -> None:
    """Raises Drifted unless pairs of the set pass and others do not."""
    passing = router.fire(packets(evenly(count, _ASKED)))
    strange = router.fire(packets(pairs(_ASKED, count)))
    if not all(passing) or any(strange):
        raise Drifted(f"of {count} pairs {sum(passing)} of {len(passing)} pass, and {sum(strange)} that are none")


def measure(
    routers: Mapping[int, Router], ranged: Mapping[int, Router], rounds: int, spread: int, step: Callable[[str], None]
) -> Lookups:
    """Measure some rounds after a warm-up.

    `routers` by number of pairs; `ranged` those of interval sets.
    """
    found = Lookups()
    largest = max(routers)
    sent = {
        Pattern.FEW: _repeat_packets(packets(pairs(_FEW))),
        Pattern.THOUSAND: _repeat_packets(packets(pairs(_THOUSAND))),
    }
    wide = packets(evenly(largest, spread))
    for turn in range(rounds + 1):
        step(f"look-ups, round {turn} of {rounds}")
        for count, router in routers.items():
            patterns = {**sent, Pattern.SPREAD: wide} if count in (NO_SET, largest) else sent
            for pattern, each in patterns.items():
                spent = router.cpu_ns(each)
                if turn:
                    found.hashed.setdefault((count, pattern), []).append(spent)
        for count, router in ranged.items():
            spent = router.cpu_ns(_repeat_packets(interval_packets(count, _FEW)))
            if turn:
                found.ranged.setdefault(count, []).append(spent)
    return found


def _repeat_packets(some: list[Packet]) -> list[Packet]:
    """Repeated until a round is long enough for a clock."""
    return some * -(-_EACH_ROUND // len(some))
