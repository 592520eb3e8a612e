"""The keyboard and screen of an instance: commands typed at its serial port, and what they print."""

from __future__ import annotations

import itertools
import os
import select
import time
import tty
from types import TracebackType

PATIENCE_S = 120.0


class Terminal:
    """One instance's terminal by the path of its pseudo-terminal; used in a `with` statement."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._numbers = itertools.count()

    def __enter__(self) -> Terminal:
        self._file = os.open(self._path, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def run(self, command: str) -> str:
        """Type a command; return what it printed once it has ended. Raises TimeoutError."""
        mark = f"{next(self._numbers)}-{time.monotonic_ns()}"
        begin, end = f"<{mark}", f"{mark}>"
        text = f"echo '<''{mark}'; {{ {command}; }} 2>&1; echo '{mark}''>'\n"
        self._write(text.encode())
        said, ends = "", time.monotonic() + PATIENCE_S
        while end not in said:
            if not select.select([self._file], [], [], max(ends - time.monotonic(), 0))[0]:
                raise TimeoutError(f"{command}: {said}")
            said += os.read(self._file, 4096).decode(errors="replace")
        return said.partition(begin)[2].partition(end)[0].replace("\r", "").strip()

    def _write(self, octets: bytes) -> None:
        while octets:
            octets = octets[os.write(self._file, octets) :]
