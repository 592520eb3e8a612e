"""The control loop: publishes what nobody here has compiled, and does what time brings.

    a start, lost notices, other owners ──▶ every domain that this service keeps ──┐     those first that somebody waits
    a commit of another process, of a domain that is followed here ────────────────┼──▶ behind ──▶ the latest state of
    somebody asks, a report where that domain is held back ────────────────────────┘     each is compiled and published
                                    between two turns: rules expire, rounds are due (`timekeeper.py`, `rounds.py`)

The loop runs on a thread of its own, off the event loop, and works towards the latest goal: generations that came and
went meanwhile are never compiled. A domain that cannot be compiled keeps what was published of it, all others go on,
and it is tried again: at every change, and without one after a second, two, four ... up to a minute.

Where several services share the store, each keeps the domains that it owns or that are followed here (`duties.py`). One
that is only owned is left until it rests, or for a minute, so that a service that nobody uses does next to nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from orchestrator.control.duties import Duties
from orchestrator.control.pauses import Pauses
from orchestrator.control.staging import Staging
from orchestrator.control.units import WRITER_S, Units
from orchestrator.errors import TryAgain

log = structlog.get_logger()

_RETRY_S = 1.0
_STAGED_LOOK_S = 0.2
"""How often to look whether a domain may go on that is held at an intersection."""
_AT_REST_S = 5.0
"""How long a domain that nobody follows here has to rest before its programs are made."""
_MOST_BEHIND_S = 60.0
"""After so long they are made though it does not rest."""


class Chore(Protocol):
    """A periodic task."""

    def tick(self, units: Units) -> float:
        """Do what is due; how many seconds to sleep until something may be."""
        ...


class ProgramMaker(Protocol):
    """Makes a domain's programs and publishes them: `Maker`."""

    @property
    def domains(self) -> int:
        """How many domains have a hosts' program that is given out."""
        ...

    def catch_up(self, domain: str, *, wait_s: float | None = None) -> bool:
        """Publish a domain's present state, or forget a deleted one.

        Return whether that was done: not where a writer of the domain is still at work here after `wait_s`.
        """
        ...

    def take_steps(self, domain: str, steps: Sequence[str], *, wait_s: float | None = None) -> bool:
        """Publish another service's programs by sealed steps; return whether nothing is left to do."""
        ...


