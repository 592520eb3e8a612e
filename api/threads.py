"""The threads on which routes do their work, shared out among callers.

FastAPI's own are anyio's: before work begins on one of these, the event loop has come round twice. Two requests at
least stand between a change and its answer, so theirs is handed over at once.

A write that waits for its turn keeps its thread. So a tenant takes up to `OF_ONE` threads, and so does an enforcement
point; whatever else they ask for meanwhile waits without a thread, in the order in which it came:

    60 lists of `blue` ── 8 on threads, 52 wait without one ──┐
    a rule of `red` ────── on a thread at once ───────────────┴──▶ turns of writers

Several tenants may act together. Once two thirds of the threads are taken, a tenant or point that has one takes no
more.

Reads have threads of their own: they wait for no turn, but a long list that is written out takes the interpreter from
all others. So they are few, and a tenant reads on `READS_OF_ONE` of them.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from orchestrator.store.records import Principal, Role

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 48
_SHARES = 6
"""A tenant or enforcement point takes one of so many shares of them. Two more only those take that have none, and
administrators: four tenants whose writes wait do not have all."""
OF_ONE = THREADS // _SHARES
READS_OF_ONE = 2
"""One of two writes an answer out while the other waits for the database."""


class SharedThreads:
    """Threads of which each share takes so many at a time.

    Safe between threads and event loops.
    """

    def __init__(self, threads: int, of_one: int, spare: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._of_one = of_one
        self._most_shared = threads - spare
        self._lock = threading.Lock()
        self._busy = 0
        """How many threads are taken or promised in all."""
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def submit(self, share: str | None, work: Callable[[], T]) -> Future[T]:
        """Do work as soon as its share has a thread left.

        A share of None takes as many as there are.
        """
        future: Future[T] = Future()
        run = partial(self._run_and_pass_on, share, future, work)
        with self._lock:
            if share is not None:
                if share in self._waiting or not self._has_room(share):
                    self._waiting.setdefault(share, deque()).append(run)
                    return future
                self._taken[share] += 1
            self._busy += 1
        self._threads.submit(run)
        return future

    def _has_room(self, share: str) -> bool:
        """Return whether a share may take one more thread.

        Its first one always, others while more are left than are spare.
        """
        taken = self._taken[share]
        return taken == 0 or (taken < self._of_one and self._busy < self._most_shared)

    def _run_and_pass_on(self, share: str | None, future: Future[T], work: Callable[[], T]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                _fulfil_future(future, work)
        finally:
            for each in self._find_following(share):
                self._threads.submit(each)

    def _find_following(self, share: str | None) -> list[Callable[[], None]]:
        """Give a thread back; return what waited longest in its share and fits now."""
        found: list[Callable[[], None]] = []
        with self._lock:
            self._busy -= 1
            if share is None:
                return found
            self._taken[share] -= 1
            waiting = self._waiting.get(share, deque())
            while waiting and self._has_room(share):
                found.append(waiting.popleft())
                self._taken[share] += 1
                self._busy += 1
            if not waiting:
                self._waiting.pop(share, None)
            if not self._taken[share]:
                del self._taken[share]
        return found


def _fulfil_future(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except StopIteration as error:  # which asyncio cannot hand on: who waits would wait for ever
        failed = RuntimeError("StopIteration from a function")
        failed.__cause__ = error
        future.set_exception(failed)
    except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
        future.set_exception(error)


class RequestThreads:
    """A service's threads: `number` for all but reads, a sixth of that for reads.

    A tenant or an enforcement point takes a sixth of the first, two of the second.
    """

    def __init__(self, number: int = THREADS) -> None:
        self.others = SharedThreads(number, number // _SHARES, 2 * number // _SHARES)
        self.reads = SharedThreads(number // _SHARES, READS_OF_ONE, number // 24)


_THREADS = ContextVar("threads", default=RequestThreads())  # noqa: B039 - shared by all that choose none
"""Those of the service that a request came to."""


def choose_threads(threads: RequestThreads) -> None:
    """Have what the running request asks for done on these threads."""
    _THREADS.set(threads)


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return a function's result on a thread, in the context of the waiting caller.

    The thread is of the share of the principal among the arguments, if there is one. Raises what it raises.
    """
    return await _run_on_one(_THREADS.get().others, partial(function, *arguments, **named))


def on_thread(function: Callable[P, T], *, reads: bool = False) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a function as a coroutine function that does it on a thread.

    One that only `reads` takes the threads for reads.
    """

    @functools.wraps(function)
    async def run_on_thread(*arguments: P.args, **named: P.kwargs) -> T:
        threads = _THREADS.get()
        return await _run_on_one(threads.reads if reads else threads.others, partial(function, *arguments, **named))

    return run_on_thread


async def _run_on_one(threads: SharedThreads, work: partial[T]) -> T:
    share = share_of((*work.args, *work.keywords.values()))
    return await asyncio.wrap_future(threads.submit(share, partial(copy_context().run, work)))


def share_of(arguments: Iterable[object]) -> str | None:
    """Return whose share of threads a call takes: a tenant's or enforcement point's, else None."""
    principal = next((each for each in arguments if isinstance(each, Principal)), None)
    if principal is None or principal.role is Role.ADMIN:
        return None
    if principal.tenant is not None:
        return f"tenant {principal.tenant}"
    return f"enforcer {principal.enforcer}"
