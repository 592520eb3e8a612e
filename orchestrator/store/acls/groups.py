"""Address groups one at a time: a change of one member touches one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, select

from orchestrator.errors import BadInput, BadPolicy, Conflict, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.endpointnames import PREFIX, endpoint_of_group
from orchestrator.policy.model import Acl, AddressGroup, GroupName, Rule, RuleId
from orchestrator.store.acls import grouprows
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.acls.cache import KeyedGroup
from orchestrator.store.acls.grouprows import GroupChange, MemberRow
from orchestrator.store.acls.steps import AclSteps, defaults_of
from orchestrator.store.prefixrows import owned_prefixes
from orchestrator.store.records import Change, GroupRecord
from orchestrator.store.schema.acls import acl_groups
from orchestrator.store.schema.core import endpoint_prefixes, endpoints
from orchestrator.store.transaction import Transaction

_NAMED = 10
"""How many rules an error names."""


class Groups(AclSteps):
    """The address groups' repository.

    Every change makes a version of the list and moves the domain's generation.

    All raise NotFound for an unknown tenant; the writers raise Stale when `expected_version` is not the list's version,
    and BadPolicy when a rule names the group on the tenant's own side and a member is not the tenant's.
    """

    def list(self, tenant: str) -> tuple[GroupRecord, ...]:
        """The groups of the current list, by name."""
        owner = self._tx.tenant(tenant)
        acl = aclrows.load(self._tx, owner, owner.acl_version).record.acl
        used = uses(acl)
        return tuple(
            GroupRecord(acl.groups[name], used.get(name, ()), owner.acl_version) for name in sorted(acl.groups)
        )

    def get(self, tenant: str, name: str) -> GroupRecord:
        """One group of the current list. Raises NotFound."""
        owner = self._tx.tenant(tenant)
        acl = aclrows.load(self._tx, owner, owner.acl_version).record.acl
        return GroupRecord(self._find_keyed(owner, name).group, uses(acl).get(name, ()), owner.acl_version)

    def put(self, tenant: str, group: AddressGroup, *, author: str, expected_version: int | None = None) -> Change:
        """Create or replace a group.

        Members that stay keep their rows.

        Raises BadInput, TooLarge.
        """
        owner, head = self._begin(tenant, expected_version)
        known = aclrows.load(self._tx, owner, owner.acl_version)
        old = known.groups.get(group.name)
        if old is None and len(known.groups) >= grouprows.MOST_GROUPS:
            raise grouprows.too_many_groups(len(known.groups) + 1)
        before = frozenset(old.group.prefixes) if old is not None else frozenset()
        fresh = {index: prefix for index, prefix in enumerate(group.prefixes) if prefix not in before}
        self._check_owned(owner, known.record.acl, group.name, list(fresh.values()), list(fresh), "prefixes")
        description = old.group.description if old is not None else None
        change, _ = grouprows.plan_change(self._tx, owner.number, group, description)
        return self._write_change(owner, head, change, author)

    def change(
        self,
        tenant: str,
        name: str,
        *,
        add: Sequence[Prefix] = (),
        remove: Sequence[Prefix] = (),
        author: str,
        expected_version: int | None = None,
    ) -> Change:
        """Add and remove members; those that are there already are not added again.

        Raises NotFound for a group, or a member to be removed, that is not there, BadInput for a prefix that is to be
        both, TooLarge.
        """
        owner, head = self._begin(tenant, expected_version)
        keyed = self._find_keyed(owner, name)
        ended = self._list_ended(owner, keyed, add, remove)
        present = set(keyed.group.prefixes)
        fresh = {prefix: index for index, prefix in reversed(list(enumerate(add))) if prefix not in present}
        wanted = sorted(fresh, key=fresh.__getitem__)
        acl = aclrows.load(self._tx, owner, owner.acl_version).record.acl
        self._check_owned(owner, acl, name, wanted, [fresh[prefix] for prefix in wanted], "add")
        grouprows.check_size(len(keyed.keys) - len(ended) + len(wanted))
        begun = grouprows.append_members(keyed.keys, map(str, wanted))
        if begun is not None:
            change = GroupChange(name, keyed.group.description, False, ended, begun)
        else:
            change = self._rewritten(owner, keyed.group, wanted, remove)
        return self._write_change(owner, head, change, author)

    def delete(self, tenant: str, name: str, *, author: str, expected_version: int | None = None) -> Change:
        """Delete an address group.

        Raises NotFound, and Conflict, which names the rules, while rules use the group.
        """
        owner, head = self._begin(tenant, expected_version)
        self._find_keyed(owner, name)
        used = uses(aclrows.load(self._tx, owner, owner.acl_version).record.acl).get(name, ())
        if used:
            more = f" and {len(used) - _NAMED} more" if len(used) > _NAMED else ""
            raise Conflict(f"rules still use the group '{name}': {', '.join(used[:_NAMED])}{more}")
        return self._write_change(owner, head, grouprows.removal(self._tx, owner.number, name), author)

    # ------------------------------------------------------------------------------------------------ steps

    def _write_change(self, owner: Row[Any], head: Row[Any], change: GroupChange, author: str) -> Change:
        if change.nothing:
            return self._no_change(owner)
        version = self._version(owner, defaults_of(head), head.rules, author)
        grouprows.write(self._tx, owner.number, version, [change])
        return self._end(owner, version)

    def _find_keyed(self, owner: Row[Any], name: str) -> KeyedGroup:
        found = aclrows.load(self._tx, owner, owner.acl_version).groups.get(name)
        if found is None:
            raise NotFound(f"the access list of '{owner.id}' has no address group '{name}'")
        return found

    def _rewritten(
        self, owner: Row[Any], group: AddressGroup, add: Sequence[Prefix], remove: Sequence[Prefix]
    ) -> GroupChange:
        """Rewrite the change with all rows spread anew.

        It is needed for a group that has grown at its end millions of times.
        """
        gone = frozenset(remove)
        members = (*(prefix for prefix in group.prefixes if prefix not in gone), *add)
        change, _ = grouprows.plan_change(self._tx, owner.number, replace(group, prefixes=members), group.description)
        return change

    def _list_ended(
        self, owner: Row[Any], keyed: KeyedGroup, add: Sequence[Prefix], remove: Sequence[Prefix]
    ) -> tuple[MemberRow, ...]:
        both = next((index for index, prefix in enumerate(remove) if prefix in set(add)), None)
        if both is not None:
            raise BadInput(f"{remove[both]} is to be added as well", place=f"remove[{both}]")
        present = set(keyed.group.prefixes)
        for index, prefix in enumerate(remove):
            if prefix not in present:
                raise NotFound(f"the group '{keyed.group.name}' has no member {prefix}", place=f"remove[{index}]")
        return grouprows.members_named(self._tx, owner.number, keyed.group.name, map(str, remove))

    def _check_owned(
        self, owner: Row[Any], acl: Acl, name: str, prefixes: Sequence[Prefix], places: Sequence[int], within: str
    ) -> None:
        """Refuse new members outside the tenant, if a rule uses the group on its side."""
        user = next((rule for rule in acl.rules if name in rule.own_side().groups), None) if prefixes else None
        if user is None:
            return
        owned = owned_prefixes(self._tx, owner.number)
        for prefix, place in zip(prefixes, places, strict=True):
            if not any(each.contains(prefix) for each in owned):
                raise BadPolicy(
                    f"{prefix} is not among the tenant's own prefixes, and rule '{user.id}' names the group on the "
                    f"tenant's own side",
                    place=f"{within}[{place}]",
                )


def uses(acl: Acl) -> Mapping[str, tuple[RuleId, ...]]:
    """Return the rules that name each address group, in the list's order.

    Groups without rules are left out.
    """
    found: defaultdict[str, list[RuleId]] = defaultdict(list)
    for rule in acl.rules:
        if rule.source.groups or rule.destination.groups:
            for name in {*rule.source.groups, *rule.destination.groups}:
                found[name].append(rule.id)
    return {name: tuple(rules) for name, rules in found.items()}


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
            groups[name] = replace(acl.groups[name], prefixes=_find_addresses(known, name, f"groups.{name}"))
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
            found |= {name: AddressGroup(GroupName(name), _find_addresses(known, name, side)) for name in absent}
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


def _find_addresses(known: Mapping[str, tuple[Prefix, ...]], group: str, place: str) -> tuple[Prefix, ...]:
    endpoint = endpoint_of_group(group) or group
    if endpoint not in known:
        raise BadPolicy(f"the tenant has no endpoint '{endpoint}'", place=place)
    return known[endpoint]
