"""`aclflow demo`: a point of presence, a real list, real packets, a table of verdicts.

    network, Open vSwitch ── service, controllers ── lists ── trials ── table ── console ── stays up until Ctrl-C
                                                                └─ with a PoP: heavy hitters, trials again, ways

Without a list of one's own, two tenants with the lists that ship beside this module hold real conversations (TCP, UDP,
ping). With one, a single tenant owns everything, and for some of its rules a packet is made whose first match is that
rule. Either way each trial is held against the oracle, and the counter of the line that decided must have moved.
"""

from __future__ import annotations

import time
from contextlib import closing

from orchestrator.client.transport import Transport
from orchestrator.errors import AclflowError
from orchestrator.lab import counters, pop, trials
from orchestrator.lab.expect import policy_of
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.scenes import Scene
from orchestrator.lab.screen import Screen
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.trials import Report
from orchestrator.lab.ways import gather

_COUNTERS_PATIENCE_S = 15.0
_WATCH_S = 1.0


def run(layout: Layout, scene: Scene, screen: Screen, *, once: bool) -> bool:
    """Run a demo and clean up, even after Ctrl-C.

    Returns whether the wire and the policy agree.

    Raises Conflict where there is such a lab already, Missing, Unreachable, and KeyboardInterrupt where it was
    interrupted before there was anything to tell.
    """
    report: Report | None = None
    with Interrupts() as interrupts:
        try:
            with pop.temporary(layout, scene.spec, screen.step) as lab:
                try:
                    plane = ControlPlane(lab)
                    plane.start(scene.acls, progress=screen.step)
                    report = try_out(lab, plane, scene, screen)
                    screen.show(report, scene.notes)
                    if not once:
                        _stay(lab, plane, screen)
                finally:
                    interrupts.ignore()
                    screen.step("removing everything")
        except KeyboardInterrupt:
            screen.show_interrupted()
            if report is None:
                raise
    return report.good


def try_out(lab: Lab, plane: ControlPlane, scene: Scene, screen: Screen) -> Report:
    """Carry out a scene's trials, and read the counters before and after."""
    policy = policy_of(scene.spec, scene.acls)
    with closing(Transport(plane.url, plane.token, 10.0, None)) as service:
        before = counters.read(service, counters.lines_of(policy))
        screen.step("real packets")
        made = scene.act(lab, policy)
        screen.step("counters")
        after = counters.read_until(service, before, trials.growth(made), _COUNTERS_PATIENCE_S)
    ways = None
    if scene.spec.servers:
        screen.step("heavy hitters, and the same again")
        ways = gather(lab, plane, policy, scene.act)
    return Report(policy, made, before, after, ways)


def _stay(lab: Lab, plane: ControlPlane, screen: Screen) -> None:
    """Stay up until interrupted, starting again whatever ends; return if somebody removes the lab."""
    screen.invite(plane.url, plane.start_console(), plane.token, lab)
    while lab.layout.state_file.exists():
        time.sleep(_WATCH_S)
        try:
            for name in plane.supervise():
                screen.show_restarted(name)
        except (AclflowError, OSError):
            if lab.layout.state_file.exists():
                raise
    screen.show_removed()
