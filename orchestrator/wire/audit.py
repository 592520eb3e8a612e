"""The audit trail: hash chains of entries, signed anchors, and how to check both.

    process A    1 ◀─ 2 ◀─ 3 ◀─ 4 ◀─ 5 ...      each entry's hash covers the hash of the one before it
                           │         │
    anchor              (3, hash) (5, hash)     signed, and sent to a sink that the database has no hand in
    process B    1 ◀─ 2 ...

A service process has one chain; a common one would make the services on one database wait for each other.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from orchestrator.wire.common import describe, document

_GENESIS = b"aclflow audit chain "
_ANCHOR = "aclflow audit anchor"


@document(kw_only=True)
class AuditEntry:
    """An entry of the audit trail.

    `number` counts up from 1 in its chain, `id` across all chains of a database.
    """

    id: int
    chain: str
    number: int
    time: dt.datetime
    who: str = describe("role and number of a token, as member:3; 'service' itself; 'unknown'", examples=["admin:1"])
    address: str = describe("where the request came from; tenants are shown their own requests' alone")
    kind: str = describe("that of the event about the same change; or request.refused, request.failed, audit.*")
    subject: str = describe("what it was done to; of refused requests, the first one's path")
    tenant: int | None = describe("the number of the tenant that it is about")
    domain: str | None
    result: str = describe("done, refused or failed")
    before: str | None = describe("SHA-256 of what the change took away; null: nothing, or not known")
    after: str | None = describe("SHA-256 of what the change put there")
    detail: Mapping[str, Any]
    text: str = describe("the detail as it is hashed")
    hash: str = describe("SHA-256 of the entry and of the hash before it")

    def link(self, previous: bytes) -> bytes:
        """Return the hash that this entry must have after one with the hash `previous`."""
        micros = int((self.time - _EPOCH) / _MICROSECOND)
        return link(
            previous,
            (
                self.chain, self.number, micros, self.who, self.address, self.kind, self.subject, self.tenant,
                self.domain, self.result, self.before, self.after, self.text,
            ),
        )  # fmt: skip


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def link(previous: bytes, values: tuple[object, ...]) -> bytes:
    """Return the hash of an entry's values after the entry with the hash `previous`."""
    return hashlib.sha256(previous + orjson.dumps(values)).digest()


def genesis(chain: str) -> bytes:
    """Return what stands for the hash before a chain's first entry."""
    return hashlib.sha256(_GENESIS + chain.encode()).digest()


@document(kw_only=True)
class AuditAnchor:
    """A signed head of a chain: its entry `number` and that entry's hash.

    It fixes the entry and all entries before it.
    """

    chain: str
    number: int
    hash: str
    time: dt.datetime
    key: str = describe("the public key (Ed25519, hexadecimal) that signed it")
    signature: str

    def signed_bytes(self) -> bytes:
        """Return the bytes that the signature is of."""
        return signed_bytes(self.chain, self.number, self.hash, self.time)


def signed_bytes(chain: str, number: int, hashed: str, time: dt.datetime) -> bytes:
    """Return the bytes that an anchor's signature is of."""
    return orjson.dumps([_ANCHOR, chain, number, hashed, time], option=orjson.OPT_UTC_Z)


@document()
class AuditPage:
    """Some entries, and the `marker` of the page that follows, null at the end."""

    items: tuple[AuditEntry, ...]
    next: int | None


@document()
class AuditAnchors:
    """A page of anchors, in the order of their chains and numbers.

    `next` is the `after` of the page that follows.
    """

    items: tuple[AuditAnchor, ...]
    next: str | None
