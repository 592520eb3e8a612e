"""The first rules of a domain: ranked by number, and only then named.

Counts are columns by rule number, so a row is read for each rule that is returned. Sums of all time are read of all
rules only where these rank them, and of few that have a part of a name, of these alone. Rules of which there is nothing
to rank follow in the order of tenants and lists. A count may be of a rule that is gone, so numbers are looked up in
portions until there are enough.

A search for a part of a name looks through the names in memory (`acls/cache.py`), and only the rules that have it
are ranked. Where a domain has more rules than that holds, and in a unit that writes, the database looks at all names;
if few have it, only these are ranked, else the first are asked for their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Row, Select, bindparam, func, or_, select

from orchestrator.compile.cookies import HIGHEST_NUMBER
from orchestrator.program.counts import U64, Counts
from orchestrator.store.acls.cache import TenantNames
from orchestrator.store.acls.spans import holds_now
from orchestrator.store.hits.hitrecords import HitOrder
from orchestrator.store.schema.acls import acl_rules, acl_versions
from orchestrator.store.schema.core import placements, tenants
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

IS_CURRENT = (acl_versions.c.tenant == tenants.c.number) & (acl_versions.c.version == tenants.c.acl_version)
"""A list's newest version, joined to its tenant."""
_FIRST_NUMBERS = 1024
"""So many rules are ranked at first."""
_MOST_NUMBERS = 1024
"""So many rules are looked up by number at once."""
_MOST_NAMED = 10_000
"""Where the database finds more rules than that with a part of a name, rules are asked for it in the order of their
counts."""
_MOST_NAMES = 10_000
"""So many rules and tenants are read at once, but for a list that has more rules."""
_IS_PLACED = (
    (placements.c.domain == tenants.c.domain)
    & (placements.c.tenant == acl_rules.c.tenant)
    & (placements.c.rule_id == acl_rules.c.rule_id)
)
_LISTS = Prepared(
    select(tenants.c.number, tenants.c.id, tenants.c.acl_version, acl_versions.c.rules)
    .join(acl_versions, IS_CURRENT)
    .where(tenants.c.domain == bindparam("of_domain"))
    .order_by(tenants.c.id)
)


def find_first(
    tx: Transaction, domain: str, order: HitOrder, counts: Counts, *, named: U64 | None, contains: str, limit: int
) -> list[Row[Any]]:
    """Return the first current rules of a domain by counts.

    Those that have none follow in the order of lists. Of equal ones the lowest number is first. `named` are all that
    have a part of a name; where it is None, rules are asked for it one by one.
    """
    left = contains if named is None else ""
    rows = _name_numbers(tx, domain, _rank_numbers(order, counts, named), left, limit)
    if len(rows) < limit:
        known = {row.number for row in rows}
        if named is None:
            listed = tx.read(_list_rules(domain, contains).limit(limit)).all()
        else:
            others = [number for number in named[:limit].tolist() if number not in known]
            listed = _name_numbers(tx, domain, iter([np.array(others, np.uint64)]), "", limit)
        rows += [row for row in listed if row.number not in known][: limit - len(rows)]
    return rows


def find_named(tx: Transaction, domain: str, contains: str) -> U64 | None:
    """Return the numbers of current rules with a part of a name.

    They are in the order of tenants and lists. None where only the database can tell and they are many.
    """
    if not tx.writing:
        lists = tx.rows(_LISTS, of_domain=domain)
        if tx.names.holds(sum(row.rules for row in lists), len(lists)):
            return _search_names(lists, _load_names(tx, lists), contains)
    rows = tx.read(_list_rules(domain, contains).limit(_MOST_NAMED + 1)).all()
    return np.array([row.number for row in rows], np.uint64) if len(rows) <= _MOST_NAMED else None


def _search_names(lists: Sequence[Row[Any]], names: dict[int, TenantNames], contains: str) -> U64:
    found: list[int] = []
    for row in lists:
        of_tenant = names[row.number]
        found.extend(of_tenant.numbers if contains in row.id else of_tenant.find(contains))
    return np.array(found, np.uint64)


def _load_names(tx: Transaction, lists: Sequence[Row[Any]]) -> dict[int, TenantNames]:
    """Return the names of current lists by tenant number, from memory or from their rows."""
    names = tx.names.find({row.number: row.acl_version for row in lists})
    missing = [row for row in lists if row.number not in names]
    read = {row.number: known for row in missing if (known := _names_of_copy(tx, row)) is not None}
    for portion in _portions([row for row in missing if row.number not in read]):
        read |= _read_names(tx, portion)
    tx.names.put(read)
    return names | read


