"""Memory that the C library keeps in case it is wanted again, given back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Give back what is free; it takes some milliseconds, in which other threads go on. Nothing where the C library
    has no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
