"""Certificate requests: of everything that one may say, its key is believed, and nothing else is even taken."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import AttributeOID, ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.identity.requests import LONGEST_REQUEST, key_digest, new_key, read_request, request_of

KEY = new_key()
GOOD = request_of(KEY, "fw1")
Builder = x509.CertificateSigningRequestBuilder


def named(*parts: tuple[x509.ObjectIdentifier, str]) -> Builder:
    return Builder().subject_name(x509.Name([x509.NameAttribute(*part) for part in parts]))


def pem(builder: Builder, key: object = KEY, over: object = None) -> str:
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else over or hashes.SHA256()
    made = builder.sign(key, digest)  # type: ignore[arg-type]
    return made.public_bytes(serialization.Encoding.PEM).decode()


def extended(extension: x509.ExtensionType) -> str:
    return pem(named((NameOID.COMMON_NAME, "fw1")).add_extension(extension, critical=False))


FORGED: dict[str, Callable[[], str]] = {
    "another name": lambda: request_of(KEY, "fw2"),
    "a name with more": lambda: request_of(KEY, "fw1 "),
    "two names": lambda: pem(named((NameOID.COMMON_NAME, "fw1"), (NameOID.COMMON_NAME, "fw2"))),
    "an organisation": lambda: pem(named((NameOID.COMMON_NAME, "fw1"), (NameOID.ORGANIZATION_NAME, "admin"))),
    "an organisation alone": lambda: pem(named((NameOID.ORGANIZATION_NAME, "fw1"))),
    "to be an authority": lambda: extended(x509.BasicConstraints(ca=True, path_length=None)),
    "a host's name": lambda: extended(x509.SubjectAlternativeName([x509.DNSName("service.example")])),
    "a machine's name": lambda: extended(
        x509.SubjectAlternativeName([x509.UniformResourceIdentifier("aclflow://pop1/switch/h1")])
    ),
    "to be a server": lambda: extended(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])),
    "to sign certificates": lambda: extended(
        x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
    ),
    "an unknown extension": lambda: extended(
        x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
    ),
    "a challenge": lambda: pem(
        named((NameOID.COMMON_NAME, "fw1")).add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"let me in")
    ),
    "an RSA key": lambda: pem(named((NameOID.COMMON_NAME, "fw1")), rsa.generate_private_key(65537, 2048)),
    "a DSA key": lambda: pem(named((NameOID.COMMON_NAME, "fw1")), dsa.generate_private_key(2048)),
    "an Ed25519 key": lambda: pem(named((NameOID.COMMON_NAME, "fw1")), ed25519.Ed25519PrivateKey.generate()),
    "a short key": lambda: pem(named((NameOID.COMMON_NAME, "fw1")), ec.generate_private_key(ec.SECP192R1())),
    "another curve": lambda: pem(named((NameOID.COMMON_NAME, "fw1")), ec.generate_private_key(ec.SECP256K1())),
    "a weak digest": lambda: pem(named((NameOID.COMMON_NAME, "fw1")), over=hashes.SHA224()),
    "nothing": lambda: "",
    "two requests": lambda: GOOD + GOOD,
    "something before": lambda: "# ours\n" + GOOD,
    "something behind": lambda: GOOD + "and more",
    "a certificate": lambda: GOOD.replace("CERTIFICATE REQUEST", "CERTIFICATE"),
    "much": lambda: GOOD + " " * LONGEST_REQUEST,
}


@pytest.mark.parametrize("asks", FORGED)
def test_what_asks_for_more_than_a_key_is_refused(asks: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_request(FORGED[asks](), "fw1")
    assert refused.value.place == "csr"
    assert len(refused.value.reason) > 10


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
def test_a_key_with_its_name_or_without_one_is_taken(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    for request in (request_of(key, "fw1"), pem(Builder().subject_name(x509.Name([])), key)):
        assert read_request(request, "fw1").digest == key_digest(key.public_key())


def der() -> bytes:
    return x509.load_pem_x509_csr(GOOD.encode()).public_bytes(serialization.Encoding.DER)


@given(st.integers(0, len(der()) - 1), st.integers(1, 255))
def test_no_octet_of_a_request_may_be_changed(at: int, change: int) -> None:
    """Whatever is forged in transit: refused, or (an encoding of the same) still a request for the very same key."""
    forged = bytearray(der())
    forged[at] ^= change
    body = serialization_pem(bytes(forged))
    try:
        read = read_request(body, "fw1")
    except BadInput:
        return
    assert read.digest == key_digest(KEY.public_key())
    assert forged == der()


def serialization_pem(encoded: bytes) -> str:
    """Bytes as PEM would hold a request: 64 letters a line."""
    letters = base64.b64encode(encoded).decode()
    lines = "\n".join(textwrap.wrap(letters, 64))
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{lines}\n-----END CERTIFICATE REQUEST-----\n"


def test_these_octets_are_taken_as_they_are() -> None:
    assert serialization_pem(der()).split() == GOOD.split()


@given(st.text(max_size=200))
def test_any_text_is_answered_in_words(text: str) -> None:
    with pytest.raises(BadInput):
        read_request(text, "fw1")
