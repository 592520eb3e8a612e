"""Enforcement points."""

from __future__ import annotations

import datetime as dt
import enum

from orchestrator.wire.common import describe, document


class PointState(enum.Enum):
    """The state of a device, as its enforcement point knows it and reports it."""

    ENFORCED = "enforced"
    """It was read back to hold the program of the report's generation."""
    APPLYING = "applying"
    """It is being brought to a program, and that takes a while."""
    DRIFTED = "drifted"
    """It held something else than it should; it is being repaired."""
    DISCONNECTED = "disconnected"
    """There is no connection. It goes on as it was last programmed."""
    REFUSED = "refused"
    """It did not take a program; the report's error says why. It holds what it held."""


MOST_IMPOSTORS, MOST_NAMES = 64, 16
"""How many are in one report, and how many hosts of a certificate each of them tells."""


@document()
class Impostor:
    """A connection as a host's switch that was not given the host's place."""

    host: str
    address: str = describe("where it came from")
    holder: str | None = describe("where the switch is connected from that has the place", default=None)
    certificate: tuple[str, ...] = describe("the hosts that its certificate names", default=())


@document()
class Epoch:
    """A higher epoch than any in the domain."""

    epoch: int


@document()
class Leading:
    """The leaders of a domain's switches, for controllers that share them."""

    leaders: tuple[int, ...] = describe("the enforcement points that reported of switches last and are not silent")
    unled: tuple[str, ...] = describe(
        "the hosts that the caller may lead and nobody does: never reported, by somebody who is silent, or without a"
        " connection"
    )
    led: tuple[str, ...] = describe("with `begins`: all other hosts, which somebody else leads", default=())


@document()
class Enforcer:
    """An enforcement point."""

    id: int
    domain: str
    name: str
    kind: str
    epoch: int
    created: dt.datetime
    last_seen: dt.datetime | None
    hosts: tuple[str, ...] = describe("the switches that it speaks for alone; none: what its kind and name allow")
