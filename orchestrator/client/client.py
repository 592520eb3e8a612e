"""The client: one method for each thing that the REST API does."""

from __future__ import annotations

import copy
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.client.calls import GroupCalls, HistoryCalls, QuotaCalls, WaiverCalls
from orchestrator.client.connections import Answer, Connections
from orchestrator.client.domains import DomainCalls
from orchestrator.client.enrolment import EnrolmentCalls, OnboardingCalls
from orchestrator.client.fleet import FirewallCalls, FleetCalls
from orchestrator.client.hits import CountCalls, HitCalls
from orchestrator.client.lists import PARTS, AclSeen, Part, Review, RuleSeen, Standing, Trace
from orchestrator.client.packetlog import PacketLogCalls
from orchestrator.client.paths import once_header, rule_path, tenant_path
from orchestrator.client.placement import PlacementCalls
from orchestrator.client.points import PointCalls
from orchestrator.client.pops import PopCalls
from orchestrator.client.proposals import DraftCalls, ProposalCalls
from orchestrator.client.records import Page, Written
from orchestrator.client.spread import SpreadCalls
from orchestrator.client.stream import follow_events
from orchestrator.client.tokens import AuditCalls, TokenCalls
from orchestrator.client.transport import ANY_VERSION, Transport, document_of, generation_of, json_of, trust_of, written
from orchestrator.errors import AclflowError
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json, acl_text, acl_to_json, rule_from_json, rule_to_json
from orchestrator.policy.model import Acl, Packet, Rule
from orchestrator.program.sightings import packet_to_json
from orchestrator.wire.codec import decode
from orchestrator.wire.events import Event, Events
from orchestrator.wire.lists import AclVersion, DraftTraffic
from orchestrator.wire.status import Status
from orchestrator.wire.tenants import CreatedTenants, OwnEndpoint, SeenTenant, Tenant, TenantToCreate

_LOOKED_AT_S = 120.0
"""How much longer than others an answer may take that tells what is odd about a list; the service has its own limit."""


