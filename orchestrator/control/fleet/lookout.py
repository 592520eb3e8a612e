"""Decide when to look at a cloud next, by its own pace.

A namespace is there in a moment, a machine in minutes, and whoever asks an OpenStack many times a second takes its time
from others.

    something new is waited for, or has come about      at once
    it is still waited for                              `first_s` later, then half as long again each time nothing moved
    nothing is waited for                               every `most_s`, for what happens behind our back
"""

from __future__ import annotations

import math
from collections.abc import Callable

from orchestrator.cloud.base import Pace
from orchestrator.control.fleet.sights import Sky
from orchestrator.scaling.lifecycle import MemberState

_SLOWER = 1.5

Wait = tuple[str, str, MemberState]
"""A VNF, by fleet and name, and the state whose end the cloud has a say in."""


class Lookout:
    """See the module. `ticks` is a clock that never goes back, in seconds."""

    def __init__(self, pace: Pace, ticks: Callable[[], float]) -> None:
        self._pace = pace
        self._ticks = ticks
        self._pause_s = pace.first_s
        self._looked_s = self._due_s = -math.inf
        self._seen: Sky | None = None
        self._waited: frozenset[Wait] = frozenset()

    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return self._ticks() >= self._due_s

    def note_look(self, sky: Sky) -> None:
        """A look was made; this is what it saw."""
        moved = sky != self._seen
        self._pause_s = self._pace.first_s if moved else min(self._pause_s * _SLOWER, self._pace.most_s)
        self._seen, self._looked_s = sky, self._ticks()
        self._due_s = self._looked_s + self._pause_s

    def waits_for(self, waited: frozenset[Wait], *, hurry: bool) -> None:
        """Set what is waited for now.

        `hurry`: something has come about, so that there may be more to see.
        """
        if hurry or waited - self._waited:
            self._pause_s, self._due_s = self._pace.first_s, -math.inf
        elif not waited:
            self._due_s = self._looked_s + self._pace.most_s
        self._waited = waited
