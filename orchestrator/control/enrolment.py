"""Enrol machines: check their proof, ask their cloud, have the authority sign.

    enrol   a one-time token  ──────────────────────────▶ store: used up, enforcer made, certificate kept
            a group's token   ──▶ cloud vouches?  ───────▶ store: instance admitted, ...
    renew   a valid certificate, with a new key ─────────▶ store: a second certificate; the first until it is laid down
            a valid token ───────────────────────────────▶ store: a second token; the first until it is laid down
    switch  an administrator brings a switch's request ──▶ store: a certificate that stands for nobody at the service
            or a one-time token does, for that switch ───▶ store: and those that the switch had are valid no more

Everything is refused without an authority but enrolling without a key, for a service that does not speak TLS. A refusal
is an event, and a client that fails often waits.

Secrets here are too long to be guessed, so `Attempts` is not what keeps them: it keeps failures cheap, and the log
readable. An IPv6 address counts with its neighbours (/64), for one machine has as many of them as it likes.

`vouched` is the second half of a group token's proof. The token is in the user data of every member of the group, and
user data leaks. So a machine is only admitted as an instance that its cloud has in the group just now, and only from an
address that the cloud gave to that instance: an attacker would need that instance's own place in the network, too.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from orchestrator.cloud.base import Cloud, VnfState
from orchestrator.control.units import NO_DOMAIN, Units
from orchestrator.errors import BadInput, ChangeTheRequest, Forbidden, NotAllowed, NotFound, TooOften, TryAgain
from orchestrator.identity.authority import MACHINE_LASTS, SWITCH_LASTS, Authority, Issued
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import EnrolmentToken, KeyRequest, read_request
from orchestrator.policy.addresses import find_network
from orchestrator.store.points.enrolments import EnrolmentGroup, Member, Signer
from orchestrator.store.points.pointrecords import CertificateRecord, Enrolled
from orchestrator.store.records import NewToken, Principal
from orchestrator.store.tokens import is_due
from orchestrator.store.unit import Unit
from orchestrator.wire.enrolment import PointToken


class Attempts:
    """Failures of the last `window_s` seconds by address.

    `most` at most, of `kept` addresses. Safe between threads.
    """

    def __init__(
        self, clock_s: Callable[[], float], *, most: int = 10, window_s: float = 60.0, kept: int = 4096
    ) -> None:
        self._clock_s = clock_s
        self._most = most
        self._window_s = window_s
        self._kept = kept
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises TooOften, which says for how long to wait."""
        now = self._clock_s()
        with self._lock:
            failures = self._list_recent(find_network(address), now)
        if len(failures) >= self._most:
            wait_s = self._window_s - (now - failures[0])
            raise TooOften(f"{len(failures)} attempts from {address} have failed: wait {wait_s:.0f} s")

    def note_failure(self, address: str) -> None:
        """Record a failure.

        Of more addresses than are kept, the one that failed longest ago is forgotten.
        """
        now, who = self._clock_s(), find_network(address)
        with self._lock:
            failures = self._list_recent(who, now)
            failures.append(now)
            self._failures[who] = failures
            self._failures.move_to_end(who)
            while len(self._failures) > self._kept:
                self._failures.popitem(last=False)

    def forget_failures(self, address: str) -> None:
        """Forget an address's failures after a success."""
        with self._lock:
            self._failures.pop(find_network(address), None)

    def _list_recent(self, who: str, now: float) -> deque[float]:
        failures = self._failures.get(who) or deque(maxlen=self._most)
        while failures and now - failures[0] >= self._window_s:
            failures.popleft()
        return failures


CloudOf = Callable[[str], Cloud | None]
"""The cloud of a domain; None where it has none."""

_THERE = frozenset({VnfState.COMING, VnfState.RUNNING})


def name_by_cloud(cloud: Cloud, group: str, instance: str, address: str) -> str | None:
    """Return the name of a group's instance with an address, by its cloud, or None.

    Raises what the cloud raises.
    """
    wanted = _plain(address)
    if wanted is None:
        return None
    for vnf in cloud.list(group):
        known = {_plain(each) for each in vnf.addresses}
        if vnf.instance_id == instance and vnf.state in _THERE and wanted in known:
            return vnf.name
    return None


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address as a value.

    An IPv4 address that was written as an IPv6 one is the same.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if found.version == 6 else None
    return mapped or found


log = structlog.get_logger()

_Got = TypeVar("_Got")


@dataclass(frozen=True, slots=True)
class Applicant:
    """A machine that wants to enrol.

    `request` is a certificate request in PEM, `address` where it comes from.
    """

    token: str = field(repr=False)
    name: str
    kind: str
    address: str
    request: str | None = None
    instance: str | None = None


