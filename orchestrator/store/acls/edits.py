"""Edits of each version of a list, worked out from the rows alone.

A version adds, removes, changes and moves rules. A rule whose row ends and whose number begins again in the same
version was *changed* if its body is another, and *moved* if it passed a rule that stayed: rows also end and begin where
their order keys only got room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Row, and_, func, or_, select

from orchestrator.store.schema.acls import acl_group_members, acl_groups, acl_rules, acl_versions
from orchestrator.store.sql.keys import longest_increasing
from orchestrator.store.transaction import Transaction
from orchestrator.wire.lists import EditedRules, VersionChanges, WayWord

_MOST_ROWS = 500
"""A version that begins or ends more rows is told in numbers, without names."""
_NAMED = 5
_MOST_ASKED = 100
"""Rows of one version of which it is asked whether they passed a rule that stayed."""

_rules = acl_rules.c
_Rows = Mapping[int, Sequence[Row[Any]]]


class VersionEdits:
    """Edits of the versions of one tenant's list."""

    def __init__(self, tx: Transaction, tenant: int) -> None:
        self._tx = tx
        self._tenant = tenant

    def of(self, versions: Sequence[int]) -> Mapping[int, VersionChanges]:
        """Return the changes of each version, without the oldest known version.

        Nobody knows what came before the oldest one.
        """
        oldest = self._tx.read(
            select(func.min(acl_versions.c.version)).where(acl_versions.c.tenant == self._tenant)
        ).scalar_one()
        asked = [version for version in versions if version > oldest]
        if not asked:
            return {}
        large = self._find_large(asked)
        small = [version for version in asked if version not in large]
        begun, ended = self._rows("since_version", small), self._rows("until_version", small)
        groups, defaults = self._find_groups(asked), self._find_defaults(asked)
        found: dict[int, VersionChanges] = {}
        for version in asked:
            edits = (
                self._count_edits(version)
                if version in large
                else self._name_edits(version, begun.get(version, ()), ended.get(version, ()))
            )
            found[version] = VersionChanges(**edits, groups=tuple(sorted(groups[version])), defaults=defaults[version])
        return found

    def _find_large(self, versions: Sequence[int]) -> frozenset[int]:
        found: set[int] = set()
        for column in (_rules.since_version, _rules.until_version):
            counted = select(column).where(_rules.tenant == self._tenant, column.in_(versions)).group_by(column)
            found.update(self._tx.read(counted.having(func.count() > _MOST_ROWS)).scalars())
        return frozenset(found)

    def _rows(self, edge: str, versions: Sequence[int]) -> _Rows:
        """The rows that begin or end at some versions, in the list's order."""
        found: defaultdict[int, list[Row[Any]]] = defaultdict(list)
        if not versions:
            return found
        column = _rules[edge]
        columns = column.label("version"), _rules.number, _rules.rule_id, _rules.order_key, _rules.body
        lately = column.between(min(versions), max(versions))  # a range: SQLite searches its index by nothing else
        wanted = select(*columns).where(_rules.tenant == self._tenant, lately, column.in_(versions))
        for row in sorted(self._tx.read(wanted), key=attrgetter("order_key")):
            found[row.version].append(row)
        return found

    def _name_edits(self, version: int, begun: Sequence[Row[Any]], ended: Sequence[Row[Any]]) -> dict[str, EditedRules]:
        before = {row.number: row for row in ended}
        after = {row.number for row in begun}
        both = [(before[row.number], row) for row in begun if row.number in before]
        same = [(old, new) for old, new in both if old.body == new.body]
        return {
            "added": _shorten_names([row.rule_id for row in begun if row.number not in before]),
            "removed": _shorten_names([row.rule_id for row in ended if row.number not in after]),
            "changed": _shorten_names([new.rule_id for old, new in both if old.body != new.body]),
            "moved": _shorten_names([new.rule_id for old, new in self._find_moved(version, same)]),
        }

    def _find_moved(self, version: int, same: Sequence[tuple[Row[Any], Row[Any]]]) -> list[tuple[Row[Any], Row[Any]]]:
        """The pairs, in the new order, that passed a rule that stayed or one another."""
        asked = same if len(same) <= _MOST_ASKED else ()
        passed = {new.number for old, new in asked if self._has_passed(version, old.order_key, new.order_key)}
        others = [old for old, new in same if new.number not in passed]
        in_order = {others[place].number for place in longest_increasing([old.order_key for old in others])}
        return [(old, new) for old, new in same if new.number not in in_order]

    def _has_passed(self, version: int, one: int, other: int) -> bool:
        """Whether a rule that stayed stands between two order keys."""
        stayed = and_(
            _rules.tenant == self._tenant,
            _rules.order_key.between(min(one, other), max(one, other)),
            _rules.since_version < version,
            or_(_rules.until_version.is_(None), _rules.until_version > version),
        )
        return self._tx.read(select(_rules.number).where(stayed).limit(1)).first() is not None

    def _count_edits(self, version: int) -> dict[str, EditedRules]:
        """Count the edits of a version that edited very many rules.

        Rules that only moved are not counted.
        """
        begun, ended = self._bodies("since_version", version), self._bodies("until_version", version)
        both = begun.keys() & ended.keys()
        return {
            "added": EditedRules(len(begun) - len(both), ()),
            "removed": EditedRules(len(ended) - len(both), ()),
            "changed": EditedRules(sum(begun[number] != ended[number] for number in both), ()),
            "moved": EditedRules(0, ()),
        }

    def _bodies(self, edge: str, version: int) -> Mapping[int, str]:
        """Return the rules that begin or end at a version, by number.

        Two searches by version: one join by number would read each of these rules as often as it was ever edited.
        """
        wanted = select(_rules.number, _rules.body).where(_rules.tenant == self._tenant, _rules[edge] == version)
        return {row.number: row.body for row in self._tx.read(wanted)}

    def _find_groups(self, versions: Sequence[int]) -> Mapping[int, set[str]]:
        found: defaultdict[int, set[str]] = defaultdict(set)
        for table in (acl_groups, acl_group_members):
            for edge in (table.c.since_version, table.c.until_version):
                names = select(edge.label("version"), table.c.name).distinct()
                for row in self._tx.read(names.where(table.c.tenant == self._tenant, edge.in_(versions))):
                    found[row.version].add(row.name)
        return found

    def _find_defaults(self, versions: Sequence[int]) -> Mapping[int, tuple[WayWord, ...]]:
        before = acl_versions.alias("before")
        query = (
            select(
                acl_versions.c.version,
                (acl_versions.c.ingress_default != before.c.ingress_default).label("ingress"),
                (acl_versions.c.egress_default != before.c.egress_default).label("egress"),
            )
            .join(
                before, and_(before.c.tenant == acl_versions.c.tenant, before.c.version == acl_versions.c.version - 1)
            )
            .where(acl_versions.c.tenant == self._tenant, acl_versions.c.version.in_(versions))
        )
        ways: tuple[WayWord, ...] = ("ingress", "egress")
        return defaultdict(
            tuple, {row.version: tuple(way for way in ways if getattr(row, way)) for row in self._tx.read(query)}
        )


def _shorten_names(names: Sequence[str]) -> EditedRules:
    return EditedRules(len(names), tuple(names[:_NAMED]))
