"""Long pure work in processes of its own, killed when its time is over.

Findings, differences and costs of a list can take seconds, and minutes with lists made for it. Here it neither holds up
the service's other threads nor outlives the caller's patience: the process is killed and, for the next piece of work,
started anew. There are two, one piece at a time each, and a tenant has one at a time (`api/questions.py`): a question
for a list's costs, or for findings that take long, holds up nobody who asks for findings of another. A process that
takes more than `MEMORY_MIB` is refused the rest, and ended, and where the processor is short it comes after the service
itself.

Lists get there in their native form, which takes a tenth of what pickling their rules one by one does, and only once:
the questions about a list come together, and a list that both ends have is called by its number.
"""

from __future__ import annotations

import copyreg
import functools
import gc
import io
import multiprocessing
import os
import pickle
import resource
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, ParamSpec, TypeVar

from orchestrator import stages
from orchestrator.errors import AclflowError, Busy, TooLarge
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import acl_from_json, acl_text
from orchestrator.policy.model import Acl

P = ParamSpec("P")
T = TypeVar("T")


_LISTS = 3
"""So many lists are kept as they were read: one as it is, one as it was, one that somebody tries."""

MEMORY_MIB = 4096
"""A process takes no more of its own: sixteen times what it takes for the slowest lists that pass the ceiling."""

ASIDE_S = 1.0
"""So long a judgement waits for the process that remembers, before it is made in the other one from nothing."""

NICER = 5
"""By so much a process gives way to others of the machine: writes, databases and switches go first."""

_IDLE_S = 5.0
"""When nothing was asked for so long, there is time to collect garbage: longer than somebody who looks at a page takes
to ask for the next one."""


@functools.lru_cache(maxsize=_LISTS)
def read_list(text: bytes) -> Acl:
    """Read a native list; the last ones read are cached.

    Raises BadInput, BadPolicy.
    """
    return acl_from_json(json_document(text))


copyreg.pickle(Acl, lambda acl: (read_list, (acl_text(acl),)))


class OutOfTime(TooLarge):
    """The process was killed: its time was over."""


class OutOfMemory(TooLarge):
    """The work needed more memory than its process may take."""


class ProcessEnded(AclflowError):
    """The process ended by itself."""


@dataclass(frozen=True, slots=True)
class Work:
    """A module's own function, and what it is called with."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    named: dict[str, object]


class Workbench:
    """Two processes, each started when first needed. Safe to share between threads."""

    def __init__(self, memory_mib: int = MEMORY_MIB) -> None:
        self._judge, self.other = Worker("judge", memory_mib), Worker("workbench", memory_mib)

    def run(self, within_s: float, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Return the value of a module's function with picklable arguments; raise its errors.

        Raises TooLarge when it takes longer than `within_s`, Busy when others do not make room in that time.
        """
        stages.lap(stages.LOOK)
        at_once = next((worker for worker in (self.other, self._judge) if worker.take(0)), None)
        return self._do_work(at_once, self.other, within_s, Work(function, arguments, named))  # type: ignore[no-any-return]

    def judge(self, within_s: float, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run a function in the process that remembers earlier judgements.

        Where that is at work for others for longer than `ASIDE_S`, and the other one is free, it is done there.
        """
        stages.lap(stages.LOOK)
        deadline = time.monotonic() + within_s
        asked = ((self._judge, min(ASIDE_S, within_s)), (self.other, 0.0))
        taken = next((worker for worker, wait_s in asked if worker.take(wait_s)), None)
        work = Work(function, arguments, named)
        return self._do_work(taken, self._judge, deadline - time.monotonic(), work)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Kill the processes with their work.

        Later work raises Busy.
        """
        self._judge.close()
        self.other.close()

    def _do_work(self, taken: Worker | None, otherwise: Worker, within_s: float, work: Work) -> Any:
        deadline = time.monotonic() + within_s
        if taken is None and not otherwise.take(max(0.0, within_s)):
            stages.lap(stages.WAIT)
            raise Busy("others are having their lists looked at: try again")
        stages.lap(stages.WAIT)
        outcome = (taken or otherwise).do(work, deadline)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Worker:
    """A process and the lists that were sent to it.

    The thread that has taken it gives it one piece of work, which leaves it free again.
    """

    def __init__(self, name: str, memory_mib: int = MEMORY_MIB) -> None:
        self._name = name
        self._memory_mib = memory_mib
        self._turn = threading.Lock()
        self._process: SpawnProcess | None = None
        self._channel: Connection | None = None
        self.is_closed = False
        self._sent = _Sent()

    def take(self, within_s: float) -> bool:
        """Whether nobody else has it, or gives it back within so long."""
        return self._turn.acquire(timeout=within_s)

    def do(self, work: Work, deadline: float) -> Any:
        """Return the result: a value, or an error that was raised.

        Raises OutOfTime, OutOfMemory and ProcessEnded.
        """
        try:
            return self._outcome(work, deadline)
        except BaseException:
            self._end_process()
            raise
        finally:
            self._turn.release()

    def close(self) -> None:
        """Kill the process for good, with its work.

        The thread that waits for that work puts things away.
        """
        self.is_closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._end_process()

    def _end_process(self) -> None:
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if process is not None and channel is not None:
            process.kill()
            process.join()
            channel.close()

    def _outcome(self, work: Work, deadline: float) -> Any:
        """Return what the process answers; raise its OutOfMemory, for it is ended then."""
        channel = self._open_process()
        try:
            channel.send_bytes(self._sent.pack(work))
            if not channel.poll(max(0.0, deadline - time.monotonic())):
                raise OutOfTime("this takes too long here; a command on your own machine has all the time it needs")
            outcome = channel.recv()
        except (EOFError, OSError) as error:
            raise ProcessEnded("the process that looks at lists has ended: is there too little memory?") from error
        if isinstance(outcome, OutOfMemory):
            raise outcome
        return outcome

    def _open_process(self) -> Connection:
        if self._channel is None or self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._channel, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._memory_mib), name=self._name, daemon=True)
            process.start()
            self._process = process
            self._sent = _Sent()
            theirs.close()
        if self.is_closed:  # after that: whoever closes it ends the process that it finds
            raise Busy("the service is stopping")
        return self._channel


