"""Reports connections as a host's switch that were not given its place.

One whose certificate names other hosts is reported at once. One with the datapath id of a connected switch may be that
switch itself, which came back before its old connection was seen to be dead: it is reported when the old one has lived
on for `LIVES_ON_S`, even if it has left by then. Those that stay are reported again every `AGAIN_S`, so that an alert
lasts as long as they do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.wire.points import MOST_IMPOSTORS, MOST_NAMES, Impostor

LIVES_ON_S = 10.0
"""Longer than a connection lasts whose switch is silent (`launcher.PATIENCE_S`)."""
AGAIN_S = 60.0
LOOK_S = 2.0
MOST_OF_A_HOST = 4
"""So many impostors of one host are kept, so that those of others have room."""


class ImpostorSink(Protocol):
    """Where reports go: the service's client."""

    def report_impostors(self, domain: str, enforcer: int, impostors: Sequence[Impostor]) -> None:
        """Report connections as switches of hosts that they are not."""
        ...


@dataclass(slots=True)
class _Claim:
    """A connection that came, the holder of the place, and the next report's time."""

    came: Channel
    holder: Channel | None
    due_s: float
    is_reported: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it was the same switch after all, or was reported and has left."""
        return (self.holder is not None and self.holder.closed) or (self.is_reported and self.came.closed)


class Impostors:
    """Keeps the connections of one controller that were not given the place of a host.

    `take_over` runs before a report is sent, and has nothing to do once it has succeeded.
    """

    def __init__(
        self,
        sink: ImpostorSink,
        domain: str,
        enforcer: int,
        take_over: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._domain = domain
        self._enforcer = enforcer
        self._take_over = take_over
        self._clock = clock
        self._lock = threading.Lock()
        self._claims: dict[tuple[str, str], _Claim] = {}
        """By host and address. Many connections of one address are one."""

    def note(self, host: str, came: Channel, holder: Channel | None) -> None:
        """Take note of a connection, and of the holder of the host's place.

        Returns at once. `holder` is None where its certificate names other hosts.
        """
        key = host, came.address
        due_s = self._clock() + (0.0 if holder is None else LIVES_ON_S)
        with self._lock:
            known = self._claims.get(key)
            if known is not None and known.holder is holder:
                known.came = came
            elif known is not None:  # it is not put off by coming with another certificate
                self._claims[key] = _Claim(came, holder, due_s if known.is_over else min(due_s, known.due_s))
            elif self._has_room(host):
                self._claims[key] = _Claim(came, holder, due_s)

    def _has_room(self, host: str) -> bool:
        """Whether one more impostor of a host is kept."""
        of_host = sum(each == host for each, _ in self._claims)
        return len(self._claims) < MOST_IMPOSTORS and of_host < MOST_OF_A_HOST

    def report_due(self) -> None:
        """Report what is due. Raises what the sink raises; it is due again then."""
        now = self._clock()
        with self._lock:
            self._claims = {key: claim for key, claim in self._claims.items() if not claim.is_over}
            due = {key: claim for key, claim in self._claims.items() if claim.due_s <= now}
        if not due:
            return
        self._take_over()
        found = [_describe(host, address, claim) for (host, address), claim in due.items()]
        self._sink.report_impostors(self._domain, self._enforcer, found)
        for claim in due.values():
            claim.is_reported, claim.due_s = True, now + AGAIN_S


def _describe(host: str, address: str, claim: _Claim) -> Impostor:
    """Return a claim as the service is told of it."""
    holder = None if claim.holder is None else claim.holder.address
    return Impostor(host, address, holder, tuple(sorted(claim.came.hosts or ())[:MOST_NAMES]))
