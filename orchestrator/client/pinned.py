"""Trust in an unknown service: the authority whose fingerprint an enrolment token carries."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Protocol

from cryptography.hazmat.primitives.serialization import Encoding

from orchestrator.errors import NotFound, Unauthenticated
from orchestrator.identity.authority import fingerprint_of
from orchestrator.identity.files import parsed_certificates
from orchestrator.identity.trust import bare_context


class Stranger(Protocol):
    """An unverified service at an address: a client's `enrolment`."""

    def read_authority(self) -> str:
        """The certificate of the service's authority. Raises NotFound where it has none."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


def pinned_authority(url: str, pin: bytes, connect: Callable[[str, ssl.SSLContext | None], Stranger]) -> str:
    """Return the certificate (PEM) of the authority with a fingerprint.

    The service that answers is not trusted meanwhile.

    Raises Unauthenticated where it has another one or none, BadInput, and what else a request does.
    """
    office = connect(url, bare_context())
    try:
        said = office.read_authority()
    except NotFound:
        raise Unauthenticated("the token is of a service with an authority, and this one has none") from None
    finally:
        office.close()
    found = [each for each in parsed_certificates(said.encode(), "authority") if fingerprint_of(each) == pin]
    if not found:
        raise Unauthenticated(
            f"whoever answers at {url} has not the authority that the token says: it is not the "
            "service that made the token, or its authority is a new one since; nothing was sent"
        )
    return found[0].public_bytes(Encoding.PEM).decode()
