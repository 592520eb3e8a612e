"""Access lists with their address groups, and the security domain of their tenants."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Addresses, Family, Prefix, everything
from orchestrator.policy.listed import Listed
from orchestrator.policy.loglimit import USUAL, LogLimit
from orchestrator.policy.model.givennames import GroupName, TenantId, check_name
from orchestrator.policy.model.rule import Action, Direction, Rule
from orchestrator.policy.protocols import format_protocol, only_family
from orchestrator.policy.spans import Span, Spans, union


@dataclass(frozen=True)
class AddressGroup:
    """A named set of prefixes for rules.

    It may have thousands, so frequent questions are cached.
    """

    name: GroupName
    prefixes: tuple[Prefix, ...]
    description: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "a group name", place="name")

    @cached_property
    def families(self) -> frozenset[Family]:
        """The IP versions of its prefixes."""
        return frozenset(prefix.family for prefix in self.prefixes)

    @cached_property
    def members(self) -> Mapping[Family, Spans]:
        """Its addresses of each IP version."""
        return {family: spans_of(self.prefixes, family) for family in Family}


def spans_of(prefixes: Sequence[Prefix], family: Family) -> Spans:
    """Return the union of one family's prefixes as spans of addresses."""
    if len(prefixes) == 1:
        (one,) = prefixes
        return (Span(one.network, one.last),) if one.family is family else ()
    return union(Span(prefix.network, prefix.last) for prefix in prefixes if prefix.family is family)


