"""Tune the interpreter: memory, garbage collection, turns of threads.

A long-lived process is tuned once; while a long list is read or written, garbage collection rests.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECT_EVERY = 10_000
"""How many more objects are made than freed before the garbage collector looks at the young ones. Python's 700 let it
run several times in a change of one rule, of which next to nothing is garbage: reference counts have freed it."""
_COLLECT_OLDER_EVERY, _COLLECT_ALL_EVERY = 10, 1_000
"""How many of these looks until it looks at the older objects too, and how many of those until it looks at all.
Python's 10 and 10 have it walk over every rule of every list at some change, for a second where there are 100,000."""


def collect_seldom() -> None:
    """Make garbage collection rare: it walks over everything while somebody waits."""
    gc.set_threshold(_COLLECT_EVERY, _COLLECT_OLDER_EVERY, _COLLECT_ALL_EVERY)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let the garbage collector rest in here.

    It runs whenever some hundred objects more were made than freed, and every so often walks over everything there
    is; while a list of 20,000 rules is read or written that is a third of the time, and it finds nothing, for rules
    hold no cycles. Where two threads are in here the first one to leave may wake it again: a matter of speed only.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def give_back() -> None:
    """Return free memory to the system.

    It takes some milliseconds, in which other threads go on. Nothing where the C library has no such call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others wait. Python's 5 ms are as long as a whole change takes, and
what was published, or is to be, must not wait for the thread that is at something else."""


def take_turns() -> None:
    """Have threads of this process take shorter turns."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


def prepare_interpreter() -> None:
    """Exclude everything imported so far from garbage collection.

    Looking through it would hold a change up for tens of milliseconds.
    """
    take_turns()
    gc.freeze()
