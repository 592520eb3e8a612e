"""The kernel's own memory, of the whole machine."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

_COUNTED = re.compile(r"^(SUnreclaim|VmallocUsed):\s+(\d+) kB", re.MULTILINE)
_LOOK_S = 1.0
_STILL_LOOKS = 3
_MOST_LOOKS = 60
_STILL_OCTETS = 1 << 20
"""By less than so much in a second it changes by itself."""


def grown_by(load: Callable[[], object]) -> tuple[int, float]:
    """Return the bytes of kernel memory that loading something takes, and its seconds."""
    before, began = _octets_at_rest(), time.perf_counter()
    load()
    took_s = time.perf_counter() - began
    return _octets_at_rest() - before, took_s


def _octets_at_rest() -> int:
    """Return the unreclaimable memory, slabs and large arrays, once stable or after a minute.

    The memory of millions of pairs is given back some seconds after their namespace went, and then bit by bit.
    """
    held, still = _octets(), 0
    for _ in range(_MOST_LOOKS):
        time.sleep(_LOOK_S)
        before, held = held, _octets()
        still = still + 1 if abs(held - before) < _STILL_OCTETS else 0
        if still == _STILL_LOOKS:
            break
    return held


def _octets() -> int:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    return sum(int(number) * 1024 for _, number in _COUNTED.findall(text))
