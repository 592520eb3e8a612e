"""Buckets of tokens, which limit packets a second of each tenant."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    """Tokens that were there at a time."""

    tokens: float
    at_s: float


class Buckets:
    """One bucket a tenant, by its number. Workers share them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = threading.Lock()
        self._buckets: dict[int, _Bucket] = {}

    def take(self, tenant: int, wanted: int, *, rate: int, burst: int) -> int:
        """Take tokens of a tenant's bucket; return how many there were of those wanted.

        It fills by `rate` a second up to `burst`.
        """
        with self._turn:
            now_s = self._clock()
            bucket = self._buckets.setdefault(tenant, _Bucket(burst, now_s))
            bucket.tokens = min(burst, bucket.tokens + rate * (now_s - bucket.at_s))
            bucket.at_s = now_s
            taken = min(wanted, int(bucket.tokens))
            bucket.tokens -= taken
            return taken
