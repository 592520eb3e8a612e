"""Access lists as the REST API shows them: rules, versions, findings, decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from orchestrator.client.records import Json
from orchestrator.policy.model import Acl, Rule
from orchestrator.wire.codec import decode
from orchestrator.wire.costs import Cost
from orchestrator.wire.lists import Waiver

Part = Literal["difference", "findings", "cost", "firewall"]
"""The parts of a report on a list; `firewall` is its cost with that of a firewall VNF, which takes longest."""
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class AclSeen:
    """A whole list and the ETag it was read at."""

    acl: Acl
    etag: str

    @property
    def version(self) -> int:
        """The version of the list that the ETag names."""
        return int(self.etag.strip('"'))


@dataclass(frozen=True, slots=True)
class RuleSeen:
    """One rule and the ETag it was read at."""

    rule: Rule
    etag: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    `witness` is a packet to try it with, in the API's form; `waiver` tells who took responsibility for it.
    """

    kind: str
    rules: tuple[str, ...]
    witness: Json | None
    explanation: str
    severity: str
    reason: str
    group: str | None = None
    waiver: Waiver | None = None

    @classmethod
    def of(cls, body: Json) -> Finding:
        return cls(
            kind=body["kind"],
            rules=tuple(body["rules"]),
            witness=body["witness"],
            explanation=body["explanation"],
            severity=body["severity"],
            reason=body["reason"],
            group=body["group"],
            waiver=body["waiver"] and decode(Waiver, body["waiver"]),
        )


@dataclass(frozen=True, slots=True)
class Review:
    """A dry run: a list's findings, its cost, and packets that change their fate.

    `brought`: what is wrong with it and not with the list as it is. Parts that were not asked for are empty;
    `difference` is None where the lists are too different, too. Findings that are waived are in `waived` alone.
    """

    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    severities: Mapping[str, int]
    waived: tuple[Finding, ...]
    brought: tuple[Finding, ...]
    brought_counts: Mapping[str, int]
    brought_severities: Mapping[str, int]
    cost: Cost | None
    difference: Sequence[Json] | None

    @classmethod
    def of(cls, body: Json) -> Review:
        found, waived, more = (tuple(map(Finding.of, body[name] or ())) for name in ("findings", "waived", "brought"))
        names = ("counts", "severities", "brought_counts", "brought_severities")
        counts, severities, of_more, more_severities = (body[name] or {} for name in names)
        cost = body["cost"] and decode(Cost, body["cost"])
        return cls(found, counts, severities, waived, more, of_more, more_severities, cost, body["difference"])


@dataclass(frozen=True, slots=True)
class Standing:
    """A current list's cost, and its first findings of each kind with their number.

    Parts that were not asked for are empty.
    """

    version: int
    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    severities: Mapping[str, int]
    waived: tuple[Finding, ...]
    cost: Cost | None

    @classmethod
    def of(cls, body: Json) -> Standing:
        findings, waived = (tuple(map(Finding.of, body[name] or ())) for name in ("findings", "waived"))
        counts, severities = body["counts"] or {}, body["severities"] or {}
        return cls(body["version"], findings, counts, severities, waived, body["cost"] and decode(Cost, body["cost"]))


@dataclass(frozen=True, slots=True)
class Step:
    """One list's answer to a traced packet; `rule` is None where its default decided."""

    tenant: str | None
    direction: str | None
    action: str
    rule: str | None


@dataclass(frozen=True, slots=True)
class Trace:
    """A packet's fate and how it came about.

    `rule` is the one that decided, None where a default did.

    `tier` (server or host) is where its fate is settled first, `server` which one drops it; `lifted` and `heavy` say
    how the rule that decides is placed.
    """

    action: str
    steps: tuple[Step, ...]
    rule: Json | None
    tier: str = "host"
    server: str | None = None
    lifted: bool = False
    heavy: bool = False

    @classmethod
    def of(cls, body: Json) -> Trace:
        steps = tuple(Step(**step) for step in body["steps"])
        placed = {name: body[name] for name in ("tier", "server", "lifted", "heavy")}
        return cls(body["action"], steps, body["rule"], **placed)
