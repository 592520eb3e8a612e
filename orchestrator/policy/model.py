"""What a tenant may say: rules, address groups, access lists; and the cloud they are said in.

Everything here is frozen and valid from birth: whoever holds a `Rule` or an `Acl` holds a right one. Text is read
elsewhere (`formats/`); these classes refuse wrong values with the place inside the value (``source_ports``), and
readers put the outer place in front of it (``rules[3].source_ports``).

    Policy ── tenants ── Tenant ── acl ── Acl ── rules ── Rule
       │                    └── prefixes          └── groups (named address sets)
       └── operator rules, return traffic
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NewType

from orchestrator.errors import BadInput, BadPolicy
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, everything
from orchestrator.policy.listed import Listed
from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.ports import EVERY_PORT, PortRange, normalised
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS, format_protocol, only_family
from orchestrator.policy.tcpflags import ESTABLISHED, FlagMatch

TenantId = NewType("TenantId", str)
RuleId = NewType("RuleId", str)
GroupName = NewType("GroupName", str)

RETURN_RULE_ID = RuleId("_return")
"""Names the return-traffic rule in decisions and hits; ids that start with _ are kept for such rules."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,63}\Z")
_LONGEST_TEXT = 1024


class Action(enum.Enum):
    """What becomes of a packet."""

    PERMIT = "permit"
    DENY = "deny"


class Direction(enum.Enum):
    """Seen from the tenant: ingress is traffic to its endpoints."""

    INGRESS = "ingress"
    EGRESS = "egress"


class ReturnTraffic(enum.Enum):
    """How replies get back in: by a last rule for TCP segments with ACK or RST, or only by the tenant's own rules."""

    ESTABLISHED = "established"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an access list. Everything left out matches every value.

    `fragments` restricts the rule to later fragments (as the Cisco keyword). A rule that looks at ports, ICMP types
    or TCP flags never matches a later fragment, which carries none of them.
    """

    id: RuleId
    action: Action
    direction: Direction = Direction.INGRESS
    protocol: int | None = None
    source: Addresses = ANY
    destination: Addresses = ANY
    source_ports: tuple[PortRange, ...] = EVERY_PORT
    destination_ports: tuple[PortRange, ...] = EVERY_PORT
    icmp_type: int | None = None
    icmp_code: int | None = None
    established: bool = False
    tcp_flags: FlagMatch | None = None
    fragments: bool = False
    description: str = ""
    owner: str = ""
    expires: dt.datetime | None = None
    log: bool = False

    def __post_init__(self) -> None:
        check_name(self.id, "a rule id", place="id")
        if self.protocol is not None and not 0 <= self.protocol <= 255:
            raise BadInput(f"protocol {self.protocol} is not in 0..255", place="protocol")
        self._check_ports()
        self._check_icmp()
        self._check_tcp()
        if self.fragments and self.looks_past_the_ip_header:
            raise BadPolicy("later fragments carry no ports, ICMP types or TCP flags to match", place="fragments")
        for name in ("description", "owner"):
            if len(getattr(self, name)) > _LONGEST_TEXT:
                raise BadInput(f"longer than {_LONGEST_TEXT} characters", place=name)
        if self.expires is not None and self.expires.tzinfo is None:
            raise BadInput("a time needs its zone, as in 2030-01-31T12:00:00Z", place="expires")

    def _check_ports(self) -> None:
        for name in ("source_ports", "destination_ports"):
            ports: tuple[PortRange, ...] = getattr(self, name)
            if ports is EVERY_PORT:
                continue
            if not ports:
                raise BadInput("an empty list of ports matches nothing; leave it out to match every port", place=name)
            if self.protocol not in WITH_PORTS:
                raise BadPolicy("only tcp, udp and sctp have ports: name one of them as the protocol", place=name)
            if len(ports) > 1:
                object.__setattr__(self, name, normalised(ports))

    def _check_icmp(self) -> None:
        for name, value in (("icmp_type", self.icmp_type), ("icmp_code", self.icmp_code)):
            if value is None:
                continue
            if self.protocol not in (ICMP, ICMPV6):
                raise BadPolicy("only icmp and icmpv6 have types and codes", place=name)
            if not 0 <= value <= 255:
                raise BadInput(f"{value} is not in 0..255", place=name)
        if self.icmp_code is not None and self.icmp_type is None:
            raise BadPolicy("a code means nothing without its type", place="icmp_code")

    def _check_tcp(self) -> None:
        if self.established and self.tcp_flags is not None:
            raise BadPolicy("`established` already says which flags", place="tcp_flags")
        if (self.established or self.tcp_flags is not None) and self.protocol != TCP:
            place = "established" if self.established else "tcp_flags"
            raise BadPolicy("only tcp has flags: name tcp as the protocol", place=place)

    @property
    def looks_past_the_ip_header(self) -> bool:
        """Whether the rule needs a transport header, which later fragments do not carry."""
        return (
            self.source_ports != EVERY_PORT
            or self.destination_ports != EVERY_PORT
            or self.icmp_type is not None
            or bool(self.flag_matches)
        )

    @property
    def flag_matches(self) -> tuple[FlagMatch, ...]:
        """The TCP flags the rule asks for: any one of these disjoint matches; empty means it does not look."""
        if self.established:
            return ESTABLISHED
        return (self.tcp_flags,) if self.tcp_flags is not None else ()

    def own_side(self) -> Addresses:
        """The addresses on the tenant's side: the destination of ingress, the source of egress."""
        return self.destination if self.direction is Direction.INGRESS else self.source


