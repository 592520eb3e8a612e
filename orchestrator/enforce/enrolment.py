"""An enforcement point's credentials, from its disk or by enrolling with a token.

    token with a fingerprint ──▶ the authority that has it is believed, and nobody else
    token without            ──▶ `Membership.authority` is believed, else whom the machine believes
    https, and the service has an authority ──▶ known by a certificate;   else ──▶ by a bearer token

What proves who we are is on the disk before the credentials are, so that whoever finds credentials finds all of it.
"""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from orchestrator.client import Client
from orchestrator.client.enrolment import EnrolmentCalls, pinned_authority
from orchestrator.enforce.chores import Chore
from orchestrator.enforce.identity import ENROL_AGAIN, LAID_DOWN_AFTER_S, Identity, Renewal, TokenRenewal
from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.enforce.stopsignal import Stopping
from orchestrator.enforce.watch import Patience
from orchestrator.errors import BadInput, ChangeTheRequest, Missing, NotAllowed, NotFound, TryAgain, Unauthenticated
from orchestrator.identity.files import write_file
from orchestrator.identity.requests import EnrolmentToken
from orchestrator.identity.trust import client_context
from orchestrator.wire.enrolment import Enrolment

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Membership:
    """Where an enforcement point belongs. `token` is needed once; afterwards the credentials in `state_dir` serve."""

    url: str
    state_dir: Path
    name: str
    token: str = field(default="", repr=False)
    instance: str | None = None
    """The id of this machine in its cloud, for a group's token."""
    authority: Path | None = None
    """The authority's certificate (PEM) that must have signed the service's; None: one that the machine believes."""
    patience: Patience = field(default_factory=Patience)
    certificate_look_s: float = 60.0
    """How often we look whether our certificate is due, and ask which authorities the service believes."""
    plain_http: bool = False
    """Whether `url` may be without TLS and lead off this machine."""
    certificate_overlap_s: float = LAID_DOWN_AFTER_S
    """How long after a renewal the old certificate goes."""


class Office(Protocol):
    """Where to enrol: a client's `enrolment`."""

    def enrol(
        self, token: str, *, name: str, kind: str, csr: str | None = None, instance: str | None = None
    ) -> Enrolment:
        """Use up an enrolment token."""
        ...

    def read_authority(self) -> str:
        """The certificate of the service's authority. Raises NotFound where it has none."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


Connect = Callable[[str, ssl.SSLContext | None], Office]
"""Opens a way to the service at a URL; None: HTTP without TLS."""


def obtain_credentials(
    membership: Membership, kind: str, state: StateDir, connect: Connect, stopping: Stopping
) -> Credentials | None:
    """Return the credentials from the disk, else by enrolling.

    The service is waited for. None when told to stop.

    A certificate or token that has ended is as good as none where there is a token to enrol with; where that is refused
    we stay who we were, for it may be this machine's clock that is wrong. Raises Missing without credentials and token;
    Unauthenticated when the token is wrong, was used, or pins an authority that the service does not have; and what
    else the service says. Whether a bearer token has ended is the service's to say, so there the old one is returned
    where it is refused or away.
    """
    credentials, identity = state.credentials(), Identity(state)
    has_ended = credentials is not None and identity.has_ended(dt.datetime.now(dt.UTC))
    if credentials is not None and not (membership.token and has_ended):
        if has_ended and not identity.exists:
            log.warning("token.ended", do=ENROL_AGAIN)
        return credentials
    if not membership.token:
        raise Missing("there are no credentials yet, so a one-time enrolment token is needed", place="token")
    state.check()  # the token is good for one time: better to know now that its fruit cannot be kept
    applicant = _Applicant(membership, kind, identity, connect, EnrolmentToken.parse(membership.token))
    if credentials is not None:
        ended = "certificate.ended" if identity.exists else "token.ended"
        log.warning(ended, domain=credentials.domain, enforcer=credentials.enforcer)
        state.forget_who_we_were()
    has_token = credentials is not None and not identity.exists
    try:
        return _enrol(applicant, stopping, waits=not has_token)
    except (NotAllowed, ChangeTheRequest, TryAgain) as error:
        state.be_who_we_were()
        if not has_token:
            raise
        log.warning("enrolment.refused", error=str(error))
        return credentials


def _enrol(applicant: _Applicant, stopping: Stopping, *, waits: bool) -> Credentials | None:
    """Enrol and store the credentials, once the service is there; None when told to stop.

    Raises what the service says, and TryAgain where it is away and is not waited for.
    """
    membership, failures = applicant.membership, 0
    while not stopping.is_set():
        try:
            credentials = applicant.enrol()
        except TryAgain as error:
            if not waits:
                raise
            failures += 1
            log.warning("enrolment.waits", error=str(error), url=membership.url)
            stopping.wait(membership.patience.delay_s(failures, error))
        else:
            applicant.identity.state.keep_credentials(credentials)
            log.info("enrolment.done", domain=credentials.domain, enforcer=credentials.enforcer)
            return credentials
    return None


@dataclass(frozen=True, slots=True)
class Admission:
    """An enrolled enforcement point: credentials, client, and renewal."""

    credentials: Credentials
    service: Client
    identity: Identity
    membership: Membership
    trust: ssl.SSLContext | None
    """In which our certificate is shown at first; None for who bears a token."""

    def connect_anew(self) -> None:
        """Connect anew, by the certificate and authorities on the disk.

        Raises Missing, BadInput.
        """
        self.service.reconnect(self.identity.trust(self.membership.authority))

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Say what to do where the service refuses our token within the block.

        Raises Unauthenticated.
        """
        try:
            yield
        except Unauthenticated as error:
            raise error if self.trust is not None else Unauthenticated(f"{error.reason}; {ENROL_AGAIN}") from None

    def renewal(self, also_show: Callable[[], None] = lambda: None) -> Chore:
        """Return the task that renews our certificate, or our token where we have none.

        `also_show` is called when there is a new certificate, or other authorities are believed.
        """
        overlap_s, look_s = self.membership.certificate_overlap_s, self.membership.certificate_look_s
        if self.trust is None:
            fresh = TokenRenewal(
                self.identity.state, self.credentials, self.service.points, laid_down_after_s=overlap_s
            )
            return Chore("token", fresh.look, look_s)

        def connect_anew() -> None:
            self.connect_anew()
            also_show()

        renewal = Renewal(
            self.identity,
            self.credentials,
            self.service.points,
            self.service.enrolment.read_authority,
            connect_anew,
            laid_down_after_s=overlap_s,
        )
        return Chore("certificate", renewal.look, look_s)


