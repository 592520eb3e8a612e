"""Keys of a terminal, and what else ends the wait for one."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from patience import PATIENCE_S

from orchestrator.cli.top import END_OF_INPUT, keys


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The other end of a terminal that is standard input."""
    master, slave = pty.openpty()
    with open(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master
    os.close(master)


def test_keys_come_one_by_one_without_a_line_end(terminal: int) -> None:
    with keys() as pressed:
        os.write(terminal, b"ab")
        assert [pressed(PATIENCE_S), pressed(PATIENCE_S), pressed(0.0)] == ["a", "b", ""]


def test_another_size_ends_the_wait_once(terminal: int) -> None:
    before = signal.getsignal(signal.SIGWINCH)
    with keys() as pressed:
        signal.raise_signal(signal.SIGWINCH)
        started = time.monotonic()
        assert pressed(PATIENCE_S) == ""
        assert time.monotonic() - started < PATIENCE_S / 2
        os.write(terminal, b"q")
        assert pressed(PATIENCE_S) == "q"
    assert signal.getsignal(signal.SIGWINCH) == before


def test_the_end_of_the_input_is_a_key(terminal: int) -> None:
    with keys() as pressed:
        os.write(terminal, b"\x04")
        assert pressed(PATIENCE_S) == END_OF_INPUT
