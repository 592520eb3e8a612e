"""Calls of the client about address groups, histories and quotas; `client.py` has all others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from orchestrator.client.paths import group_path, once_header, tenant_path
from orchestrator.client.records import Json, Written
from orchestrator.client.transport import ANY_VERSION, Transport, document_of, json_of, written
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import AddressGroup, Direction, Packet
from orchestrator.program.sightings import packet_to_json
from orchestrator.wire.lists import AddedWaiver, Restored, Waiver
from orchestrator.wire.tenants import Group, Limits, Quota, Tenant


class GroupCalls:
    """Address groups of tenants' lists. The ETag of a group is that of the list."""

    _service: Transport

    def groups(self, tenant: str) -> Iterator[Group]:
        """The groups of the list, by name."""
        return self._service.documents(Group, f"{tenant_path(tenant)}/acl/groups")

    def group(self, tenant: str, group: str) -> Group:
        """Return an address group. Raises NotFound."""
        return self._service.read_document(Group, group_path(tenant, group))

    def group_members(self, tenant: str, group: str) -> Iterator[Prefix]:
        """The members of a group, in their order."""
        return map(Prefix.parse, self._service.pages(f"{group_path(tenant, group)}/members"))

    def put_group(self, tenant: str, group: AddressGroup, *, etag: str = ANY_VERSION) -> Written:
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

    def delete_group(self, tenant: str, group: str, *, etag: str = ANY_VERSION) -> Written:
        """Delete an address group.

        Raises NotFound, Stale, and Conflict, which names the rules, while rules name it.
        """
        return written(self._service.write("DELETE", group_path(tenant, group), etag=etag))


class WaiverCalls:
    """Findings on tenants' lists that somebody took responsibility for."""

    _service: Transport

    def waivers(self, tenant: str) -> tuple[Waiver, ...]:
        """All of a tenant's, oldest first; those whose time is over, too."""
        return tuple(self._service.documents(Waiver, f"{tenant_path(tenant)}/acl/waivers"))

    def add_waiver(
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

    def remove_waiver(self, tenant: str, waiver: int) -> None:
        """Remove a waiver. Raises NotFound."""
        self._service.write("DELETE", f"{tenant_path(tenant)}/acl/waivers/{waiver}", etag=ANY_VERSION)


class HistoryCalls:
    """Older versions of tenants' lists, and what they say of a packet."""

    _service: Transport

    def restore_acl(
        self, tenant: str, version: int, *, etag: str = ANY_VERSION, key: str | None = None, comment: str = ""
    ) -> tuple[Written, tuple[str, ...]]:
        """Restore the list of a version; return the write and the expired rules left out."""
        path, query = f"{tenant_path(tenant)}/acl/versions/{version}/restore", {"comment": comment or None}
        response = self._service.write("POST", path, etag=etag, query=query, headers=once_header(key))
        return written(response), document_of(Restored, response).left_out

    def acl_difference(self, tenant: str, before: int, after: int | None = None) -> Json:
        """Return the packets that are newly permitted and denied between two versions.

        `after` None: the current one.

        Raises TooLarge.
        """
        path = f"{tenant_path(tenant)}/acl/versions/{before}/difference"
        found: Json = self._service.read(path, to=after)
        return found

    def blame(self, tenant: str, packet: Packet, direction: Direction) -> Json:
        """The version since which the list decides a packet as it does now."""
        return self._ask_about(tenant, "blame", packet, direction)

    def bisect(self, tenant: str, packet: Packet, direction: Direction) -> Json:
        """Two neighbouring versions between which the list's word about a packet changed."""
        return self._ask_about(tenant, "bisect", packet, direction)

    def _ask_about(self, tenant: str, what: str, packet: Packet, direction: Direction) -> Json:
        body = {**packet_to_json(packet), "direction": direction.value}
        found: Json = json_of(self._service.ask("POST", f"{tenant_path(tenant)}/acl/{what}", body=body))
        return found


class QuotaCalls:
    """Calls about the quotas of tenants' lists."""

    _service: Transport

    def quota(self, tenant: str) -> Quota:
        """Return a list's quota and its present use.

        Raises NotFound.
        """
        return self._service.read_document(Quota, f"{tenant_path(tenant)}/quota")

    def set_quota(self, tenant: str, limit: Limits, *, etag: str = ANY_VERSION) -> Tenant:
        """Set a tenant's limits. Raises NotFound, Stale."""
        body = asdict(limit)
        return document_of(Tenant, self._service.write("PUT", f"{tenant_path(tenant)}/quota", body=body, etag=etag))
