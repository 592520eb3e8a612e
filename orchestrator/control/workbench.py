"""Pure work that may take long, done in a process of its own and ended when its time is over.

What is said about a list (findings, differences) can take seconds, and with lists made for it minutes. Here it neither
holds up the service's other threads nor outlives the patience of who asked: the process is killed and, for the next
piece of work, started anew. One piece at a time. Lists get there in their native form, which takes a tenth of what
pickling their rules one by one does, and what came last is not read again: the questions about a list come together.
"""

from __future__ import annotations

import copyreg
import functools
import gc
import multiprocessing
import pickle
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, ParamSpec, TypeVar

from orchestrator.errors import AclflowError, Busy, TooLarge
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import acl_from_json, acl_text
from orchestrator.policy.model import Acl

P = ParamSpec("P")
T = TypeVar("T")


_LISTS = 3
"""So many lists are kept as they were read: one as it is, one as it was, one that somebody tries."""

_IDLE_S = 1.0
"""When nothing was asked for so long, there is time to collect garbage."""


@functools.lru_cache(maxsize=_LISTS)
def read_list(text: bytes) -> Acl:
    """A list in its native form; those that were read last are not read again. Raises BadInput, BadPolicy."""
    return acl_from_json(json_document(text))


copyreg.pickle(Acl, lambda acl: (read_list, (acl_text(acl),)))


class Workbench:
    """A process that is started when first needed. Safe to share between threads."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: SpawnProcess | None = None
        self._channel: Connection | None = None

    def run(self, within_s: float, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """The value of `function`, a module's own, with arguments that can be pickled; raises what it raises.

        Raises TooLarge when it takes longer than `within_s`, Busy when others do not make room in that time.
        """
        deadline = time.monotonic() + within_s
        if not self._turn.acquire(timeout=within_s):
            raise Busy("others are having their lists looked at: try again")
        try:
            outcome = self._outcome(pickle.dumps((function, arguments, named)), deadline)
        except BaseException:
            self._end()
            raise
        finally:
            self._turn.release()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]  # what `function` gave, through a pipe

    def close(self) -> None:
        """End the process, and the work that it is at."""
        self._end()

    def _outcome(self, work: bytes, deadline: float) -> Any:
        channel = self._open()
        try:
            channel.send_bytes(work)
            if not channel.poll(max(0.0, deadline - time.monotonic())):
                raise TooLarge("this takes too long here; a command on a machine of your own has all the time it needs")
            return channel.recv()
        except (EOFError, OSError) as error:
            raise AclflowError("the process that looks at lists has ended: is there too little memory?") from error

    def _open(self) -> Connection:
        if self._channel is None or self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._channel, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), name="workbench", daemon=True)
            self._process.start()
            theirs.close()
        return self._channel

    def _end(self) -> None:
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if process is not None and channel is not None:
            process.kill()
            process.join()
            channel.close()


def _serve(channel: Connection) -> None:
    """The process: work comes in, values and errors go out, until nobody is at the other end."""
    gc.disable()  # it would walk over every rule while somebody waits
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt is for the service, which ends this process
    while True:
        try:
            if not channel.poll(_IDLE_S):
                gc.collect()
            function, arguments, named = channel.recv()
        except (EOFError, OSError):
            return
        try:
            outcome = function(*arguments, **named)
        except Exception as error:  # noqa: BLE001  # it is raised again at the other end
            outcome = error
        channel.send(outcome)
