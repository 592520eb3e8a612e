"""Encrypted files in the format of age (age-encryption.org/v1) with X25519 recipients.

    header     a line each: the version; for every recipient the file's key, wrapped with a key agreed by X25519;
               an HMAC over all of that
    payload    16 bytes of salt, then chunks of 64 KiB, each sealed by ChaCha20-Poly1305 with its number and whether
               it is the last: so nothing can be cut off, put in or moved

`age -d -i KEY FILE` opens what is written here, and what `age -r RECIPIENT` writes is read here. Source: C2SP, age.md.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import io
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from orchestrator.errors import BadInput, Missing

FIRST_LINE = b"age-encryption.org/v1\n"
_RECIPIENT, _SECRET = "age", "age-secret-key-"
_STANZA, _END = b"-> X25519 ", b"---"
_CHUNK, _TAG, _KEY = 1 << 16, 16, 16
_NOTHING = bytes(12)
_LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_MOST_HEADER = 1 << 16


# ---------------------------------------------------------------------------------------------------------- keys


def new_identity() -> tuple[str, str]:
    """A secret key, and the recipient that encrypts for it, as age writes them."""
    key = X25519PrivateKey.generate()
    secret = _bech32(_SECRET, key.private_bytes_raw()).upper()
    return secret, _bech32(_RECIPIENT, key.public_key().public_bytes_raw())


def read_recipient(text: str) -> X25519PublicKey:
    """Read a recipient (``age1...``). Raises BadInput."""
    return X25519PublicKey.from_public_bytes(_from_bech32(_RECIPIENT, text))


def read_identities(path: Path) -> tuple[X25519PrivateKey, ...]:
    """Read the secret keys of a file, a line each. Raises Missing, BadInput."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(path)) from None
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise BadInput("there is no key in it", place=str(path))
    try:
        return tuple(X25519PrivateKey.from_private_bytes(_from_bech32(_SECRET, key.lower())) for key in keys)
    except BadInput as error:
        raise BadInput(error.reason, place=str(path)) from None


# ------------------------------------------------------------------------------------------------------- writing


class Sealing(io.RawIOBase):
    """A stream that encrypts what is written to another.

    The last chunk is written when it is closed.
    """

    def __init__(self, onto: BinaryIO, recipients: Sequence[X25519PublicKey]) -> None:
        super().__init__()
        key, salt = os.urandom(_KEY), os.urandom(16)
        head = FIRST_LINE + b"".join(_stanza(each, key) for each in recipients) + _END
        onto.write(head + b" " + _encode_base64(_mac(key, head)) + b"\n" + salt)
        self._onto, self._cipher = onto, ChaCha20Poly1305(_derive_key(key, salt, b"payload"))
        self._buffer, self._number = bytearray(), 0

    def writable(self) -> bool:
        """Return whether it can be written to: always."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Take bytes; full chunks go on once they are known not to be last."""
        self._buffer += data
        while len(self._buffer) > _CHUNK:
            self._put(bytes(self._buffer[:_CHUNK]), last=False)
            del self._buffer[:_CHUNK]
        return len(data)

    def close(self) -> None:
        """Write the last chunk. The other stream stays open."""
        if not self.closed:
            self._put(bytes(self._buffer), last=True)
        super().close()

    def _put(self, chunk: bytes, *, last: bool) -> None:
        """Write a chunk, encrypted."""
        self._onto.write(self._cipher.encrypt(_nonce(self._number, last=last), chunk, None))
        self._number += 1


def _stanza(recipient: X25519PublicKey, key: bytes) -> bytes:
    """Return the header's line for a recipient, which wraps the file's key."""
    own = X25519PrivateKey.generate()
    share = own.public_key().public_bytes_raw()
    wrapping = _wrapping(own.exchange(recipient), share, recipient.public_bytes_raw())
    return (
        _STANZA
        + _encode_base64(share)
        + b"\n"
        + _encode_base64(ChaCha20Poly1305(wrapping).encrypt(_NOTHING, key, None))
        + b"\n"
    )


# ------------------------------------------------------------------------------------------------------- reading


def is_sealed(raw: BinaryIO) -> bool:
    """Whether a file begins as age's do; goes back to its beginning."""
    raw.seek(0)
    found = raw.read(len(FIRST_LINE)) == FIRST_LINE
    raw.seek(0)
    return found


def unseal_stream(raw: BinaryIO, identities: Iterable[X25519PrivateKey]) -> BinaryIO:
    """A stream, which can be sought in, of what a sealed file holds.

    Raises BadInput where no key opens it.
    """
    raw.seek(0)
    lines = [raw.readline(_MOST_HEADER)]
    while lines[-1] and not lines[-1].startswith(_END) and len(lines) < 1024:
        lines.append(raw.readline(_MOST_HEADER))
    if lines[0] != FIRST_LINE or not lines[-1].startswith(_END + b" "):
        raise BadInput("the encrypted file is damaged: its header does not end")
    key = _open_file_key(lines, tuple(identities))
    head = b"".join(lines[:-1]) + _END
    if not hmac.compare_digest(_mac(key, head), _decode_base64(lines[-1][len(_END) + 1 :].strip())):
        raise BadInput("the encrypted file is damaged: its header was changed")
    salt = raw.read(16)
    plain = cast("io.RawIOBase", _Unsealing(raw, raw.tell(), _derive_key(key, salt, b"payload")))
    return io.BufferedReader(plain, _CHUNK)


