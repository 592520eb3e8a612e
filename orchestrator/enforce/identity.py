"""An enforcement point's key and certificate, or its token: obtained at enrolment, renewed in time.

    first time    pending.key ──request──▶ service ──certificate──▶ identity.pem ──▶ credentials.json
    renewal       pending.key ──request──▶ service ──certificate──▶ identity.pem ──▶ new connections ──▶ the old one is
                                                                                     laid down

    a token       is due, says the service ──token──▶ credentials.json ──▶ new requests ──▶ the old one is laid down

The key of a request is on the disk before it is sent, so that whoever was killed, or whose answer was lost, asks again
with the same one and is given the same answer. A renewal interrupts nothing: connections that are open end as they
would have, and the old certificate is laid down when none can be left.
"""

from __future__ import annotations

import datetime as dt
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from orchestrator.enforce.state import Credentials, StateDir
from orchestrator.errors import BadInput, Missing, NotFound, Unauthenticated
from orchestrator.identity.authority import is_due, is_signed_by
from orchestrator.identity.files import (
    encoded_key,
    parsed_certificate,
    parsed_certificates,
    read_certificate,
    read_key,
    write_file,
    write_key,
)
from orchestrator.identity.requests import PrivateKey, new_key, request_of
from orchestrator.identity.trust import client_context, load_chain
from orchestrator.wire.enrolment import Certificate, PointToken, RenewedToken

log = structlog.get_logger()

ENROL_AGAIN = (
    "it was revoked, or this machine was away until it had ended: remove credentials.json from its state directory, "
    "give it a new enrolment token (`aclflow domain invite`) and start it again"
)
"""The advice about a token that the service does not take."""
LAID_DOWN_AFTER_S = 120.0
"""How long after a renewal the old certificate goes: no stream is held for longer than 60 s."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The key and the certificate in an enforcement point's state directory."""

    state: StateDir

    @property
    def exists(self) -> bool:
        """Whether there is one; an enforcement point of a service without TLS has none."""
        return self.state.identity_file.exists()

    def certificate(self) -> x509.Certificate:
        """Read our certificate. Raises Missing, BadInput."""
        return read_certificate(self.state.identity_file)

    def has_ended(self, now: dt.datetime) -> bool:
        """Whether our certificate, or the token in its place, is valid no more."""
        ends = self.certificate().not_valid_after_utc if self.exists else self.state.token_ends()
        return ends is not None and now >= ends

    def is_due(self, now: dt.datetime) -> bool:
        """Return whether two thirds of the certificate's time are over, or the authority changed."""
        return is_due(self.certificate(), now) or not self._is_by_present_authority()

    def _is_by_present_authority(self) -> bool:
        """Whether the first authority that we were told has signed our certificate."""
        pem = self.certificate().public_bytes(Encoding.PEM).decode()
        return is_signed_by(pem, read_certificate(self.state.authority_file))

    def learn(self, authorities: str) -> bool:
        """Keep which authorities the service believes (PEM); return whether that is new.

        To be asked over a connection on which the service has proven itself. Raises BadInput, Missing.
        """
        parsed_certificates(authorities.encode(), "authority")
        if self.state.authority_file.exists() and self.state.authority_file.read_text() == authorities:
            return False
        write_file(self.state.authority_file, authorities.encode(), 0o600)
        return True

    def request(self, name: str) -> str:
        """Return a certificate request (PEM) for the pending key.

        A new key is made where there is none, or where it has a certificate that we no longer need to ask for: it is
        being renewed, or has ended.
        """
        key = self._find_pending()
        if key is None:
            key = new_key()
            write_key(self.state.pending_file, key)
        return request_of(key, name)

    def adopt(self, certificate: str) -> None:
        """Adopt a certificate (PEM) for the pending key.

        Raises BadInput for one of another key, Missing.
        """
        key = read_key(self.state.pending_file)
        if parsed_certificate(certificate.encode(), "certificate").public_key() != key.public_key():
            raise BadInput("the service has signed another key than ours", place="certificate")
        write_file(self.state.identity_file, encoded_key(key) + certificate.encode(), 0o600)

    def _find_pending(self) -> PrivateKey | None:
        try:
            key = read_key(self.state.pending_file)
        except (Missing, BadInput):
            return None
        is_enrolling = self.state.credentials() is None
        is_ours = self.exists and self.certificate().public_key() == key.public_key()
        return key if is_enrolling or not is_ours else None

    def trust(self, authority: Path | None) -> ssl.SSLContext:
        """Return a TLS context that trusts an authority and shows our certificate, if any.

        None: the machine's authorities.

        Where a token has pinned the authority that we enrolled with, that one is believed instead. Raises Missing,
        BadInput.
        """
        context = client_context(self._believed_authorities(authority))
        if self.exists:
            self.show(context)
        return context

    def _believed_authorities(self, authority: Path | None) -> str | None:
        """Return the authorities (PEM) by which we know the service; None: the machine's.

        Where the one that was given is among those that the service told us, we believe all of these: it is being
        rolled over. Raises Missing, BadInput.
        """
        credentials = self.state.credentials()
        believed = self.state.authority_file if credentials is not None and credentials.pinned else authority
        if believed is None:
            return None
        try:
            given = believed.read_text()
            told = self.state.authority_file.read_text() if self.state.authority_file.exists() else ""
        except OSError as error:
            raise Missing(f"cannot be read: {error.strerror}", place=str(believed)) from None
        is_ours = told and set(_parse_authorities(given)) & set(_parse_authorities(told))
        return given + told if is_ours and told != given else given

    def show(self, context: ssl.SSLContext) -> None:
        """Show our certificate on every connection from now on. Raises Missing, BadInput."""
        read_key(self.state.identity_file)  # it refuses one that others may read
        load_chain(context, self.state.identity_file, self.state.identity_file)


