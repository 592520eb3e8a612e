"""The loop of a passage: whatever changes its ports, routes, rules or guard, they are set right again."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from orchestrator.enforce.chores import Chore
from orchestrator.enforce.guardtable import GuardTable
from orchestrator.enforce.stopsignal import Stopping
from orchestrator.enforce.uplink.monitors import KernelMonitor
from orchestrator.enforce.uplink.passage import Passage
from orchestrator.enforce.uplink.passagekernel import PassageKernel
from orchestrator.errors import AclflowError

log = structlog.get_logger()

_LOOK_EVERY_S = 5.0
"""How often everything is read back although nothing was heard."""
_SETTLE_S = 0.003


@dataclass(slots=True)
class PassageKeeper:
    """Keeps one passage. Steps are taken one at a time."""

    kernel: PassageKernel
    guard: GuardTable
    _said: str = field(default="", init=False)

    def step(self) -> tuple[str, ...]:
        """Set right what differs; return that in words.

        Without its guard nothing passes: raises what writing it raised. Raises Unreachable while a port lacks.
        """
        try:
            guarded = self.guard.look()
        except AclflowError:
            self.kernel.shut()
            raise
        return (*(["the guard's table"] if guarded else []), *self.kernel.follow())

    def log_step(self) -> None:
        """Take a step, and log what was set right and what is wrong, once each."""
        try:
            repaired = self.step()
        except AclflowError as error:
            if str(error) != self._said:
                log.warning("passage.trouble", trouble=str(error))
            self._said = str(error)
            return
        if self._said:
            log.info("passage.well")
        self._said = ""
        if repaired:
            log.info("passage.changed", repaired=list(repaired))


def keep_passage(passage: Passage, stopping: Stopping) -> None:
    """Keep a passage until asked to stop; rules, routes and guard stay then.

    Raises Missing where a program or a right lacks.
    """
    keeper = PassageKeeper(PassageKernel(passage), passage.guard())
    chore = Chore("passage", keeper.log_step, _LOOK_EVERY_S, settle_s=_SETTLE_S)
    monitors = [KernelMonitor(port, chore.poke) for port in passage.ports]
    for monitor in monitors:
        monitor.start()
    chore.start()
    try:
        stopping.wait()
    finally:
        chore.stop()
        for each in monitors:
            each.stop()
