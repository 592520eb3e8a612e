"""Records of enforcement points: identity, reports, and whether a generation is enforced."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.identity.names import Subject
from orchestrator.wire.points import Enforcer, PointState

_LONGEST_DIGEST = 64
"""Bytes."""


@dataclass(frozen=True, slots=True)
class CertificateRecord:
    """A certificate as it was issued.

    `revoked` tells since when it is not valid any more; `enforcer` whose it is, and `token` by which row that one is
    known.
    """

    serial: str
    subject: Subject
    pem: str
    issued: dt.datetime
    ends: dt.datetime
    revoked: dt.datetime | None
    is_valid: bool
    enforcer: int | None
    token: int | None


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The answer to an enrolment: the record, and its credential.

    The credential is a certificate, or the bearer token `secret`, which is seen only now.
    """

    enforcer: Enforcer
    secret: str
    certificate: CertificateRecord | None = None
    ends: dt.datetime | None = None
    """When the bearer token ends."""


@dataclass(frozen=True, slots=True)
class PointReport:
    """A report of an enforcer about one host: what was read back there."""

    host: str
    generation: int
    digest: bytes
    state: PointState
    error: str | None = None
    flows: int = 0
    ports: tuple[str, ...] | None = None
    """The switch's interfaces; None: as reported before."""

    def __post_init__(self) -> None:
        for name in ("generation", "flows"):
            if not 0 <= getattr(self, name) < 1 << 63:
                raise BadInput(f"{getattr(self, name)} is not in 0..2^63-1", place=name)
        if len(self.digest) > _LONGEST_DIGEST:
            raise BadInput(f"a digest has at most {_LONGEST_DIGEST} bytes", place="digest")


@dataclass(frozen=True, slots=True)
class PointRecord:
    """The latest report about a host, by whom and when."""

    report: PointReport
    enforcer: int
    reported: dt.datetime


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """The policies that some switches may hold, and when one was read back last.

    They are the program with this digest, read back there, or a later one; any since the generation where nothing was
    read back yet (`digest` is None); others besides, of lists that the store has never had, where it was not read back
    since the store was put back (`is_strange`).
    """

    generation: int
    digest: bytes | None
    reported: dt.datetime | None
    is_strange: bool


@dataclass(frozen=True, slots=True)
class Laggard:
    """A host that does not enforce a generation, or not yet.

    `point` is None when nobody ever reported it.
    """

    host: str
    point: PointRecord | None


@dataclass(frozen=True, slots=True)
class Heard:
    """Whether a host is behind its domain, and when its enforcer was last heard."""

    domain: str
    host: str
    is_behind: bool
    enforcer: int | None
    """The number of the enforcer; None where nobody ever spoke for the host."""
    heard: dt.datetime | None


@dataclass(frozen=True, slots=True)
class EnforcedState:
    """Whether all hosts of a domain were read back at a generation or later."""

    generation: int
    hosts: int
    laggards: tuple[Laggard, ...]

    @property
    def done(self) -> bool:
        """Whether no host lags."""
        return not self.laggards


Move = tuple[int | None, int | None]
"""The generations that a host enforced before a report and enforces after it; None: it enforces none."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How many hosts a domain has, and how many enforce each generation.

    Questions that come after every report are answered by these numbers; which hosts lag is asked of the database.
    """

    hosts: int
    counts: Mapping[int, int]

    def after(self, moves: Iterable[Move]) -> Standing:
        """Return the standing after reports of some of the hosts."""
        counts = Counter(self.counts)
        for before, now in moves:
            if before is not None:
                counts[before] -= 1
            if now is not None:
                counts[now] += 1
        return Standing(self.hosts, +counts)

    @property
    def reached(self) -> int | None:
        """The generation that every host enforces; None while one of them enforces none."""
        return min(self.counts, default=None) if sum(self.counts.values()) == self.hosts else None

    def is_done(self, generation: int) -> bool:
        """Whether every host enforces a generation, or a later one."""
        return sum(hosts for each, hosts in self.counts.items() if each >= generation) == self.hosts
