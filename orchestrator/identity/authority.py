"""Our certificate authority: one self-signed key, which signs only machines' certificates.

A certificate's content is decided here, by `Subject`, never by the requester. A certificate begins to be valid before
it is made (`BACKDATED`), so that a machine whose clock is behind does not refuse it, and is renewed long before it
ends, so that one whose clock is ahead does not either.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.errors import BadInput
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import PrivateKey, PublicKey, key_digest, new_key

BACKDATED = dt.timedelta(hours=24)
"""How far a machine's clock may be behind."""
AUTHORITY_LASTS = dt.timedelta(days=3650)
MACHINE_LASTS = dt.timedelta(days=30)
"""Of enforcement points, which renew theirs by themselves after two thirds of it, and of the service."""
SWITCH_LASTS = dt.timedelta(days=825)
"""Of switches, which somebody must renew: Open vSwitch cannot."""
CONSOLE_LASTS = SWITCH_LASTS
"""Of web consoles, which somebody must renew, too; browsers believe none that lasts longer."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A new certificate: `fingerprint` and `key` are SHA-256 of it and its key."""

    subject: Subject
    pem: str
    serial: str
    fingerprint: bytes
    key: bytes
    begins: dt.datetime
    ends: dt.datetime


@dataclass(frozen=True, slots=True)
class Authority:
    """A key and its self-signed certificate.

    Raises BadInput where the two do not belong together, or may not sign.
    """

    key: PrivateKey
    certificate: x509.Certificate

    def __post_init__(self) -> None:
        if self.certificate.public_key() != self.key.public_key():
            raise BadInput("the authority's key is not the one in its certificate")
        try:
            constraints = self.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        except x509.ExtensionNotFound:
            constraints = x509.BasicConstraints(ca=False, path_length=None)
        if not constraints.ca:
            raise BadInput("the certificate is not an authority's")

    @classmethod
    def create(cls, name: str, now: dt.datetime, key: PrivateKey | None = None) -> Authority:
        """Create an authority, with a new key or this.

        Raises BadInput for a name that cannot stand in a certificate.
        """
        key = key or new_key()
        called = _name(name)
        builder = _begin_certificate(called, called, key.public_key(), now, AUTHORITY_LASTS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> str:
        """Its certificate, for those who shall believe it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def derive_key(self, purpose: str) -> bytes:
        """Return a secret of 32 bytes for one purpose, which follows from the key."""
        encoding, form = serialization.Encoding.DER, serialization.PrivateFormat.PKCS8
        secret = self.key.private_bytes(encoding, form, serialization.NoEncryption())
        return HKDF(hashes.SHA256(), 32, None, purpose.encode()).derive(secret)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of its certificate."""
        return fingerprint_of(self.certificate)

    @property
    def ends(self) -> dt.datetime:
        return self.certificate.not_valid_after_utc

    def issue(
        self,
        subject: Subject,
        key: PublicKey,
        now: dt.datetime,
        lasts: dt.timedelta,
        *,
        hosts: Sequence[str] = (),
        also: Sequence[Subject] = (),
    ) -> Issued:
        """Issue a certificate for the holder of `key`.

        `hosts` are names and addresses that a server is reached by; `also` is who the bearer is beside, where one
        machine is several.

        It never outlives the authority. Raises BadInput for the authority's own key, for hosts of who bears none, and
        where the authority has ended.
        """
        if key == self.key.public_key():
            raise BadInput("this is the authority's own key")
        if hosts and not subject.usage.bears_hosts:
            raise BadInput(f"a certificate of a {subject.usage.value} bears no names of hosts")
        lasts = min(lasts, self.ends - now)
        if lasts <= dt.timedelta():
            raise BadInput(f"the authority's certificate ended on {self.ends:%Y-%m-%d}: make a new authority")
        builder = _begin_certificate(_name(subject.common_name), self.certificate.subject, key, now, lasts)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(_extended_usage(subject.usage), critical=True)
        names = x509.SubjectAlternativeName(
            [*(x509.UniformResourceIdentifier(each.uri) for each in (subject, *also)), *map(_host, hosts)]
        )
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        made = builder.add_extension(issuer, critical=False).sign(self.key, hashes.SHA256())
        pem = made.public_bytes(serialization.Encoding.PEM).decode()
        begins, ends = made.not_valid_before_utc, made.not_valid_after_utc
        return Issued(subject, pem, serial_text(made), fingerprint_of(made), key_digest(key), begins, ends)


def fingerprint_of(certificate: x509.Certificate) -> bytes:
    """SHA-256 of a certificate."""
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest()


def is_signed_by(pem: str, authority: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate (PEM)."""
    try:
        x509.load_pem_x509_certificate(pem.encode()).verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """Whether two thirds of a certificate's time are over: it is renewed then."""
    lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc - BACKDATED
    return now >= certificate.not_valid_after_utc - lasts / 3


def serial_text(certificate: x509.Certificate) -> str:
    """A certificate's number as it is written: hexadecimal digits."""
    return f"{certificate.serial_number:040x}"


def _name(text: str) -> x509.Name:
    """Return a certificate's name. Raises BadInput where it is too long."""
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError:
        raise BadInput("a name has 1 to 64 letters", place="name") from None


def _begin_certificate(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: dt.datetime, lasts: dt.timedelta
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - BACKDATED,
        not_valid_after=now + lasts,
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _extended_usage(usage: Usage) -> x509.ExtendedKeyUsage:
    client = [ExtendedKeyUsageOID.CLIENT_AUTH] if usage.is_client else []
    return x509.ExtendedKeyUsage([*client, *([ExtendedKeyUsageOID.SERVER_AUTH] if usage.is_server else [])])


def _host(text: str) -> x509.GeneralName:
    """A host's name or address as it stands in a certificate. Raises BadInput."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError:
        raise BadInput(f"'{text}' is neither the name nor the address of a host", place="tls_names") from None
