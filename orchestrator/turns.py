"""How threads take turns with the interpreter, in the service and in enforcement points alike."""

from __future__ import annotations

import sys

_SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others wait. Python's 5 ms are as long as a whole change takes, and
what was published, or is to be, must not wait for the thread that is at something else."""


def take_turns() -> None:
    """Have threads of this process take shorter turns."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
