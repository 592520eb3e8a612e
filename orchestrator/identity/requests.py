"""Enrolment of a machine: its token, its key and its certificate request (PKCS #10).

A request proves that its sender holds a key, and that is all it is believed: who the bearer is, for how long and for
what, is said by the service. So a request that asks for more than a key and its own name is refused rather than
quietly corrected: whoever wrote it expects something that would not be so.

A token may say whom to believe: ``SECRET.FINGERPRINT``. The fingerprint (SHA-256 of the authority's certificate,
base64url without padding, 43 letters) is what lets a machine that has nothing but the token and an address tell the
service from somebody who answers in its place. It is not sent anywhere: only the secret is, and only to who has proven
to be the service.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from orchestrator.errors import BadInput

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

LONGEST_REQUEST = 8192
"""Bytes; one with an EC key has about 400."""

_CURVES = (ec.SECP256R1, ec.SECP384R1)
_HASHES = (hashes.SHA256, hashes.SHA384, hashes.SHA512)
_PINNED = re.compile(r"(?P<secret>[^.\s]+)\.(?P<pin>[A-Za-z0-9_-]{43})\Z")


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A request that was checked: whoever sent it holds the private half of `key`."""

    key: PublicKey

    @property
    def digest(self) -> bytes:
        """SHA-256 of the key as certificates hold it (SubjectPublicKeyInfo)."""
        return key_digest(self.key)


def new_key() -> PrivateKey:
    """Return a new machine key: P-256, which signs 20 times faster than RSA."""
    return ec.generate_private_key(ec.SECP256R1())


def key_digest(key: PublicKey) -> bytes:
    """SHA-256 of a key as certificates hold it."""
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).digest()


def request_of(key: PrivateKey, name: str) -> str:
    """Return the request (PEM) of a named machine that holds `key`.

    Raises BadInput for a name that is none.
    """
    try:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError:
        raise BadInput("a name has 1 to 64 letters", place="name") from None
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def read_request(text: str, name: str, *, place: str = "csr") -> KeyRequest:
    """Read the request of a machine that calls itself `name`.

    Raises BadInput, which names `place`, for one that cannot be read, is not signed by its own key, has a key or a
    signature that is too weak, or asks for anything but a certificate for that name.
    """
    try:
        return _check_request(_parse_request(text), name)
    except BadInput as error:
        raise BadInput(error.reason, place=place) from None
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.UnsupportedGeneralNameType) as error:
        words = " ".join(str(error).split())[:200]
        raise BadInput(f"not a certificate request that can be read: {words}", place=place) from None


def _check_request(request: x509.CertificateSigningRequest, name: str) -> KeyRequest:
    _check_subject(request, name)
    if list(request.attributes):  # extensions are asked for in one
        raise BadInput("it asks for extensions or attributes: send a request with a key and a name alone")
    key = request.public_key()
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)):
        raise BadInput("its key is of a kind that is not taken: use an EC key on P-256 or P-384")
    if not isinstance(request.signature_hash_algorithm, _HASHES):
        raise BadInput("it is signed over a weak digest: use SHA-256")
    if not request.is_signature_valid:
        raise BadInput("its signature is not by its own key")
    return KeyRequest(key)


def _parse_request(text: str) -> x509.CertificateSigningRequest:
    if len(text) > LONGEST_REQUEST:
        raise BadInput(f"longer than {LONGEST_REQUEST} bytes")
    request = x509.load_pem_x509_csr(text.encode())
    if request.public_bytes(serialization.Encoding.PEM).split() != text.encode().split():
        raise BadInput("there is something beside the one request in PEM")
    return request


def _check_subject(request: x509.CertificateSigningRequest, name: str) -> None:
    """Nothing, or the one name."""
    said = list(request.subject)
    if said and not (len(said) == 1 and said[0].oid == NameOID.COMMON_NAME and said[0].value == name):
        raise BadInput(f"it is for '{request.subject.rfc4514_string()}', the machine says it is 'CN={name}'")


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """A parsed token.

    `pin` is the SHA-256 of the authority's certificate, None where none is said.
    """

    secret: str = field(repr=False)
    pin: bytes | None = None

    @property
    def text(self) -> str:
        """The token as text, for a machine."""
        return self.secret if self.pin is None else f"{self.secret}.{_encode_pin(self.pin)}"

    @classmethod
    def parse(cls, text: str) -> EnrolmentToken:
        """Read an enrolment token.

        Raises BadInput for a text with a dot behind which there is no fingerprint.
        """
        if "." not in text:
            return cls(text)
        found = _PINNED.match(text)
        if found is None or _encode_pin(pin := base64.urlsafe_b64decode(found["pin"] + "=")) != found["pin"]:
            raise BadInput("the token is damaged: it ends in something that is no fingerprint", place="token")
        return cls(found["secret"], pin)


def _encode_pin(pin: bytes) -> str:
    return base64.urlsafe_b64encode(pin).rstrip(b"=").decode()
