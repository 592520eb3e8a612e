"""Compile and prove long lists in separate processes, before their turn and within a deadline.

    PUT of a list ──▶ estimate ──▶ below `LONG_FLOWS`: the turn compiles and proves it, in some half a second
                                └▶ a process compiles and proves it alone ──▶ in time: its turn may come
                                                                           └▶ killed at the deadline: refused

A turn keeps others waiting and cannot be ended from outside; a process can. So a list that brings many flow entries
gets its turn once a process has been through the same work in time. The turn then does it again, from what the domain
holds: nothing of the process's is published, and every list is proven in one way. While it works, others write.

Each tenant has one process at a time, and a few of its lists wait; of more it is told to come again. A process that
becomes free is for the tenant that had one longest ago, or never: tenants that act together keep out nobody else.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from orchestrator.compile.equivalence import prove
from orchestrator.compile.estimate import Estimate
from orchestrator.compile.hostprogram import compile_host
from orchestrator.control.workbench import MEMORY_MIB, OutOfMemory, OutOfTime, ProcessEnded, Work, Worker
from orchestrator.errors import Busy, NotFound, TooLarge, TooOften
from orchestrator.policy.model import Acl, Policy, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.numbers import RuleNumbers

T = TypeVar("T")
log = structlog.get_logger()

LONG_FLOWS = 50_000
"""A change that may bring so many flow entries is compiled and proven in a process first. Of the slow shapes that were
tried just below that (`bench/control_plane/worstlists.py`), none took longer than half a second."""
LIMIT_S = 30.0
_PROCESSES = 2
_WAITING = 2
_TRIES = 4
"""A write begins so often: once, and again after each time that a list had to be tried first."""
_KEPT = 8
"""Lists that were in time are remembered until their turn has come."""
ENDING_S = 5.0
"""A list waits for a process as long as another one may take, and so long for the end of that."""
_MOST_SERVED = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class LongList:
    """A tenant's list, and how its domain lets replies in."""

    tenant: str
    acl: Acl
    returns: ReturnTraffic

    def is_same(self, other: LongList) -> bool:
        """Return whether compiling and proving both is the same work."""
        return self.returns is other.returns and (self.acl is other.acl or self.acl == other.acl)


class Untried(Exception):
    """A transaction came to compile a long list that no process was through with."""

    def __init__(self, untried: LongList) -> None:
        super().__init__(untried.tenant)
        self.untried = untried


def compile_and_prove(tenant: str, acl: Acl, returns: ReturnTraffic) -> int:
    """Compile and prove a tenant's list alone; return its flow entries. Raises what both raise."""
    numbers = RuleNumbers({rule.id: number for number, rule in enumerate(acl.rules, 1)})
    policy = Policy((Tenant(TenantId(tenant), 1, (), acl, numbers),), return_traffic=returns)
    program = compile_host(policy, domain="", generation=1)
    prove(policy, program.flows)
    return len(program.blocks)


