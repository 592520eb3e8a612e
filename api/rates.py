"""Rates of requests: changes of tenants and administrators, refusals of strangers.

Each has a bucket, which is filled at a steady rate:

    tenant 'red'     [#######   ]   1,200 a minute, 1,200 at once      all its members' tokens together
    tenant 'red'     [######### ]   100,000 a day, 100,000 at once     the same: what it adds to the audit trail
    token 7          [##########]   60,000 a minute                    an administrator's
    192.0.2.7        [###       ]   600 refusals a minute              callers of an address that are not known

Enforcement points have buckets of nobody: how often they report is their loop's business, and they report their own
switches alone.

A refused stranger costs a look into the database, or a search for a route that is not there. While the bucket of its
address is empty, its requests are answered without either. Callers whose token or certificate was good at this service
before are judged as ever, so that one address (of a NAT, a balancer or a console) may be that of strangers and others.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from orchestrator.errors import TooOften
from orchestrator.policy.addresses import find_network
from orchestrator.store.records import Principal, Role

_DAY_MINUTES = 1440
_MOST = 10_000
"""Buckets of a kind in memory; the one that was used longest ago, which is likely full again, goes first."""
_MOST_KNOWN = 100_000
"""Tokens and certificates that are remembered as good; the one that was used longest ago goes first."""


@dataclass(slots=True)
class _Bucket:
    """The tokens that are left, and when they were counted."""

    left: float
    at: float


class _Buckets:
    """Buckets by name, filled at one rate and full at first.

    `most` are in a full one, a minute's where it is None. Not safe between threads.
    """

    def __init__(self, a_minute: float, ticks: Callable[[], float], most: float | None = None) -> None:
        self.a_minute = a_minute
        self._most = max(1.0, a_minute if most is None else most)
        self._ticks = ticks
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, name: str) -> int:
        """Return in how many seconds a bucket has one to take; 0: now."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return 0
        now = self._ticks()
        bucket.left = min(self._most, bucket.left + (now - bucket.at) * self.a_minute / 60)
        bucket.at = now
        return max(0, ceil((1 - bucket.left) * 60 / self.a_minute))

    def take(self, name: str) -> int:
        """Take one from a bucket; return 0, or in how many seconds there is one."""
        wait_s = self.wait_s(name)
        if not wait_s:
            self._buckets.setdefault(name, _Bucket(self._most, self._ticks())).left -= 1
        self._buckets.move_to_end(name)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return wait_s


class Rates:
    """The buckets of one service's tenants and administrators.

    Safe between threads. `ticks` is in seconds and never goes back.
    """

    def __init__(
        self,
        tenant_a_minute: float = 1_200.0,
        administrator_a_minute: float = 60_000.0,
        *,
        tenant_a_day: float = 100_000.0,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tenants = {
            f"{tenant_a_minute:g} changes a minute": _Buckets(tenant_a_minute, ticks),
            f"{tenant_a_day:g} changes a day": _Buckets(tenant_a_day / _DAY_MINUTES, ticks, tenant_a_day),
        }
        self._administrators = {f"{administrator_a_minute:g} changes a minute": _Buckets(administrator_a_minute, ticks)}
        self._lock = threading.Lock()

    def take(self, principal: Principal) -> None:
        """Count a request for a change. Raises TooOften, with how long to wait."""
        if principal.role is Role.ENFORCER:
            return
        if principal.tenant is not None:
            whose, buckets = f"tenant '{principal.tenant}'", self._tenants
        else:
            whose, buckets = f"token {principal.token_id}", self._administrators
        with self._lock:
            waits = {limit: each.wait_s(whose) for limit, each in buckets.items()}
            limit, wait_s = max(waits.items(), key=lambda found: found[1])
            if not wait_s:
                for each in buckets.values():
                    each.take(whose)
        if wait_s:
            raise TooOften(f"{whose} may ask for {limit}: come back in {wait_s} s", after_s=wait_s)


@dataclass(frozen=True, slots=True)
class Shown:
    """The marks of a request's caller, before they are looked up.

    `credential` is a digest of its token, or the fingerprint of its certificate; None where it shows neither. A caller
    with a certificate has a bucket of its own: our authority signed that, and the address may be that of many.
    """

    address: str
    credential: bytes | None = None
    is_certified: bool = False

    @property
    def bucket(self) -> str:
        """The name of its bucket: addresses of IPv6 have that of their /64."""
        if self.is_certified and self.credential is not None:
            return f"certificate {self.credential.hex()}"
        return find_network(self.address)


class Strangers:
    """Count the refusals of unknown callers, by address.

    For one event loop. `ticks` is in seconds and never goes back.
    """

    def __init__(self, refusals_a_minute: float = 600.0, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._buckets = _Buckets(refusals_a_minute, ticks)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def admit(self, shown: Shown) -> None:
        """Let a request be judged. Raises TooOften for a stranger whose bucket is empty."""
        if not self._is_known(shown) and (wait_s := self._buckets.wait_s(shown.bucket)):
            often = f"more than {self._buckets.a_minute:g} requests from there were refused within a minute"
            raise TooOften(f"{often}: come back in {wait_s} s", after_s=wait_s)

    def remember(self, shown: Shown) -> None:
        """Note that what a request showed is good."""
        if shown.credential is not None:
            self._good[shown.credential] = None
            self._good.move_to_end(shown.credential)
            if len(self._good) > _MOST_KNOWN:
                self._good.popitem(last=False)

    def refuse(self, shown: Shown, *, is_wrong: bool) -> None:
        """Count a refusal, unless its caller is known.

        `is_wrong`: the token or certificate that it showed is good no more.
        """
        if is_wrong and shown.credential is not None:
            self._good.pop(shown.credential, None)
        if not self._is_known(shown):
            self._buckets.take(shown.bucket)

    def _is_known(self, shown: Shown) -> bool:
        return shown.credential is not None and shown.credential in self._good
