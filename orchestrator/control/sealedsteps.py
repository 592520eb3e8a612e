"""Steps of programs that services pass to each other in notices of commits.

    the service that commits   compiles and proves ── seal ──▶ notice of the commit     one changed rule: some 500 bytes
    one that is followed       open ── its program of the step's base ── apply ── digest ──▶ publish
                               five seconds later at the latest: compile and prove the domain, compare

A seal is a keyed digest. Its key is made from that of the authority, which every service that speaks TLS has in a file
and the database has not: whoever may write to the database can send notices, and no seals. A step that has none, that
is long, or that starts from a program that is not here is as none: the domain is compiled.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

import structlog

from orchestrator.errors import BadInput
from orchestrator.program.delta import Delta
from orchestrator.program.wire import decode_delta, encode_delta
from orchestrator.store.sql.livingservices import Members

log = structlog.get_logger()

MOST_BYTES = 4096
"""A longer step is not passed: a notice has room for 8,000 bytes."""
_SEAL_BYTES = 32


class SealedSteps:
    """Seals steps for other services, and opens theirs. Safe between threads."""

    def __init__(self, key: bytes, members: Members | None) -> None:
        self._key = key
        self._members = members

    @property
    def has_readers(self) -> bool:
        """Whether there are other services."""
        return self._members is not None and len(self._members.now.living) > 1

    def seal(self, domain: str, step: Delta) -> str | None:
        """Return a sealed step as text; None where it is too long."""
        body = encode_delta(step)
        if len(body) > MOST_BYTES:
            return None
        return base64.b64encode(self._seal_of(domain, body) + body).decode()

    def open(self, domain: str, sealed: str) -> Delta | None:
        """Return the step of a domain; None where its seal is wrong."""
        try:
            data = base64.b64decode(sealed, validate=True)
            seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
            if hmac.compare_digest(seal, self._seal_of(domain, body)):
                return decode_delta(body)
        except (binascii.Error, BadInput, ValueError) as error:
            log.warning("a step of another service cannot be read", domain=domain, error=str(error))
            return None
        log.warning("a step of another service has a wrong seal: the domain is compiled", domain=domain)
        return None

    def _seal_of(self, domain: str, body: bytes) -> bytes:
        name = hashlib.blake2b(domain.encode(), digest_size=_SEAL_BYTES).digest()
        return hashlib.blake2b(name + body, key=self._key, digest_size=_SEAL_BYTES).digest()
