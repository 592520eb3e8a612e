"""Calls of the client about machines' identities: enrolment, certificates, onboarding.

Before it has any, an enforcement point trusts the authority whose fingerprint its enrolment token carries
(`pinned_authority`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from cryptography.hazmat.primitives.serialization import Encoding

from orchestrator.client.calls import Calls, domain_path, once_header, quote_segment
from orchestrator.client.transport import ANY_VERSION, document_of
from orchestrator.errors import NotFound, Unauthenticated
from orchestrator.identity.authority import fingerprint_of
from orchestrator.identity.files import parsed_certificates
from orchestrator.identity.trust import bare_context
from orchestrator.wire.domains import MachineOnboarding
from orchestrator.wire.enrolment import (
    Authority,
    Certificate,
    Enrolment,
    EnrolmentGroup,
    Invitation,
    NewGroupToken,
    Revoked,
)


class EnrolmentCalls(Calls):
    """Enrolling enforcement points and switches, and their tokens."""

    def invite(
        self,
        domain: str,
        *,
        lasts_s: int = 3600,
        name: str | None = None,
        kind: str | None = None,
        hosts: Sequence[str] = (),
    ) -> str:
        """Create a one-time enrolment token, shown only now.

        It is bound to a name, a kind and hosts where they are given.
        """
        body: dict[str, object] = {"lasts_s": lasts_s, "name": name, "kind": kind}
        body |= {"hosts": [*hosts]} if hosts else {}
        path = f"{domain_path(domain)}/enrolment-tokens"
        return document_of(Invitation, self._service.write("POST", path, body=body)).token

    def invite_group(self, domain: str, group: str, *, kind: str, lasts_s: int = 86400) -> NewGroupToken:
        """Create an enrolment token for a group of machines, shown only now.

        The group is one of the domain's cloud.

        Raises NotFound for a service without an authority.
        """
        body = {"group": group, "kind": kind, "lasts_s": lasts_s}
        path = f"{domain_path(domain)}/enrolment-groups"
        return document_of(NewGroupToken, self._service.write("POST", path, body=body))

    def read_group_tokens(self, domain: str) -> Iterator[EnrolmentGroup]:
        """Those of a domain that still hold, without their secrets."""
        return self._service.documents(EnrolmentGroup, f"{domain_path(domain)}/enrolment-groups")

    def remove_group_token(self, domain: str, number: int) -> None:
        """Make a group's token invalid. Raises NotFound."""
        self._service.write("DELETE", f"{domain_path(domain)}/enrolment-groups/{number}", etag=ANY_VERSION)

    def enrol(
        self, token: str, *, name: str, kind: str, csr: str | None = None, instance: str | None = None
    ) -> Enrolment:
        """Use up an enrolment token.

        Raises Unauthenticated when it is wrong, expired or used up, and what else the service may have against it.
        """
        body = {"token": token, "name": name, "kind": kind, "csr": csr, "instance": instance}
        said = {key: value for key, value in body.items() if value is not None}
        return document_of(Enrolment, self._service.ask("POST", "/v1/enrol", body=said))

    def enrol_switch(self, token: str, *, name: str, csr: str) -> Certificate:
        """Use up an enrolment token of kind `switch` for a host's switch certificate.

        The authority's certificate comes with it; earlier ones of the switch become invalid. Raises as `enrol`.
        """
        body = {"token": token, "name": name, "csr": csr}
        return document_of(Certificate, self._service.ask("POST", "/v1/enrol/switch", body=body))

    def read_authority(self) -> str:
        """The certificate (PEM) of the service's authority. Raises NotFound where it has none."""
        return self._service.read_document(Authority, "/v1/authority").certificate


class CertificateCalls(Calls):
    """Certificates of the service's authority."""

    def issue_for_switch(self, domain: str, host: str, csr: str, *, also: Sequence[str] = ()) -> Certificate:
        """A certificate for the switch of a host, or of several, with the authority's.

        Raises NotFound, BadInput, Conflict.
        """
        path = f"{domain_path(domain)}/hosts/{quote_segment(host)}/certificate"
        return document_of(Certificate, self._service.write("POST", path, body={"csr": csr, "also": [*also]}))

    def read_revoked_switches(self, domain: str) -> frozenset[str]:
        """The serials of switches' certificates that the domain's controllers must refuse."""
        return frozenset(self._service.read_document(Revoked, f"{domain_path(domain)}/revoked-switches").serials)

    def read_all(self, domain: str | None = None) -> Iterator[Certificate]:
        """Every certificate that was issued, until 90 days after its end."""
        return self._service.documents(Certificate, "/v1/certificates", domain=domain)

    def revoke(self, serial: str) -> None:
        """Make a certificate invalid, at once. Raises NotFound."""
        self._service.write("DELETE", f"/v1/certificates/{quote_segment(serial)}", etag=ANY_VERSION)


class OnboardingCalls(Calls):
    """Machines that become hosts."""

    def begin(self, domain: str, asked: Mapping[str, object], *, key: str | None = None) -> MachineOnboarding:
        """Start to make a machine a host.

        `asked` is as the REST interface says it (`NewHost`).

        Raises BadInput, Conflict, NotFound.
        """
        path = f"{domain_path(domain)}/hosts"
        return document_of(MachineOnboarding, self._service.write("POST", path, body=asked, headers=once_header(key)))

    def read(self, domain: str, host: str) -> MachineOnboarding:
        """Return how far a machine's onboarding has got. Raises NotFound."""
        return self._service.read_document(MachineOnboarding, _path(domain, host))

    def read_all(self, domain: str) -> Iterator[MachineOnboarding]:
        """All of a domain, by the name of the host."""
        return self._service.documents(MachineOnboarding, f"{domain_path(domain)}/onboardings")

    def give_back(self, domain: str, host: str) -> MachineOnboarding:
        """Have a machine's switch closed, and the host forgotten. Raises NotFound, Conflict."""
        return document_of(MachineOnboarding, self._service.write("DELETE", _path(domain, host)))


def _path(domain: str, host: str) -> str:
    return f"{domain_path(domain)}/onboardings/{quote_segment(host)}"


class Stranger(Protocol):
    """An unverified service at an address: a client's `enrolment`."""

    def read_authority(self) -> str:
        """The certificate of the service's authority. Raises NotFound where it has none."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


def pinned_authority(url: str, pin: bytes, connect: Callable[[str, ssl.SSLContext | None], Stranger]) -> str:
    """Return the certificate (PEM) of the authority with a fingerprint.

    The service that answers is not trusted meanwhile.

    Raises Unauthenticated where it has another one or none, BadInput, and what else a request does.
    """
    office = connect(url, bare_context())
    try:
        said = office.read_authority()
    except NotFound:
        raise Unauthenticated("the token is of a service with an authority, and this one has none") from None
    finally:
        office.close()
    found = [each for each in parsed_certificates(said.encode(), "authority") if fingerprint_of(each) == pin]
    if not found:
        raise Unauthenticated(
            f"whoever answers at {url} has not the authority that the token says: it is not the "
            "service that made the token, or its authority is a new one since; nothing was sent"
        )
    return found[0].public_bytes(Encoding.PEM).decode()
