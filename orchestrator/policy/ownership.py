"""Check that a tenant's rules name only its own addresses on its own side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Direction, Rule


def check_ownership(acl: Acl, prefixes: tuple[Prefix, ...]) -> None:
    """Refuse a prefix on the tenant's own side that it does not own wholly.

    Raises BadPolicy.
    """
    for index, rule in enumerate(acl.rules):
        for prefix in _explicit(acl, rule.own_side()):
            for owned in prefixes:
                if owned.contains(prefix):
                    break
            else:
                side = "destination" if rule.direction is Direction.INGRESS else "source"
                raise BadPolicy(
                    f"{prefix} is not among the tenant's own prefixes; on its own side a rule may only name those "
                    f"or `any`",
                    place=f"rules[{index}].{side}",
                )


def narrow_to_owned(acl: Acl, prefixes: tuple[Prefix, ...]) -> Acl:
    """Return the list without addresses on its own side that the tenant does not own.

    Packets to and from what it owns are decided as before; a rule that names nothing of that is left out.
    """
    return replace(acl, rules=tuple(filter(None, (_narrow_rule(acl, rule, prefixes) for rule in acl.rules))))


def _narrow_rule(acl: Acl, rule: Rule, prefixes: tuple[Prefix, ...]) -> Rule | None:
    named = _explicit(acl, rule.own_side())
    if all(any(owned.contains(prefix) for owned in prefixes) for prefix in named):
        return rule
    kept = [
        prefix if owned.contains(prefix) else owned
        for prefix in named
        for owned in prefixes
        if owned.contains(prefix) or prefix.contains(owned)
    ]
    if not kept:
        return None
    side = Addresses(tuple(dict.fromkeys(kept)))
    return replace(rule, destination=side) if rule.direction is Direction.INGRESS else replace(rule, source=side)


def _explicit(acl: Acl, addresses: Addresses) -> Sequence[Prefix]:
    """The prefixes that a side of a rule names, itself and by its groups."""
    if not addresses.groups:
        return addresses.prefixes
    return [*addresses.prefixes, *(prefix for name in addresses.groups for prefix in acl.groups[name].prefixes)]
