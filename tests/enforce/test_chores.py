"""Chores: what they are poked for in quick succession is done once, and they end at once."""

from __future__ import annotations

import queue
import threading
import time

from patience import PATIENCE_S

from orchestrator.enforce.chores import Chore


def test_what_it_is_poked_for_meanwhile_is_done_with_it() -> None:
    done: queue.Queue[float] = queue.Queue()
    chore = Chore("test", lambda: done.put(time.monotonic()), 3600, settle_s=0.1)
    began = time.monotonic()
    chore.start()
    for _ in range(5):
        chore.poke()
    assert done.get(timeout=PATIENCE_S) - began >= 0.1
    threading.Event().wait(0.2)
    assert done.empty()
    chore.poke()
    done.get(timeout=PATIENCE_S)
    chore.stop()


def test_it_does_not_settle_down_when_it_is_to_end() -> None:
    done: queue.Queue[None] = queue.Queue()
    chore = Chore("test", lambda: done.put(None), 3600, settle_s=3600)
    chore.start()
    began = time.monotonic()
    chore.stop(timeout_s=PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert done.empty()
