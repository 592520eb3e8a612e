"""Sets of many prefixes that rules of a list have in common, as address groups.

    object-group network CUSTOMERS          2,000 lines
    access-list OUT permit tcp object-group CUSTOMERS any eq 80
    access-list OUT permit tcp object-group CUSTOMERS any eq 443          ... and 1,000 more

Other formats name such sets in many ways, and have them written out by the time that their rules are ours. A list
that said each in full in every rule would be a thousand times as long as the text it was read from. A group's name is
made of what it holds, so whoever reads the same gives it the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import SIDES, AddressGroup, GroupName, Rule, with_sides

MANY = 32
"""Sets of so many prefixes become groups where several sides of rules name them."""


def with_groups(rules: Sequence[Rule]) -> tuple[tuple[Rule, ...], Mapping[str, AddressGroup]]:
    """The rules, naming groups where they have large sets in common, and these groups."""
    found: dict[int, AddressGroup] = {}  # by identity: lines with the same set have the same object
    uses: Counter[str] = Counter()
    for rule in rules:
        for side in (rule.source, rule.destination):
            if len(side.prefixes) >= MANY:
                if id(side) not in found:
                    found[id(side)] = _group(side)
                uses[found[id(side)].name] += 1
    shared = {place: group for place, group in found.items() if uses[group.name] > 1}
    named = {place: Addresses((), (group.name,)) for place, group in shared.items()}
    groups: Mapping[str, AddressGroup] = {group.name: group for group in shared.values()}
    return tuple(_naming(rule, named) for rule in rules), MappingProxyType(groups)


def _group(addresses: Addresses) -> AddressGroup:
    content = " ".join(map(str, addresses.prefixes)).encode()
    name = f"addresses-{hashlib.blake2b(content, digest_size=16).hexdigest()}"  # two sets must not meet
    return AddressGroup(GroupName(name), addresses.prefixes)


def _naming(rule: Rule, named: Mapping[int, Addresses]) -> Rule:
    sides = {side: named[id(getattr(rule, side))] for side in SIDES if id(getattr(rule, side)) in named}
    return with_sides(rule, sides) if sides else rule
