"""Keys and certificates on disk in PEM, replaced as whole files.

A key is for its owner alone.

AUTHORITY_DIR/authority.key   what signs: whoever reads it is everybody
AUTHORITY_DIR/authority.pem   whom to believe; not secret
AUTHORITY_DIR/next.key, .pem  while it is rolled over: the authority to come, believed already
AUTHORITY_DIR/former.pem      afterwards: the one before, still believed
AUTHORITY_DIR/service.key     the service's own, made anew when names change or it is about to end
AUTHORITY_DIR/service.pem
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator.errors import BadInput, Conflict, Missing
from orchestrator.identity.authority import Authority
from orchestrator.identity.requests import PrivateKey

_FOR_OTHERS = 0o077


class Rollover(Enum):
    """How far an authority's roll-over has got."""

    NONE = "none"
    ANNOUNCED = "announced"
    """The next one is believed, and signs nothing yet."""
    OVERLAPPING = "overlapping"
    """The next one signs, and the former one is still believed."""


@dataclass(frozen=True, slots=True)
class AuthorityDir:
    """Where the authority of a service lives."""

    path: Path

    @property
    def key(self) -> Path:
        return self.path / "authority.key"

    @property
    def certificate(self) -> Path:
        return self.path / "authority.pem"

    @property
    def next_key(self) -> Path:
        return self.path / "next.key"

    @property
    def next_certificate(self) -> Path:
        return self.path / "next.pem"

    @property
    def former_certificate(self) -> Path:
        return self.path / "former.pem"

    @property
    def stage(self) -> Rollover:
        """How far a roll-over has got."""
        if self.next_certificate.exists():
            return Rollover.ANNOUNCED
        return Rollover.OVERLAPPING if self.former_certificate.exists() else Rollover.NONE

    def read_believed(self) -> str:
        """Return the certificates (PEM) of all authorities that are believed, the present one first.

        Raises Missing.
        """
        others = (path for path in (self.next_certificate, self.former_certificate) if path.exists())
        return "".join(_read(path).decode() for path in (self.certificate, *others))

    def announce(self, name: str, now: dt.datetime) -> Authority:
        """Create the authority to come: it is believed, and signs nothing yet.

        Raises Conflict while a roll-over is under way, Missing.
        """
        if self.stage is not Rollover.NONE:
            raise Conflict("the authority is being rolled over already", place=str(self.path))
        coming = Authority.create(name, now, read_key(self.next_key) if self.next_key.exists() else None)
        write_key(self.next_key, coming.key)
        write_file(self.next_certificate, coming.pem.encode(), 0o644)
        return coming

    def take_over(self) -> Authority:
        """Let the announced authority sign from now on.

        The one before stays believed, and its key is gone.

        Cut off at any step, it is repeated. Raises Conflict where none is announced, Missing.
        """
        if self.stage is not Rollover.ANNOUNCED:
            raise Conflict("no authority to come is announced", place=str(self.path))
        if not self.former_certificate.exists():
            write_file(self.former_certificate, _read(self.certificate), 0o644)
        self.keep(_read(self.next_key), _read(self.next_certificate))
        for path in (self.next_certificate, self.next_key):
            path.unlink(missing_ok=True)
        return self.load()

    def forget_former(self) -> None:
        """Believe the authority before the present one no more. Raises Conflict where there is none."""
        if self.stage is not Rollover.OVERLAPPING:
            raise Conflict("there is no former authority that is still believed", place=str(self.path))
        self.former_certificate.unlink()

    @property
    def service_key(self) -> Path:
        return self.path / "service.key"

    @property
    def service_certificate(self) -> Path:
        return self.path / "service.pem"

    @property
    def exists(self) -> bool:
        return self.key.exists() or self.certificate.exists()

    def create(self, name: str, now: dt.datetime) -> Authority:
        """Create and store an authority.

        A key without a certificate, left by a create that was cut off, gets one. Raises Conflict where there is an
        authority, BadInput for a damaged key, Missing where it cannot be kept.
        """
        if self.certificate.exists():
            raise Conflict(
                "there is an authority already: every certificate in use is signed by it", place=str(self.path)
            )
        authority = Authority.create(name, now, read_key(self.key) if self.key.exists() else None)
        self.keep(encoded_key(authority.key), authority.pem.encode())
        return authority

    def keep(self, key: bytes, certificate: bytes) -> None:
        """Store an authority, both in PEM.

        The service's certificate by another one is removed. Raises Missing.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for signed in (self.service_key, self.service_certificate):
                signed.unlink(missing_ok=True)
        except OSError as error:
            raise Missing(f"cannot be made: {error.strerror}", place=str(self.path)) from None
        write_file(self.key, key, 0o600)
        write_file(self.certificate, certificate, 0o644)

    def load(self) -> Authority:
        """Load the authority.

        Raises Missing where there is none, BadInput where it is damaged or others may read its key.
        """
        if not self.certificate.exists():
            raise Missing(
                "there is no certificate authority here: make one with `aclflow certificates init`",
                place=str(self.path),
            )
        return Authority(read_key(self.key), read_certificate(self.certificate))


def read_key(path: Path) -> PrivateKey:
    """Read a private key.

    Raises Missing, and BadInput for one that others may read or that is none of ours.
    """
    encoded = _read(path)
    mode = path.stat().st_mode
    if mode & _FOR_OTHERS:
        raise BadInput(
            f"others may read this key (mode {mode & 0o777:o}): chmod 600, or take it for lost", place=str(path)
        )
    try:
        key = serialization.load_pem_private_key(encoded, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadInput("not a private key in PEM without a password", place=str(path)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput("not an EC key", place=str(path))
    return key


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a file. Raises Missing, BadInput."""
    return parsed_certificate(_read(path), str(path))


def parsed_certificate(pem: bytes, place: str) -> x509.Certificate:
    """A certificate from PEM. Raises BadInput, which names `place`."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise BadInput("not a certificate in PEM", place=place) from None


def parsed_certificates(pem: bytes, place: str) -> list[x509.Certificate]:
    """All certificates of a PEM text. Raises BadInput, which names `place`."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise BadInput("not a certificate in PEM", place=place) from None


def write_key(path: Path, key: PrivateKey) -> None:
    """Keep a key for its owner alone. Raises Missing."""
    write_file(path, encoded_key(key), 0o600)


def encoded_key(key: PrivateKey) -> bytes:
    """Encode a key as PKCS #8 in PEM without a password: nobody could type it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically: a crash leaves the old or the new one.

    Raises Missing.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)  # a rename is only there for good when the directory is
        finally:
            os.close(directory)
    except OSError as error:
        raise Missing(f"cannot be written: {error.strerror}", place=str(path)) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(path)) from None
