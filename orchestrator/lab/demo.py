"""`aclflow demo`: a point of presence, a real list, real packets, a table of verdicts.

    network, Open vSwitch ── service, controllers ── lists ── trials ── table ── console ── stays up until Ctrl-C
                                                                └─ with a PoP: heavy hitters, trials again, ways

Without a list of one's own, two tenants with the lists that ship beside this module hold real conversations (TCP, UDP,
ping). With one, a single tenant owns everything, and for some of its rules a packet is made whose first match is that
rule. Either way each trial is held against the oracle, and the counter of the line that decided must have moved.

The paths of packets in a lab's PoP, shown at the end of a demo.

The trials so far tell which rules are popular, and these become heavy hitters. Then everything is tried again, and a
few packets come that are for nobody, or say that they are from a tenant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from orchestrator.client import Client
from orchestrator.client.records import Json
from orchestrator.client.transport import Transport
from orchestrator.errors import AclflowError
from orchestrator.lab import pop, trials
from orchestrator.lab.expect import policy_of
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.scenes import Scene
from orchestrator.lab.screen import Screen
from orchestrator.lab.service import COUNT_EVERY_S, POP, ControlPlane
from orchestrator.lab.trials import Report, Trial, Ways
from orchestrator.lab.wire import Landing, Shot, Wire, shot
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.protocols import UDP

STRAYS = 8
"""How many packets for nobody, and how many with a tenant's address, are sent."""

_NOBODYS = 0xC6120000
"""198.18.0.0/15, which is for measurements and no tenant's."""
_PATIENCE_S = 30.0
_PAUSE_S = 0.5
_QUIET_S = COUNT_EVERY_S + 2.0
"""Counts that were the same for so long are all there are: switches are asked that often."""


def gather(lab: Lab, plane: ControlPlane, policy: Policy, act: Callable[[Lab, Policy], tuple[Trial, ...]]) -> Ways:
    """Choose heavy hitters, try everything again with them, and read where packets went. Raises Unreachable."""
    with plane.client() as client:
        round_ = client.pops.choose_heavy_hitters(POP)
        plane.wait_enforced(client, round_["generation"])
        again = act(lab, policy)
        with Wire(lab) as wire:
            landed = wire.fire(strays(lab, policy))
        chosen = tuple(f"{each['tenant']}/{each['rule']}" for each in round_["chosen"])
        return Ways(chosen, again, _count_arrived(landed), settled_traffic(client))


def strays(lab: Lab, policy: Policy) -> list[Shot]:
    """Return packets to unallocated addresses, and packets with a tenant's own source from outside."""
    client = lab.spec.clients[0]
    source = next(prefix.network for prefix in client.addresses if prefix.family is Family.IPV4)
    inside = next(prefix for tenant in policy.tenants for prefix in tenant.prefixes if prefix.family is Family.IPV4)
    plain = Packet(Family.IPV4, source, _NOBODYS, UDP, 4096, 53)
    nobodys = [replace(plain, destination=_NOBODYS + (number << 8)) for number in range(STRAYS)]
    pretended = [replace(plain, source=inside.network + 99, destination=inside.network + 1 + n) for n in range(STRAYS)]
    return [shot(lab, client.name, packet) for packet in (*nobodys, *pretended)]


def _count_arrived(landed: tuple[Landing, ...]) -> int:
    return sum(1 for landing in landed if landing.nodes)


def settled_traffic(client: Client) -> Json:
    """Where packets went, once the switches' counters have come in."""
    changed = time.monotonic()
    until = changed + _PATIENCE_S
    seen = client.pops.read_traffic(POP)
    while time.monotonic() < min(changed + _QUIET_S, until):
        time.sleep(_PAUSE_S)
        now = client.pops.read_traffic(POP)
        if now != seen:
            seen, changed = now, time.monotonic()
    return seen


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
                        stay_up(lab, plane, screen)
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
    with closing(Transport(plane.url, plane.token, 10.0, plain_http=True)) as service:
        before = trials.read_counts(service, trials.lines_of(policy))
        screen.step("real packets")
        made = scene.act(lab, policy)
        screen.step("counters")
        after = trials.read_counts_until(service, before, trials.growth(made), _COUNTERS_PATIENCE_S)
    ways = None
    if scene.spec.servers:
        screen.step("heavy hitters, and the same again")
        ways = gather(lab, plane, policy, scene.act)
    return Report(policy, made, before, after, ways)


def stay_up(
    lab: Lab,
    plane: ControlPlane,
    screen: Screen,
    look: Callable[[], None] = lambda: None,
    hints: Sequence[str] = (),
) -> None:
    """Stay up until interrupted, starting again whatever ends; return if somebody removes the lab.

    `look` is called every second, `hints` are commands to try.
    """
    screen.invite(plane.url, plane.start_console(), plane.token, lab, hints)
    while lab.layout.state_file.exists():
        time.sleep(_WATCH_S)
        look()
        try:
            for name in plane.supervise():
                screen.show_restarted(name)
        except (AclflowError, OSError):
            if lab.layout.state_file.exists():
                raise
    screen.show_removed()
