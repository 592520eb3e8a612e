"""Records of counts that the repository of hits returns."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.program.counts import I64

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RuleHits:
    """Growing sums over all hosts of a tier.

    `resets` counts the times that a device's counter went before it was read: each may have cost some packets.
    `rate_pps` and `rate_bps` (packets, and bits, a second) are of the last minute.
    """

    packets: int = 0
    bytes: int = 0
    resets: int = 0
    last_hit: dt.datetime | None = None
    rate_pps: float = 0.0
    rate_bps: float = 0.0


@dataclass(frozen=True, slots=True)
class TenantHits:
    """Counts of a tenant's current rules by rule id, of defaults and return traffic."""

    rules: Mapping[str, RuleHits]
    ingress_default: RuleHits
    egress_default: RuleHits
    ingress_return: RuleHits
    egress_return: RuleHits


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """Counts of all rules of a domain, as columns in order of rule number.

    The columns have equal length and hold every rule that ever counted. `packets` and `bytes` are those between `since`
    and `until` (or all there ever were), `rate_pps` is packets a second of that time; `idle_s` is how long ago the last
    packet was (inf: there was none).
    """

    since: dt.datetime
    until: dt.datetime
    number: I64
    packets: I64
    bytes: I64
    idle_s: F64
    rate_pps: F64

    def __len__(self) -> int:
        return len(self.number)


class HitOrder(enum.Enum):
    """The order of rules: that of the lists, or by what they counted."""

    LIST = "list"
    RATE = "rate"
    PACKETS = "packets"
    BYTES = "bytes"
    LAST_HIT = "last_hit"


@dataclass(frozen=True, slots=True)
class Listed:
    """A rule of a tenant's list with its counts, for tables over a domain."""

    tenant: str
    rule: str
    is_lifted: bool
    hits: RuleHits


@dataclass(frozen=True, slots=True)
class FirstRules:
    """The first rules of a domain in an order.

    `rate_pps` and `rate_bps` are of all its tenants' rules, those that went within the last minute included.
    """

    rules: tuple[Listed, ...]
    rate_pps: float
    rate_bps: float


@dataclass(frozen=True, slots=True)
class Lapse:
    """A gap in counting on one host.

    Packets of `within_s` seconds may not have been counted.
    """

    at: dt.datetime
    host: str
    kind: str
    entries: int
    within_s: float


@dataclass(frozen=True, slots=True)
class Watch:
    """The time since when a domain's hosts are counted, and the gaps since.

    `since` is None where no host is counted.
    """

    since: dt.datetime | None
    lapses: tuple[Lapse, ...]


@dataclass(frozen=True, slots=True)
class RuleWatch:
    """How long a rule was watched, and what it decided meanwhile."""

    rule: str
    since: dt.datetime
    hits: RuleHits


@dataclass(frozen=True, slots=True)
class HitStretch:
    """Packets and bytes by rule id in a stretch of time.

    Rules that decided nothing in it are left out.
    """

    start: dt.datetime
    counts: Mapping[str, tuple[int, int]]
