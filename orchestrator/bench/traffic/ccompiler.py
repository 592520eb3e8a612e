"""Compile what suites have in C with the machine's own compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

from orchestrator.errors import Missing, Refused


def compile_source(source: Path, built: Path, *options: str) -> Path:
    """Compile a source file into `built`, and return that. Raises Missing, Refused."""
    command = ["cc", "-O2", "-Wall", "-Werror", "-o", str(built), str(source), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Missing("there is no C compiler here: apt-get install gcc") from None
    if done.returncode:
        raise Refused(f"cc: {done.stderr.strip()[:2000]}")
    return built
