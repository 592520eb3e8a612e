"""Calling the command line: inside the test's process, with its streams in hand, or in a fork that has it imported."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.cli import main

NO_CONFIGURATION = "/nonexistent"
"""Where nothing that a user configured is found."""


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


def aclflow(*arguments: str, stdin: bytes | str = b"", environment: Mapping[str, str] | None = None) -> Ended:
    """Run `aclflow` with the given arguments; ACLFLOW_* of the environment are only those given."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = io.StringIO(), io.StringIO()
    before, old_stdin = dict(os.environ), sys.stdin
    for name in [name for name in os.environ if name.startswith("ACLFLOW_")]:
        del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = NO_CONFIGURATION
    os.environ.update(environment or {})
    sys.stdin = io.TextIOWrapper(io.BytesIO(data))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    finally:
        sys.stdin = old_stdin
        os.environ.clear()
        os.environ.update(before)
    return Ended(code, out.getvalue(), err.getvalue())


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["orchestrator.cli", "orchestrator.cli.service", "orchestrator.cli.console", "api.console.server"]
)
_forked: list[ForkedCommand] = []


class ForkedCommand:
    """`aclflow` with arguments, in a process of its own, whose whole environment is given.

    The process is forked from one that has imported services and consoles, which takes a new Python seconds.
    """

    def __init__(self, *arguments: str, environment: Mapping[str, str]) -> None:
        self._process = _FORKS.Process(target=_run, args=(arguments, dict(environment)))
        self._process.start()
        _forked.append(self)

    @property
    def ended(self) -> int | None:
        """Its exit code; None as long as it runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.ended is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def wait(self, most_s: float | None = None) -> None:
        """Wait until it has ended."""
        self._process.join(most_s)
        assert self.ended is not None, "it does not end"

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send_signal(signal.SIGKILL)
        self.wait()


def _run(arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(main(arguments))


@atexit.register
def _end_forked() -> None:
    """End what a test left: Python would wait for it."""
    for command in _forked:
        command.kill()