def _portions(lists: Sequence[Row[Any]]) -> Iterator[list[Row[Any]]]:
    """Divide lists so that the names of a portion are read at once."""
    portion: list[Row[Any]] = []
    weight = 0
    for row in lists:
        if portion and weight + row.rules + 1 > _MOST_NAMES:
            yield portion
            portion, weight = [], 0
        portion.append(row)
        weight += row.rules + 1
    if portion:
        yield portion


def _names_of_copy(tx: Transaction, row: Row[Any]) -> TenantNames | None:
    """Return the names of a list that is in memory at its version."""
    copy = tx.cache.nearest(row.number, row.acl_version)
    if copy is None or copy.record.version != row.acl_version:
        return None
    numbers = copy.numbers.as_dict()
    return TenantNames.of(row.acl_version, [(rule.id, numbers[rule.id]) for rule in copy.record.acl.listed])


def _read_names(tx: Transaction, lists: Sequence[Row[Any]]) -> dict[int, TenantNames]:
    versions = {row.number: row.acl_version for row in lists}
    query = (
        select(acl_rules.c.tenant, acl_rules.c.rule_id, acl_rules.c.number)
        .select_from(tenants)
        .join(acl_rules, holds_now(acl_rules, tenants.c.number))
        .where(tenants.c.number.in_(versions))
        .order_by(tenants.c.number, acl_rules.c.order_key)
    )
    found = {tenant: TenantNames.of(version, ()) for tenant, version in versions.items()}
    for tenant, rows in groupby(tx.read(query), attrgetter("tenant")):
        found[tenant] = TenantNames.of(versions[tenant], [(row.rule_id, row.number) for row in rows])
    return found


def _rank_numbers(order: HitOrder, counts: Counts, named: U64 | None) -> Iterator[U64]:
    """Yield the numbers of counted rules in portions, most first.

    Of equal ones the lowest is first. `named` limits them. The first portion is small, and mostly enough.
    """
    if order is HitOrder.LIST:
        return
    columns = {HitOrder.BYTES: counts.byte_counts, HitOrder.LAST_HIT: counts.last_hit}
    ranks = columns.get(order, counts.packets)
    numbers = counts.cookie & np.uint64(HIGHEST_NUMBER)
    counted = ranks > 0
    if named is not None:
        counted &= np.isin(numbers, named)
    numbers, ranks = numbers[counted], ranks[counted]
    least = np.partition(ranks, -_FIRST_NUMBERS)[-_FIRST_NUMBERS] if len(ranks) > _FIRST_NUMBERS else 0
    for portion in (ranks >= least, ranks < least):
        yield numbers[portion][np.argsort(-ranks[portion], kind="stable")]


def _name_numbers(tx: Transaction, domain: str, ranked: Iterator[U64], contains: str, limit: int) -> list[Row[Any]]:
    """Return the first `limit` current rules among numbers, in their order."""
    found: list[Row[Any]] = []
    size = limit
    for numbers in ranked:
        start = 0
        while start < len(numbers) and len(found) < limit:
            portion = numbers[start : start + size].tolist()
            rows = tx.read(_rules_numbered(domain, contains).where(acl_rules.c.number.in_(portion)))
            by_number = {row.number: row for row in rows}
            found += [by_number[number] for number in portion if number in by_number]
            start += size
            size = min(2 * size, _MOST_NUMBERS)
        if len(found) >= limit:
            break
    return found[:limit]


def _rules_numbered(domain: str, contains: str) -> Select[Any]:
    """Select the current rules of a domain's tenants, to be limited to some numbers.

    The domain is asked in a way in which no index helps, or SQLite looks through all its tenants.
    """
    query = (
        select(tenants.c.id, acl_rules.c.rule_id, acl_rules.c.number, placements.c.lifted)
        .select_from(acl_rules)
        .join(tenants, tenants.c.number == acl_rules.c.tenant)
        .join(placements, _IS_PLACED, isouter=True)
        .where(tenants.c.domain.concat("") == domain, acl_rules.c.until_version.is_(None))
    )
    return query.where(_is_named(contains)) if contains else query


def _list_rules(domain: str, contains: str) -> Select[Any]:
    """Select the current rules of a domain in the order of tenants and lists."""
    query = (
        select(tenants.c.id, acl_rules.c.rule_id, acl_rules.c.number, placements.c.lifted)
        .select_from(tenants)
        .join(acl_rules, holds_now(acl_rules, tenants.c.number))
        .join(placements, _IS_PLACED, isouter=True)
        .where(tenants.c.domain == domain)
        .order_by(tenants.c.id, acl_rules.c.order_key)
    )
    return query.where(_is_named(contains)) if contains else query


def _is_named(contains: str) -> ColumnElement[bool]:
    """Whether a part of the name of a tenant or rule is as asked for.

    Asked by a function that both databases have, for LIKE does not tell upper from lower case on SQLite.
    """
    return or_(*(func.replace(name, contains, "") != name for name in (tenants.c.id, acl_rules.c.rule_id)))
