"""The threads on which routes with a plan (`lean.py`) do their work.

FastAPI's own are anyio's: before work begins on one of these, the event loop has come round twice. Two requests at
least stand between a change and its answer, so theirs is handed over at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(32, thread_name_prefix="request")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Return a function's result on a thread, in the context of the waiting caller.

    Raises what it raises.
    """
    work = partial(function, *arguments, **named)
    return await asyncio.wrap_future(_THREADS.submit(copy_context().run, _done, work))


def _done(work: Callable[[], T]) -> T:
    try:
        return work()
    except StopIteration as error:  # which asyncio cannot hand on: who waits would wait for ever
        raise RuntimeError("StopIteration from a function") from error
