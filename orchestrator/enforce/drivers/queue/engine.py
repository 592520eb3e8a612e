"""Workers that classify queued packets: a thread per queue, all with the same lists.

The lists change between two batches.

    write ──▶ other lists beside those in force ──▶ one reference changes ──▶ wait until no batch is of the old ones
                                                          ▲
    rebuild (a thread behind): an overlay's rows ──▶ built in C, or on the device

A worker takes the reference once a batch. So each packet is judged by the old lists or by the new, wholly, no packet
waits for a change, and when a change returns nothing is judged by the old lists any more.

Changed rows are ready in C at once; the device gets them behind, and what it is asked has an end
(`classify/devices/guarded.py`). A batch that cannot be judged is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import structlog

from orchestrator.classify.devices.guarded import GuardedSearch
from orchestrator.classify.overlay import MakeSearch
from orchestrator.classify.packets import packet_of
from orchestrator.classify.search import Search
from orchestrator.enforce.drivers.filters.nflog import Seen
from orchestrator.enforce.drivers.queue.lists import Buckets, Judged, Lists, Logged
from orchestrator.enforce.drivers.queue.machine import ACCEPT, DROP, QUEUE, Batch, Batching, Machine, PacketQueue
from orchestrator.errors import AclflowError, Unreachable


class Reports:
    """Tells of logged packets with their rules' cookies, limited for each tenant. Workers share it.

    A report takes a token of the tenant's bucket. Tenants have one each, whatever the worker, so a flood of one never
    hides the packets of another.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen: Seen | None = None
        self._buckets = Buckets(clock)

    def report(self, lists: Lists, judged: Judged, batch: Batch) -> None:
        """Tell of the packets of a batch that were counted by rows that log."""
        seen = self.seen
        if seen is None or not lists.logs:
            return
        for rows, packets in judged.counted:
            for row, packet in zip(rows.tolist(), packets.tolist(), strict=True):
                logged = lists.logs.get(row)
                if logged is not None and self._has_room(logged):
                    record = batch.packets[packet]
                    seen(logged.cookie, packet_of(record), int(record["length"]))

    def _has_room(self, logged: Logged) -> bool:
        """Take a token of the tenant's, if there is one."""
        limit = logged.limit
        return self._buckets.take(logged.tenant, 1, rate=limit.rate, burst=limit.burst) == 1


log = structlog.get_logger()

Counters = npt.NDArray[np.int64]

_LISTEN_S = 0.2
"""How long a worker listens before it looks whether it is to end."""
_OPEN_AGAIN_S = 1.0
_SWAP_S = 10.0
"""How long a change waits for batches of the old lists; a device that hangs takes a fraction of a second."""
_SETTLE_S = 0.05
"""Rows are built anew so long after a change: others may follow at once."""
_RECENT_S = 10.0
"""Packets that were lost are trouble for so long."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How packets are queued and judged."""

    queues: Sequence[int] = (0, 1)
    """Their numbers, one behind the other."""
    batching: Batching = field(default_factory=Batching)
    searching: MakeSearch = Search
    """Makes rows ready: a device, or C."""
    next_queue: int | None = None
    """The queue that permitted packets go on to, as of a program that looks into them; None: they are accepted."""

    @property
    def permit(self) -> int:
        """The verdict of a permitted packet."""
        return ACCEPT if self.next_queue is None else QUEUE | self.next_queue << 16


