"""Enforcement points."""

from __future__ import annotations

import datetime as dt

from orchestrator.wire.common import described, document


@document()
class Epoch:
    """A higher epoch than any in the domain."""

    epoch: int


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
    hosts: tuple[str, ...] = described("the switches that it speaks for alone; none: what its kind and name allow")
