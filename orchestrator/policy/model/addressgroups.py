"""Address groups, and what rules that name them stand for in each IP version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.policy.addresses import Addresses, Family, Prefix, everything
from orchestrator.policy.model.givennames import GroupName, check_name
from orchestrator.policy.model.rule import Rule
from orchestrator.policy.protocols import only_family
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
