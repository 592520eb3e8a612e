"""Tenants and the prefixes they own, exclusively."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from orchestrator.errors import ApprovalNeeded, BadPolicy, Conflict, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Action, TenantId, check_name
from orchestrator.policy.ownership import check_ownership
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.hits.rules import forget_tenant
from orchestrator.store.prefixrows import insert_prefixes, overlapping, owned_prefixes, prefixes_of_tenants
from orchestrator.store.records import UNWRITTEN, Quota, TenantRecord
from orchestrator.store.schema.acls import acl_versions
from orchestrator.store.schema.core import endpoint_prefixes, endpoints, prefixes, tenants
from orchestrator.store.sql.keys import first_bytes, from_micros, last_bytes
from orchestrator.store.transaction import Transaction, expect, one_line


@dataclass(frozen=True, slots=True)
class LimitedList:
    """A tenant's list with its number of rules, and the quota that limits it."""

    tenant: TenantId
    number: int
    domain: str
    rules: int
    quota: Quota


class Tenants:
    """The tenants' repository. Every change of a tenant or its prefixes moves its domain's generation."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def create(self, tenant: str, *, name: str, domain: str, prefixes: Iterable[Prefix] = ()) -> TenantRecord:
        """Register a tenant under a number that was never used. Raises Conflict, NotFound (domain), BadInput."""
        check_name(tenant, "a tenant id", place="id")
        one_line(name, place="name")
        self._tx.domain(domain)
        if self._tx.read(select(tenants.c.id).where(tenants.c.id == tenant)).first() is not None:
            raise Conflict(f"there is already a tenant '{tenant}'", place="id")
        number = self._tx.draw("tenant")
        row = {"number": number, "id": tenant, "domain": domain, "name": name, "created": self._tx.micros}
        self._tx.write(insert(tenants).values(version=1, acl_version=UNWRITTEN, **row))
        self._write_first_version(number, domain, tenant)
        self._add_prefixes(number, prefixes)
        return self.get(tenant)

    def _write_first_version(self, number: int, domain: str, tenant: str) -> None:
        self._tx.write(
            insert(acl_versions).values(
                tenant=number,
                version=UNWRITTEN,
                author="",
                created=self._tx.micros,
                generation=self._tx.bump_for_tenant(domain, tenant),
                ingress_default=Action.DENY.value,
                egress_default=Action.PERMIT.value,
                rules=0,
            )
        )

    def get(self, tenant: str) -> TenantRecord:
        """Return a tenant. Raises NotFound."""
        return self._read_record(self._tx.tenant(tenant))

    def domain(self, tenant: str) -> str:
        """The domain that a tenant is in. Raises NotFound."""
        return str(self._tx.tenant(tenant).domain)

    def list(self, *, limit: int = 100, marker: str | None = None) -> tuple[TenantRecord, ...]:
        """Tenants in the order of their ids, those after `marker`, at most `limit`."""
        statement = select(tenants).order_by(tenants.c.id).limit(limit)
        if marker is not None:
            statement = statement.where(tenants.c.id > marker)
        rows = self._tx.read(statement).all()
        owned = prefixes_of_tenants(self._tx, statement.with_only_columns(tenants.c.number))
        return tuple(_make_record(row, owned.get(row.number, ())) for row in rows)

    def count(self) -> int:
        """How many tenants there are."""
        return int(self._tx.read(select(func.count()).select_from(tenants)).scalar_one())

    def limited(self) -> tuple[LimitedList, ...]:
        """Lists of tenants whose quota limits them, with how long they are now."""
        newest = (acl_versions.c.tenant == tenants.c.number) & (acl_versions.c.version == tenants.c.acl_version)
        has_limit = tenants.c.quota_rules.is_not(None) | tenants.c.quota_flows.is_not(None)
        found = select(tenants, acl_versions.c.rules).join(acl_versions, newest).where(has_limit)
        return tuple(
            LimitedList(TenantId(row.id), row.number, row.domain, row.rules, _read_quota(row))
            for row in self._tx.read(found)
        )

    def rename(self, tenant: str, name: str, *, expected_version: int | None = None) -> TenantRecord:
        """Give a tenant another name. Raises NotFound, Stale, BadInput."""
        row = self._begin_change(tenant, expected_version)
        one_line(name, place="name")
        self._end_change(row, name=name)
        return self.get(tenant)

    def quota(self, tenant: str) -> Quota:
        """Return the limits of the tenant's list. Raises NotFound."""
        row = self._tx.tenant(tenant)
        return _read_quota(row)

    def set_quota(self, tenant: str, quota: Quota, *, expected_version: int | None = None) -> TenantRecord:
        """Say what the tenant's list may cost.

        A list that costs more stays; it may only become smaller.

        Moves no generation. Raises NotFound, Stale.
        """
        row = self._begin_change(tenant, expected_version)
        self._end_change(
            row,
            quota_rules=quota.rules,
            quota_flows=quota.flows,
            quota_bytes=quota.stored_bytes,
            quota_versions=quota.versions,
            quota_streams=quota.streams,
            quota_analysis=quota.analysis_seconds,
        )
        return self.get(tenant)

    def delete(self, tenant: str, *, expected_version: int | None = None) -> int:
        """Remove a tenant with its list, history, tokens and hits; returns the domain's new generation.

        Raises NotFound, Stale, and Conflict while it still has endpoints.
        """
        row = self._begin_change(tenant, expected_version)
        _refuse_marked(row)
        left = select(endpoints.c.name).where(endpoints.c.tenant == row.number).order_by(endpoints.c.name).limit(1)
        endpoint = self._tx.read(left).scalar_one_or_none()
        if endpoint is not None:
            raise Conflict(
                f"the tenant still has endpoints: first `aclflow domain endpoint remove {row.domain} {endpoint}`"
            )
        forget_tenant(self._tx, row.number, row.domain)
        self._tx.write(delete(tenants).where(tenants.c.number == row.number))
        return self._tx.bump_for_tenant(row.domain, row.id)

    def set_prefixes(
        self, tenant: str, prefixes: Iterable[Prefix], *, expected_version: int | None = None
    ) -> TenantRecord:
        """Make `prefixes` what the tenant owns. Raises as `add_prefix` and `remove_prefix` do."""
        row = self._begin_change(tenant, expected_version)
        wanted, owned = dict.fromkeys(prefixes), owned_prefixes(self._tx, row.number)
        removed = [prefix for prefix in owned if prefix not in wanted]
        added = [prefix for prefix in wanted if prefix not in owned]
        return self._exchange_prefixes(row, removed, added)

    def add_prefix(self, tenant: str, prefix: Prefix, *, expected_version: int | None = None) -> TenantRecord:
        """Give a tenant one more prefix.

        Raises Conflict when any tenant owns an overlapping prefix (it never says which), NotFound, Stale.
        """
        return self._exchange_prefixes(self._begin_change(tenant, expected_version), [], [prefix])

    def remove_prefix(self, tenant: str, prefix: Prefix, *, expected_version: int | None = None) -> TenantRecord:
        """Remove a prefix of a tenant.

        Raises NotFound, Stale, and Conflict while an endpoint or a rule of the tenant still needs it.
        """
        row = self._begin_change(tenant, expected_version)
        if prefix not in owned_prefixes(self._tx, row.number):
            raise NotFound(f"{prefix} is not among the prefixes of '{tenant}'")
        return self._exchange_prefixes(row, [prefix], [])

    def owner(self, prefix: Prefix) -> TenantId | None:
        """The id of a tenant that owns a prefix overlapping this one (for administrators)."""
        row = overlapping(self._tx, prefixes, prefix)
        if row is None:
            return None
        return TenantId(self._tx.read(select(tenants.c.id).where(tenants.c.number == row.tenant)).scalar_one())

    # ------------------------------------------------------------------------------------------------ steps

    def _begin_change(self, tenant: str, expected_version: int | None) -> Row[Any]:
        row = self._tx.tenant(tenant)
        expect(expected_version, row.version)
        return row

    def _end_change(self, row: Row[Any], **values: object) -> None:
        self._tx.write(update(tenants).where(tenants.c.number == row.number).values(version=row.version + 1, **values))

    def _exchange_prefixes(self, row: Row[Any], removed: Iterable[Prefix], added: Iterable[Prefix]) -> TenantRecord:
        removed, added = tuple(removed), tuple(added)
        if not removed and not added:
            return self._read_record(row)
        _refuse_marked(row)
        for prefix in removed:
            self._tx.write(delete(prefixes).where(prefixes.c.first == first_bytes(prefix)))
        self._add_prefixes(row.number, added)
        self._check_still_owned(row, removed)
        self._end_change(row)
        self._tx.bump_for_tenant(row.domain, row.id)
        return self.get(row.id)

    def _add_prefixes(self, number: int, added: Iterable[Prefix]) -> None:
        for prefix in added:
            held = overlapping(self._tx, prefixes, prefix)
            if held is not None:
                whose = f"by the tenant itself, as {held.prefix}" if held.tenant == number else "by another tenant"
                raise Conflict(f"{prefix} is already owned, wholly or in part, {whose}", place="prefixes")
            insert_prefixes(self._tx, prefixes, [prefix], tenant=number)

    def _check_still_owned(self, tenant: Row[Any], removed: tuple[Prefix, ...]) -> None:
        """Check that nothing of the tenant stands on prefixes taken away."""
        owned = owned_prefixes(self._tx, tenant.number)
        for prefix in removed:
            columns = endpoint_prefixes.c
            inside = select(columns.endpoint, columns.prefix).where(
                columns.first >= first_bytes(prefix), columns.first <= last_bytes(prefix)
            )
            for row in self._tx.read(inside):
                if not any(other.contains(Prefix.parse(row.prefix)) for other in owned):
                    raise Conflict(f"endpoint '{row.endpoint}' still uses {row.prefix}", place="prefixes")
        if removed:
            self._check_rules(tenant, owned)

    def _check_rules(self, row: Row[Any], owned: tuple[Prefix, ...]) -> None:
        acl = aclrows.load(self._tx, row, row.acl_version).record.acl
        try:
            check_ownership(acl, owned)
        except BadPolicy as error:
            raise Conflict(f"the tenant's access list still names it: {error}", place="prefixes") from None

    def _read_record(self, row: Row[Any]) -> TenantRecord:
        return _make_record(row, owned_prefixes(self._tx, row.number))


def _make_record(row: Row[Any], owned: tuple[Prefix, ...]) -> TenantRecord:
    return TenantRecord(
        TenantId(row.id),
        row.number,
        row.domain,
        row.name,
        row.version,
        from_micros(row.created),
        owned,
        _read_quota(row),
        row.stored_bytes,
    )


def _refuse_marked(row: Row[Any]) -> None:
    """Refuse to change a list's addresses where it needs a second person's approval.

    Raises ApprovalNeeded.
    """
    if row.two_persons:
        raise ApprovalNeeded(
            f"another person must approve changes of the list of '{row.id}', and this one cannot be proposed: propose "
            "first that it needs no approval"
        )


def _read_quota(row: Row[Any]) -> Quota:
    kept = row.quota_bytes, row.quota_versions
    return Quota(row.quota_rules, row.quota_flows, *kept, row.quota_streams, row.quota_analysis)
