"""Running a packet filter's programs (`nft`, `iptables-restore`, ...)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence

from orchestrator.errors import Missing, Refused, Unreachable

Run = Callable[[Sequence[str], str], str]
"""Runs a program with a text on its standard input; what it printed. Raises Refused with the program's own words,
Missing where there is no such program, or no right to run it, Unreachable when it does not end or cannot begin."""

PATIENCE_S = 120.0
_LONGEST_COMPLAINT = 2000


def run(command: Sequence[str], text: str) -> str:
    """The real thing, in the network namespace of this process.

    The program reads a file in memory that is whole before it begins: from a pipe it would take what was written there
    when we were killed for all, and a part of a script leaves part of a list in force.
    """
    try:
        with os.fdopen(os.memfd_create("words"), "w+", errors="replace") as words:
            words.write(text)
            words.seek(0)
            done = subprocess.run(
                command, stdin=words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, errors="replace"
            )
    except FileNotFoundError:
        raise Missing(f"there is no program '{command[0]}' here") from None
    except PermissionError:
        raise Missing(f"'{command[0]}' may not be run here") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} did not end within {PATIENCE_S:.0f} s") from None
    except OSError as error:  # too many processes or descriptors, too little memory
        raise Unreachable(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        raise Refused(f"{command[0]}: {' '.join(done.stderr.split())[:_LONGEST_COMPLAINT]}")
    return done.stdout