class Client(
    DomainCalls,
    DraftCalls,
    PointCalls,
    GroupCalls,
    OnboardingCalls,
    HistoryCalls,
    WaiverCalls,
    ProposalCalls,
    QuotaCalls,
    TokenCalls,
    FirewallCalls,
    FleetCalls,
    PlacementCalls,
    CountCalls,
    HitCalls,
    EnrolmentCalls,
    SpreadCalls,
    PopCalls,
    PacketLogCalls,
    AuditCalls,
):
    """A caller of the service. Safe to share between threads.

    `authority` is the certificate (PEM) that a service speaking TLS must be signed by, if not by one that the machine
    believes anyhow; `trust` says instead whom to believe and what certificate to show; `connections` replaces the
    network in tests. `patience_s` is how long requests are sent again that the service refuses as Busy or TooOften.
    `plain_http` permits an address without TLS that leads off this machine; else it is refused (BadInput).
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        timeout_s: float = 30.0,
        authority: Path | None = None,
        trust: ssl.SSLContext | None = None,
        connections: Connections | None = None,
        patience_s: float = 0.0,
        plain_http: bool = False,
    ) -> None:
        believed = trust or trust_of(authority)
        self._service = Transport(url, token, timeout_s, connections, believed, patience_s, plain_http=plain_http)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._service.close()

    def waiting(self, wait_s: int) -> Self:
        """Return a client whose changes are answered when enforced, or after `wait_s`.

        It uses the same connections; `Written.enforced` tells which. Close one of the two.
        """
        twin = copy.copy(self)
        twin._service = self._service.waiting(wait_s)
        return twin

    def is_ready(self, domain: str | None = None) -> bool:
        """Whether the service answers, has its database, and has compiled every domain, or one."""
        try:
            return self._service.ask("GET", "/readyz", query={"domain": domain}).status_code == HTTPStatus.OK
        except AclflowError:
            return False

    # ------------------------------------------------------------------------------------------------------- tenants

    def status(self) -> Status:
        """How the whole service is. For administrators."""
        return self._service.read_document(Status, "/v1/status")

    def tenants(self) -> Iterator[Tenant]:
        """The tenants that the caller may see."""
        return self._service.documents(Tenant, "/v1/tenants")

    def tenant(self, tenant: str) -> SeenTenant:
        """A tenant, what its list costs, and whether it is in force. Raises NotFound."""
        return self._service.read_document(SeenTenant, tenant_path(tenant))

    def create_tenant(
        self, tenant: str, *, domain: str, name: str = "", prefixes: Iterable[Prefix] = (), key: str | None = None
    ) -> Tenant:
        """Create a tenant.

        Raises Conflict (id or prefix taken), NotFound (domain). `key`: an idempotency key, for asking again.
        """
        body = {"id": tenant, "name": name, "domain": domain, "prefixes": list(map(str, prefixes))}
        return document_of(Tenant, self._service.write("POST", "/v1/tenants", body=body, headers=once_header(key)))

    def create_tenants(
        self, domain: str, tenants: Iterable[TenantToCreate], *, key: str | None = None
    ) -> CreatedTenants:
        """Create up to 1,000 tenants in one change.

        Raises Conflict, NotFound, BadInput, each with the place.
        """
        body = {"domain": domain, "tenants": [asdict(each) for each in tenants]}
        created = self._service.write("POST", "/v1/tenants:batch", body=body, headers=once_header(key))
        return document_of(CreatedTenants, created)

    def rename_tenant(self, tenant: str, name: str, *, etag: str = ANY_VERSION) -> Tenant:
        """Give a tenant another name. Raises NotFound, Stale."""
        return document_of(Tenant, self._service.write("PATCH", tenant_path(tenant), body={"name": name}, etag=etag))

    def delete_tenant(self, tenant: str, *, etag: str = ANY_VERSION) -> int:
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

    def own_endpoints(self, tenant: str) -> Iterator[OwnEndpoint]:
        """A tenant's endpoints with their addresses, by name."""
        return self._service.documents(OwnEndpoint, f"{tenant_path(tenant)}/endpoints")

    # ---------------------------------------------------------------------------------------------------- access lists

    def acl(self, tenant: str, *, version: int | None = None) -> AclSeen:
        """The list as it is, or as it was at a version."""
        path = f"{tenant_path(tenant)}/acl" + ("" if version is None else f"/versions/{version}")
        return _seen(self._service.ask("GET", path))

    def acl_since(self, tenant: str, etag: str) -> AclSeen | None:
        """Return the list, or None if it is still the one of `etag`.

        That costs next to nothing.
        """
        response = self._service.ask("GET", f"{tenant_path(tenant)}/acl", headers={"If-None-Match": etag})
        return None if response.status_code == HTTPStatus.NOT_MODIFIED else _seen(response)

    def put_acl(
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

        With `confirm_s` it goes back after so many seconds unless `confirm_acl` keeps it. Raises BadInput, BadPolicy
        (also where it breaks an expectation), TooLarge, Stale, and Conflict while another change waits.
        """
        path = f"{tenant_path(tenant)}/acl"
        query = {**_edit_query(comment, despite=despite), "confirm": confirm_s}
        return written(self._service.write("PUT", path, body=_document(acl), etag=etag, query=query))

    def confirm_acl(self, tenant: str) -> Written:
        """Keep the change of a list that waits to be confirmed.

        Raises Conflict where none does.
        """
        return written(self._service.write("POST", f"{tenant_path(tenant)}/acl/confirm"))

    def revert_acl(self, tenant: str) -> Written:
        """Take the change of a list that waits to be confirmed back now.

        Raises Conflict where none does.
        """
        return written(self._service.write("POST", f"{tenant_path(tenant)}/acl/revert"))

    def standing(self, tenant: str, parts: Sequence[Part] = PARTS) -> Standing:
        """Return the current list's findings and cost.

        Raises TooLarge when that takes too long to tell.
        """
        path = f"{tenant_path(tenant)}/acl/check"
        response = self._service.ask("GET", path, query={"part": parts}, held_s=_LOOKED_AT_S)
        return Standing.of(json_of(response))

    def check_acl(
        self, tenant: str, acl: Acl | bytes, parts: Sequence[Part] = PARTS, *, against: int | None = None
    ) -> Review:
        """Dry run: findings, cost, and the difference to the current or an earlier list.

        Changes nothing.
        """
        path, query = f"{tenant_path(tenant)}/acl/check", {"part": parts, "against": against}
        response = self._service.ask("POST", path, query=query, body=_document(acl), held_s=_LOOKED_AT_S)
        return Review.of(json_of(response))

    def draft_traffic(self, tenant: str, acl: Acl | bytes, *, hours: int = 24) -> DraftTraffic:
        """Return recorded traffic that a list would newly permit or refuse.

        Changes nothing.
        """
        path = f"{tenant_path(tenant)}/acl/traffic"
        response = self._service.ask("POST", path, query={"hours": hours}, body=_document(acl), held_s=_LOOKED_AT_S)
        return decode(DraftTraffic, json_of(response))

    def acl_versions(self, tenant: str) -> Iterator[AclVersion]:
        """The list's history, newest first."""
        return self._service.documents(AclVersion, f"{tenant_path(tenant)}/acl/versions")

    def trace(self, tenant: str, packet: Packet, draft: Acl | None = None) -> Trace:
        """Return the rule that decides a packet.

        Administrators ask in the whole domain, tenants in their own lists.

        With a draft it is traced in the place of the tenant's list. Raises BadPolicy for one of other addresses.
        """
        body = packet_to_json(packet) | ({} if draft is None else {"acl": acl_to_json(draft)})
        return Trace.of(json_of(self._service.ask("POST", f"{tenant_path(tenant)}/acl/trace", body=body)))

    def rules(self, tenant: str, find: str = "") -> Iterator[Rule]:
        """Yield the list's rules in order, or only those that `find` finds."""
        return map(rule_from_json, self._service.pages(f"{tenant_path(tenant)}/acl/rules", find=find or None))

    def rule(self, tenant: str, rule: str) -> RuleSeen:
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

    # ---------------------------------------------------------------------------------------------------------- events

    def events(self, *, since: int = 0, limit: int = 100, tenant: str | None = None) -> Page[Event]:
        """Return events after an id, oldest first: all visible ones, or one tenant's."""
        events = self._service.read_document(Events, "/v1/events", limit=limit, marker=since, tenant=tenant)
        return Page(events.items, None if events.next is None else str(events.next))

    def newest_events(self, *, before: int | None = None, limit: int = 100, tenant: str | None = None) -> Page[Event]:
        """The newest events, before an id if one is named, newest first."""
        events = self._service.read_document(
            Events, "/v1/events", limit=limit, marker=before, tenant=tenant, newest=True
        )
        return Page(events.items, None if events.next is None else str(events.next))

    def follow_events(self, *, after: int | None = None, tenant: str | None = None) -> Iterator[Event]:
        """Yield events for ever, after an id or from now on; reconnect when broken.

        An event of kind ``missed`` says that some were forgotten before they could be read. Raises NotFound (tenant),
        Unauthenticated, and Unreachable when the service does not answer at the beginning.
        """
        return follow_events(lambda headers: self._service.stream("/v1/events", {"tenant": tenant}, headers), after)


def _edit_query(comment: str, *, despite: bool) -> dict[str, str | None]:
    """Return the query of a change of a list."""
    return {"comment": comment or None, "despite_expectations": "true" if despite else None}


def _seen(response: Answer) -> AclSeen:
    return AclSeen(acl_from_json(json_of(response)), response.headers.get("ETag", ANY_VERSION))


def _document(acl: Acl | bytes) -> bytes:
    return acl if isinstance(acl, bytes) else acl_text(acl)
