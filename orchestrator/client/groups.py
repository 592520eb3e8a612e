"""Calls of the client about address groups and waivers of tenants' lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.client.calls import Calls
from orchestrator.client.paths import group_path, once_header, tenant_path
from orchestrator.client.records import Written
from orchestrator.client.transport import ANY_VERSION, document_of, written
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import AddressGroup
from orchestrator.wire.lists import AddedWaiver, Waiver
from orchestrator.wire.tenants import (
    Group,
)


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
