"""Machines that apply to enrol: limits of failures, and their cloud's confirmation.

Secrets here are too long to be guessed, so `Attempts` is not what keeps them: it keeps failures cheap, and the log
readable. An IPv6 address counts with its neighbours (/64), for one machine has as many of them as it likes.

`vouched` is the second half of a group token's proof. The token is in the user data of every member of the group, and
user data leaks. So a machine is only admitted as an instance that its cloud has in the group just now, and only from an
address that the cloud gave to that instance: an attacker would need that instance's own place in the network, too.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from orchestrator.cloud.base import Cloud, VnfState
from orchestrator.errors import TooOften
from orchestrator.policy.addresses import find_network


class Attempts:
    """Failures of the last `window_s` seconds by address.

    `most` at most, of `kept` addresses. Safe between threads.
    """

    def __init__(
        self, clock_s: Callable[[], float], *, most: int = 10, window_s: float = 60.0, kept: int = 4096
    ) -> None:
        self._clock_s = clock_s
        self._most = most
        self._window_s = window_s
        self._kept = kept
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises TooOften, which says for how long to wait."""
        now = self._clock_s()
        with self._lock:
            failures = self._list_recent(find_network(address), now)
        if len(failures) >= self._most:
            wait_s = self._window_s - (now - failures[0])
            raise TooOften(f"{len(failures)} attempts from {address} have failed: wait {wait_s:.0f} s")

    def note_failure(self, address: str) -> None:
        """Record a failure.

        Of more addresses than are kept, the one that failed longest ago is forgotten.
        """
        now, who = self._clock_s(), find_network(address)
        with self._lock:
            failures = self._list_recent(who, now)
            failures.append(now)
            self._failures[who] = failures
            self._failures.move_to_end(who)
            while len(self._failures) > self._kept:
                self._failures.popitem(last=False)

    def forget_failures(self, address: str) -> None:
        """Forget an address's failures after a success."""
        with self._lock:
            self._failures.pop(find_network(address), None)

    def _list_recent(self, who: str, now: float) -> deque[float]:
        failures = self._failures.get(who) or deque(maxlen=self._most)
        while failures and now - failures[0] >= self._window_s:
            failures.popleft()
        return failures


CloudOf = Callable[[str], Cloud | None]
"""The cloud of a domain; None where it has none."""

_THERE = frozenset({VnfState.COMING, VnfState.RUNNING})


def name_by_cloud(cloud: Cloud, group: str, instance: str, address: str) -> str | None:
    """Return the name of a group's instance with an address, by its cloud, or None.

    Raises what the cloud raises.
    """
    wanted = _plain(address)
    if wanted is None:
        return None
    for vnf in cloud.list(group):
        known = {_plain(each) for each in vnf.addresses}
        if vnf.instance_id == instance and vnf.state in _THERE and wanted in known:
            return vnf.name
    return None


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address as a value.

    An IPv4 address that was written as an IPv6 one is the same.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if found.version == 6 else None
    return mapped or found
