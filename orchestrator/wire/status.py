"""Concerns of an operator: everything that is not as it should be."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import describe, document

ConcernWord = Literal["behind", "silent", "drifted", "refused", "disconnected", "uncompiled", "quota", "certificate"]
NEAR_A_QUOTA = "80 % of it used, or one left"
"""When a tenant is told to be near a quota."""
_NEAR = 0.8


def is_near(used: int, limit: int) -> bool:
    """Return whether a quota is nearly used up: an unused one is not."""
    return used >= min(_NEAR * limit, max(limit - 1, 1))


@document(kw_only=True)
class Concern:
    """A problem, and the command that says more or mends it."""

    kind: ConcernWord
    domain: str
    name: str = describe("the host, the enforcement point, the domain, the tenant or the bearer of the certificate")
    text: str
    since: dt.datetime | None = describe("since when, or when a certificate ends; null where nobody knows")
    command: str = describe("a command that helps")


@document(kw_only=True)
class Status:
    """How the whole service is."""

    time: dt.datetime
    domains: int
    hosts: int
    tenants: int
    last_backup: dt.datetime | None = describe("when the database was backed up last; null: nobody knows", default=None)
    concerns: tuple[Concern, ...] = describe("by kind, the worst kind first; none: all is in force")