class Engine:
    """Lists in force, and the workers that judge by them."""

    def __init__(self, machine: Machine, setup: Setup) -> None:
        """Open all queues and begin.

        Raises Missing where the kernel has none, or somebody else listens.
        """
        self._machine, self.setup = machine, setup
        self.reports = Reports()
        self.buckets = Buckets()
        self._lists = Lists.empty()
        self._in_use: dict[int, Lists] = {}
        self._turn = threading.Condition()
        self._change = threading.Lock()
        self._stopping = threading.Event()
        self._stale = threading.Event()
        queues = _open_queues(machine, setup)
        self._workers = [_Worker(self, *opened) for opened in zip(setup.queues, queues, strict=True)]
        self._counted = (
            _Recently(
                "queue.overload", "were dropped: more came than are judged", partial(_lost, machine, setup.queues)
            ),
            _Recently("queue.unread", "could not be read, and were dropped", self._count_unread),
        )
        self._builder = threading.Thread(target=self._build_behind, name="rebuild-lists", daemon=True)
        for thread in (*self._workers, self._builder):
            thread.start()

    @property
    def lists(self) -> Lists:
        """The lists in force."""
        return self._lists

    @property
    def listens(self) -> bool:
        """Whether every queue has its worker."""
        return all(worker.is_alive() and worker.fault is None for worker in self._workers)

    def put(self, lists: Lists) -> None:
        """Classify by other lists from now on.

        At the return no packet is judged by the old ones any more.

        Raises Unreachable where a batch does not end; later batches are judged by the new lists.
        """
        with self._change:
            self._lists = lists
        self._stale.set()
        with self._turn:
            if not self._turn.wait_for(lambda: self._judging_since() >= lists.serial, _SWAP_S):
                raise Unreachable(f"a batch of packets was not judged within {_SWAP_S:g} s")

    def _judging_since(self) -> int:
        """The serial of the oldest lists that a batch is judged by."""
        return min((lists.serial for lists in self._in_use.values()), default=self._lists.serial)

    def begin(self, worker: int) -> Lists:
        """The lists that a worker's next batch is judged by."""
        with self._turn:
            lists = self._in_use[worker] = self._lists
        return lists

    def end(self, worker: int) -> None:
        """Note that a worker's batch was answered."""
        with self._turn:
            del self._in_use[worker]
            self._turn.notify_all()

    def counts(self) -> Counters:
        """Packets and bytes of each row since the start, by number."""
        parts = [worker.counters.copy() for worker in self._workers]
        found = np.zeros((2, max(part.shape[1] for part in parts)), np.int64)
        for part in parts:
            found[:, : part.shape[1]] += part
        return found

    def trouble(self) -> str | None:
        """Describe queues without a worker, lost packets, and a device replaced by C."""
        said = [worker.fault for worker in self._workers if worker.fault is not None]
        said += [words for each in self._counted if (words := each.look(time.monotonic())) is not None]
        searches = [rows.search for rows in self._lists.rows.values()]
        places = [search.place for search in searches if isinstance(search, GuardedSearch)]
        said += sorted({f"rows are searched in C: {place.because}" for place in places if place.because})
        return "; ".join(said) or None

    def _count_unread(self) -> int:
        return sum(worker.unread for worker in self._workers)

    def stop(self) -> None:
        """Stop judging. From now on everything that is queued is dropped."""
        self._stopping.set()
        self._stale.set()
        for worker in self._workers:
            worker.join()
        self._builder.join()

    @property
    def is_stopping(self) -> bool:
        """Whether workers are to end."""
        return self._stopping.is_set()

    def reopen(self, queue: int) -> PacketQueue:
        """Listen to a queue again. Raises Missing."""
        self._stopping.wait(_OPEN_AGAIN_S)
        return self._machine.open(queue, self.setup.batching)

    def _build_behind(self) -> None:
        """Build rows anew after changes, on the device or in C."""
        while not self.is_stopping:
            self._stale.wait()
            self._stopping.wait(_SETTLE_S)
            self._stale.clear()
            since = self._lists
            try:
                rebuilt = since.rebuilt(self.setup.searching)
            except Exception as error:  # noqa: BLE001 -- the lists in force are right, and stay
                log.warning("queue.not_rebuilt", error=str(error))
                continue
            with self._change:
                self._lists = self._lists.carried_over(since, rebuilt)


