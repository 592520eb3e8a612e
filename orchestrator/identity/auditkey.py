"""The key that signs the audit trail's anchors: Ed25519, of this service alone.

    STATE_DIR/audit/key.pem   the private key, for the service's user alone
    STATE_DIR/audit/key.pub   the public key in hexadecimal, a line: what `aclflow audit verify --key` is given

It is no key of the authority: services without TLS have none, of several services only one has it, and a key that says
who machines are should say nothing else. A copy of the public key that is kept elsewhere makes an anchor believable.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from orchestrator.errors import BadInput, Missing
from orchestrator.wire.audit import AuditAnchor, signed_bytes


@dataclass(frozen=True, slots=True)
class AuditKey:
    """A key that signs anchors."""

    private: Ed25519PrivateKey

    @classmethod
    def open(cls, folder: Path) -> AuditKey:
        """Return the key of a folder, made there if there is none.

        Of two processes one makes it.

        Raises Missing, BadInput.
        """
        file = folder / "key.pem"
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not file.exists():
                made = Ed25519PrivateKey.generate().private_bytes(encoding, form, serialization.NoEncryption())
                _put(file, made, 0o600)
            key = cls(_read(file.read_bytes(), file))
            _put(folder / "key.pub", f"{key.public}\n".encode(), 0o644)
        except OSError as error:
            raise Missing(f"the key of the audit trail cannot be kept: {error.strerror}", place=str(file)) from None
        return key

    @property
    def public(self) -> str:
        """The public key in hexadecimal."""
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return self.private.public_key().public_bytes(*raw).hex()

    def anchor(self, chain: str, number: int, hashed: str, time: dt.datetime) -> AuditAnchor:
        """Return a signed anchor."""
        signature = self.private.sign(signed_bytes(chain, number, hashed, time)).hex()
        return AuditAnchor(chain=chain, number=number, hash=hashed, time=time, key=self.public, signature=signature)


def is_signed(anchor: AuditAnchor) -> bool:
    """Return whether an anchor's signature is by the key that it names."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(anchor.key))
        key.verify(bytes.fromhex(anchor.signature), anchor.signed_bytes())
    except (InvalidSignature, ValueError):
        return False
    return True


def _put(file: Path, data: bytes, mode: int) -> None:
    """Make a file as a whole, unless there is one."""
    descriptor, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(out.fileno(), mode)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileExistsError):
            os.link(beside, file)
    finally:
        os.unlink(beside)


def _read(pem: bytes, file: Path) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput("this is no Ed25519 key in PEM", place=str(file))
    return key
