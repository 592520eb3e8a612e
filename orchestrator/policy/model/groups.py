"""Address groups, and what rules that name them stand for in each IP version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.policy.addresses import Addresses, Family, Prefix, everything
from orchestrator.policy.model.names import GroupName, check_name
from orchestrator.policy.model.rule import Rule
from orchestrator.policy.protocols import only_family


@dataclass(frozen=True, slots=True)
class AddressGroup:
    """A named set of prefixes that rules may point to."""

    name: GroupName
    prefixes: tuple[Prefix, ...]
    description: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "a group name", place="name")


def resolve(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> tuple[Prefix, ...]:
    """The prefixes of `family` that `addresses` stands for; `any` is the prefix of length zero."""
    if addresses.is_any:
        return (everything(family),)
    own = [prefix for prefix in addresses.prefixes if prefix.family is family]
    for name in addresses.groups:
        own += [prefix for prefix in groups[name].prefixes if prefix.family is family]
    return tuple(own)


def families(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Family, ...]:
    """The IP versions in which a rule can match at all."""
    if names_one_family(rule):
        return (rule.source.prefixes[0].family,)
    only = only_family(rule.protocol)
    return tuple(
        family
        for family in Family
        if only in (None, family) and resolve(rule.source, groups, family) and resolve(rule.destination, groups, family)
    )


def names_one_family(rule: Rule) -> bool:
    """Whether a rule names just one prefix on each side, both of one IP version, and a protocol that knows both
    versions: nearly all do, and they can match."""
    source, destination = rule.source.prefixes, rule.destination.prefixes
    one_each = len(source) == len(destination) == 1 and not rule.source.groups and not rule.destination.groups
    return one_each and source[0].family is destination[0].family and only_family(rule.protocol) is None
