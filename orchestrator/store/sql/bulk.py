"""Make tens of thousands of objects without garbage collection in between."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