def obtain_admission(membership: Membership, kind: str, state: StateDir, stopping: Stopping) -> Admission | None:
    """Return credentials and a client, enrolling if needed.

    None when told to stop. Raises as `obtain_credentials`.
    """

    def connect_service(url: str, trust: ssl.SSLContext | None) -> EnrolmentCalls:
        return Client(url, trust=trust, plain_http=membership.plain_http).enrolment

    credentials = obtain_credentials(membership, kind, state, connect_service, stopping)
    if credentials is None:
        return None
    identity = Identity(state)
    if not identity.exists:
        service = Client(
            membership.url, credentials.token, authority=membership.authority, plain_http=membership.plain_http
        )
        return Admission(credentials, service, identity, membership, None)
    trust = identity.trust(membership.authority)
    return Admission(credentials, Client(membership.url, trust=trust), identity, membership, trust)


@contextmanager
def kept_fresh(renewal: Chore | None) -> Iterator[None]:
    """Have a certificate renewed within the block, where there is one."""
    if renewal is None:
        yield
        return
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()


@dataclass(frozen=True, slots=True)
class _Applicant:
    """An enforcement point that enrols, perhaps again after a lost answer."""

    membership: Membership
    kind: str
    identity: Identity
    connect: Connect
    token: EnrolmentToken

    def enrol(self) -> Credentials:
        """Enrol and store the credentials.

        Raises as `obtain_credentials`, TryAgain while the service is away.
        """
        if not self.membership.url.startswith("https://"):
            if self.token.pin is not None:
                raise BadInput(
                    "the token says whose certificate to believe: give the service's https:// address", place="url"
                )
            return self._make_credentials(self._ask_office(None, None))
        pin, url = self.token.pin, self.membership.url
        authority = pinned_authority(url, pin, self.connect) if pin is not None else None
        believed = client_context(authority) if authority else self.identity.trust(self.membership.authority)
        if authority is None and not self._has_authority(believed):
            return self._make_credentials(self._ask_office(believed, None))
        found = self._ask_office(believed, self.identity.request(self.membership.name))
        write_file(self.identity.state.authority_file, (found.authority or authority or "").encode(), 0o600)
        self.identity.adopt(found.certificate)
        return self._make_credentials(found, pinned=authority is not None)

    def _ask_office(self, trust: ssl.SSLContext | None, request: str | None) -> Enrolment:
        office = self.connect(self.membership.url, trust)
        try:
            return office.enrol(
                self.token.secret,
                name=self.membership.name,
                kind=self.kind,
                csr=request,
                instance=self.membership.instance if request is not None else None,
            )
        finally:
            office.close()

    def _make_credentials(self, found: Enrolment, *, pinned: bool = False) -> Credentials:
        self.identity.state.keep_token_ends(found.expires)
        name = found.name or self.membership.name
        return Credentials(found.domain, found.enforcer, found.token, found.epoch, name, pinned)

    def _has_authority(self, believed: ssl.SSLContext) -> bool:
        office = self.connect(self.membership.url, believed)
        try:
            office.read_authority()
        except NotFound:
            return False
        finally:
            office.close()
        return True
