"""Running programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from imagebuilder.recipes import Fault

_LAST_LINES = 15


def run(*command: str | Path, settings: Mapping[str, str] | None = None, text: str | None = None) -> str:
    """What a program prints, with more in its environment. Raises Fault."""
    words = [*map(str, command)]
    environment = {**os.environ, **(settings or {})}
    try:
        done = subprocess.run(words, input=text, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Fault(f"the program '{words[0]}' is not installed: `make images` installs it") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:]
        raise Fault("\n".join([f"{' '.join(words)} ended with {done.returncode}", *said]))
    return done.stdout


def follow(
    *command: str | Path, settings: Mapping[str, str], log: Path, told: Callable[[str], None], folder: Path
) -> None:
    """Run a program that takes minutes; every line goes into `log` and to `told`. Raises Fault, with the last lines."""
    lines: list[str] = []
    words = [*map(str, command)]
    environment = {**os.environ, **settings}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            words, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=both, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            lines = [*lines[-_LAST_LINES:], line.rstrip()]
            told(line.rstrip())
    if process.returncode:
        raise Fault("\n".join([f"{words[0]} ended with {process.returncode}; the whole of it is in {log}", *lines]))
