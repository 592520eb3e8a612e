"""What the client gives back: the REST API's answers as frozen values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Acl, Endpoint, Rule

Item = TypeVar("Item")
Json = Mapping[str, Any]

Part = Literal["difference", "findings", "cost", "firewall"]
"""What can be told of a list; `firewall` is the cost with what it costs a firewall VNF, which takes longest to tell."""
PARTS: tuple[Part, ...] = get_args(Part)
"""A JSON object of the service's: its members are checked when a record is made of it, not by the type checker."""


def time_of(text: str | None) -> dt.datetime | None:
    """A time of the API's, which has its zone."""
    return dt.datetime.fromisoformat(text) if text else None


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some of a list; `next` is the marker of the page that follows, None at the end."""

    items: tuple[Item, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """What a write came to. `generation` is what the domain's enforcement points must reach to hold it.

    `etag` is for the next write of the same thing, `changed` is False when all was so before.
    """

    generation: int
    etag: str
    version: int
    changed: bool
    enforced: bool | None = None
    """Whether every host holds it already; None where nobody waited for that (`Client.waiting`)."""
    stages: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Where the service's time went, in seconds."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A security domain."""

    id: str
    return_traffic: str
    generation: int
    version: int

    @classmethod
    def of(cls, body: Json) -> Domain:
        return cls(body["id"], body["return_traffic"], body["generation"], body["version"])


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its switch's datapath id, and the interface towards the edge."""

    name: str
    datapath_id: int
    uplink: str

    @classmethod
    def of(cls, body: Json) -> Host:
        return cls(body["name"], int(body["datapath_id"], 16), body["uplink"])

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "datapath_id": f"{self.datapath_id:016x}", "uplink": self.uplink}


@dataclass(frozen=True, slots=True)
class AclSeen:
    """A whole list and the ETag it was read at."""

    acl: Acl
    etag: str


@dataclass(frozen=True, slots=True)
class RuleSeen:
    """One rule and the ETag it was read at."""

    rule: Rule
    etag: str


@dataclass(frozen=True, slots=True)
class AclVersion:
    """A line of a list's history."""

    version: int
    author: str
    created: dt.datetime
    rules: int

    @classmethod
    def of(cls, body: Json) -> AclVersion:
        return cls(body["version"], body["author"], dt.datetime.fromisoformat(body["created"]), body["rules"])


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a dry run; `witness` is a packet to try it with, in the API's form."""

    kind: str
    rules: tuple[str, ...]
    witness: Json | None
    explanation: str

    @classmethod
    def of(cls, body: Json) -> Finding:
        return cls(body["kind"], tuple(body["rules"]), body["witness"], body["explanation"])


@dataclass(frozen=True, slots=True)
class Review:
    """A dry run: what is wrong with a list, what it would cost, and which packets would fare otherwise.

    `brought`: what is wrong with it and not with the list as it is. Parts that were not asked for are empty;
    `difference` is None where the lists are too different, too.
    """

    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    brought: tuple[Finding, ...]
    brought_counts: Mapping[str, int]
    cost: Json
    difference: Sequence[Json] | None

    @classmethod
    def of(cls, body: Json) -> Review:
        found, more = (tuple(map(Finding.of, body[name] or ())) for name in ("findings", "brought"))
        counts, of_more = (body[name] or {} for name in ("counts", "brought_counts"))
        return cls(found, counts, more, of_more, body["cost"] or {}, body["difference"])


@dataclass(frozen=True, slots=True)
class Standing:
    """What is odd about a list as it is: the first findings of each kind and how many there are; what it costs.

    Parts that were not asked for are empty.
    """

    version: int
    findings: tuple[Finding, ...]
    counts: Mapping[str, int]
    cost: Json

    @classmethod
    def of(cls, body: Json) -> Standing:
        findings = tuple(map(Finding.of, body["findings"] or ()))
        return cls(body["version"], findings, body["counts"] or {}, body["cost"] or {})


@dataclass(frozen=True, slots=True)
class Step:
    """One list's answer to a traced packet; `rule` is None where its default decided."""

    tenant: str | None
    direction: str | None
    action: str
    rule: str | None


