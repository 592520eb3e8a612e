"""Temporal rows of address groups: one for the description, one for each member.

A change of one member of ten thousand ends or begins one row, and readers of the next version mend the copy that they
have by that row. Members are kept in the order in which they were written, by order keys as rules are (`keys.py`).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, bindparam, func, insert, select, update

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native_values import at, read_text
from orchestrator.policy.model import AddressGroup, GroupName
from orchestrator.store.acls.cache import KeyedGroup, splice_rows
from orchestrator.store.acls.spans import ended_after, held_at, holds_now
from orchestrator.store.schema.acls import acl_group_members, acl_groups
from orchestrator.store.sql.keys import keys_between, longest_increasing, spread
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

MOST_MEMBERS = 100_000
"""Of one group."""
MOST_GROUPS = 10_000
"""Of one access list."""

_AT_ONCE = 1_000
"""How many values a query names."""

_groups = acl_groups.c
_members = acl_group_members.c


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member as its row keeps it."""

    since_version: int
    order_key: int
    prefix: str


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The change of one group.

    `description` None: the group is removed. `is_new`: its own row begins at this version.
    """

    name: str
    description: str | None
    is_new: bool
    ended: tuple[MemberRow, ...]
    begun: tuple[tuple[int, str], ...]

    @property
    def nothing(self) -> bool:
        return self.description is not None and not (self.is_new or self.ended or self.begun)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The replacement of all groups: the changed ones, and the resulting groups."""

    changes: tuple[GroupChange, ...]
    groups: Mapping[str, KeyedGroup]


# ---------------------------------------------------------------------------------------------------- reading


_GROUPS_AT = Prepared(
    held_at(acl_groups, bindparam("of_tenant"), bindparam("at_version"), _groups.name, _groups.description).order_by(
        _groups.name.name
    )
)
_MEMBERS_AT = Prepared(
    held_at(
        acl_group_members,
        bindparam("of_tenant"),
        bindparam("at_version"),
        _members.name,
        _members.order_key,
        _members.prefix,
    ).order_by(_members.name.name, _members.order_key.name)
)


def load(tx: Transaction, tenant: int, version: int) -> Mapping[str, KeyedGroup]:
    """A tenant's groups at a version, by name."""
    descriptions = _read_descriptions(tx, tenant, version)
    members: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    if descriptions:
        for row in tx.rows(_MEMBERS_AT, of_tenant=tenant, at_version=version):
            members[row.name].append(row)
    return MappingProxyType(
        {name: _key_members(name, description, members[name]) for name, description in descriptions.items()}
    )


def _key_members(name: str, description: str, rows: Sequence[Row[Any]]) -> KeyedGroup:
    prefixes = tuple([Prefix.parse(row.prefix) for row in rows])
    return KeyedGroup(array("q", [row.order_key for row in rows]), AddressGroup(GroupName(name), prefixes, description))


_ANY_GROUP = Prepared(select(func.min(_groups.name).label("name")).where(_groups.tenant == bindparam("of_tenant")))
"""Most tenants have no groups, and one question says so."""


def refresh_groups(
    tx: Transaction, tenant: int, base: int, version: int, old: Mapping[str, KeyedGroup]
) -> Mapping[str, KeyedGroup]:
    """Return the groups at the current version, from those at `base` and later rows."""
    if not old and all(row.name is None for row in tx.rows(_ANY_GROUP, of_tenant=tenant)):
        return old
    moved = any(
        tx.read(select(_groups.name).where(_groups.tenant == tenant, began_or_ended > base).limit(1)).first()
        for began_or_ended in (_groups.since_version, _groups.until_version)
    )
    begun, ended = _read_begun(tx, tenant, base), _read_ended(tx, tenant, base)
    if not (moved or begun or ended):
        return old
    descriptions = (
        _read_descriptions(tx, tenant, version)
        if moved
        else {name: each.group.description for name, each in old.items()}
    )
    return MappingProxyType(
        {
            name: _update_members(name, description, old.get(name), ended.get(name, ()), begun.get(name, ()))
            for name, description in descriptions.items()
        }
    )


