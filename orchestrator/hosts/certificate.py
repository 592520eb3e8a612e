"""The certificate of this machine's switch, got with a one-time token and nothing else.

    FOLDER/authority.pem   whom to believe: the authority that the token pins, if it pins one
    FOLDER/switch.pending  the key that a certificate is asked for, from before it is asked until it is there
    FOLDER/switch.pem      key and certificate in one file, replaced as a whole: a pair always belongs together

Killed at any step it is begun again, with the same key, for which the service gives the same answer. Open vSwitch reads
its files anew when they change, so it may be configured before they are there.
"""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography import x509

from orchestrator.client.enrolment import Stranger, pinned_authority
from orchestrator.errors import BadInput, Missing
from orchestrator.identity.authority import fingerprint_of, is_due
from orchestrator.identity.files import (
    encoded_key,
    parsed_certificate,
    read_certificate,
    read_key,
    write_file,
    write_key,
)
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import EnrolmentToken, PrivateKey, new_key, request_of
from orchestrator.identity.trust import client_context
from orchestrator.wire.enrolment import Certificate


class Office(Stranger, Protocol):
    """Where switches' certificates are given out: a client's `enrolment`."""

    def enrol_switch(self, token: str, *, name: str, csr: str) -> Certificate:
        """A certificate for a one-time token."""
        ...


Connect = Callable[[str, ssl.SSLContext | None], Office]
"""Opens a way to the service at a URL."""


@dataclass(frozen=True, slots=True)
class SwitchCertificate:
    """The identity that this machine's switch shall have, and the paths of its files."""

    domain: str
    host: str
    folder: Path

    @property
    def file(self) -> Path:
        """Key and certificate."""
        return self.folder / "switch.pem"

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def pending(self) -> Path:
        return self.folder / "switch.pending"

    def obtain(self, url: str, token: str, authority: Path | None, connect: Connect, now: dt.datetime) -> bool:
        """Obtain a switch certificate that holds for another third of its time.

        Returns whether that took a new one. `authority`: the one to believe where the token does not say.

        Raises BadInput, Missing, Unauthenticated (the token is wrong or was used by somebody else, or pins an authority
        that the service does not have), TryAgain while the service is away.
        """
        asked = EnrolmentToken.parse(token)
        if self._is_good(asked.pin, now):
            self.pending.unlink(missing_ok=True)
            return False
        if not token:
            raise Missing("there is no certificate that holds, so a one-time token is needed", place="token")
        if not url.startswith("https://"):
            raise BadInput(
                "only a service that speaks TLS gives out certificates: say its https:// address", place="url"
            )
        believed = self._find_authority(url, asked.pin, authority, connect)
        key = self._asking_key()
        office = connect(url, client_context(believed))
        try:
            made = office.enrol_switch(asked.secret, name=self.host, csr=request_of(key, self.host))
        finally:
            office.close()
        self._keep_files(key, made, believed)
        return True

    def _is_good(self, pin: bytes | None, now: dt.datetime) -> bool:
        try:
            held, believed = read_certificate(self.file), read_certificate(self.authority)
        except (Missing, BadInput):
            return False
        if pin not in (None, fingerprint_of(believed)):
            return False
        return self._name_uri() in _list_names(held) and not is_due(held, now)

    def _find_authority(self, url: str, pin: bytes | None, authority: Path | None, connect: Connect) -> str | None:
        if pin is not None:
            return pinned_authority(url, pin, connect)
        if authority is None:
            return None
        try:
            return authority.read_text()
        except OSError as error:
            raise Missing(f"cannot be read: {error.strerror}", place=str(authority)) from None

    def _asking_key(self) -> PrivateKey:
        """Return the pending key, or a new one.

        A new one is made where there is none, or where it has its certificate already.
        """
        pending, held = _read_pending_key(self.pending), _read_pending_key(self.file)
        if pending is not None and (held is None or pending.public_key() != held.public_key()):
            return pending
        key = new_key()
        try:
            self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise Missing(f"cannot be made: {error.strerror}", place=str(self.folder)) from None
        write_key(self.pending, key)
        return key

    def _keep_files(self, key: PrivateKey, made: Certificate, believed: str | None) -> None:
        certificate = parsed_certificate(made.certificate.encode(), "certificate")
        if certificate.public_key() != key.public_key() or self._name_uri() not in _list_names(certificate):
            raise BadInput("the service has signed something else than was asked for", place="certificate")
        write_file(self.authority, (believed or made.authority).encode(), 0o644)
        write_file(self.file, encoded_key(key) + made.certificate.encode(), 0o600)
        self.pending.unlink(missing_ok=True)

    def _name_uri(self) -> str:
        """Return the name that the switch's certificate must have."""
        return Subject(Usage.SWITCH, self.domain, self.host).uri


def _read_pending_key(path: Path) -> PrivateKey | None:
    try:
        return read_key(path)
    except (Missing, BadInput):
        return None


def _list_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)
