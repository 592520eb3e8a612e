"""A process hears that it is asked to end, whichever thread the signal comes to and whatever the main one is at."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from patience import PATIENCE_S

ANOTHER_THREAD = """
import signal, sys, threading, time
from orchestrator.enforce.stopsignal import AskedToEnd

def send():
    time.sleep(0.3)  # until the main thread waits
    signal.pthread_kill(threading.get_ident(), int(sys.argv[1]))
    time.sleep(600)

asked = AskedToEnd()
threading.Thread(target=send, daemon=True).start()
assert asked.wait()
assert asked.is_set()
"""

AT_ONCE = """
import os, sys
from orchestrator.enforce.stopsignal import AskedToEnd

asked = AskedToEnd()
assert not asked.is_set()
assert not asked.wait(0.01)
os.kill(os.getpid(), int(sys.argv[1]))
os.kill(os.getpid(), int(sys.argv[1]))
assert asked.wait()
"""


@pytest.mark.parametrize("program", [ANOTHER_THREAD, AT_ONCE])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_wish_to_end_is_heard(program: str, number: signal.Signals) -> None:
    ended = subprocess.run([sys.executable, "-c", program, str(int(number))], timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0


def test_other_signals_are_no_such_wish() -> None:
    program = """
import os, signal
from orchestrator.enforce.stopsignal import AskedToEnd

asked = AskedToEnd()
signal.signal(signal.SIGUSR1, lambda *_: None)
os.kill(os.getpid(), signal.SIGUSR1)
assert not asked.wait(0.1)
"""
    subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S, check=True)
