"""Firewall VNFs and fleets of them: what they are, and what they report.

Of a fleet also what was decided, and what one VNF carries.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Any, Literal

from orchestrator.wire.common import describe, document


class Plane(enum.Enum):
    """The packet filter of a firewall VNF."""

    NFTABLES = "nftables"
    IPTABLES = "iptables"
    QUEUE = "queue"
    """A classifier in user space, on a processor or a GPU."""

    @property
    def tracks(self) -> bool:
        """Whether it can track connections whose both directions it sees."""
        return self is not Plane.QUEUE

    @property
    def carries_stateless(self) -> bool:
        """Whether it carries stateless rules out where it tracks connections."""
        return self is Plane.NFTABLES


PlaneWord = Literal["nftables", "iptables", "queue"]


@document(kw_only=True)
class WrittenFirewall:
    """A firewall just onboarded, and the generation that it must reach."""

    name: str
    plane: PlaneWord
    generation: int


@document()
class Load:
    """The load that a firewall VNF reports of itself.

    Rates are over its last period, `cpu_permille` is the share of its processors that is busy (thousandths),
    `connections` are those that its kernel tracks, and `trouble` is what is wrong, if anything is.
    """

    packets_pps: int
    bits_bps: int
    cpu_permille: int
    connections: int
    trouble: str | None = None


@document(kw_only=True)
class SeenLoad:
    """The latest load, and when it came."""

    packets_pps: int
    bits_bps: int
    cpu_permille: int
    connections: int
    trouble: str | None
    reported: dt.datetime


@document()
class Firewall:
    """A firewall VNF with its load.

    The domain's generations say which generation it was read back to hold.
    """

    name: str
    plane: PlaneWord
    load: SeenLoad | None


@document(kw_only=True)
class FleetMember:
    """A VNF of a fleet, with its state and its agent's latest numbers.

    `since` says since when it is in its state; the numbers are null before its agent has reported any.
    """

    name: str
    number: int
    state: str
    since: dt.datetime
    asked: dt.datetime
    because: str
    progress: str
    well: bool
    served: dt.datetime | None
    address: str | None
    capped: str | None = describe("by what its capacity is held down, where something does")
    packets_pps: int | None
    bits_bps: int | None
    cpu_permille: int | None
    connections: int | None
    trouble: str | None


@document()
class Prediction:
    """Shares of a VNF's processors, means over those that serve."""

    busy: float = describe("in use")
    predicted: float = describe("needed for what they carry, by the capacity model")
    error: float | None = describe("predicted / busy - 1; null: too idle to tell")

    def in_words(self) -> str:
        """Describe the prediction for people."""
        said = f"processors: {self.busy:.0%} in use, {self.predicted:.0%} by the capacity model"
        if self.error is None:
            return f"{said}: too idle to compare"
        return f"{said}, which is {abs(self.error):.0%} too {'high' if self.error > 0 else 'low'}"


@document(kw_only=True)
class Fleet:
    """A domain's fleet with its VNFs that are not gone.

    `wanted` and `because` are of the last decision.
    """

    domain: str
    version: int
    settings: Mapping[str, Any]
    wanted: int | None
    because: str
    looked: dt.datetime | None
    model: int | None = describe("the version of the capacity model that it was decided by")
    prediction: Prediction | None = describe(
        "whether the capacity model that counts now holds; null: there is none, or no VNF serves"
    )
    cloud: str | None = describe("what sort of cloud makes its VNFs; null: this service has none")
    members: tuple[FleetMember, ...]


@document()
class FleetDecision:
    """A change of a fleet's size."""

    id: int
    at: dt.datetime
    before: int
    size: int
    because: str
    by: str


@document()
class FleetSample:
    """A fleet's load at a moment: all that serve together; `most_pps` is the busiest's."""

    at: dt.datetime
    packets_pps: int
    bits_bps: int
    connections: int
    serving: int
    most_pps: int
    rules: int


@document()
class FleetSamples:
    """The last hour's."""

    items: tuple[FleetSample, ...]


@document(kw_only=True)
class CapacityVersion:
    """A version of a capacity model, which says what one VNF carries.

    A packet takes `base_s + per_rule_s * rules + per_octet_s * octets`.
    """

    version: int
    plane: PlaneWord
    created: dt.datetime
    source: str
    measurements: int
    base_s: float
    per_rule_s: float
    per_octet_s: float
    error: float | None = describe(
        "relative error of a prediction, 90th percentile, each measurement predicted by the others"
    )
    most_rules: int
    current: bool = describe("whether it counts for its plane")


@document()
class CapacityVersions:
    """Every version, the newest first."""

    items: tuple[CapacityVersion, ...]