def resolve(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> tuple[Prefix, ...]:
    """The prefixes of `family` that `addresses` stands for; `any` is the prefix of length zero."""
    if addresses.is_any:
        return (everything(family),)
    own = [prefix for prefix in addresses.prefixes if prefix.family is family]
    for name in addresses.groups:
        own += [prefix for prefix in groups[name].prefixes if prefix.family is family]
    return tuple(own)


def members(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> Spans:
    """The addresses of `family` that `addresses` stands for, which is not `any`."""
    if not addresses.groups:
        return spans_of(addresses.prefixes, family)
    if not addresses.prefixes and len(addresses.groups) == 1:
        return groups[addresses.groups[0]].members[family]
    named = (span for name in addresses.groups for span in groups[name].members[family])
    return union((*spans_of(addresses.prefixes, family), *named))


def families(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Family, ...]:
    """The IP versions in which a rule can match at all."""
    if names_one_family(rule):
        return (rule.source.prefixes[0].family,)
    only = only_family(rule.protocol)
    return tuple(
        family
        for family in Family
        if only in (None, family) and all(_is_of(side, groups, family) for side in (rule.source, rule.destination))
    )


def _is_of(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> bool:
    """Whether a side of a rule names any address of an IP version."""
    return (
        addresses.is_any
        or any(prefix.family is family for prefix in addresses.prefixes)
        or any(family in groups[name].families for name in addresses.groups)
    )


def names_one_family(rule: Rule) -> bool:
    """Return whether a rule has one prefix a side, of one family, and any-family protocol.

    Nearly all rules do, and they can match.
    """
    source, destination = rule.source.prefixes, rule.destination.prefixes
    one_each = len(source) == len(destination) == 1 and not rule.source.groups and not rule.destination.groups
    return one_each and source[0].family is destination[0].family and only_family(rule.protocol) is None


_IS_STATELESS = attrgetter("stateless")


def _has_stateless(rules: tuple[Rule, ...]) -> bool:
    return any(map(_IS_STATELESS, rules))


@dataclass(frozen=True, slots=True)
class Acl:
    """An ordered access list: the first match decides in each direction, else its default.

    It holds its rules as a tuple or in pieces (`listed`), or both: what is asked for is made of what is there.
    """

    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, AddressGroup] = field(default_factory=lambda: MappingProxyType({}))
    ingress_default: Action = Action.DENY
    egress_default: Action = Action.PERMIT
    _listed: Listed[Rule] = field(init=False, repr=False, compare=False)
    has_stateless: bool = field(init=False, repr=False, compare=False)
    """Whether a rule decides alone where connections are tracked; looked for at first use."""

    def __post_init__(self) -> None:
        seen: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            if rule.id in seen:
                raise BadPolicy(f"'{rule.id}' is already the id of rules[{seen[rule.id]}]", place=f"rules[{index}].id")
            seen[rule.id] = index
            if rule.id.startswith("_"):
                raise BadPolicy("ids that start with _ are reserved", place=f"rules[{index}].id")
            if not names_one_family(rule):
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
            field, reason = _family_clash(rule)
            raise BadPolicy(f"can never match: {reason}", place=f"{place}.{field}")

    @property
    def listed(self) -> Listed[Rule]:
        """The rules in pieces that versions of a list share.

        For work that must not cost the length of the list.
        """
        return self._listed

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            if name == "rules":
                made = tuple(object.__getattribute__(self, "_listed"))
            elif name == "_listed":
                made = Listed.of(object.__getattribute__(self, "rules"))
            elif name == "has_stateless":
                made = any(self.listed.facts(_has_stateless))
            else:
                raise AttributeError(name)
            object.__setattr__(self, name, made)
            return made

    def default(self, direction: Direction) -> Action:
        return self.ingress_default if direction is Direction.INGRESS else self.egress_default

    def prefixes(self, addresses: Addresses, family: Family) -> tuple[Prefix, ...]:
        """Return one family's prefixes of a rule's side, groups resolved.

        `any` is that family's /0.
        """
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


def _family_clash(rule: Rule) -> tuple[str, str]:
    """Return the field that is of another IP version than the others, and the reason."""
    if only_family(rule.protocol) is not None and rule.protocol is not None:
        return "protocol", f"{format_protocol(rule.protocol)} belongs to the other IP version than its addresses"
    return "destination", "its source and its destination are of different IP versions"


_EMPTY = Acl()
"""The list of a tenant that has said nothing yet."""


class ReturnTraffic(enum.Enum):
    """How replies get back in: by header fields, by connections, or by rules."""

    ESTABLISHED = "established"
    """By a last rule of each list, for TCP segments with ACK or RST. Nothing is remembered."""
    PATH_MTU = "path-mtu"
    """As `ESTABLISHED`, and so many ICMP errors a second that say which size of packet a path takes."""
    EXPLICIT = "explicit"
    """Only by rules of the tenant."""
    TRACKED = "tracked"
    """As packets of a connection that the lists permit; nothing else comes in (`policy/connections.py`)."""


PATH_MTU_RATE = 100
"""A router sends one such message a second to each sender (Linux: `icmp_ratelimit`), so this serves many at once."""
HIGHEST_PATH_MTU_RATE = 10_000


@dataclass(frozen=True, slots=True)
class Tenant:
    """A project of the cloud: what it owns and what it permits.

    `number` (1..2^32-1) stands for the tenant in registers and cookies and is never reused; `rule_numbers` gives each
    rule id its number (1..2^40-1), likewise never reused.
    """

    id: TenantId
    number: int
    prefixes: tuple[Prefix, ...] = ()
    acl: Acl = _EMPTY
    rule_numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def owns(self, family: Family, address: int) -> bool:
        return any(prefix.family is family and prefix.holds(address) for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A tenant's network port: where packets leave and arrive, and its only addresses.

    `shared`: other endpoints of its tenant may live behind the same port (`policy/legs.py`).
    """

    name: str
    tenant: TenantId
    port: str
    mac: int
    prefixes: tuple[Prefix, ...]
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that decides a packet's fate in one security domain, as one value."""

    tenants: tuple[Tenant, ...] = ()
    operator: tuple[Rule, ...] = ()
    operator_numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    return_traffic: ReturnTraffic = ReturnTraffic.ESTABLISHED
    endpoints: tuple[Endpoint, ...] = ()
    log_limit: LogLimit = USUAL
    path_mtu_rate: int = PATH_MTU_RATE
    """Under `PATH_MTU`: a switch or firewall VNF lets through at most so many of these messages a second and tenant."""
    holds_replies: bool = False
    """Where connections are tracked: no replies pass, nor ICMP errors or later fragments, until all hosts have followed
    from or to another setting (`policy/intersection.py`)."""
