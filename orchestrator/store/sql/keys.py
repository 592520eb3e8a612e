"""Columns that sort and compare alike on every database: keys, prefixes, secrets, times.

Order keys. A list's rows are ordered by 62-bit integers with gaps, so that an insertion touches one row:

    LOWEST_KEY                       0                                    HIGHEST_KEY
        |........|........|........[ a ]....new....[ b ]........|........|
                                     <--  STRIDE  -->

Appending and prepending step by STRIDE, inserting takes the middle; after 40 insertions at one place the gap is used
up and the rows around it are spread anew (`acls/lists.py`).

Prefixes. A prefix is the byte strings of its first and last address, each behind one byte for the family. Byte strings
compare alike everywhere, and two prefixes overlap exactly if neither range ends before the other begins.
"""

from __future__ import annotations

import base64
import bisect
import datetime as dt
import hashlib
import os
from array import array
from collections.abc import Mapping, Sequence

from orchestrator.policy.addresses import Prefix

STRIDE = 1 << 40
HIGHEST_KEY = 1 << 62
LOWEST_KEY = -HIGHEST_KEY

TOKEN_PREFIX = "aclflow_"  # noqa: S105 - how tokens begin, so that secret scanners know them; no secret
_SECRET_BYTES = 32
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def keys_between(low: int | None, high: int | None, count: int) -> tuple[int, ...] | None:
    """Return `count` ascending keys between two (None: that end), or None without room."""
    if low is None and high is None:
        low, high = 0, (count + 1) * STRIDE
    elif low is None and high is not None:
        low = max(LOWEST_KEY, high - (count + 1) * STRIDE)
    elif high is None and low is not None:
        high = min(HIGHEST_KEY, low + (count + 1) * STRIDE)
    assert low is not None
    assert high is not None
    step = (high - low) // (count + 1)
    if step < 1:
        return None
    return tuple(range(low + step, low + step * count + 1, step))


def keys_around(keys: Sequence[int], position: int, *, without: int | None = None) -> tuple[int | None, int | None]:
    """Return the order keys around a position of a list, without one row if given."""
    left_out = len(keys) if without is None else bisect.bisect_left(keys, without)
    near = [
        keys[index + 1 if index >= left_out else index]
        for index in (position - 1, position)
        if 0 <= index < len(keys) - (without is not None)
    ]
    low = near.pop(0) if position > 0 else None
    return low, near[0] if near else None


def spread(kept: Mapping[int, int], count: int) -> array[int] | None:
    """Return keys for `count` rows, some of them kept by index; None without room."""
    keys = array("q")
    for index in [*sorted(kept), count]:
        missing = index - len(keys)
        if missing:
            found = keys_between(keys[-1] if keys else None, kept.get(index), missing)
            if found is None:
                return None
            keys.extend(found)
        if index < count:
            keys.append(kept[index])
    return keys


def longest_increasing(keys: Sequence[int]) -> tuple[int, ...]:
    """Indices of a longest strictly increasing subsequence (patience sorting, O(n log n))."""
    tails: list[int] = []  # the smallest last key of an increasing run of each length
    ends: list[int] = []  # its index
    before: list[int] = [-1] * len(keys)
    for index, key in enumerate(keys):
        length = bisect.bisect_left(tails, key)
        before[index] = ends[length - 1] if length else -1
        tails[length : length + 1] = [key]
        ends[length : length + 1] = [index]
    chosen = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(index)
        index = before[index]
    return tuple(reversed(chosen))


def first_bytes(prefix: Prefix) -> bytes:
    """The lower end of a prefix's range."""
    return bytes([prefix.family.value]) + prefix.network.to_bytes(prefix.family.bits // 8, "big")


def last_bytes(prefix: Prefix) -> bytes:
    """The upper end of a prefix's range, included."""
    return bytes([prefix.family.value]) + prefix.last.to_bytes(prefix.family.bits // 8, "big")


def new_secret() -> str:
    """A bearer secret: 256 random bits as text."""
    return TOKEN_PREFIX + base64.urlsafe_b64encode(os.urandom(_SECRET_BYTES)).rstrip(b"=").decode()


def digest_of(secret: str) -> bytes:
    """Return the stored digest of a secret.

    256 random bits cannot be searched for, so one fast hash is enough.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def certificate_digest(fingerprint: bytes) -> bytes:
    """Return a certificate's entry in place of a secret's digest.

    No secret has this digest.
    """
    return b"x509:" + fingerprint


def to_micros(time: dt.datetime) -> int:
    """A time as microseconds since 1970, UTC."""
    return (time - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> dt.datetime:
    """Return the time of a number of microseconds since 1970, UTC."""
    return _EPOCH + dt.timedelta(microseconds=micros)
