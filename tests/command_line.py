"""Calling the command line inside the test's process, with its streams in hand."""

from __future__ import annotations

import contextlib
import io
import json
import os
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
