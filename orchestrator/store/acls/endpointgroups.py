"""Address groups that follow endpoints, so that rules may name these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlalchemy import select

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.endpointnames import PREFIX, endpoint_of_group
from orchestrator.policy.model import Acl, AddressGroup, GroupName, Rule
from orchestrator.store.acls.groups import Groups
from orchestrator.store.schema.acls import acl_groups
from orchestrator.store.schema.core import endpoint_prefixes, endpoints
from orchestrator.store.transaction import Transaction

_AUTHOR = "endpoint"
"""The author of versions that follow an endpoint."""


class EndpointGroups:
    """The groups of tenants' lists that hold the addresses of their endpoints."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def addresses(self, tenant: str) -> Mapping[str, tuple[Prefix, ...]]:
        """The addresses of a tenant's endpoints, by name. Raises NotFound."""
        owner = self._tx.tenant(tenant)
        rows = self._tx.read(
            select(endpoints.c.name, endpoint_prefixes.c.prefix)
            .join(
                endpoint_prefixes,
                (endpoint_prefixes.c.domain == endpoints.c.domain) & (endpoint_prefixes.c.endpoint == endpoints.c.name),
            )
            .where(endpoints.c.tenant == owner.number)
            .order_by(endpoints.c.name, endpoint_prefixes.c.first)
        )
        found: defaultdict[str, list[Prefix]] = defaultdict(list)
        for row in rows:
            found[row.name].append(Prefix.parse(row.prefix))
        return {name: tuple(prefixes) for name, prefixes in found.items()}

    def fill_in_members(self, tenant: str, acl: Acl) -> Acl:
        """The list with the addresses that endpoints have now.

        Raises BadPolicy for an endpoint that is not there.
        """
        named = [name for name in acl.groups if endpoint_of_group(name) is not None]
        if not named:
            return acl
        known = self.addresses(tenant)
        groups = dict(acl.groups)
        for name in named:
            groups[name] = replace(acl.groups[name], prefixes=_addresses(known, name, f"groups.{name}"))
        return replace(acl, groups=groups)

    def missing(self, tenant: str, rule: Rule) -> tuple[AddressGroup, ...]:
        """The groups of endpoints that a rule names and that the current list has not.

        Raises BadPolicy for an endpoint that is not there.
        """
        found: dict[str, AddressGroup] = {}
        for side, addresses in (("source", rule.source), ("destination", rule.destination)):
            named = [name for name in addresses.groups if endpoint_of_group(name) is not None and name not in found]
            absent = [name for name in named if not self._is_there(tenant, name)]
            known = self.addresses(tenant) if absent else {}
            found |= {name: AddressGroup(GroupName(name), _addresses(known, name, side)) for name in absent}
        return tuple(found.values())

    def follow(self, endpoint: str, tenants: Iterable[str]) -> None:
        """Give the groups of an endpoint that was written the addresses that it has now.

        Raises Conflict where a rule names an endpoint that is not that tenant's any more.
        """
        groups, name = Groups(self._tx), PREFIX + endpoint
        for tenant in dict.fromkeys(tenants):
            if not self._is_there(tenant, name):
                continue
            prefixes = self.addresses(tenant).get(endpoint)
            if prefixes is None:
                groups.delete(tenant, name, author=_AUTHOR)
            else:
                description = groups.get(tenant, name).group.description
                groups.put(tenant, AddressGroup(GroupName(name), prefixes, description), author=_AUTHOR)

    def _is_there(self, tenant: str, name: str) -> bool:
        """Whether the current list has a group; its rules are not read for that."""
        owner = self._tx.tenant(tenant)
        columns = acl_groups.c
        here = (columns.tenant == owner.number) & (columns.name == name) & columns.until_version.is_(None)
        return self._tx.read(select(columns.name).where(here)).one_or_none() is not None


def _addresses(known: Mapping[str, tuple[Prefix, ...]], group: str, place: str) -> tuple[Prefix, ...]:
    endpoint = endpoint_of_group(group) or group
    if endpoint not in known:
        raise BadPolicy(f"the tenant has no endpoint '{endpoint}'", place=place)
    return known[endpoint]