@dataclass(slots=True)
class _Sent:
    """The lists last sent to a process, by identity, with their numbers."""

    lists: OrderedDict[int, tuple[int, Acl]] = field(default_factory=OrderedDict)
    count: int = 0

    def pack(self, work: Work) -> bytes:
        """A piece of work as it goes to the process."""
        packed = io.BytesIO()
        pickler = pickle.Pickler(packed, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._number  # type: ignore[method-assign]
        pickler.dump(work)
        return packed.getvalue()

    def _number(self, each: object) -> tuple[int, bytes | None] | None:
        """Return a list's number, with the list if the process lacks it; None for others."""
        if not isinstance(each, Acl):
            return None
        known = self.lists.get(id(each))
        if known is not None:
            self.lists.move_to_end(id(each))
            return known[0], None
        self.count += 1
        self.lists[id(each)] = self.count, each
        if len(self.lists) > _LISTS:
            self.lists.popitem(last=False)
        return self.count, acl_text(each)


@dataclass(slots=True)
class _Received:
    """The process's end: the same lists, in the same order."""

    lists: OrderedDict[int, Acl] = field(default_factory=OrderedDict)

    def unpack(self, packed: bytes) -> Work:
        """A piece of work as it came."""
        unpickler = pickle.Unpickler(io.BytesIO(packed))  # noqa: S301 -- from the service itself, through its pipe
        unpickler.persistent_load = self._read_list  # type: ignore[method-assign]
        work: Work = unpickler.load()
        return work

    def _read_list(self, named: tuple[int, bytes | None]) -> Acl:
        number, text = named
        if text is not None:
            self.lists[number] = read_list(text)
        self.lists.move_to_end(number)
        if len(self.lists) > _LISTS:
            self.lists.popitem(last=False)
        return self.lists[number]


def _serve(channel: Connection, memory_mib: int) -> None:
    """Run the process: take work, return values and errors, until the other end closes."""
    with suppress(OSError):  # a container may forbid it, and the work is done all the same
        os.nice(NICER)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_mib << 20, memory_mib << 20))
    gc.disable()  # it would walk over every rule while somebody waits
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt is for the service, which ends this process
    received = _Received()
    while True:
        try:
            if not channel.poll(_IDLE_S):
                gc.collect()
            work = received.unpack(channel.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            outcome = work.function(*work.arguments, **work.named)
        except MemoryError:
            outcome = OutOfMemory(
                f"this takes more than {memory_mib} MiB of memory here; a command on your own machine may have more"
            )
        except Exception as error:  # noqa: BLE001  # it is raised again at the other end
            outcome = error
        channel.send(outcome)
