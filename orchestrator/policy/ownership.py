"""Check that a tenant's rules name only its own addresses on its own side."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Direction


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


def _explicit(acl: Acl, addresses: Addresses) -> Sequence[Prefix]:
    """The prefixes that a side of a rule names, itself and by its groups."""
    if not addresses.groups:
        return addresses.prefixes
    return [*addresses.prefixes, *(prefix for name in addresses.groups for prefix in acl.groups[name].prefixes)]
