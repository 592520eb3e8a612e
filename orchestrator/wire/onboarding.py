"""Machines that become hosts."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import document

MAX_IDLE_MS = 60_000
"""How long a host's switch keeps a cache entry that no packet meets, where nothing else was said: as in the ACLFLOW
paper."""


@document(kw_only=True)
class MachineOnboarding:
    """A machine that joins or leaves a domain, with its progress.

    Its progress is what was done last, or why it failed and what to change.
    """

    name: str
    machine: str
    bridge: str
    datapath_id: str
    uplink: str
    controllers: tuple[str, ...]
    state: Literal["adding", "done", "failed", "removing"]
    step: str
    error: str | None
    changed: dt.datetime

    @property
    def under_way(self) -> bool:
        """Whether something is still being done to the machine."""
        return self.state in ("adding", "removing")
