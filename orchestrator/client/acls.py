"""Calls of the client about tenants' lists, their rules and their versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from orchestrator.client.calls import Calls, once_header, rule_path, tenant_path
from orchestrator.client.connections import Answer
from orchestrator.client.lists import PARTS, AclSeen, Part, Review, RuleSeen, Standing, Trace
from orchestrator.client.records import Json, Written
from orchestrator.client.transport import ANY_VERSION, document_of, json_of, written
from orchestrator.policy.formats.native import acl_from_json, acl_text, acl_to_json, rule_from_json, rule_to_json
from orchestrator.policy.model import Acl, Direction, Packet, Rule
from orchestrator.program.sightings import packet_to_json
from orchestrator.wire.codec import decode
from orchestrator.wire.expectations import JudgedList
from orchestrator.wire.lists import AclVersion, DraftTraffic, Restored

_LOOKED_AT_S = 120.0
"""How much longer than others an answer may take that tells what is odd about a list; the service has its own limit."""


class AclCalls(Calls):
    """Tenants' lists: what they say now, said before, and would say."""

    def read(self, tenant: str, *, version: int | None = None) -> AclSeen:
        """The list as it is, or as it was at a version."""
        path = f"{tenant_path(tenant)}/acl" + ("" if version is None else f"/versions/{version}")
        return _seen(self._service.ask("GET", path))

    def read_since(self, tenant: str, etag: str) -> AclSeen | None:
        """Return the list, or None if it is still the one of `etag`.

        That costs next to nothing.
        """
        response = self._service.ask("GET", f"{tenant_path(tenant)}/acl", headers={"If-None-Match": etag})
        return None if response.status_code == HTTPStatus.NOT_MODIFIED else _seen(response)

    def put(
        self,
        tenant: str,
        acl: Acl | bytes,
        *,
        etag: str = ANY_VERSION,
        comment: str = "",
        despite: bool = False,
        confirm_s: int | None = None,
    ) -> Written:
        """Replace the tenant's list, even `despite` its expectations.

        `acl` may be a native document as bytes.

        With `confirm_s` it goes back after so many seconds unless `confirm` keeps it. Raises BadInput, BadPolicy
        (also where it breaks an expectation), TooLarge, Stale, and Conflict while another change waits.
        """
        path = f"{tenant_path(tenant)}/acl"
        query = {**_edit_query(comment, despite=despite), "confirm": confirm_s}
        return written(self._service.write("PUT", path, body=_document(acl), etag=etag, query=query))

    def confirm(self, tenant: str, *, etag: str | None = None) -> Written:
        """Keep the change of a list that waits to be confirmed.

        Raises Conflict where none does, Stale where `etag` is of another version.
        """
        return written(self._service.write("POST", f"{tenant_path(tenant)}/acl/confirm", etag=etag))

    def revert(self, tenant: str, *, etag: str | None = None) -> Written:
        """Take the change of a list that waits to be confirmed back now.

        Raises Conflict where none does, Stale where `etag` is of another version.
        """
        return written(self._service.write("POST", f"{tenant_path(tenant)}/acl/revert", etag=etag))

    def read_standing(self, tenant: str, parts: Sequence[Part] = PARTS) -> Standing:
        """Return the current list's findings and cost.

        Raises TooLarge when that takes too long to tell.
        """
        path = f"{tenant_path(tenant)}/acl/check"
        response = self._service.ask("GET", path, query={"part": parts}, held_s=_LOOKED_AT_S)
        return Standing.of(json_of(response))

    def check(
        self, tenant: str, acl: Acl | bytes, parts: Sequence[Part] = PARTS, *, against: int | None = None
    ) -> Review:
        """Dry run: findings, cost, and the difference to the current or an earlier list.

        Changes nothing.
        """
        path, query = f"{tenant_path(tenant)}/acl/check", {"part": parts, "against": against}
        response = self._service.ask("POST", path, query=query, body=_document(acl), held_s=_LOOKED_AT_S)
        return Review.of(json_of(response))

    def check_traffic(self, tenant: str, acl: Acl | bytes, *, hours: int = 24) -> DraftTraffic:
        """Return recorded traffic that a list would newly permit or refuse.

        Changes nothing.
        """
        path = f"{tenant_path(tenant)}/acl/traffic"
        response = self._service.ask("POST", path, query={"hours": hours}, body=_document(acl), held_s=_LOOKED_AT_S)
        return decode(DraftTraffic, json_of(response))

    def read_versions(self, tenant: str) -> Iterator[AclVersion]:
        """The list's history, newest first."""
        return self._service.documents(AclVersion, f"{tenant_path(tenant)}/acl/versions")

    def trace(self, tenant: str, packet: Packet, draft: Acl | None = None) -> Trace:
        """Return the rule that decides a packet.

        Administrators ask in the whole domain, tenants in their own lists.

        With a draft it is traced in the place of the tenant's list. Raises BadPolicy for one of other addresses.
        """
        body = packet_to_json(packet) | ({} if draft is None else {"acl": acl_to_json(draft)})
        return Trace.of(json_of(self._service.ask("POST", f"{tenant_path(tenant)}/acl/trace", body=body)))

    def read_rules(self, tenant: str, find: str = "") -> Iterator[Rule]:
        """Yield the list's rules in order, or only those that `find` finds."""
        return map(rule_from_json, self._service.pages(f"{tenant_path(tenant)}/acl/rules", find=find or None))

    def read_rule(self, tenant: str, rule: str) -> RuleSeen:
        """Return a rule with its ETag. Raises NotFound."""
        response = self._service.ask("GET", rule_path(tenant, rule))
        return RuleSeen(rule_from_json(json_of(response)), response.headers.get("ETag", ANY_VERSION))

    def insert_rule(
        self,
        tenant: str,
        rule: Rule,
        *,
        position: int | None = None,
        before: str | None = None,
        after: str | None = None,
        key: str | None = None,
        comment: str = "",
        despite: bool = False,
    ) -> Written:
        """Put a new rule at a place, at the end when none is named.

        Raises Conflict when the list has that id.
        """
        query = {"position": position, "before": before, "after": after, **_edit_query(comment, despite=despite)}
        path = f"{tenant_path(tenant)}/acl/rules"
        return written(
            self._service.write("POST", path, body=rule_to_json(rule), query=query, headers=once_header(key))
        )

    def put_rule(
        self, tenant: str, rule: Rule, *, etag: str = ANY_VERSION, comment: str = "", despite: bool = False
    ) -> Written:
        """Change the rule of that id where it stands. Raises NotFound, Stale."""
        path, query = rule_path(tenant, rule.id), _edit_query(comment, despite=despite)
        return written(self._service.write("PUT", path, body=rule_to_json(rule), etag=etag, query=query))

    def move_rule(
        self,
        tenant: str,
        rule: str,
        *,
        position: int | None = None,
        before: str | None = None,
        after: str | None = None,
        etag: str = ANY_VERSION,
        comment: str = "",
        despite: bool = False,
    ) -> Written:
        """Put a rule at another place, at the end when none is named.

        Raises NotFound, Stale.
        """
        query = {"position": position, "before": before, "after": after, **_edit_query(comment, despite=despite)}
        return written(self._service.write("PUT", f"{rule_path(tenant, rule)}/place", query=query, etag=etag))

    def delete_rule(
        self, tenant: str, rule: str, *, etag: str = ANY_VERSION, comment: str = "", despite: bool = False
    ) -> Written:
        """Delete a rule. Raises NotFound, Stale."""
        query = _edit_query(comment, despite=despite)
        return written(self._service.write("DELETE", rule_path(tenant, rule), etag=etag, query=query))

    def test(
        self, tenant: str, acl: Acl | None = None, expectations: str | None = None, *, name: str = "expectations"
    ) -> JudgedList:
        """Check a list against expectations; by default the current list and kept expectations.

        Raises BadInput.
        """
        body: dict[str, Any] = {"name": name}
        if acl is not None:
            body["acl"] = acl_to_json(acl)
        if expectations is not None:
            body["expectations"] = expectations
        path = f"{tenant_path(tenant)}/acl/test"
        return document_of(JudgedList, self._service.ask("POST", path, body=body, held_s=_LOOKED_AT_S))

    def restore(
        self, tenant: str, version: int, *, etag: str = ANY_VERSION, key: str | None = None, comment: str = ""
    ) -> tuple[Written, tuple[str, ...]]:
        """Restore the list of a version; return the write and the expired rules left out."""
        path, query = f"{tenant_path(tenant)}/acl/versions/{version}/restore", {"comment": comment or None}
        response = self._service.write("POST", path, etag=etag, query=query, headers=once_header(key))
        return written(response), document_of(Restored, response).left_out

    def compare_versions(self, tenant: str, before: int, after: int | None = None) -> Json:
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


def _edit_query(comment: str, *, despite: bool) -> dict[str, str | None]:
    """Return the query of a change of a list."""
    return {"comment": comment or None, "despite_expectations": "true" if despite else None}


def _seen(response: Answer) -> AclSeen:
    """Read a list and its ETag from an answer."""
    return AclSeen(acl_from_json(json_of(response)), response.headers.get("ETag", ANY_VERSION))


def _document(acl: Acl | bytes) -> bytes:
    """Return a list as the JSON that is sent."""
    return acl if isinstance(acl, bytes) else acl_text(acl)
