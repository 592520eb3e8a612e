"""Rules that end at a time: the next one, announcements, and the version without them.

After a jump of the clock a rule may have to wait for its end (`steps.is_over`).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import orjson
from sqlalchemy import Row, Select, delete, func, insert, select

from orchestrator.errors import NotFound
from orchestrator.policy.formats.native import rule_from_json
from orchestrator.policy.model import TenantId
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.acls.steps import AclSteps, defaults_of, is_over
from orchestrator.store.records import ExpiredRules, ExpiringRule
from orchestrator.store.schema.acls import acl_rules, expiry_notices
from orchestrator.store.schema.core import tenants
from orchestrator.store.sql.keys import from_micros, to_micros

EXPIRY = "expiry"
"""The author of versions that `Expiry.expire` makes."""

_rules = acl_rules.c


class Expiry(AclSteps):
    """The rules of all tenants' current lists that end at a time."""

    def next_due(self) -> dt.datetime | None:
        """Return when the next rule of any tenant expires: when to call `expire` next."""
        statement = select(func.min(_rules.expires)).where(_rules.until_version.is_(None), _rules.expires.is_not(None))
        micros = self._tx.read(statement).scalar_one()
        return None if micros is None else from_micros(micros)

    def expiring(self, lead: dt.timedelta) -> tuple[ExpiringRule, ...]:
        """Return rules that end within `lead` and were not announced, soonest first."""
        announced = (expiry_notices.c.number == _rules.number) & (expiry_notices.c.expires == _rules.expires)
        rows = self._tx.read(
            select(tenants.c.id, _rules.rule_id, _rules.expires)
            .join(tenants, tenants.c.number == _rules.tenant)
            .outerjoin(expiry_notices, announced)
            .where(_rules.until_version.is_(None), _rules.expires <= to_micros(self._tx.now + lead))
            .where(expiry_notices.c.number.is_(None))
            .order_by(_rules.expires, tenants.c.id, _rules.order_key)
        )
        return tuple(ExpiringRule(TenantId(row.id), row.rule_id, from_micros(row.expires)) for row in rows)

    def announce(self, rules: Sequence[ExpiringRule]) -> None:
        """Mark rules as announced, so that `expiring` omits them; forget past ones."""
        self._tx.write(delete(expiry_notices).where(expiry_notices.c.expires <= self._tx.micros))
        for each in rules:
            with suppress(NotFound):  # its list may have changed since
                row = self._row(self._tx.tenant(each.tenant), each.rule)
                notice = insert(expiry_notices).values(number=row.number, expires=row.expires, tenant=row.tenant)
                self._tx.write(notice)

    def overdue(self) -> tuple[str, ...]:
        """Return the tenants with rules whose `expires` has come, in the order of their ids."""
        if self._tx.jumped:
            return tuple(dict.fromkeys(row.id for row in self._due()))
        ids = self._come().with_only_columns(tenants.c.id, maintain_column_froms=True).distinct()
        return tuple(self._tx.read(ids).scalars())

    def expire(self, only: Collection[str] | None = None) -> tuple[ExpiredRules, ...]:
        """Remove rules whose `expires` has come, as a version by author ``expiry``.

        Of all tenants, or of `only` some.
        """
        by_tenant: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        for row in self._due():
            by_tenant[row.id].append(row)
        mine = by_tenant.keys() if only is None else by_tenant.keys() & set(only)
        return tuple(self._expire_rules(tenant, by_tenant[tenant]) for tenant in sorted(mine))

    def _come(self) -> Select[Any]:
        """The rows of rules whose `expires` has come, with their tenants' ids."""
        return (
            select(acl_rules, tenants.c.id)
            .join(tenants, tenants.c.number == _rules.tenant)
            .where(_rules.until_version.is_(None), _rules.expires <= self._tx.micros)
            .order_by(tenants.c.id)
        )

    def _due(self) -> Sequence[Row[Any]]:
        """Return rows of rules that are over, in order of tenants and lists."""
        rows = self._tx.read(self._come().order_by(_rules.order_key)).all()
        return [row for row in rows if not self._tx.jumped or is_over(self._tx, rule_from_json(orjson.loads(row.body)))]

    def _expire_rules(self, tenant: str, rows: Sequence[Row[Any]]) -> ExpiredRules:
        owner = self._tx.tenant(tenant)  # also while a change waits to be confirmed: time waits for nobody
        head = aclrows.version_row(self._tx, owner, owner.acl_version)
        version = self._version(owner, defaults_of(head), head.rules - len(rows), EXPIRY)
        aclrows.end_rows(self._tx, owner.number, version, rows)
        gone = self._end(owner, version, approved=True)
        return ExpiredRules(TenantId(tenant), tuple(row.rule_id for row in rows), gone)
