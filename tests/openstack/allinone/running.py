"""Processes of a set-up: started in sessions of their own, known by the file that holds their process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from allinone.place import Place

PATIENCE_S = 600.0
"""A loaded machine takes long to start a service; a sound one answers in seconds."""


class NotStartedError(RuntimeError):
    """A service did not come up; the words are the end of its log."""


def start(place: Place, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start one, unless it runs."""
    if is_running(place, name):
        return
    with (place.root / "log" / f"{name}.out").open("ab") as log:
        process = subprocess.Popen(
            list(command),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _pid_file(place, name).write_text(str(process.pid))


def is_running(place: Place, name: str) -> bool:
    """Whether the process that was started under the name is there."""
    pid = _pid(place, name)
    if pid is None:
        return False
    with suppress(ChildProcessError):  # one of ours that ended stays until it is asked for
        os.waitpid(pid, os.WNOHANG)
    return Path("/proc", str(pid)).exists()


def stop(place: Place, names: Sequence[str], within_s: float = 20.0) -> None:
    """End some, with what they started: asked first, then killed."""
    for name in names:
        _signal(place, name, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    for name in names:
        while is_running(place, name) and time.monotonic() < deadline:
            time.sleep(0.1)
        _signal(place, name, signal.SIGKILL)
        _pid_file(place, name).unlink(missing_ok=True)


def kill(place: Place, names: Sequence[str]) -> None:
    """End some, with what they started, as a power cut would."""
    for name in names:
        _signal(place, name, signal.SIGKILL)
    for name in names:
        wait_for(f"the end of {name}", lambda name=name: not is_running(place, name))
        _pid_file(place, name).unlink(missing_ok=True)


def wait_for(what: str, there: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait until something is so. Raises NotStartedError."""
    deadline = time.monotonic() + within_s
    while not there():
        if time.monotonic() > deadline:
            raise NotStartedError(f"{what}: not there after {within_s:.0f} s")
        time.sleep(0.2)


def listens(address: str, port: int) -> bool:
    """Whether somebody listens on a port of an address."""
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex((address, port)) == 0


def _pid_file(place: Place, name: str) -> Path:
    return place.root / "run" / f"{name}.pid"


def _pid(place: Place, name: str) -> int | None:
    try:
        return int(_pid_file(place, name).read_text())
    except (OSError, ValueError):
        return None


def _signal(place: Place, name: str, number: signal.Signals) -> None:
    pid = _pid(place, name)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