def _parse_authorities(pem: str) -> list[x509.Certificate]:
    return parsed_certificates(pem.encode(), "authority")


class Registry(Protocol):
    """Renews certificates: a client's `points`."""

    def renew_certificate(self, domain: str, enforcer: int, csr: str) -> Certificate:
        """Return a further certificate, for a new request."""
        ...

    def lay_down_certificates(self, domain: str, enforcer: int) -> None:
        """Make all others invalid."""
        ...


class Renewal:
    """Keeps the certificate of an enforcement point fresh: `look` now and then (`Chore`).

    `read_authority` tells which authorities (PEM) the service believes, the one that signs first. `connect_anew` is
    called when certificate or authorities changed: it makes new connections by what is on the disk.
    """

    def __init__(
        self,
        identity: Identity,
        credentials: Credentials,
        registry: Registry,
        read_authority: Callable[[], str],
        connect_anew: Callable[[], None],
        *,
        laid_down_after_s: float = LAID_DOWN_AFTER_S,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._identity = identity
        self._credentials = credentials
        self._registry = registry
        self._read_authority = read_authority
        self._connect_anew = connect_anew
        self._laid_down_after_s = laid_down_after_s
        self._now = now
        self._is_connected = True
        """Whether new connections are made by what is on the disk."""
        self._switched_s: float | None = None

    def look(self) -> None:
        """Ask which authorities the service believes, and renew a due certificate.

        The certificate before is dropped later. Raises what a request does, and Missing where nothing can be kept; then
        it is done the next time.
        """
        self._connect()
        if self._switched_s is not None:
            if time.monotonic() - self._switched_s >= self._laid_down_after_s:
                self._registry.lay_down_certificates(self._credentials.domain, self._credentials.enforcer)
                self._switched_s = None
            return
        self._ask()
        if self._identity.is_due(self._now()):
            self._renew()

    @property
    def is_switching(self) -> bool:
        """Whether an old certificate is still to be laid down."""
        return self._switched_s is not None

    def _ask(self) -> None:
        """Learn which authorities the service believes."""
        said = self._read_authority()
        if self._identity.learn(said):
            self._is_connected = False
            log.info("authority.learned", certificates=said.count("BEGIN CERTIFICATE"))
            self._connect()

    def _renew(self) -> None:
        """Have the certificate renewed, and connect anew with it."""
        known = self._credentials
        request = self._identity.request(known.name)
        got = self._registry.renew_certificate(known.domain, known.enforcer, request)
        self._identity.adopt(got.certificate)
        self._is_connected, self._switched_s = False, time.monotonic()
        self._connect()
        log.info("certificate.renewed", serial=got.serial, ends=got.ends.isoformat())

    def _connect(self) -> None:
        """Make new connections by what is on the disk, where that changed."""
        if not self._is_connected:
            self._connect_anew()
            self._is_connected = True


class TokenRegistry(Protocol):
    """Renews tokens: a client's `points`."""

    def read_token(self, domain: str, enforcer: int) -> PointToken:
        """How long our token lasts, and whether it is due."""
        ...

    def renew_token(self, domain: str, enforcer: int) -> RenewedToken:
        """Return a further token, beside the present one."""
        ...

    def show_token(self, token: str) -> None:
        """Show it from now on."""
        ...

    def lay_down_certificates(self, domain: str, enforcer: int) -> None:
        """Make all others invalid."""
        ...


class TokenRenewal:
    """Renews the token of an enforcement point without a certificate: `look` now and then (`Chore`).

    The service says when it is due, so a wrong clock of this machine does no harm. A token whose answer was lost is
    revoked with the next renewal; until then, and while the service is away, the old one serves.
    """

    def __init__(
        self,
        state: StateDir,
        credentials: Credentials,
        registry: TokenRegistry,
        *,
        laid_down_after_s: float = LAID_DOWN_AFTER_S,
    ) -> None:
        self._state = state
        self._credentials = credentials
        self._registry = registry
        self._laid_down_after_s = laid_down_after_s
        self._switched_s: float | None = None

    def look(self) -> None:
        """Renew a due token; some time later, lay the one before down.

        Raises what a request does, Unauthenticated with what to do for a token that has ended, and Missing where
        nothing can be kept; then it is done the next time.
        """
        try:
            if self._switched_s is None:
                self._look_at_token(self._credentials.domain, self._credentials.enforcer)
            elif time.monotonic() - self._switched_s >= self._laid_down_after_s:
                self._registry.lay_down_certificates(self._credentials.domain, self._credentials.enforcer)
                self._switched_s = None
        except NotFound:
            return  # a service of an older version, whose tokens do not end
        except Unauthenticated as error:
            raise Unauthenticated(f"{error.reason}; {ENROL_AGAIN}") from None

    def _look_at_token(self, domain: str, enforcer: int) -> None:
        held = self._registry.read_token(domain, enforcer)
        if held.due:
            self._renew(domain, enforcer)
        elif held.expires != self._state.token_ends():
            self._state.keep_token_ends(held.expires)

    def _renew(self, domain: str, enforcer: int) -> None:
        """Get a new token, keep it on the disk, and use it from now on."""
        self._state.check()  # a token that cannot be kept would be lost with this process
        got = self._registry.renew_token(domain, enforcer)
        self._state.keep_token_ends(got.expires)
        self._state.change_credentials(self._credentials, token=got.token)
        self._registry.show_token(got.token)
        self._switched_s = time.monotonic()
        log.info("token.renewed", ends=None if got.expires is None else got.expires.isoformat())