@dataclass(frozen=True, slots=True)
class AddressGroup:
    """A named set of prefixes that rules may point to."""

    name: GroupName
    prefixes: tuple[Prefix, ...]
    description: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "a group name", place="name")


@dataclass(frozen=True, slots=True)
class Acl:
    """An ordered access list: in each direction the first rule that matches decides, else that direction's default.

    It holds its rules as a tuple or in pieces (`listed`), or both: what is asked for is made of what is there.
    """

    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, AddressGroup] = field(default_factory=lambda: MappingProxyType({}))
    ingress_default: Action = Action.DENY
    egress_default: Action = Action.PERMIT
    _listed: Listed[Rule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            if rule.id in seen:
                raise BadPolicy(f"'{rule.id}' is already the id of rules[{seen[rule.id]}]", place=f"rules[{index}].id")
            seen[rule.id] = index
            if rule.id.startswith("_"):
                raise BadPolicy("ids that start with _ are reserved", place=f"rules[{index}].id")
            if not _names_one_family(rule):
                self._check_addresses(rule, f"rules[{index}]")

    def _check_addresses(self, rule: Rule, place: str) -> None:
        for side in ("source", "destination"):
            addresses: Addresses = getattr(rule, side)
            for name in addresses.groups:
                if name not in self.groups:
                    raise BadPolicy(f"no address group is called '{name}'", place=f"{place}.{side}")
        if rule.source.groups or rule.destination.groups:
            return  # a group may be empty for a while: such a rule matches nothing
        if not families(rule, self.groups):
            raise BadPolicy(f"can never match: {_family_clash(rule)}", place=place)

    @property
    def listed(self) -> Listed[Rule]:
        """The rules in pieces, which versions of a list share: for what must not cost the length of the list."""
        return self._listed

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name == "rules":
                made = tuple(object.__getattribute__(self, "_listed"))
            elif name == "_listed":
                made = Listed.of(object.__getattribute__(self, "rules"))
            else:
                raise AttributeError(name)
            object.__setattr__(self, name, made)
            return made

    def default(self, direction: Direction) -> Action:
        return self.ingress_default if direction is Direction.INGRESS else self.egress_default

    def prefixes(self, addresses: Addresses, family: Family) -> tuple[Prefix, ...]:
        """The prefixes of one family that a side of a rule stands for, groups resolved. `any` is that family's /0."""
        return resolve(addresses, self.groups, family)


def trusted_acl(
    rules: tuple[Rule, ...] | Listed[Rule],
    groups: Mapping[str, AddressGroup],
    ingress_default: Action,
    egress_default: Action,
) -> Acl:
    """A list that is known to be right, made without checking every rule again.

    Its rules come from checked lists, and each that is new was checked alone. For 100,000 rules the check would take
    hundreds of times as long as the change of one of them.
    """
    acl = object.__new__(Acl)
    object.__setattr__(acl, "_listed" if isinstance(rules, Listed) else "rules", rules)
    object.__setattr__(acl, "groups", groups)
    object.__setattr__(acl, "ingress_default", ingress_default)
    object.__setattr__(acl, "egress_default", egress_default)
    return acl


def resolve(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> tuple[Prefix, ...]:
    """The prefixes of `family` that `addresses` stands for; `any` is the prefix of length zero."""
    if addresses.is_any:
        return (everything(family),)
    own = [prefix for prefix in addresses.prefixes if prefix.family is family]
    for name in addresses.groups:
        own += [prefix for prefix in groups[name].prefixes if prefix.family is family]
    return tuple(own)


SIDES = ("source", "destination")
"""The sides of a rule by name."""


def with_sides(rule: Rule, sides: Mapping[str, Addresses]) -> Rule:
    """The rule with other addresses on some of its `SIDES`."""
    source, destination = sides.get("source", rule.source), sides.get("destination", rule.destination)
    return replace(rule, source=source, destination=destination)


def families(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Family, ...]:
    """The IP versions in which a rule can match at all."""
    if _names_one_family(rule):
        return (rule.source.prefixes[0].family,)
    only = only_family(rule.protocol)
    return tuple(
        family
        for family in Family
        if only in (None, family) and resolve(rule.source, groups, family) and resolve(rule.destination, groups, family)
    )


def _names_one_family(rule: Rule) -> bool:
    """Whether a rule names just one prefix on each side, both of one IP version, and a protocol that knows both
    versions: nearly all do, and they can match."""
    source, destination = rule.source.prefixes, rule.destination.prefixes
    one_each = len(source) == len(destination) == 1 and not rule.source.groups and not rule.destination.groups
    return one_each and source[0].family is destination[0].family and only_family(rule.protocol) is None


def _family_clash(rule: Rule) -> str:
    if only_family(rule.protocol) is not None and rule.protocol is not None:
        return f"{format_protocol(rule.protocol)} belongs to the other IP version than its addresses"
    return "its source and its destination are of different IP versions"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A project of the cloud: what it owns and what it permits.

    `number` (1..2^32-1) stands for the tenant in registers and cookies and is never reused; `rule_numbers` gives each
    rule id its number (1..2^40-1), likewise never reused.
    """

    id: TenantId
    number: int
    prefixes: tuple[Prefix, ...] = ()
    acl: Acl = Acl()
    rule_numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def owns(self, family: Family, address: int) -> bool:
        return any(prefix.family is family and prefix.holds(address) for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A tenant's network port: where its packets leave and arrive, and the addresses it may use (no others)."""

    name: str
    tenant: TenantId
    port: str
    mac: int
    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that decides a packet's fate in one security domain, as one value."""

    tenants: tuple[Tenant, ...] = ()
    operator: tuple[Rule, ...] = ()
    operator_numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    return_traffic: ReturnTraffic = ReturnTraffic.ESTABLISHED
    endpoints: tuple[Endpoint, ...] = ()
    log_limit: LogLimit = USUAL


@dataclass(frozen=True, slots=True)
class Packet:
    """The fields of a packet that a policy can look at.

    `protocol` is the upper-layer protocol, found behind IPv6 extension headers; an IPv6 later fragment has
    IPV6_FRAGMENT (44), for its upper layer cannot be known. Ports, ICMP and flags are zero where there are none.
    """

    family: Family
    source: int
    destination: int
    protocol: int
    source_port: int = 0
    destination_port: int = 0
    icmp_type: int = 0
    icmp_code: int = 0
    tcp_flags: int = 0
    later_fragment: bool = False


def check_name(name: str, what: str, *, place: str) -> None:
    """Refuse a name that would not fit into a URL, a file name and a shell word alike."""
    if not _NAME.match(name):
        shown = name if len(name) <= 80 else name[:77] + "..."
        raise BadInput(
            f"{shown!r} cannot be {what}: use 1 to 64 letters, digits and _ . : -, not starting with . : -", place=place
        )
