"""Records that the store returns: frozen records, valid from birth, with times in UTC.

Nothing here knows SQL. A record is a copy of what was stored when its unit of work read it; `version` is what an ETag
shows and what a later write may expect (`expected_version`).
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.errors import BadInput
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import (
    Acl,
    AddressGroup,
    Endpoint,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    TenantId,
    check_name,
)
from orchestrator.wire.events import Event
from orchestrator.wire.firewalls import Load, Plane

_INTERFACE = re.compile(r"[!-.0-9;-~]{1,15}\Z")  # what Linux takes: no space, no slash, and here no colon

UNWRITTEN = 0
"""The version of an access list that nobody has written yet (it is empty, with the model's defaults)."""


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant: `number` stands for it in registers and cookies and is never reused."""

    id: TenantId
    number: int
    domain: str
    name: str
    version: int
    created: dt.datetime
    prefixes: tuple[Prefix, ...]
    quota: Quota
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a write.

    `generation` is the domain's, which the enforcement points must now reach.

    `changed` is False when the request asked for what was there already: version and generation are then the old ones.
    """

    version: int
    generation: int
    changed: bool = True


@dataclass(frozen=True, slots=True)
class AclRecord:
    """A tenant's access list at one version, with the number of each rule id."""

    tenant: TenantId
    version: int
    acl: Acl
    numbers: Mapping[str, int]
    author: str
    created: dt.datetime


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """One rule of the current list, with its number and the version that brought it.

    The version is the first that held the rule as it is now.
    """

    rule: Rule
    number: int
    since_version: int


@dataclass(frozen=True, slots=True)
class VersionHead:
    """The newest version of a list with its generation, time and number of rules."""

    version: int
    generation: int
    created: dt.datetime
    rules: int


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """A change of a list that goes back to version `base` unless somebody confirms it.

    `by_micros` is its deadline by the database's clock, `left_s` how far off that is. `lasts_s` is all the time that it
    was given; None: nobody knows.
    """

    tenant: str
    base: int
    by_micros: int
    lasts_s: int | None
    left_s: float


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """An address group of the current list, with the rules that name it.

    `version` is the list's.
    """

    group: AddressGroup
    rules: tuple[RuleId, ...]
    version: int


@dataclass(frozen=True, slots=True)
class ExpiredRules:
    """Rules that one sweep took out of a tenant's list because their time had come."""

    tenant: TenantId
    rules: tuple[str, ...]
    change: Change


@dataclass(frozen=True, slots=True)
class ExpiringRule:
    """A rule that will soon be taken out."""

    tenant: TenantId
    rule: str
    expires: dt.datetime


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a tenant: size of its list and history, and use of a service.

    Of the list: rules, and flow entries on a switch. Of its history: bytes and versions. Of a service at a time:
    streams of events that members may open, and seconds of analysis a minute. None: as much as there is, or as any
    tenant may have.
    """

    rules: int | None = None
    flows: int | None = None
    stored_bytes: int | None = None
    versions: int | None = None
    streams: int | None = None
    analysis_seconds: int | None = None

    def __post_init__(self) -> None:
        if self.versions is not None and self.versions < 2:
            raise BadInput("at least two versions are kept, the current one and the one before", place="versions")
        for name in ("rules", "flows", "stored_bytes", "versions", "streams", "analysis_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1 << 53:
                raise BadInput(f"{value} is not in 0..2^53-1", place=name)


@dataclass(frozen=True, slots=True)
class DomainRecord:
    """A security domain. `generation` grows with every change of what its enforcement points must hold."""

    id: str
    return_traffic: ReturnTraffic
    path_mtu_rate: int
    generation: int
    version: int
    created: dt.datetime


@dataclass(frozen=True, slots=True)
class OperatorRules:
    """The ordered rules above all tenants of a domain, with each rule's number."""

    domain: str
    version: int
    rules: tuple[Rule, ...]
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host of a domain: its switch, and the interface towards the edge."""

    name: str
    datapath_id: int
    uplink: str

    def __post_init__(self) -> None:
        check_name(self.name, "a host's name", place="name")
        if not 0 < self.datapath_id < 1 << 64:
            raise BadInput(f"{self.datapath_id:#x} is not in 1..2^64-1", place="datapath_id")
        check_interface(self.uplink, place="uplink")


@dataclass(frozen=True, slots=True)
class FirewallRecord:
    """A firewall VNF of a domain, and what it filters with."""

    name: str
    plane: Plane

    def __post_init__(self) -> None:
        check_name(self.name, "a firewall's name", place="name")


@dataclass(frozen=True, slots=True)
class FirewallSeen:
    """A firewall VNF, with its latest reported load and the time of that report.

    Both are None before the first report.
    """

    firewall: FirewallRecord
    load: Load | None
    reported: dt.datetime | None


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """An endpoint as the policy has it, with the version for If-Match."""

    endpoint: Endpoint
    version: int


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """A domain's whole policy and the generation that it belongs to, read in one transaction.

    `lifted` are the rules that are to stand above their lists, `standing` those that did when it was last compiled.
    """

    policy: Policy
    generation: int
    lifted: tuple[LiftedRule, ...] = ()
    standing: frozenset[LiftedRule] = frozenset()


class Role(enum.Enum):
    """The roles that a token can give its bearer.

    ADMIN may do everything, MEMBER may write its tenant's list, READER may read it, ENFORCER may pull its domain's
    programs and report.
    """

    ADMIN = "admin"
    MEMBER = "member"
    READER = "reader"
    ENFORCER = "enforcer"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request: the holder of a checked token, and the caller's address."""

    token_id: int
    role: Role
    tenant: TenantId | None = None
    domain: str | None = None
    enforcer: int | None = None
    address: str = ""
    description: str = field(default="", compare=False)
    """The token's description: how people know its author."""
    checked_s: float = field(default=0.0, compare=False)
    """When the token was found valid, by the monotonic clock."""

    @property
    def name(self) -> str:
        """How histories, events and the audit trail name it."""
        return f"{self.role.value}:{self.token_id}"


@dataclass(frozen=True, slots=True)
class Bearing:
    """The person that bears a token, and the person that made it.

    The maker has seen the secret of the token, or of one that it replaced. None: nobody else made it.
    """

    person: str
    maker: str | None = None

    def is_of(self, other: Bearing) -> bool:
        """Return whether one person may have used both tokens.

        This is so where they name the same person, or one of them made the other.
        """
        mine, theirs = ({_fold_name(each.person), _fold_name(each.maker)} - {""} for each in (self, other))
        return _fold_name(self.person) in theirs or _fold_name(other.person) in mine


def _fold_name(person: str | None) -> str:
    return " ".join((person or "").split()).casefold()


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token without its secret, for listing and revoking."""

    id: int
    principal: Principal
    description: str
    created: dt.datetime
    expires: dt.datetime | None
    bearing: Bearing


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token just made: the only time that its `secret` is seen."""

    secret: str
    record: TokenRecord


@dataclass(frozen=True, slots=True)
class LoggedEvent(Event):
    """An event of the log, with the number of the tenant that it concerns.

    None: it concerns no tenant.
    """

    tenant: int | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events after an id, oldest first.

    `missed` says that older ones after that id were already forgotten.
    """

    events: tuple[LoggedEvent, ...]
    missed: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer kept for a repeated POST with the same idempotency key."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class ListsChanged:
    """A commit that changed nothing of a domain's policy but some tenants' lists.

    `before` is the generation that it changed.
    """

    before: int
    tenants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The effects of a commit, which listeners get after it.

    `domains` has those whose generation moved, `last_event` is the newest event's id. `hosts`: hosts came or went; only
    listeners in the process that committed learn of it. `lists`: the domains in which nothing but access lists changed.
    `steps`: the steps of domains' programs, as the committer passes them to other services (`control/sealedsteps.py`).
    """

    domains: Mapping[str, int]
    last_event: int | None
    hosts: bool = False
    lists: Mapping[str, ListsChanged] = field(default_factory=dict, compare=False)
    steps: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def is_nothing(self) -> bool:
        """Whether nobody need hear of it."""
        return not self.domains and self.last_event is None and not self.hosts


def check_interface(name: str, *, place: str) -> None:
    """Refuse what cannot be the name of a network interface. Raises BadInput."""
    if not _INTERFACE.match(name) or name in (".", ".."):
        raise BadInput(f"{name[:40]!r} cannot be an interface: use 1 to 15 characters, no space, / or :", place=place)
