"""Packets sent without a pause while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from orchestrator.lab.pop import Lab
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Packet

_PATIENCE_S = 30.0


class Patrol:
    """Sends packets of one node's within a `with` statement, which begins with the first volley and ends with a last
    one; then none of `never` may have arrived anywhere, and all of `always` must have.

    With `nodes` only these, the sender among them, are looked at.
    """

    def __init__(
        self,
        lab: Lab,
        sender: str,
        never: Sequence[Packet],
        always: Sequence[Packet] = (),
        *,
        nodes: Sequence[str] | None = None,
    ) -> None:
        self._lab = lab
        self._shots = [shot(lab, sender, each) for each in (*never, *always)]
        self._never = len(never)
        self._nodes = nodes
        self._begun, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.volleys = 0
        self.leaks = 0
        self.lost = 0

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(_PATIENCE_S), "nothing was sent"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = self.volleys
        self._stopping.set()
        self._thread.join()
        if error is None:
            assert self.volleys > before, "it had ended by itself"
            assert not self.leaks, f"{self.leaks} packets leaked in {self.volleys} volleys"
            assert not self.lost, f"{self.lost} packets were lost in {self.volleys} volleys"

    def _run(self) -> None:
        is_last = False
        with Wire(self._lab, self._nodes) as wire:
            while not is_last:
                is_last = self._stopping.is_set()
                seen = [bool(landing.nodes) for landing in wire.fire(self._shots)]
                self.leaks += sum(seen[: self._never])
                self.lost += seen[self._never :].count(False)
                self.volleys += 1
                self._begun.set()
