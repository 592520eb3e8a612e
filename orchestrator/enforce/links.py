"""Tells the service which firewalls a spreading switch has given up, by their interfaces.

Where firewalls share their connections the switch decides that alone, within tens of milliseconds (BFD), and Open
vSwitch says so in the state of the port: one that is not *live* gets no packets of a group. This is for whoever looks
on; nobody waits for it. It is told when it changes, and again every `AGAIN_S`, for a spread may be newer than the word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from orchestrator.errors import NotFound

log = structlog.get_logger()

LOOK_S = 2.0
"""How often it is tried again to tell."""
AGAIN_S = 30.0


class LinkSink(Protocol):
    """Where it is told: the service's client."""

    def report_links(self, domain: str, enforcer: int, down: frozenset[str]) -> None:
        """Tell which interfaces the switch finds down."""
        ...


class Links:
    """The newest word of the spreading switch about its interfaces.

    `take_over` runs before it is told, and has nothing to do once it has succeeded.
    """

    def __init__(
        self,
        sink: LinkSink,
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
        self._down: frozenset[str] | None = None
        self._told: frozenset[str] | None = None
        self._again_s = 0.0

    def note(self, down: frozenset[str]) -> None:
        """Take note of the interfaces that are down; returns at once."""
        with self._lock:
            self._down = down

    def report_due(self) -> None:
        """Tell what is new, or was told long ago.

        Raises what the sink raises; it is due again then.
        """
        now = self._clock()
        with self._lock:
            down = self._down
        if down is None or (down == self._told and now < self._again_s):
            return
        self._take_over()
        try:
            self._sink.report_links(self._domain, self._enforcer, down)
        except NotFound as error:  # an older service has no such route
            log.info("links.not_taken", error=str(error))
        self._told, self._again_s = down, now + AGAIN_S