class EnrolmentDesk:
    """Where machines enrol. Safe between threads."""

    def __init__(
        self,
        control: Units,
        clock: Callable[[], dt.datetime],
        authority: Authority | None = None,
        *,
        pinned: bool = True,
        believed: str = "",
        cloud_of: CloudOf = lambda _: None,
        attempts: Attempts | None = None,
    ) -> None:
        self._control = control
        self._clock = clock
        self._authority = authority
        self._pinned = pinned
        self._believed = believed
        self._cloud_of = cloud_of
        self._attempts = attempts or Attempts(time.monotonic)

    @property
    def authority(self) -> Authority:
        """Return the service's authority. Raises NotFound for a service without one."""
        if self._authority is None:
            raise NotFound("this service has no certificate authority: it does not speak TLS with one of its own")
        return self._authority

    @property
    def believed(self) -> str:
        """The certificates (PEM) of all authorities that are believed, the present one first. Raises NotFound."""
        return self._believed or self.authority.pem

    def need_authority(self) -> None:
        """Check that the service has an authority. Raises NotFound for a service without one."""
        _ = self.authority

    def token_text(self, secret: str) -> str:
        """Return an enrolment token's text, with the authority's fingerprint if there is one."""
        pin = self._authority.fingerprint if self._authority is not None and self._pinned else None
        return EnrolmentToken(secret, pin).text

    def enrol(self, applicant: Applicant) -> Enrolled:
        """Make an enforcement point of who shows a token.

        Raises TooOften; Unauthenticated for a token that is wrong, expired or used up; Forbidden for one that is for
        somebody else, or where the cloud does not vouch; BadInput for a request that is not to be believed; Conflict
        for an instance that was admitted or a key that is in use; and TryAgain where the cloud does not answer.
        """
        return self._let_try(applicant, self._enrol_by_token)

    def enrol_switch(self, applicant: Applicant) -> CertificateRecord:
        """Issue a certificate for a switch by its token.

        Raises as `enrol`, and NotFound for a service without an authority.
        """
        self.need_authority()
        return self._let_try(applicant, self._enrol_switch)

    def renew(self, caller: Principal, request: str) -> CertificateRecord:
        """Issue a further certificate on a new key; the one shown stays valid.

        Brought again with the same key, it is answered again. Raises BadInput, Conflict for a key that somebody has.
        """
        authority, enforcer = self.authority, caller.enforcer
        if enforcer is None:
            raise Forbidden("only an enforcer renews its certificate")
        record = self._control.read(lambda unit: unit.enforcers.get(enforcer))
        asked = read_request(request, record.name)
        subject = Subject(Usage.of_kind(record.kind), record.domain, record.name)

        def sign_renewal(unit: Unit) -> CertificateRecord:
            before = unit.certificates.of_key(asked.digest)
            if before is not None and before.enforcer == enforcer:
                return before
            made = unit.certificates.keep(authority.issue(subject, asked.key, self._clock(), MACHINE_LASTS), enforcer)
            unit.certificates.revoke_others(enforcer, [caller.token_id, *([made.token] if made.token else [])])
            unit.events.append("certificate.renewed", record.domain, {"name": record.name, "serial": made.serial})
            return made

        return self._control.write(sign_renewal, domain=record.domain)

    def own_token(self, caller: Principal) -> PointToken:
        """Return when the token of a caller ends, and whether it is to be renewed.

        The service says so, because the caller's clock may be wrong.
        """

        def look(unit: Unit) -> PointToken:
            record = unit.tokens.get(caller.token_id)
            return PointToken(created=record.created, expires=record.expires, due=is_due(record, unit.now))

        return self._control.read(look)

    def renew_token(self, caller: Principal) -> NewToken:
        """Make a further token of the enforcement point that asks; the one shown stays valid.

        Raises Conflict for one that is known by a certificate.
        """
        enforcer = caller.enforcer
        if enforcer is None:
            raise Forbidden("only an enforcer renews its token")

        def work(unit: Unit) -> NewToken:
            unit.tokens.require(caller.token_id)
            made = unit.enforcers.renew_token(enforcer, caller.token_id)
            known = unit.enforcers.get(enforcer)
            said = {"name": known.name, "replaces": caller.token_id}
            unit.events.append("enforcer.renewed", known.domain, said)
            return made

        return self._control.write(work, domain=caller.domain)

    def lay_down(self, caller: Principal) -> None:
        """Withdraw everything of the calling enforcement point except what it shows now."""
        enforcer = caller.enforcer
        if enforcer is None:
            raise Forbidden("only an enforcer lays its certificates down")
        self._control.write(
            lambda unit: unit.certificates.revoke_others(enforcer, [caller.token_id]), domain=caller.domain
        )

    def issue_switch(self, domain: str, hosts: Sequence[str], request: str, by: str) -> CertificateRecord:
        """Issue a certificate for the switch of one or several hosts.

        Several where one Open vSwitch is all of them, there already or to come; one that they had before stays valid.

        Brought again with the same key, it is answered again. Raises NotFound, BadInput, Conflict.
        """
        authority = self.authority
        asked = read_request(request, hosts[0])
        subject, *also = (Subject(Usage.SWITCH, domain, host) for host in hosts)

        def sign_switch(unit: Unit) -> CertificateRecord:
            unit.domains.get(domain)
            before = unit.certificates.of_key(asked.digest)
            if before is not None and before.subject == subject:
                return before
            issued = authority.issue(subject, asked.key, self._clock(), SWITCH_LASTS, also=also)
            made = unit.certificates.keep(issued)
            said = {"by": by, "name": ", ".join(hosts), "serial": made.serial}
            unit.events.append("certificate.issued", domain, said)
            return made

        return self._control.write(sign_switch, domain=domain)

    # ------------------------------------------------------------------------------------------------------- steps

    def _let_try(self, applicant: Applicant, work: Callable[[Applicant], _Got]) -> _Got:
        self._attempts.check(applicant.address)
        try:
            got = work(applicant)
        except (NotAllowed, ChangeTheRequest) as error:
            self._attempts.note_failure(applicant.address)
            self._tell_refusal(applicant, error.reason)
            raise
        self._attempts.forget_failures(applicant.address)
        return got

    def _enrol_switch(self, applicant: Applicant) -> CertificateRecord:
        secret, name = EnrolmentToken.parse(applicant.token).secret, applicant.name
        asked = read_request(applicant.request or "", name)
        signer = Signer(asked.digest, lambda subject: self._issue_certificate(subject, asked, SWITCH_LASTS))

        def sign_first(unit: Unit) -> CertificateRecord:
            made = unit.enforcers.sign_switch(secret, name, signer)
            if made.issued == unit.now:
                said = {"by": "its token", "name": name, "serial": made.serial}
                unit.events.append("certificate.issued", made.subject.domain, said)
            return made

        return self._control.write(sign_first, domain=self._find_domain(secret))

    def _enrol_by_token(self, applicant: Applicant) -> Enrolled:
        secret = EnrolmentToken.parse(applicant.token).secret
        group = self._control.read(lambda unit: unit.enforcers.group_of(secret))
        if group is not None:
            return self._admit_instance(applicant, group)
        signer = self._signer(applicant, applicant.name)

        def enrol_in_store(unit: Unit) -> Enrolled:
            new = unit.enforcers.enrol(secret, name=applicant.name, kind=applicant.kind, signer=signer)
            return _log_joined(unit, new, {})

        return self._control.write(enrol_in_store, domain=self._find_domain(secret))

    def _admit_instance(self, applicant: Applicant, group: EnrolmentGroup) -> Enrolled:
        """Enrol a machine of a group under its cloud's name for it."""
        instance, address = applicant.instance, applicant.address
        if instance is None:
            raise BadInput("a group's token needs the id of the instance: say it", place="instance")
        if applicant.kind != group.kind:
            raise Forbidden(f"the enrolment token is for the kind '{group.kind}'", place="token")
        signer = self._signer(applicant, applicant.name)
        cloud = self._cloud_of(group.domain)
        if signer is None or cloud is None:
            raise Forbidden("there is no cloud that vouches for machines of this domain", place="token")
        name = name_by_cloud(cloud, group.name, instance, address)
        if name is None:
            raise Forbidden(
                f"the cloud has no instance '{instance}' with the address {address} in the group '{group.name}'",
                place="instance",
            )
        member = Member(instance, address, name)
        return self._control.write(
            lambda unit: _log_joined(
                unit, unit.enforcers.admit(group, member, signer), {"instance": instance, "address": address}
            ),
            domain=group.domain,
        )

    def _signer(self, applicant: Applicant, name: str) -> Signer | None:
        """Return the signer for an applicant; None for a service without an authority.

        Raises BadInput.
        """
        if self._authority is None:
            if applicant.request is not None:
                raise BadInput("this service has no certificate authority to sign it: enrol without", place="csr")
            return None
        if applicant.request is None:
            raise BadInput("this service knows machines by certificates: send a certificate request", place="csr")
        asked = read_request(applicant.request, name)
        return Signer(asked.digest, lambda subject: self._issue_certificate(subject, asked, MACHINE_LASTS))

    def _issue_certificate(self, subject: Subject, asked: KeyRequest, lasts: dt.timedelta) -> Issued:
        return self.authority.issue(subject, asked.key, self._clock(), lasts)

    def _find_domain(self, secret: str) -> str:
        """Return the domain of a one-time token.

        `NO_DOMAIN` for one that is not known, and will be refused.
        """
        return self._control.read(lambda unit: unit.enforcers.find_domain(secret)) or NO_DOMAIN

    def _tell_refusal(self, applicant: Applicant, reason: str) -> None:
        log.warning("enrolment.refused", address=applicant.address, name=applicant.name, reason=reason)
        said = {"address": applicant.address, "name": applicant.name, "reason": reason}
        try:
            self._control.write(
                lambda unit: unit.events.append("enrolment.refused", applicant.name, said), domain=NO_DOMAIN
            )
        except TryAgain as error:  # what is refused stays refused
            log.warning("enrolment.not_told", error=str(error))


def _log_joined(unit: Unit, new: Enrolled, more: dict[str, str]) -> Enrolled:
    """Log that a machine joined, once even if an answer was lost."""
    record, certificate = new.enforcer, new.certificate
    if certificate is None or certificate.issued == unit.now:
        serial = {"serial": certificate.serial} if certificate is not None else {}
        said = {"name": record.name, "id": record.id, **serial, **more}
        unit.events.append("enforcer.enrolled", record.domain, said)
    return new