@dataclass(frozen=True, slots=True)
class Trace:
    """The fate of a packet and how it came about; `rule` is the one that decided, None where a default did.

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


@dataclass(frozen=True, slots=True)
class Lagging:
    """A host that does not hold a generation yet; `state` is None when nobody ever reported it.

    Tenants are not told which host it is, nor the error.
    """

    host: str | None
    generation: int | None
    state: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Enforced:
    """Whether every host of a domain was read back at a generation or a later one, and who lags."""

    domain: str
    generation: int
    done: bool
    laggards: tuple[Lagging, ...]

    @classmethod
    def of(cls, body: Json) -> Enforced:
        laggards = tuple(Lagging(**each) for each in body["laggards"])
        return cls(body["domain"], body["generation"], body["state"] == "enforced", laggards)


@dataclass(frozen=True, slots=True)
class Enforcer:
    """An enforcement point that enrolled."""

    id: int
    domain: str
    name: str
    kind: str
    epoch: int
    last_seen: dt.datetime | None

    @classmethod
    def of(cls, body: Json) -> Enforcer:
        seen = time_of(body["last_seen"])
        return cls(body["id"], body["domain"], body["name"], body["kind"], body["epoch"], seen)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The answer to an enrolment: who we are from now on, and a certificate with the authority's (PEM), or a bearer
    token, which is seen only now."""

    enforcer: int
    domain: str
    token: str
    epoch: int
    name: str = ""
    certificate: str = ""
    authority: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of a machine, in PEM, and its authority's where that was asked for."""

    serial: str
    usage: str
    domain: str
    name: str
    issued: dt.datetime
    ends: dt.datetime
    revoked: dt.datetime | None
    valid: bool
    certificate: str
    authority: str

    @classmethod
    def of(cls, body: Json) -> Certificate:
        times = {key: body[key] and dt.datetime.fromisoformat(body[key]) for key in ("issued", "ends", "revoked")}
        return cls(**{**body, **times})


@dataclass(frozen=True, slots=True)
class GroupToken:
    """A token that the machines of a group enrol with; `token` is empty where it is only listed."""

    id: int
    domain: str
    group: str
    expires: dt.datetime
    token: str = field(default="", repr=False)
    kind: str = ""

    @classmethod
    def of(cls, body: Json) -> GroupToken:
        expires = dt.datetime.fromisoformat(body["expires"])
        return cls(body["id"], body["domain"], body["group"], expires, body.get("token", ""), body.get("kind", ""))


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token without its secret."""

    id: int
    role: str
    tenant: str | None
    domain: str | None
    description: str
    expires: dt.datetime | None

    @classmethod
    def of(cls, body: Json) -> Token:
        expires = time_of(body["expires"])
        return cls(body["id"], body["role"], body["tenant"], body["domain"], body["description"], expires)


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the service's log; ids grow in the order in which things happened."""

    id: int
    time: dt.datetime
    kind: str
    subject: str
    detail: Json

    @classmethod
    def of(cls, body: Json) -> Event:
        time = dt.datetime.fromisoformat(body["time"])
        return cls(body["id"], time, body["kind"], body["subject"], body["detail"])

    @classmethod
    def missed(cls, after: int) -> Event:
        """Stands for events after an id that were forgotten before they were read."""
        return cls(after, dt.datetime.now(dt.UTC), "missed", "", {"after": after})


def endpoint_of(body: Json) -> Endpoint:
    """An endpoint as the policy has it."""
    prefixes = tuple(Prefix.parse(text) for text in body["prefixes"])
    return Endpoint(body["name"], body["tenant"], body["port"], int(body["mac"].replace(":", ""), 16), prefixes)


# ------------------------------------------------------------------------------------------- what an enforcer sends


@dataclass(frozen=True, slots=True)
class Held:
    """The program that an enforcer holds: what `watch_program` starts from."""

    digest: bytes
    generation: int


@dataclass(frozen=True, slots=True)
class PointReport:
    """What was read back on one host. `state`: enforced, applying, drifted, disconnected or refused."""

    host: str
    generation: int
    digest: bytes
    state: str
    error: str | None = None
    flows: int = 0
    took: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage, from the program's arrival to the read-back."""

    def to_json(self) -> dict[str, object]:
        return {
            "host": self.host,
            "generation": self.generation,
            "digest": self.digest.hex(),
            "state": self.state,
            "error": self.error,
            "flows": self.flows,
            **({"took": dict(self.took)} if self.took else {}),
        }
