"""Handle standard streams that were closed at the start or cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TextIO

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""What writing ends with where the file is to blame, not who writes."""


def stand_in() -> None:
    """Open stand-ins for standard streams that are closed.

    There is nothing to read, the output refuses, and nobody hears complaints. Otherwise the next file that is opened
    would be taken for one of them, and what is said would be written there.
    """
    for name, number, flags in (
        ("stdin", 0, os.O_RDONLY),
        ("stdout", 1, os.O_RDONLY),  # writing fails as it does where nothing is open
        ("stderr", 2, os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            _open(number, flags)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def cannot_be_written(error: OSError) -> bool:
    """Whether an error says that there is no more room, or nothing to write to."""
    return error.errno in _UNWRITABLE


def flush(stream: TextIO) -> None:
    """Write out the rest of a stream.

    Raises OSError where that cannot be; then nothing more is written, at exit neither.
    """
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise error if isinstance(error, OSError) else BrokenPipeError from None


def _open(number: int, flags: int) -> None:
    """Have a descriptor lead nowhere."""
    nowhere = os.open(os.devnull, flags)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