def _update_members(
    name: str,
    description: str,
    old: KeyedGroup | None,
    ended: Sequence[int],
    begun: Sequence[tuple[int, Prefix]],
) -> KeyedGroup:
    if old is not None and not (ended or begun) and old.group.description == description:
        return old
    keys = old.keys if old is not None else array("q")
    prefixes = old.group.prefixes if old is not None else ()
    keys, prefixes = splice_rows(keys, prefixes, ended, begun)
    return KeyedGroup(keys, AddressGroup(GroupName(name), prefixes, description))


def _read_begun(tx: Transaction, tenant: int, base: int) -> Mapping[str, list[tuple[int, Prefix]]]:
    found: defaultdict[str, list[tuple[int, Prefix]]] = defaultdict(list)
    statement = select(_members.name, _members.order_key, _members.prefix).where(
        _members.tenant == tenant, _members.since_version > base, _members.until_version.is_(None)
    )
    for row in tx.read(statement):
        found[row.name].append((row.order_key, Prefix.parse(row.prefix)))
    return found


def _read_ended(tx: Transaction, tenant: int, base: int) -> Mapping[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    statement = select(_members.name, _members.order_key).where(ended_after(acl_group_members, tenant, base))
    for row in tx.read(statement):
        found[row.name].append(row.order_key)
    return found


def _read_descriptions(tx: Transaction, tenant: int, version: int) -> dict[str, str]:
    return {row.name: row.description for row in tx.rows(_GROUPS_AT, of_tenant=tenant, at_version=version)}


def current_members(tx: Transaction, tenant: int, name: str) -> tuple[MemberRow, ...]:
    """The rows of a group's members as they are, in order."""
    statement = (
        select(_members.since_version, _members.order_key, _members.prefix)
        .where(holds_now(acl_group_members, tenant), _members.name == name)
        .order_by(_members.order_key)
    )
    return tuple(MemberRow(row.since_version, row.order_key, row.prefix) for row in tx.read(statement))


def members_named(tx: Transaction, tenant: int, name: str, prefixes: Iterable[str]) -> tuple[MemberRow, ...]:
    """Read the rows of a group's members that hold one of these prefixes."""
    wanted = tuple(prefixes)
    found: list[MemberRow] = []
    for start in range(0, len(wanted), _AT_ONCE):
        statement = select(_members.since_version, _members.order_key, _members.prefix).where(
            holds_now(acl_group_members, tenant),
            _members.name == name,
            _members.prefix.in_(wanted[start : start + _AT_ONCE]),
        )
        found += [MemberRow(row.since_version, row.order_key, row.prefix) for row in tx.read(statement)]
    return tuple(found)


# ---------------------------------------------------------------------------------------------------- comparing


def plan_groups(tx: Transaction, tenant: int, wanted: Mapping[str, AddressGroup]) -> GroupPlan:
    """Plan the changes from a tenant's current groups to the wanted ones.

    Raises BadInput and TooLarge with the place inside ``groups``.
    """
    if len(wanted) > MOST_GROUPS:
        raise too_many_groups(len(wanted))
    statement = select(_groups.name, _groups.description).where(holds_now(acl_groups, tenant))
    old = {row.name: row.description for row in tx.read(statement)}
    changes = [removal(tx, tenant, name) for name in old if name not in wanted]
    groups = {}
    for name, group in wanted.items():
        if name != group.name:
            raise BadInput(f"the group is called '{group.name}' in itself", place=f"groups.{name}")
        change, groups[name] = plan_change(tx, tenant, group, old.get(name), f"groups.{name}")
        changes.append(change)
    return GroupPlan(tuple(change for change in changes if not change.nothing), MappingProxyType(groups))


def plan_additions(tx: Transaction, owner: Row[Any], groups: Sequence[AddressGroup]) -> tuple[GroupChange, ...]:
    """Return the changes that add groups to a tenant's list. Raises TooLarge."""
    there = tx.read(select(func.count()).where(holds_now(acl_groups, owner.number))).scalar_one()
    if there + len(groups) > MOST_GROUPS:
        raise too_many_groups(there + len(groups))
    return tuple(plan_change(tx, owner.number, each, None)[0] for each in groups)


def too_many_groups(count: int) -> TooLarge:
    """The error that says so."""
    return TooLarge(f"{count} address groups are more than the {MOST_GROUPS} that a list may have", place="groups")


def removal(tx: Transaction, tenant: int, name: str) -> GroupChange:
    """Return the change that removes a group."""
    return GroupChange(name, None, False, current_members(tx, tenant, name), ())


def plan_change(
    tx: Transaction, tenant: int, group: AddressGroup, description: str | None, place: str = ""
) -> tuple[GroupChange, KeyedGroup]:
    """Return the change that replaces a group, and the group with its keys.

    `description` is the one it has now, None where there is no such group yet. Raises BadInput, TooLarge.
    """
    check_size(len(group.prefixes), place)
    at(f"{place}.description" if place else "description", read_text, group.description)
    before = current_members(tx, tenant, group.name) if description is not None else ()
    texts = [str(prefix) for prefix in group.prefixes]
    keys = _keys(before, texts)
    wanted = dict(zip(keys, texts, strict=True))
    stays = {row.order_key for row in before if wanted.get(row.order_key) == row.prefix}
    ended = tuple(row for row in before if row.order_key not in stays)
    begun = tuple((key, text) for key, text in wanted.items() if key not in stays)
    change = GroupChange(group.name, group.description, description != group.description, ended, begun)
    return change, KeyedGroup(keys, group)


def check_size(members: int, place: str | None = None) -> None:
    """Raises TooLarge for more members than a group may have."""
    if members > MOST_MEMBERS:
        raise TooLarge(f"{members} members are more than the {MOST_MEMBERS} that a group may have", place=place or None)


def _keys(before: Sequence[MemberRow], wanted: Sequence[str]) -> array[int]:
    """Return order keys of the wanted members.

    Rows that stay in order keep theirs.
    """
    if [row.prefix for row in before] == list(wanted):
        return array("q", [row.order_key for row in before])
    free: defaultdict[str, list[int]] = defaultdict(list)
    for row in reversed(before):
        free[row.prefix].append(row.order_key)
    same = [(index, free[text].pop()) for index, text in enumerate(wanted) if free.get(text)]
    kept = dict([same[place] for place in longest_increasing([key for _, key in same])])
    keys = spread(kept, len(wanted)) or spread({}, len(wanted))  # where a gap has no room left, every row anew
    assert keys is not None
    return keys


def append_members(keys: Sequence[int], prefixes: Iterable[str]) -> tuple[tuple[int, str], ...] | None:
    """Members behind those that have `keys`; None where no room is left behind them."""
    texts = tuple(prefixes)
    found = keys_between(keys[-1] if keys else None, None, len(texts))
    return None if found is None else tuple(zip(found, texts, strict=True))


# ---------------------------------------------------------------------------------------------------- writing


_END_MEMBER = (
    update(acl_group_members)
    .where(
        _members.tenant == bindparam("of_tenant"),
        _members.since_version == bindparam("began"),
        _members.name == bindparam("of_name"),
        _members.order_key == bindparam("at_key"),
    )
    .values(until_version=bindparam("ends"))
)


def write(tx: Transaction, tenant: int, version: int, changes: Iterable[GroupChange]) -> None:
    """Let rows end and begin at `version`."""
    begun: list[tuple[object, ...]] = []
    for change in changes:
        tx.moves[tenant].groups = True
        if change.is_new or change.description is None:
            _replace_description(tx, tenant, version, change)
        if change.ended:
            ends = {"of_tenant": tenant, "of_name": change.name, "ends": version}
            tx.write(
                _END_MEMBER, [{**ends, "began": row.since_version, "at_key": row.order_key} for row in change.ended]
            )
        begun += [(tenant, version, change.name, key, text) for key, text in change.begun]
        edited = tx.edit(tenant)
        edited.end((change.name, row.order_key, row.prefix) for row in change.ended)
        edited.begin((change.name, key, text) for key, text in change.begun)
    tx.insert_rows(acl_group_members, ("tenant", "since_version", "name", "order_key", "prefix"), begun)


def _replace_description(tx: Transaction, tenant: int, version: int, change: GroupChange) -> None:
    mine = holds_now(acl_groups, tenant) & (_groups.name == change.name)
    ended = tx.write(update(acl_groups).where(mine).values(until_version=version).returning(_groups.description)).all()
    edited = tx.edit(tenant)
    edited.end((change.name, row.description) for row in ended)
    if change.description is not None:
        row = {"tenant": tenant, "since_version": version, "name": change.name, "description": change.description}
        tx.write(insert(acl_groups).values(**row))
        edited.begin([(change.name, change.description)])
