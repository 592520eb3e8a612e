"""Control: every change is compiled before it is committed, and what is committed is published.

    write(work) ── begin ── work(unit) ── compile the domains that moved ── commit ──▶ heard ── publish
                                               │ TooLarge, NotExpressible                │
                                               ▼                                        a commit that nobody here
                                            roll back: the caller is told               compiled (another process, a
                                            before anything was acknowledged            start): the loop compiles the
                                                                                        latest state, once

The loop runs on a thread of its own, off the event loop, and works towards the latest goal: generations that came and
went meanwhile are never compiled. It also takes out rules whose time is over, at the moment when it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from orchestrator.control.compiler import Compiler
from orchestrator.control.publisher import Answer, Held, Publisher
from orchestrator.errors import Busy, NotFound, TryAgain
from orchestrator.program.program import Program
from orchestrator.store import Store
from orchestrator.store.records import Committed
from orchestrator.store.unit import Unit

T = TypeVar("T")

log = structlog.get_logger()

_RETRY_S = 1.0
_SHORTEST_SLEEP_S = 0.05
_LONGEST_SLEEP_S = 30.0
"""The wall clock may jump, and then a rule's time is over sooner than was thought."""
_PAGE = 1000


class Control:
    """The writing side of a service. `write` and `read` may be called from any thread."""

    def __init__(self, store: Store, compiler: Compiler, publisher: Publisher) -> None:
        self._store = store
        self._compiler = compiler
        self._publisher = publisher
        self._mine = threading.local()
        self._wake = threading.Condition()
        self._behind: set[str] = set()
        self._all_behind = True
        self._started = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._unsubscribe: Callable[[], None] = lambda: None

    # ----------------------------------------------------------------------------------------------- units of work

    def read(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a snapshot of the store."""
        with self._store.read() as unit:
            return work(unit)

    def write(self, work: Callable[[Unit], T]) -> T:
        """Do `work` in a transaction, compile what it changed, commit, publish.

        Raises what `work` and the compiler raise; then nothing was changed.
        """
        prepared: dict[str, Program] = {}
        self._mine.prepared = prepared
        try:
            with self._store.write() as unit:
                answer = work(unit)
                for domain in unit.generations:
                    prepared[domain] = self._compiler.compile(domain, unit.domains.policy(domain))
        except TryAgain:  # if it was the commit that failed, the change may be there all the same
            for domain in prepared:
                self._catch_up(domain)
            raise
        finally:
            self._mine.prepared = {}
        with self._wake:  # a rule that expires sooner than any other may have come in
            self._wake.notify()
        return answer

    def delete_domain(self, domain: str, work: Callable[[Unit], T]) -> T:
        """A write that removes a domain."""
        answer = self.write(work)
        self._publisher.drop(domain)
        self._compiler.forget(domain)
        return answer

    async def watch(self, domain: str, held: Held | None, wait_s: float, *, stored_generation: int) -> Answer | None:
        """What is newer than `held` and not older than the store; see `Publisher.watch`."""
        program = self._publisher.program(domain)
        if program is None or program.generation < stored_generation:
            self._catch_up(domain)
        return await self._publisher.watch(domain, held, wait_s, at_least=stored_generation)

    # ---------------------------------------------------------------------------------------------------- the loop

    def start(self) -> None:
        """Compile every domain and go on from there. Returns at once; `check_ready` says how far it is."""
        self._unsubscribe = self._store.subscribe(self._heard)
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the compilation it is at."""
        self._unsubscribe()
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    def check_ready(self) -> None:
        """Raise Busy or Unreachable unless the database answers and the domains found at the start are published."""
        self._store.check()
        if not self._started:
            raise Busy("the programs are being compiled")

    def _heard(self, committed: Committed) -> None:
        """A commit: publish what this thread compiled for it, leave the rest to the loop."""
        if not committed.domains and committed.last_event is None:  # notices may have been lost: look for ourselves
            with self._wake:
                self._all_behind = True
                self._wake.notify()
        prepared: dict[str, Program] = getattr(self._mine, "prepared", {})
        for domain, generation in committed.domains.items():
            program = prepared.get(domain)
            if program is None or program.generation != generation:
                self._catch_up(domain)
            else:
                self._publish(program)

    def _catch_up(self, domain: str) -> None:
        with self._wake:
            self._behind.add(domain)
            self._wake.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._find_those_behind()
                self._compile_those_behind()
                if not self._started:
                    self._started = True
                    log.info("ready", domains=len(self._publisher.programs()))
                self._sleep(self._expire())
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
            domains = self.read(_every_domain)
        except BaseException:
            self._all_behind = True
            raise
        with self._wake:
            self._behind.update(domains)

    def _compile_those_behind(self) -> None:
        while not self._stopping:
            with self._wake:
                if not self._behind:
                    return
                domain = self._behind.pop()
            try:
                self._compile_latest(domain)
            except TryAgain:
                self._catch_up(domain)
                raise
            except Exception:
                log.exception("does not compile", domain=domain)  # and so is not served; all others are

    def _compile_latest(self, domain: str) -> None:
        try:
            snapshot = self.read(lambda unit: unit.domains.policy(domain))
        except NotFound:
            self._publisher.drop(domain)
            self._compiler.forget(domain)
            return
        program = self._publisher.program(domain)
        if program is None or program.generation < snapshot.generation:
            self._publish(self._compiler.compile(domain, snapshot))

    def _publish(self, program: Program) -> None:
        started = time.perf_counter()
        if self._publisher.publish(program):
            log.info(
                "published",
                domain=program.domain,
                generation=program.generation,
                digest=program.digest.hex(),
                flows=len(program.flows),
                seconds=round(time.perf_counter() - started, 4),
            )

    def _expire(self) -> float:
        """Take out the rules whose time is over; returns how many seconds to sleep until the next one's is."""
        left = self.read(_until_next_expiry)
        if left is None:
            return _LONGEST_SLEEP_S
        if left > 0:
            return min(left, _LONGEST_SLEEP_S)
        for gone in self.write(lambda unit: unit.acls.expire()):
            log.info("expired", tenant=gone.tenant, rules=list(gone.rules), generation=gone.change.generation)
        return _SHORTEST_SLEEP_S

    def _sleep(self, seconds: float, *, even_if_behind: bool = False) -> None:
        with self._wake:
            if not self._stopping and (even_if_behind or not (self._behind or self._all_behind)):
                self._wake.wait(seconds)


def _until_next_expiry(unit: Unit) -> float | None:
    due = unit.acls.next_expiry()
    return None if due is None else (due - unit.now).total_seconds()


def _every_domain(unit: Unit) -> list[str]:
    found: list[str] = []
    while page := unit.domains.list(limit=_PAGE, marker=found[-1] if found else None):
        found += [record.id for record in page]
    return found
