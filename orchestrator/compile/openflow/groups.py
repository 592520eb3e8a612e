"""OpenFlow groups of buckets as rows of a program, in the form of flow entries.

A group is kept where flow entries are, so that digests, deltas, the wire and reading back know it without being told.
Its table is `GROUPS`, which no switch has for flows; its match is its number, four bytes; in place of instructions
stands one structure, as Open vSwitch describes the group (OpenFlow 1.5.1, 7.3.4.2), behind a head of our own:

    ┌ head ─────────────────────────────────────┐┌ bucket ──────────────────────────────────────────────┐┌ properties
    │ 0xac00 + type 2 │ length 2 │ buckets' 2 │ 0 ││ length 2 │ actions' 2 │ number 4 │ actions │ weight 8 │ ...
    └───────────────────────────────────────────┘└──────────────────────────────────────────────────────┘

The cookie is not the switch's (groups have none) but follows from tier and number, so that it can be read back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.program.flows import GROUPS, Flow
from orchestrator.program.program import Tier

SELECT = 1
"""Of the group's buckets one does what it says, chosen by the packet's hash."""

HEAD = struct.Struct(">HHHxx")
BUCKET = struct.Struct(">HHI")
_KIND = 0xAC00
_GROUP = 22
_WEIGHT = struct.pack(">HHHxx", 0, 8, 1)
_WATCH = struct.Struct(">HHI")
_WATCH_PORT = 1
_SYMMETRIC = 1 << 32
"""In the parameter of the datapath's hash: both directions of a connection have one hash."""
_NETRONOME, _SELECTION_METHOD = 0x0000154D, 1


def dp_hash(*, symmetric: bool = False) -> bytes:
    """Return the property that selects buckets by the datapath's hash.

    It takes one cache entry a bucket.
    """
    parameter = _SYMMETRIC if symmetric else 0
    return struct.pack(">HHII4x16sQ", 0xFFFF, 40, _NETRONOME, _SELECTION_METHOD, b"dp_hash", parameter)


def bucket(number: int, actions: Iterable[bytes], watch: int | None = None) -> bytes:
    """One bucket of weight 1; without actions it drops.

    While the port `watch` is down, the switch hands the bucket's packets to the next one whose port is up.
    """
    body = b"".join(actions)
    properties = _WEIGHT if watch is None else _WEIGHT + _WATCH.pack(_WATCH_PORT, _WATCH.size, watch)
    return BUCKET.pack(BUCKET.size + len(body) + len(properties), len(body), number) + body + properties


def group_body(kind: int, buckets: bytes, properties: bytes) -> bytes:
    """Return the body of a group, in the place of instructions."""
    return HEAD.pack(_KIND + kind, HEAD.size + len(buckets) + len(properties), len(buckets)) + buckets + properties


def select_group(tier: Tier, number: int, buckets: Iterable[bytes], *, symmetric: bool = False) -> Flow:
    """The row of a group that spreads packets over its buckets by hash."""
    return group_row(tier, number, group_body(SELECT, b"".join(buckets), dp_hash(symmetric=symmetric)))


def group_row(tier: Tier, number: int, body: bytes) -> Flow:
    """The row of a group with this body."""
    return Flow(GROUPS, 0, number.to_bytes(4, "big"), body, Cookie(tier, Kind.GROUP, number).pack())


def group(number: int) -> bytes:
    """The action that hands the packet to a group."""
    return struct.pack(">HHI", _GROUP, 8, number)


def is_group_body(data: bytes) -> bool:
    """Whether this stands in place of instructions."""
    return len(data) >= HEAD.size and data[0] == _KIND >> 8


def split_group(body: bytes) -> tuple[int, bytes, bytes]:
    """Split a group's body into its type, buckets and properties."""
    kind, _, size = HEAD.unpack_from(body)
    return kind - _KIND, body[HEAD.size : HEAD.size + size], body[HEAD.size + size :]


def each_watched_bucket(buckets: bytes) -> Iterator[tuple[int, bytes, int | None]]:
    """Number, actions and watched port of every bucket.

    Raises struct.error for bytes that are no buckets.
    """
    at = 0
    while at < len(buckets):
        length, size, number = BUCKET.unpack_from(buckets, at)
        if not BUCKET.size + size <= length <= len(buckets) - at:
            raise struct.error("a bucket's length is wrong")
        properties = buckets[at + BUCKET.size + size : at + length]
        watch = _WATCH.unpack(properties[-_WATCH.size :])[2] if len(properties) > len(_WEIGHT) else None
        yield number, buckets[at + BUCKET.size : at + BUCKET.size + size], watch
        at += length