class CatchingUp:
    """The loop, and the domains that it has yet to look at."""

    def __init__(
        self,
        units: Units,
        maker: ProgramMaker,
        staging: Staging,
        chores: Sequence[Chore],
        pauses: Pauses | None = None,
        duties: Duties | None = None,
    ) -> None:
        self._units = units
        self._maker = maker
        self._staging = staging
        self._chores = chores
        self._pauses = pauses or Pauses()
        self._duties = duties or Duties()
        self._again_at: dict[str, float] = {}
        """When domains are tried again that could not be compiled, or are at rest."""
        self._changed_at: dict[str, float] = {}
        """Since when domains that are only owned are behind (monotonic seconds)."""
        self._wake = threading.Condition()
        self._behind: dict[str, None] = {}
        """In the order in which they are compiled."""
        self._steps: dict[str, list[str]] = {}
        """The sealed steps of those that are behind by nothing else."""
        self._all_behind = True
        self._chores_at = 0.0
        """When a chore is due (monotonic seconds); a look before that reads the store for nothing."""
        self._staged_look_at = 0.0
        """When to look again at what is held at an intersection (monotonic seconds)."""
        self._times_changed = False
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

    def has_failed(self, domain: str) -> bool:
        """Return whether a domain did not compile the last time."""
        return domain in self._pauses

    def look_at(self, domain: str, *, first: bool = False) -> None:
        """A domain may be behind; `first`: somebody waits for its program."""
        with self._wake:
            self._steps.pop(domain, None)
            if first:
                self._behind = {domain: None, **self._behind}
            else:
                self._behind.setdefault(domain)
            self._wake.notify()

    def look_at_changed(self, domain: str, step: str | None = None) -> None:
        """Catch up with another process's change of a domain, by a sealed step if given.

        At once where the domain is followed here, soon where it is owned.
        """
        if self._duties.is_followed(domain):
            if step is None or not self._follow_step(domain, step):
                self.look_at(domain)
        elif self._duties.owns(domain):
            self._put_off(domain)

    def _put_off(self, domain: str) -> None:
        """Have a domain that is only owned looked at once it rests."""
        now = time.monotonic()
        with self._wake:
            since = self._changed_at.setdefault(domain, now)
            if domain not in self._again_at:
                self._wake.notify()  # it sleeps until the first of what it is to try again
            if not self.has_failed(domain):
                self._again_at[domain] = min(now + _AT_REST_S, since + _MOST_BEHIND_S)

    def _follow_step(self, domain: str, step: str) -> bool:
        """Queue a step, unless the domain is to be compiled anyway."""
        with self._wake:
            if domain in self._behind and domain not in self._steps:
                return False
            self._steps.setdefault(domain, []).append(step)
            self._behind.setdefault(domain)
            self._wake.notify()
        return True

    def look_at_all(self) -> None:
        """Look at every domain: any may be behind, have another owner, or be due."""
        with self._wake:
            self._all_behind = self._times_changed = True
            self._wake.notify()

    def look_at_reported(self, domain: str) -> None:
        """A domain's host was read back, so the domain may leave its intersection."""
        if self._staging.is_staged(domain):
            self.look_at(domain)

    def look_at_times(self) -> None:
        """Look again when the next step is due, which may be sooner."""
        with self._wake:
            self._times_changed = True
            self._wake.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._find_those_behind()
                self._find_those_to_try_again()
                are_all_done = self._compile_those_behind()
                if not self._started and are_all_done:
                    self._started = True
                    log.info("ready", domains=self._maker.domains)
                self._do_chores()
                sleep_s = min(self._next_try_s(), max(0.0, self._chores_at - time.monotonic()))
                self._sleep_until_woken(min(sleep_s, self._next_staged_look_s()))
                self._look_at_staged()
            except TryAgain as error:
                log.warning("control loop tries again", error=str(error))
                self._sleep_until_woken(_RETRY_S, even_if_behind=True)
            except Exception:
                log.exception("control loop failed")  # a defect in one turn must not end the service's only loop
                self._sleep_until_woken(_RETRY_S, even_if_behind=True)

    def _next_staged_look_s(self) -> float:
        """Return in how many seconds to look at what is held at an intersection."""
        return max(0.0, self._staged_look_at - time.monotonic()) if self._staging.staged else math.inf

    def _look_at_staged(self) -> None:
        """Look at all that is held at an intersection, if it is time.

        Others' reports and read-backs that are old enough by now are found so; a report here is looked at at once.
        """
        now = time.monotonic()
        if now >= self._staged_look_at:
            self._staged_look_at = now + _STAGED_LOOK_S
            for domain in self._staging.staged:
                self.look_at(domain)

    def _do_chores(self) -> None:
        """Do what is due, if anything may be: others' changes wake this service, too."""
        with self._wake:
            is_due = self._times_changed or time.monotonic() >= self._chores_at
            self._times_changed = False
        if is_due:
            self._chores_at = 0.0
            sleep_s = min((each.tick(self._units) for each in self._chores), default=math.inf)
            self._chores_at = time.monotonic() + sleep_s

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
            kept = [domain for domain in domains if self._duties.keeps(domain)]
            self._steps.clear()
            self._behind |= {domain: None for domain in kept if domain not in self._behind}

    def _find_those_to_try_again(self) -> None:
        now = time.monotonic()
        with self._wake:
            due = [domain for domain, at in self._again_at.items() if at <= now]
        for domain in due:
            if self._duties.keeps(domain):
                self.look_at(domain)
            else:
                self._forget_waiting(domain)  # another service has it by now

    def _forget_waiting(self, domain: str) -> None:
        with self._wake:
            self._again_at.pop(domain, None)
            self._changed_at.pop(domain, None)

    def _next_try_s(self) -> float:
        """Return in how many seconds a domain is to be tried again."""
        with self._wake:
            return max(0.0, min(self._again_at.values(), default=math.inf) - time.monotonic())

    def _compile_those_behind(self) -> bool:
        """Compile domains that are behind; return whether none is left.

        One whose writer is at work here is left for the next turn, so that it keeps no other waiting.
        """
        written = set[str]()
        while not self._stopping:
            with self._wake:
                domain = next((each for each in self._behind if each not in written), None)
                if domain is None:
                    return not self._behind
                del self._behind[domain]
                steps = self._steps.pop(domain, ())
            if (not steps or not self._take_steps(domain, steps)) and not self._catch_up(domain):
                written.add(domain)
        return False

    def _take_steps(self, domain: str, steps: Sequence[str]) -> bool:
        """Publish a domain's program by steps.

        It is compiled and proven when the domain is at rest, or soon.
        """
        if not self._maker.take_steps(domain, steps, wait_s=WRITER_S):
            return False
        with self._wake:
            self._again_at.setdefault(domain, time.monotonic() + _AT_REST_S)
        return True

    def _catch_up(self, domain: str) -> bool:
        """Publish a domain's present state; return False while a writer is in the way."""
        self._forget_waiting(domain)
        try:
            is_done = self._maker.catch_up(domain, wait_s=WRITER_S)
        except TryAgain:
            self.look_at(domain)
            raise
        except Exception:
            wait_s = self._pauses.after_failure(domain)
            with self._wake:
                self._again_at[domain] = time.monotonic() + wait_s
            log.exception("does not compile", domain=domain, again_in_s=wait_s)
            return True
        if is_done:
            self._pauses.over(domain)
        else:
            self.look_at(domain)
        return is_done

    def _sleep_until_woken(self, seconds: float, *, even_if_behind: bool = False) -> None:
        with self._wake:
            has_work = self._behind or self._all_behind or self._times_changed
            if not self._stopping and (even_if_behind or not has_work):
                self._wake.wait(seconds)
