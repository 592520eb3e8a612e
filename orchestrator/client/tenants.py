"""Calls of the client about tenants, their prefixes, quotas, address groups and waivers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from orchestrator.client.calls import Calls, group_path, once_header, tenant_path
from orchestrator.client.records import Written
from orchestrator.client.transport import ANY_VERSION, document_of, generation_of, written
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import AddressGroup
from orchestrator.wire.lists import AddedWaiver, Waiver
from orchestrator.wire.tenants import (
    CreatedTenants,
    Group,
    Limits,
    OwnEndpoint,
    Quota,
    SeenTenant,
    Tenant,
    TenantToCreate,
)


class TenantCalls(Calls):
    """Tenants, what they own, and how much they may use."""

    def read_all(self) -> Iterator[Tenant]:
        """The tenants that the caller may see."""
        return self._service.documents(Tenant, "/v1/tenants")

    def read(self, tenant: str) -> SeenTenant:
        """A tenant, what its list costs, and whether it is in force. Raises NotFound."""
        return self._service.read_document(SeenTenant, tenant_path(tenant))

    def create(
        self, tenant: str, *, domain: str, name: str = "", prefixes: Iterable[Prefix] = (), key: str | None = None
    ) -> Tenant:
        """Create a tenant.

        Raises Conflict (id or prefix taken), NotFound (domain). `key`: an idempotency key, for asking again.
        """
        body = {"id": tenant, "name": name, "domain": domain, "prefixes": list(map(str, prefixes))}
        return document_of(Tenant, self._service.write("POST", "/v1/tenants", body=body, headers=once_header(key)))

    def create_many(self, domain: str, tenants: Iterable[TenantToCreate], *, key: str | None = None) -> CreatedTenants:
        """Create up to 1,000 tenants in one change.

        Raises Conflict, NotFound, BadInput, each with the place.
        """
        body = {"domain": domain, "tenants": [asdict(each) for each in tenants]}
        created = self._service.write("POST", "/v1/tenants:batch", body=body, headers=once_header(key))
        return document_of(CreatedTenants, created)

    def rename(self, tenant: str, name: str, *, etag: str = ANY_VERSION) -> Tenant:
        """Give a tenant another name. Raises NotFound, Stale."""
        return document_of(Tenant, self._service.write("PATCH", tenant_path(tenant), body={"name": name}, etag=etag))

    def delete(self, tenant: str, *, etag: str = ANY_VERSION) -> int:
        """Returns the generation without it. Raises NotFound, Stale, Conflict while it has endpoints."""
        return generation_of(self._service.write("DELETE", tenant_path(tenant), etag=etag))

    def set_prefixes(self, tenant: str, prefixes: Iterable[Prefix], *, etag: str = ANY_VERSION) -> Written:
        """Make these what the tenant owns. Raises Conflict, NotFound, Stale."""
        body = {"prefixes": list(map(str, prefixes))}
        return written(self._service.write("PUT", f"{tenant_path(tenant)}/prefixes", body=body, etag=etag))

    def add_prefix(self, tenant: str, prefix: Prefix, *, key: str | None = None) -> Written:
        """Give a tenant one more prefix. Raises Conflict when somebody owns an overlapping one."""
        body = {"prefix": str(prefix)}
        return written(
            self._service.write("POST", f"{tenant_path(tenant)}/prefixes", body=body, headers=once_header(key))
        )

    def remove_prefix(self, tenant: str, prefix: Prefix, *, etag: str = ANY_VERSION) -> Written:
        """Take a prefix from a tenant.

        Raises Conflict while a rule or an endpoint needs it.
        """
        return written(self._service.write("DELETE", f"{tenant_path(tenant)}/prefixes/{prefix}", etag=etag))

    def read_own_endpoints(self, tenant: str) -> Iterator[OwnEndpoint]:
        """A tenant's endpoints with their addresses, by name."""
        return self._service.documents(OwnEndpoint, f"{tenant_path(tenant)}/endpoints")

    def read_quota(self, tenant: str) -> Quota:
        """Return a list's quota and its present use.

        Raises NotFound.
        """
        return self._service.read_document(Quota, f"{tenant_path(tenant)}/quota")

    def set_quota(self, tenant: str, limit: Limits, *, etag: str = ANY_VERSION) -> Tenant:
        """Set a tenant's limits. Raises NotFound, Stale."""
        body = asdict(limit)
        return document_of(Tenant, self._service.write("PUT", f"{tenant_path(tenant)}/quota", body=body, etag=etag))


class GroupCalls(Calls):
    """Address groups of tenants' lists. The ETag of a group is that of the list."""

    def read_all(self, tenant: str) -> Iterator[Group]:
        """The groups of the list, by name."""
        return self._service.documents(Group, f"{tenant_path(tenant)}/acl/groups")

    def read(self, tenant: str, group: str) -> Group:
        """Return an address group. Raises NotFound."""
        return self._service.read_document(Group, group_path(tenant, group))

    def read_members(self, tenant: str, group: str) -> Iterator[Prefix]:
        """The members of a group, in their order."""
        return map(Prefix.parse, self._service.pages(f"{group_path(tenant, group)}/members"))

    def put(self, tenant: str, group: AddressGroup, *, etag: str = ANY_VERSION) -> Written:
        """Make this the group of its name. Raises BadInput, BadPolicy, Stale, TooLarge."""
        body = {"prefixes": list(map(str, group.prefixes)), "description": group.description}
        return written(self._service.write("PUT", group_path(tenant, group.name), body=body, etag=etag))

    def change_members(
        self,
        tenant: str,
        group: str,
        *,
        add: Iterable[Prefix] = (),
        remove: Iterable[Prefix] = (),
        etag: str | None = None,
        key: str | None = None,
    ) -> Written:
        """Add and remove members, all of it or nothing.

        Raises NotFound (group, member to be removed), BadPolicy.
        """
        body = {"add": list(map(str, add)), "remove": list(map(str, remove))}
        path = f"{group_path(tenant, group)}/members"
        return written(self._service.write("POST", path, body=body, etag=etag, headers=once_header(key)))

    def delete(self, tenant: str, group: str, *, etag: str = ANY_VERSION) -> Written:
        """Delete an address group.

        Raises NotFound, Stale, and Conflict, which names the rules, while rules name it.
        """
        return written(self._service.write("DELETE", group_path(tenant, group), etag=etag))


class WaiverCalls(Calls):
    """Findings on tenants' lists that somebody took responsibility for."""

    def read_all(self, tenant: str) -> tuple[Waiver, ...]:
        """All of a tenant's, oldest first; those whose time is over, too."""
        return tuple(self._service.documents(Waiver, f"{tenant_path(tenant)}/acl/waivers"))

    def add(
        self,
        tenant: str,
        kind: str,
        rules: Sequence[str] = (),
        *,
        group: str | None = None,
        reason: str,
        ends: dt.datetime,
        key: str | None = None,
    ) -> AddedWaiver:
        """Waive a finding, in place of an older waiver of it, which is returned.

        Raises BadInput, NotFound, TooLarge.
        """
        body = {"kind": kind, "rules": list(rules), "group": group, "reason": reason, "ends": ends.isoformat()}
        path = f"{tenant_path(tenant)}/acl/waivers"
        return document_of(AddedWaiver, self._service.write("POST", path, body=body, headers=once_header(key)))

    def remove(self, tenant: str, waiver: int) -> None:
        """Remove a waiver. Raises NotFound."""
        self._service.write("DELETE", f"{tenant_path(tenant)}/acl/waivers/{waiver}", etag=ANY_VERSION)
