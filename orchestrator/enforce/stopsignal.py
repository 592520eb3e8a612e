"""How a process of ours is asked to end: SIGTERM or SIGINT.

The kernel may give a signal to any thread, and Python runs what handles it in the main thread alone: one that sleeps at
a lock then goes on sleeping, and one that is about to sleep may hear nothing either. So the main thread waits for what
Python writes into a pipe the moment that a signal comes, whichever thread it came to.
"""

from __future__ import annotations

import os
import select
import signal
from typing import Protocol

_WISHES = (signal.SIGTERM, signal.SIGINT)


class Stopping(Protocol):
    """Whether it is time to stop; `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether the process is to stop."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is, at most so many seconds; whether it is."""
        ...


class AskedToEnd:
    """Tells whether this process was asked to end.

    To be made and asked in the main thread, once in a process: from now on these signals do nothing else.
    """

    def __init__(self) -> None:
        self._is_asked = False
        self._heard, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in _WISHES:
            signal.signal(number, lambda *_: None)

    def is_set(self) -> bool:
        """Whether a signal has asked this process to end."""
        return self.wait(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is, at most so many seconds; whether it is."""
        while not self._is_asked and select.select([self._heard], [], [], timeout)[0]:
            self._is_asked = any(number in _WISHES for number in os.read(self._heard, 4096))
        return self._is_asked
