"""Who machines are: what they get when they enrol, and the calls of the client about it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.client.paths import domain_path, enforcer_path, quoted
from orchestrator.client.records import Json, time_of
from orchestrator.client.transport import ANY_VERSION, Transport, json_of


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The answer to an enrolment: who we are from now on, and a certificate with the authority's (PEM), or a bearer
    token, which is seen only now."""

    enforcer: int
    domain: str
    token: str
    epoch: int
    name: str = ""
    certificate: str = ""
    authority: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of a machine, in PEM, and its authority's where that was asked for."""

    serial: str
    usage: str
    domain: str
    name: str
    issued: dt.datetime
    ends: dt.datetime
    revoked: dt.datetime | None
    valid: bool
    certificate: str
    authority: str

    @classmethod
    def of(cls, body: Json) -> Certificate:
        times = {key: time_of(body[key]) for key in ("issued", "ends", "revoked")}
        return cls(**{**body, **times})


@dataclass(frozen=True, slots=True)
class GroupToken:
    """A token that the machines of a group enrol with; `token` is empty where it is only listed."""

    id: int
    domain: str
    group: str
    expires: dt.datetime
    token: str = field(default="", repr=False)
    kind: str = ""

    @classmethod
    def of(cls, body: Json) -> GroupToken:
        expires = dt.datetime.fromisoformat(body["expires"])
        return cls(body["id"], body["domain"], body["group"], expires, body.get("token", ""), body.get("kind", ""))


class EnrolmentCalls:
    """Enrolling, and what the certificate authority of the service has issued."""

    _service: Transport

    def invite_enforcer(
        self,
        domain: str,
        *,
        lasts_s: int = 3600,
        name: str | None = None,
        kind: str | None = None,
        hosts: Sequence[str] = (),
    ) -> str:
        """A one-time enrolment token, seen only now; bound to a name, a kind and hosts where they are given."""
        body: dict[str, object] = {"lasts_s": lasts_s, "name": name, "kind": kind}
        body |= {"hosts": [*hosts]} if hosts else {}
        return str(json_of(self._service.write("POST", f"{domain_path(domain)}/enrolment-tokens", body=body))["token"])

    def invite_group(self, domain: str, group: str, *, kind: str, lasts_s: int = 86400) -> GroupToken:
        """A token that the machines of a group in the domain's cloud enrol with, seen only now.

        Raises NotFound for a service without an authority.
        """
        body = {"group": group, "kind": kind, "lasts_s": lasts_s}
        return GroupToken.of(json_of(self._service.write("POST", f"{domain_path(domain)}/enrolment-groups", body=body)))

    def group_tokens(self, domain: str) -> Iterator[GroupToken]:
        """Those of a domain that still hold, without their secrets."""
        return map(GroupToken.of, self._service.pages(f"{domain_path(domain)}/enrolment-groups"))

    def remove_group_token(self, domain: str, number: int) -> None:
        """Raises NotFound."""
        self._service.write("DELETE", f"{domain_path(domain)}/enrolment-groups/{number}", etag=ANY_VERSION)

    def enrol(
        self, token: str, *, name: str, kind: str, csr: str | None = None, instance: str | None = None
    ) -> Enrolment:
        """Use up an enrolment token. Raises Unauthenticated when it is wrong, expired or used up, and what else the
        service may have against it."""
        body = {"token": token, "name": name, "kind": kind, "csr": csr, "instance": instance}
        said = {key: value for key, value in body.items() if value is not None}
        return Enrolment(**json_of(self._service.ask("POST", "/v1/enrol", body=said)))

    def enrol_switch(self, token: str, *, name: str, csr: str) -> Certificate:
        """Use up an enrolment token of the kind `switch`: a certificate for the switch of a host, with the authority's;
        those that it had are valid no more. Raises as `enrol`."""
        body = {"token": token, "name": name, "csr": csr}
        return Certificate.of(json_of(self._service.ask("POST", "/v1/enrol/switch", body=body)))

    def authority(self) -> str:
        """The certificate (PEM) of the service's authority. Raises NotFound where it has none."""
        return str(self._service.read("/v1/authority")["certificate"])

    def renew_certificate(self, domain: str, enforcer: int, csr: str) -> Certificate:
        """A further certificate for the enforcer that we are, on a new key."""
        answer = self._service.ask("POST", f"{enforcer_path(domain, enforcer)}/certificate", body={"csr": csr})
        return Certificate.of(json_of(answer))

    def lay_down_certificates(self, domain: str, enforcer: int) -> None:
        """Make all certificates of the enforcer that we are invalid but the one of this connection."""
        self._service.ask("DELETE", f"{enforcer_path(domain, enforcer)}/certificates")

    def reconnect(self) -> None:
        """Make new connections from now on, with the certificate of that time; requests under way end on theirs."""
        self._service.reconnect()

    def issue_switch(self, domain: str, host: str, csr: str, *, also: Sequence[str] = ()) -> Certificate:
        """A certificate for the switch of a host, or of several, with the authority's.

        Raises NotFound, BadInput, Conflict.
        """
        path = f"{domain_path(domain)}/hosts/{quoted(host)}/certificate"
        return Certificate.of(json_of(self._service.write("POST", path, body={"csr": csr, "also": [*also]})))

    def revoked_switches(self, domain: str) -> frozenset[str]:
        """The serials of switches' certificates that the domain's controllers must refuse."""
        return frozenset(self._service.read(f"{domain_path(domain)}/revoked-switches")["serials"])

    def certificates(self, domain: str | None = None) -> Iterator[Certificate]:
        """Every certificate that was issued, until 90 days after its end."""
        for body in self._service.bodies("/v1/certificates", domain=domain):
            yield from map(Certificate.of, body["items"])

    def revoke_certificate(self, serial: str) -> None:
        """Make a certificate invalid, at once. Raises NotFound."""
        self._service.write("DELETE", f"/v1/certificates/{quoted(serial)}", etag=ANY_VERSION)
