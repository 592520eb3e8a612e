"""The control loop: publishes what nobody here has compiled, and does what time brings.

    a start, lost notices ──▶ every domain ──┐       those first that somebody waits for, then those of most hosts
    a commit of another process ─────────────┼──▶ behind ──▶ the latest state of each is compiled, once, and published
    a report where something is held back ───┘
                                    between two turns: rules expire, rounds are due (`timekeeper.py`, `rounds.py`)

The loop runs on a thread of its own, off the event loop, and works towards the latest goal: generations that came and
went meanwhile are never compiled. A domain that cannot be compiled keeps what was published of it, all others go on,
and it is tried again: at every change, and without one after a second, two, four ... up to a minute.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from orchestrator.control.maker import Maker
from orchestrator.control.pauses import Pauses
from orchestrator.control.staging import Staging
from orchestrator.control.timekeeper import Units
from orchestrator.errors import TryAgain

log = structlog.get_logger()

_RETRY_S = 1.0
_STAGED_LOOK_S = 0.2
"""How often to look whether a domain may go on that is held at an intersection."""


class Chore(Protocol):
    """A periodic task."""

    def tick(self, units: Units) -> float:
        """Do what is due; how many seconds to sleep until something may be."""
        ...


class CatchingUp:
    """The loop, and the domains that it has yet to look at."""

    def __init__(
        self, units: Units, maker: Maker, staging: Staging, chores: Sequence[Chore], pauses: Pauses | None = None
    ) -> None:
        self._units = units
        self._maker = maker
        self._staging = staging
        self._chores = chores
        self._pauses = pauses or Pauses()
        self._again_at: dict[str, float] = {}
        """When domains are tried again that could not be compiled."""
        self._wake = threading.Condition()
        self._behind: dict[str, None] = {}
        """In the order in which they are compiled."""
        self._all_behind = True
        self._started = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    @property
    def has_started(self) -> bool:
        """Whether the domains found at the start are published."""
        return self._started

    def start(self) -> None:
        """Look at every domain and go on from there. Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the compilation it is at."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def left(self) -> int:
        """How many domains are still to be looked at."""
        return len(self._behind)

    def look_at(self, domain: str, *, first: bool = False) -> None:
        """A domain may be behind; `first`: somebody waits for its program."""
        with self._wake:
            if first:
                self._behind = {domain: None, **self._behind}
            else:
                self._behind.setdefault(domain)
            self._wake.notify()

    def look_at_all(self) -> None:
        """Any domain may be behind."""
        with self._wake:
            self._all_behind = True
            self._wake.notify()

    def look_at_staged(self) -> None:
        """A domain that is held at an intersection may go on."""
        for domain in self._staging.staged:
            self.look_at(domain)

    def look_at_times(self) -> None:
        """Something may be due sooner than was thought."""
        with self._wake:
            self._wake.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._find_those_behind()
                self._find_those_to_try_again()
                self._compile_those_behind()
                staged = bool(self._staging.staged)
                if not self._started:
                    self._started = True
                    log.info("ready", domains=self._maker.domains)
                sleep_s = min(self._next_try_s(), *(each.tick(self._units) for each in self._chores))
                self._sleep(min(sleep_s, _STAGED_LOOK_S) if staged else sleep_s)
                self.look_at_staged()
            except TryAgain as error:
                log.warning("control loop tries again", error=str(error))
                self._sleep(_RETRY_S, even_if_behind=True)
            except Exception:
                log.exception("control loop failed")  # a defect in one turn must not end the service's only loop
                self._sleep(_RETRY_S, even_if_behind=True)

    def _find_those_behind(self) -> None:
        if not self._all_behind:
            return
        self._all_behind = False
        try:
            domains = self._units.read(lambda unit: unit.domains.names())
        except BaseException:
            self._all_behind = True
            raise
        with self._wake:
            self._behind |= {domain: None for domain in domains if domain not in self._behind}

    def _find_those_to_try_again(self) -> None:
        now = time.monotonic()
        for domain in [domain for domain, at in self._again_at.items() if at <= now]:
            self.look_at(domain)

    def _next_try_s(self) -> float:
        """In how many seconds a domain is to be tried again."""
        return max(0.0, min(self._again_at.values(), default=math.inf) - time.monotonic())

    def _compile_those_behind(self) -> None:
        while not self._stopping:
            with self._wake:
                if not self._behind:
                    return
                domain = next(iter(self._behind))
                del self._behind[domain]
            self._catch_up(domain)

    def _catch_up(self, domain: str) -> None:
        self._again_at.pop(domain, None)
        try:
            self._maker.catch_up(domain)
        except TryAgain:
            self.look_at(domain)
            raise
        except Exception:
            wait_s = self._pauses.after_failure(domain)
            self._again_at[domain] = time.monotonic() + wait_s
            log.exception("does not compile", domain=domain, again_in_s=wait_s)
        else:
            self._pauses.over(domain)

    def _sleep(self, seconds: float, *, even_if_behind: bool = False) -> None:
        with self._wake:
            if not self._stopping and (even_if_behind or not (self._behind or self._all_behind)):
                self._wake.wait(seconds)