@dataclass(slots=True)
class _Turn:
    """A tenant's long lists: one is under way, some wait.

    The one under way holds the lock; `asked` counts it and those that wait.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked: int = 0


class Places:
    """Places at a few processes, for the tenant that had one longest ago.

    Safe to share between threads.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = threading.Condition()
        self._waiting: dict[object, str] = {}
        """Who waits, in the order in which they came."""
        self._served: OrderedDict[str, None] = OrderedDict()
        """Who had a place, longest ago first."""

    @property
    def waiting(self) -> int:
        """How many wait for a place."""
        return len(self._waiting)

    def take(self, tenant: str, within_s: float) -> bool:
        """Take a place; return False where none is given to this tenant in time."""
        me = object()
        with self._changed:
            self._waiting[me] = tenant
            try:
                if not self._changed.wait_for(lambda: self._free > 0 and self._find_next() is me, within_s):
                    return False
                self._free -= 1
            finally:
                del self._waiting[me]
                self._changed.notify_all()  # whoever is next now may go, if there is a place
            self._served[tenant] = None
            self._served.move_to_end(tenant)
            if len(self._served) > _MOST_SERVED:
                self._served.popitem(last=False)
        return True

    def give_back(self) -> None:
        """Give a place back, which wakes who waits."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def _find_next(self) -> object:
        """Return who is next: the first never served, else the one served longest ago."""
        new = next((each for each, tenant in self._waiting.items() if tenant not in self._served), None)
        if new is not None:
            return new
        order = {tenant: place for place, tenant in enumerate(self._served)}
        return min(self._waiting, key=lambda each: order[self._waiting[each]])


class Precompiler:
    """A few processes, each started when first needed and kept. Safe to share between threads.

    It is for changes that may bring `long_flows` flow entries or more.
    """

    def __init__(
        self,
        limit_s: float = LIMIT_S,
        *,
        long_flows: int = LONG_FLOWS,
        processes: int = _PROCESSES,
        memory_mib: int = MEMORY_MIB,
    ) -> None:
        self.long_flows = long_flows
        self._limit_s = limit_s
        self._memory_mib = memory_mib
        self._workers = [Worker(f"list {number}", memory_mib) for number in range(processes)]
        self._places = Places(processes)
        self._lock = threading.Lock()
        self._turns: dict[str, _Turn] = {}
        self._in_time: OrderedDict[str, tuple[LongList, ...]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many lists wait for a process."""
        return self._places.waiting

    def was_in_time(self, long: LongList) -> bool:
        """Return whether a process was through with this very list."""
        with self._lock:
            known = self._in_time.get(long.tenant, ())
        return any(each.is_same(long) for each in known)

    def try_list(self, long: LongList) -> None:
        """Compile and prove a list in a process, unless that was done.

        Raises TooLarge when that takes too long or too much memory, what compiling and proving raise, Busy when no
        process is free for it in that time or it ended twice, TooOften when several of the tenant's wait already.
        """
        with self._turn_of(long.tenant):
            if self.was_in_time(long):
                return
            if not self._places.take(long.tenant, self._limit_s + ENDING_S):
                raise Busy("other long lists are being compiled: try again", after_s=self._limit_s)
            try:
                self._compile_list(long)
            finally:
                self._places.give_back()
            with self._lock:
                latest = self._in_time.get(long.tenant, ())[-_WAITING - 1 :]  # others of these still await their turn
                self._in_time[long.tenant] = (*latest, long)
                self._in_time.move_to_end(long.tenant)
                while len(self._in_time) > _KEPT:
                    self._in_time.popitem(last=False)

    def try_new(self, tenant: str, new: Estimate, returns_of: Callable[[str], ReturnTraffic]) -> None:
        """Try a tenant's new list, if it is long; raise as `try_list` does.

        In its turn it may turn out to be another one, as after a change of groups: then that one is tried too.
        """
        if new.bounds.most >= self.long_flows:
            with suppress(NotFound):  # its turn will say so
                self.try_list(LongList(tenant, new.acl, returns_of(tenant)))

    def close(self) -> None:
        """Kill the processes with their work; what is asked for later raises Busy."""
        for worker in self._workers:
            worker.close()

    @contextmanager
    def _turn_of(self, tenant: str) -> Iterator[None]:
        """Have a tenant's turn; its lists are compiled one by one. Raises TooOften."""
        with self._lock:
            turn = self._turns.setdefault(tenant, _Turn())
            if turn.asked > _WAITING:
                raise TooOften(
                    f"{turn.asked} long lists of '{tenant}' wait to be compiled: wait for them", after_s=self._limit_s
                )
            turn.asked += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.asked -= 1
                if not turn.asked:
                    del self._turns[tenant]

    def _compile_list(self, long: LongList) -> None:
        work = Work(compile_and_prove, (long.tenant, long.acl, long.returns), {})
        try:
            outcome = self._outcome(work)
        except OutOfTime:
            log.warning("a long list was not compiled in time", tenant=long.tenant, limit_s=self._limit_s)
            raise TooLarge(
                f"compiling and proving the list of '{long.tenant}' took more than {self._limit_s:g} s and was ended; "
                "nothing was changed. Name fewer prefixes and ports in its rules, split it among tenants, or have the "
                "operator raise the setting list_limit_s",
                place=f"tenants[{long.tenant}].acl",
            ) from None
        except OutOfMemory:
            log.warning("a long list was not compiled in its memory", tenant=long.tenant)
            raise TooLarge(
                f"compiling and proving the list of '{long.tenant}' took more than {self._memory_mib} MiB and was "
                "ended; nothing was changed. Name fewer prefixes and ports in its rules, or split it among tenants",
                place=f"tenants[{long.tenant}].acl",
            ) from None
        except ProcessEnded:
            raise Busy(
                f"the process that compiled the list of '{long.tenant}' ended twice; nothing was changed. Is there too "
                "little memory on the service's machine?",
                place=f"tenants[{long.tenant}].acl",
            ) from None
        if isinstance(outcome, BaseException):
            raise outcome

    def _outcome(self, work: Work) -> object:
        """Return the result of the work, which is done again if its process ends.

        The second process is a new one. Raises OutOfTime, OutOfMemory and ProcessEnded.
        """
        worker = next(each for each in self._workers if each.take(0))
        try:
            return worker.do(work, time.monotonic() + self._limit_s)
        except ProcessEnded:
            log.warning("a process that compiles lists has ended, and is started anew")
        worker.take(self._limit_s)
        return worker.do(work, time.monotonic() + self._limit_s)


def carry_once_tried(precompiler: Precompiler | None, write: Callable[..., T], *, is_large: bool) -> T:
    """Carry out a write, again after each list that had to be tried first.

    It is told whether it is large: after such a list it is. Raises what both raise, and Busy where the list is another
    one each time.
    """
    for _ in range(_TRIES):
        try:
            return write(is_large=is_large)
        except Untried as error:
            assert precompiler is not None, "lists are sent back where they can be tried"
            precompiler.try_list(error.untried)
            is_large = True
    raise Busy("others change the list, or what it names, all the time: try again", after_s=1)
