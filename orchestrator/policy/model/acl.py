"""Access lists: rules in order, their address groups, and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.listed import Listed
from orchestrator.policy.model.addressgroups import AddressGroup, families, names_one_family, resolve
from orchestrator.policy.model.rule import Action, Direction, Rule
from orchestrator.policy.protocols import format_protocol, only_family

_IS_STATELESS = attrgetter("stateless")


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
                made = any(map(_IS_STATELESS, self.listed))
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
