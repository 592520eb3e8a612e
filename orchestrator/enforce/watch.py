"""Follow the domain's program: apply deltas to a copy, and check it.

A copy is trusted as far as its digest: what a delta leads to, and what a whole program holds, is digested here again.
Anything that does not fit (a delta from elsewhere, an older generation, a wrong digest) is dropped with the stream that
brought it, and the whole program asked for. So it does not matter whether answers are lost, doubled, late or out of
order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import structlog

from orchestrator.client import Held
from orchestrator.client.backoff import delay_s, shorten_wait
from orchestrator.enforce.standing import Goal
from orchestrator.errors import AclflowError, BadInput, Drifted, Stale
from orchestrator.program.delta import Delta, apply
from orchestrator.program.edits import Edits
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program
from orchestrator.program.wire import Received

log = structlog.get_logger()

_NO_ROWS = FlowTable.of(())


class ProgramSource(Protocol):
    """Where programs come from: the service's client."""

    def follow_program(
        self, domain: str, held: Held | None = None, *, lasts_s: float = 60.0
    ) -> Iterator[Received | None]:
        """Yield newer programs or deltas as they come; None: nothing newer for now."""
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """The program as we have it: what its digest says was found out here."""

    program: Program

    @classmethod
    def of(cls, program: Program) -> Copy:
        """Make a copy of a program that came.

        Raises Drifted if the program is not what its digest says.
        """
        if program.blocks.digest(program.ports) != program.digest:
            raise Drifted(f"the program of generation {program.generation} is not what its digest says")
        return cls(program)

    @property
    def held(self) -> Held:
        """Return the program that we have, for the service."""
        return Held(self.program.digest, self.program.generation)

    def write_out(self, edits: Edits) -> Delta:
        """Return the delta of edits.

        Raises Stale for edits that start elsewhere, unless they lead to what we have, Drifted for recipes that come to
        no text: then too the whole program is asked for.
        """
        if edits.target == self.program.digest and edits.generation == self.program.generation:
            return Delta(edits.base, edits.target, edits.generation, _NO_ROWS, _NO_ROWS, edits.ports)
        try:
            return edits.delta_from(self.program)
        except BadInput as error:
            raise Drifted(f"edits of generation {edits.generation} cannot be followed: {error}") from error

    def followed_by(self, answer: Program | Delta) -> Copy:
        """The copy after an answer of the service.

        Raises Stale for a delta that starts elsewhere and for anything older than what we have, Drifted if the result
        is not what its digest says. An answer that came before leads to the same copy again.
        """
        if answer.generation < self.program.generation:
            raise Stale(f"generation {answer.generation} is older than {self.program.generation}, which we have")
        if isinstance(answer, Program):
            return Copy.of(answer)
        if answer.target == self.program.digest and answer.generation == self.program.generation:
            return self
        return Copy.of(apply(self.program, answer))


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to follow before asking anew, and to wait after failures.

    The wait doubles from `retry_s`.
    """

    watch_s: float = 60.0
    retry_s: float = 0.2
    longest_retry_s: float = 5.0

    def delay_s(self, failures: int, error: AclflowError | None = None) -> float:
        """Return how long to wait after so many failures in a row.

        `error` is the last of them. The wait differs from point to point.
        """
        return delay_s(failures, error, first_s=self.retry_s, longest_s=self.longest_retry_s)


class Watch:
    """Watches in its own thread and reports each new goal, beginning with `known`."""

    def __init__(
        self,
        source: ProgramSource,
        domain: str,
        aim: Callable[[Goal], None],
        *,
        known: Program | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._source = source
        self._domain = domain
        self._aim = aim
        self._patience = patience or Patience()
        self._copy: Copy | None = None
        self._goal: Goal | None = None
        self._whole_wanted = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        if known is not None and known.domain == domain:
            self._remember_program(known)

    def start(self) -> None:
        """Begin: first with what is remembered."""
        if self._goal is not None:
            self._aim(self._goal)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching.

        The thread may still wait for an answer that nobody will read; it does not keep the process.
        """
        self._stopping.set()

    def _remember_program(self, known: Program) -> None:
        try:
            self._copy = Copy.of(known)
            self._goal = Goal(known, remembered=True)
        except Drifted as error:
            log.warning("program.damaged", error=str(error))

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                began = time.monotonic()
                for _ in self._follow_answers():
                    failures = 0
                if time.monotonic() - began < self._patience.retry_s:  # it ended at once: the service is stopping
                    self._stopping.wait(self._patience.delay_s(1))
            except AclflowError as error:
                failures += 1
                self._whole_wanted = self._whole_wanted or isinstance(error, (Stale, Drifted))
                log.warning("program.watch_failed", error=str(error), kind=type(error).__name__, failures=failures)
                self._stopping.wait(self._patience.delay_s(failures, error))
            except Exception:
                failures += 1
                self._whole_wanted = True
                log.exception("program.watch_fault")  # of ours; without a watch no policy would ever arrive again
                self._stopping.wait(self._patience.delay_s(failures))

    def _follow_answers(self) -> Iterator[None]:
        """Follow for a while: one step for each answer."""
        held = self._copy.held if self._copy is not None and not self._whole_wanted else None
        for answer in self._source.follow_program(self._domain, held, lasts_s=shorten_wait(self._patience.watch_s)):
            if self._stopping.is_set():
                return
            if answer is not None:
                self._take_answer(answer, time.monotonic())
            elif self._goal is not None and self._goal.remembered:
                # The service has nothing newer: what we remembered is what is wanted.
                self._pass_goal_on(Goal(self._goal.program))
            yield

    def _take_answer(self, answer: Received, arrived_at: float) -> None:
        before = self._copy
        if isinstance(answer, Edits) and before is not None:
            answer = before.write_out(answer)
        if before is not None and not isinstance(answer, Edits):
            self._copy = before.followed_by(answer)
        elif isinstance(answer, Program):
            self._copy = Copy.of(answer)
        else:
            raise Stale("a delta came before any program")
        self._whole_wanted = False
        if self._copy is before:
            return
        if isinstance(answer, Delta) and self._goal is not None:
            self._pass_goal_on(self._goal.followed_by(self._copy.program, answer, arrived_at))
        else:
            self._pass_goal_on(Goal(self._copy.program, arrived_at=arrived_at))

    def _pass_goal_on(self, goal: Goal) -> None:
        self._goal = goal
        log.debug("program.received", generation=goal.program.generation, flows=len(goal.program.blocks))
        self._aim(goal)
