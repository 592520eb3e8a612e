"""Waiting until no packet is under way that entered the kernel's filters before.

The kernel walks its rules under RCU, so what was taken out of the packets' way is out of it for good after one grace
period. A global memory barrier (membarrier(2), MEMBARRIER_CMD_GLOBAL) returns after such a period.
"""

from __future__ import annotations

import ctypes
import platform
import time

_NUMBERS = {"x86_64": 324, "aarch64": 283}
_GLOBAL = 1
_OTHERWISE_S = 0.2
"""Where there is no such call: packets are in the filter for microseconds."""


def wait_for_packets() -> None:
    """Return when every packet that was under way at the call has left the filter."""
    number = _NUMBERS.get(platform.machine())
    if number is None or ctypes.CDLL(None).syscall(number, _GLOBAL, 0, 0) != 0:
        time.sleep(_OTHERWISE_S)