def _open_file_key(lines: Sequence[bytes], identities: Sequence[X25519PrivateKey]) -> bytes:
    """The file's key. Raises BadInput where none of the identities is a recipient."""
    for argument, body in itertools.pairwise(lines):
        if not argument.startswith(_STANZA):
            continue
        share = _decode_base64(argument[len(_STANZA) :].strip())
        for identity in identities:
            own = identity.public_key().public_bytes_raw()
            try:
                agreed = identity.exchange(X25519PublicKey.from_public_bytes(share))
                wrapping = _wrapping(agreed, share, own)
                return ChaCha20Poly1305(wrapping).decrypt(_NOTHING, _decode_base64(body.strip()), None)
            except (InvalidTag, ValueError):
                continue
    raise BadInput("no key that was given opens it")


class _Unsealing(io.RawIOBase):
    """The payload as plain bytes, chunk by chunk."""

    def __init__(self, raw: BinaryIO, start: int, key: bytes) -> None:
        super().__init__()
        self._raw, self._start, self._cipher = raw, start, ChaCha20Poly1305(key)
        sealed = raw.seek(0, io.SEEK_END) - start
        self._chunks = max(1, -(-sealed // (_CHUNK + _TAG)))
        self._size = sealed - self._chunks * _TAG
        self._at, self._known = 0, (-1, b"")
        if self._size < 0 or (self._chunks > 1 and sealed % (_CHUNK + _TAG) in range(1, _TAG + 1)):
            raise BadInput("the encrypted file is damaged: it ends too early")

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: any place of the file can be read."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place of the plain bytes."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Read on, at most to the end of a chunk.

        Raises BadInput for one that was changed.
        """
        number, offset = divmod(self._at, _CHUNK)
        if self._at >= self._size and not (self._size == 0 and self._known[0] < 0):
            return 0
        if self._known[0] != number:
            self._known = number, self._chunk(number)
        found = self._known[1][offset : offset + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _chunk(self, number: int) -> bytes:
        """Return a chunk, decrypted. Raises BadInput where it was changed."""
        self._raw.seek(self._start + number * (_CHUNK + _TAG))
        try:
            nonce = _nonce(number, last=number == self._chunks - 1)
            return self._cipher.decrypt(nonce, self._raw.read(_CHUNK + _TAG), None)
        except InvalidTag:
            raise BadInput("the encrypted file is damaged: it was changed, or something is missing") from None


# --------------------------------------------------------------------------------------------------------- parts


def _nonce(number: int, *, last: bool) -> bytes:
    """Return the nonce of a chunk, which says whether it is the last."""
    return number.to_bytes(11, "big") + bytes((last,))


def _derive_key(secret: bytes, salt: bytes, what: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt, what).derive(secret)


def _wrapping(agreed: bytes, share: bytes, recipient: bytes) -> bytes:
    """Derive the key that wraps the file's key for a recipient."""
    return _derive_key(agreed, share + recipient, b"age-encryption.org/v1/X25519")


def _mac(key: bytes, head: bytes) -> bytes:
    """Return the header's MAC."""
    return hmac.digest(_derive_key(key, b"", b"header"), head, "sha256")


def _encode_base64(data: bytes) -> bytes:
    return base64.b64encode(data).rstrip(b"=")


def _decode_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("the encrypted file is damaged: its header cannot be read") from None


def _polymod(values: Iterable[int]) -> int:
    """The checksum of BIP 173."""
    found = 1
    for value in values:
        top = found >> 25
        found = (found & 0x1FFFFFF) << 5 ^ value
        for bit, factor in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            found ^= factor if top >> bit & 1 else 0
    return found


def _expand_prefix(kind: str) -> list[int]:
    return [*(ord(letter) >> 5 for letter in kind), 0, *(ord(letter) & 31 for letter in kind)]


def _bech32(kind: str, data: bytes) -> str:
    """Encode bytes as Bech32 text of a kind."""
    number = int.from_bytes(data, "big") << -8 * len(data) % 5
    count = -(-8 * len(data) // 5)
    values = [number >> 5 * place & 31 for place in reversed(range(count))]
    rest = _polymod([*_expand_prefix(kind), *values, *[0] * 6]) ^ 1
    values += [rest >> 5 * place & 31 for place in reversed(range(6))]
    return f"{kind}1{''.join(_LETTERS[value] for value in values)}"


def _from_bech32(kind: str, text: str) -> bytes:
    """The 32 bytes of a key. Raises BadInput."""
    named, _, letters = text.rpartition("1")
    values = [_LETTERS.find(letter) for letter in letters]
    if named != kind or -1 in values or len(values) != 58 or _polymod([*_expand_prefix(kind), *values]) != 1:
        raise BadInput(f"this is no {'recipient (age1...)' if kind == _RECIPIENT else 'secret key of age'}")
    number = 0
    for value in values[:-6]:
        number = number << 5 | value
    return (number >> 4).to_bytes(32, "big")
