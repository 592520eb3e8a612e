"""Read a terminal's keys as soon as they are pressed, and its changes of size."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

END_OF_INPUT = "\x04"

Wait = Callable[[float], str]
"""Wait for a key, for so many seconds at most. "": none came, or the terminal has another size now."""


@contextmanager
def keys() -> Iterator[Wait]:
    """Read single keys of standard input during the block.

    There are none where the input is no terminal. To be used in the main thread.
    """
    if not sys.stdin.isatty():
        yield _no_key
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    resized, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handled = signal.signal(signal.SIGWINCH, lambda *_: None)
    # by the handler itself: Python's own runs after a wait that the signal came just before, not in it
    woken = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    try:
        tty.setcbreak(terminal)
        yield partial(_next, terminal, resized)
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGWINCH, handled)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        os.close(resized)
        os.close(tell)


def _next(terminal: int, resized: int, seconds: float) -> str:
    """Read past Python's buffer: what waits there would not wake anybody."""
    ready, _, _ = select.select([terminal, resized], [], [], seconds)
    if resized in ready:
        os.read(resized, 4096)
    if terminal not in ready:
        return ""
    return os.read(terminal, 1).decode("latin-1") or END_OF_INPUT


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""