class _Worker(threading.Thread):
    """Judges the packets of one queue."""

    def __init__(self, engine: Engine, number: int, queue: PacketQueue) -> None:
        super().__init__(name=f"queue-{number}", daemon=True)
        self._engine, self._number, self._queue = engine, number, queue
        self.counters: Counters = np.zeros((2, 64), np.int64)
        self.fault: str | None = None
        self.unread = 0

    def run(self) -> None:
        """Go on until the engine stops; a queue that is gone is opened again."""
        while not self._engine.is_stopping:
            try:
                batch = self._queue.receive(_LISTEN_S)
                if batch is not None:
                    self._judge_batch(batch)
            except AclflowError as error:
                self._reopen_queue(error)
        self._queue.close()

    def _judge_batch(self, batch: Batch) -> None:
        lists = self._engine.begin(self._number)
        try:
            verdicts = np.full(len(batch.ids), DROP, np.uint32)
            judged = None
            try:
                judged = lists.limit(lists.judge(batch.packets), self._engine.buckets)
                verdicts[judged.permitted] = self._engine.setup.permit
                self._count_batch(judged, batch, len(lists.permits))
            except Exception as error:  # noqa: BLE001 -- whatever it is, the packets must be answered
                verdicts[:] = DROP
                log.warning("queue.not_judged", queue=self._number, packets=len(batch.ids), error=repr(error))
            self._queue.answer(batch, verdicts)
            if judged is not None:
                self._report_batch(lists, judged, batch)
        finally:
            self._engine.end(self._number)

    def _count_batch(self, judged: Judged, batch: Batch, numbers: int) -> None:
        if numbers > self.counters.shape[1]:
            grown = np.zeros((2, 2 * numbers), np.int64)
            grown[:, : self.counters.shape[1]] = self.counters
            self.counters = grown
        lengths = batch.packets["length"]
        for rows, packets in judged.counted:
            np.add.at(self.counters[0], rows, 1)
            np.add.at(self.counters[1], rows, lengths[packets])
        self.unread += judged.unread

    def _report_batch(self, lists: Lists, judged: Judged, batch: Batch) -> None:
        try:
            self._engine.reports.report(lists, judged, batch)
        except Exception as error:  # noqa: BLE001 -- a report that fails must not end the judging
            log.warning("queue.not_reported", queue=self._number, error=repr(error))

    def _reopen_queue(self, error: AclflowError) -> None:
        self.fault = str(error)
        log.warning("queue.lost", queue=self._number, error=self.fault)
        self._queue.close()
        while not self._engine.is_stopping:
            try:
                self._queue = self._engine.reopen(self._number)
            except AclflowError as again:
                self.fault = str(again)
            else:
                self.fault = None
                return


class _Recently:
    """Says when a count of packets grew, for some time."""

    def __init__(self, event: str, words: str, count: Callable[[], int]) -> None:
        self._event, self._words, self._count = event, words, count
        self._seen = count()
        self._when_s: float | None = None
        self._said = ""

    def look(self, now_s: float) -> str | None:
        """Describe the count if it grew lately; else None."""
        found = self._count()
        more, self._seen = found - self._seen, found
        if more > 0:
            self._when_s, self._said = now_s, f"{more} packets {self._words}"
            log.warning(self._event, packets=more)
        return self._said if self._when_s is not None and now_s - self._when_s < _RECENT_S else None


def _open_queues(machine: Machine, setup: Setup) -> list[PacketQueue]:
    """All queues, or none of them. Raises Missing."""
    with ExitStack() as stack:
        queues = [stack.enter_context(closing(machine.open(number, setup.batching))) for number in setup.queues]
        stack.pop_all()
    return queues


def _lost(machine: Machine, queues: Sequence[int]) -> int:
    """Packets that queues dropped before anybody saw them."""
    return sum(each.full + each.unheard for number, each in machine.lost().items() if number in queues)
