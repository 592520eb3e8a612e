"""The client: one area of calls for each part of the REST API."""

from __future__ import annotations

import copy
import ssl
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.client.acls import AclCalls
from orchestrator.client.connections import Connections
from orchestrator.client.domains import DomainCalls
from orchestrator.client.enrolment import CertificateCalls, EnrolmentCalls, OnboardingCalls
from orchestrator.client.events import EventCalls
from orchestrator.client.hits import HitCalls
from orchestrator.client.packetlog import PacketLogCalls
from orchestrator.client.placement import PlacementCalls
from orchestrator.client.points import PointCalls
from orchestrator.client.pops import PopCalls
from orchestrator.client.proposals import DraftCalls, ExpectationCalls, ProposalCalls
from orchestrator.client.spread import FirewallCalls, FleetCalls, SpreadCalls
from orchestrator.client.tenants import GroupCalls, TenantCalls, WaiverCalls
from orchestrator.client.tokens import AuditCalls, TokenCalls
from orchestrator.client.transport import Transport, trust_of
from orchestrator.errors import AclflowError
from orchestrator.wire.status import Status


class Client:
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
        self._use(Transport(url, token, timeout_s, connections, believed, patience_s, plain_http=plain_http))

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
        twin._use(self._service.waiting(wait_s))
        return twin

    def is_ready(self, domain: str | None = None) -> bool:
        """Whether the service answers, has its database, and has compiled every domain, or one."""
        try:
            return self._service.ask("GET", "/readyz", query={"domain": domain}).status_code == HTTPStatus.OK
        except AclflowError:
            return False

    def read_status(self) -> Status:
        """Return the state of the whole service, for administrators."""
        return self._service.read_document(Status, "/v1/status")

    def reconnect(self, trust: ssl.SSLContext) -> None:
        """Open new connections from now on, with the certificate and the authorities of `trust`.

        Requests under way end on the old ones.
        """
        self._service.reconnect(trust)

    def _use(self, service: Transport) -> None:
        """Make all calls by this transport."""
        self._service = service
        self.tenants = TenantCalls(service)
        self.acls = AclCalls(service)
        self.groups = GroupCalls(service)
        self.waivers = WaiverCalls(service)
        self.expectations = ExpectationCalls(service)
        self.drafts = DraftCalls(service)
        self.proposals = ProposalCalls(service)
        self.hits = HitCalls(service)
        self.events = EventCalls(service)
        self.packet_log = PacketLogCalls(service)
        self.domains = DomainCalls(service)
        self.placement = PlacementCalls(service)
        self.spread = SpreadCalls(service)
        self.pops = PopCalls(service)
        self.fleet = FleetCalls(service)
        self.firewalls = FirewallCalls(service)
        self.points = PointCalls(service)
        self.enrolment = EnrolmentCalls(service)
        self.onboarding = OnboardingCalls(service)
        self.certificates = CertificateCalls(service)
        self.tokens = TokenCalls(service)
        self.audit = AuditCalls(service)
