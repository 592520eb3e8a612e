"""Processes are known by more than their number: nothing but the very process is ever signalled."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from patience import until

from orchestrator.errors import Missing
from orchestrator.lab import processes
from orchestrator.lab.processes import Process

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes.stop(processes.marked_processes(tmp_path), patience_s=0.1)


def started(arguments: list[str], mark: Path, name: str = "sleeper") -> Process:
    log = mark / f"{name}.log"
    process = processes.spawn(name, arguments, mark=mark, log=log)
    until(lambda: log.exists() and "up" in log.read_text())
    return process


def test_a_process_lives_until_it_is_stopped(mark: Path) -> None:
    process = started(SLEEPER, mark)
    assert processes.alive(process)
    assert os.getsid(process.pid) == process.pid
    processes.stop([process])
    assert not processes.alive(process)
    with pytest.raises(ChildProcessError):  # it was reaped: no zombie stays behind
        os.waitpid(process.pid, 0)


def test_one_that_does_not_listen_is_killed_after_the_patience(mark: Path) -> None:
    process = started(STUBBORN, mark)
    before = time.monotonic()
    processes.stop([process], patience_s=0.3)
    assert not processes.alive(process)
    assert time.monotonic() - before >= 0.3


def test_a_number_used_again_is_never_signalled(mark: Path) -> None:
    process = started(SLEEPER, mark)
    stranger = replace(process, started=process.started - 1)
    assert not processes.alive(stranger)
    processes.send(stranger, signal.SIGKILL)
    processes.stop([stranger], patience_s=0.1)
    processes.kill(stranger)
    assert processes.alive(process)


def test_marked_processes_are_found_without_being_remembered(mark: Path, tmp_path: Path) -> None:
    shell = ["sh", "-c", f"exec {sys.executable} -c 'import time; print(\"up\", flush=True); time.sleep(60)'"]
    one, two = started(SLEEPER, mark, "one"), started(shell, mark, "two")
    assert {process.pid for process in processes.marked_processes(mark)} == {one.pid, two.pid}
    assert processes.marked_processes(tmp_path / "other") == ()


def test_how_a_process_ended_is_told(mark: Path) -> None:
    process = started(SLEEPER, mark)
    assert processes.describe_end(process) is None
    processes.send(process, signal.SIGTERM)
    until(lambda: processes.describe_end(process) is not None)
    assert processes.describe_end(process) == "signal 15"
    assert not processes.alive(process)
    assert processes.describe_end(process) is None, "it was reaped"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a namespace of processes")
def test_a_lab_of_the_same_name_in_another_namespace_is_another_one(mark: Path) -> None:
    """Tests beside each other have labs of one name; one that began ended the processes of all others."""
    apart = started(["unshare", "--pid", "--fork", "--kill-child", *SLEEPER], mark)
    found = {process.pid for process in processes.marked_processes(mark)}
    assert found == {apart.pid}, "unshare itself is here, and what it started is not"


def test_what_is_gone_can_be_stopped_again(mark: Path) -> None:
    process = started(SLEEPER, mark)
    processes.kill(process)
    processes.kill(process)
    processes.stop([process], patience_s=0.1)
    assert processes.wait(process, 0)
    assert processes.marked_processes(mark) == ()


def test_a_program_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no-such-program"):
        processes.spawn("x", ["no-such-program"], mark=tmp_path, log=tmp_path / "log")
