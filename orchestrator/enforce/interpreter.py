"""How the interpreter of an enforcement point is set up, so that it holds no change up."""

from __future__ import annotations

import gc
import sys

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others wait. Python's 5 ms are as long as a whole change takes."""


def prepare() -> None:
    """To be called when everything is imported, which the garbage collector then leaves alone: looking through it would
    hold a change up for tens of milliseconds."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
