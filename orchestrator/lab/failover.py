"""`aclflow demo --failover`: a download goes on while the firewalls that carry it die.

    web ─ host1 ═ spreading switch ═ fw1 | fw2 | fw3 ═ spreading switch ─ outside

A point of presence with three firewalls that share their connections; a download and idle connections from outside. The
firewall that carries the download loses its power, then the one that took over; the third has everything. Both come
back. Afterwards all of it stays up, and the download with it, for whoever wants to kill firewalls by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from orchestrator.errors import AclflowError
from orchestrator.lab import cluster, pop, specfile
from orchestrator.lab.cluster import Death, Firewall, Return
from orchestrator.lab.demo import stay_up
from orchestrator.lab.download import BYTES_PER_S, Download, Echoes
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.processes import wait_until
from orchestrator.lab.screen import Screen
from orchestrator.lab.service import ControlPlane
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import TenantId

POP = specfile.parse(
    """
    hosts: [{name: host1}]
    clients: [{name: outside, addresses: [192.0.2.1]}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
    spread: true
    """
)
_LIST = acl_from_json({"rules": [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": [80, 7]}]})
SIZE = 3
DEATHS = SIZE - 1
_HELD = 50
"""Connections that are open, and idle, while firewalls die."""
_LOOK_S = 0.3
_GOES_ON_BYTES = BYTES_PER_S // 4
_TOLD_PAUSE_S = 0.03
"""Shorter pauses of a download are the machine's own."""
_HINTS = ("aclflow lab kill fw1", "aclflow lab revive fw1", "aclflow lab status")


def run(layout: Layout, screen: Screen, *, once: bool) -> bool:
    """Run the demo and clean up, even after Ctrl-C; return whether no connection was lost.

    Raises as `demo.run`.
    """
    deaths: list[Death] = []
    with Interrupts() as interrupts:
        try:
            with pop.temporary(layout, POP, screen.step) as lab:
                try:
                    plane = ControlPlane(lab)
                    plane.start({TenantId("shop"): _LIST}, progress=screen.step)
                    screen.step("three firewalls that share their connections")
                    with plane.client() as client:
                        members = cluster.start(lab, client, SIZE)
                    with Download(lab, "outside", "web", 80) as download, Echoes(lab, "outside", "web", 7) as echoes:
                        echoes.open(_HELD)
                        while len(deaths) < DEATHS:
                            deaths.append(_kill_carrier(members, download, echoes, screen))
                        back = _revive(members, [each.victim for each in deaths], download, screen)
                        screen.show_deaths(deaths, back, download.received)
                        if not once:
                            stay_up(lab, plane, screen, _tell_pauses(lab, members, download, screen), _HINTS)
                finally:
                    interrupts.ignore()
                    screen.step("removing everything")
        except KeyboardInterrupt:
            screen.show_interrupted()
            if len(deaths) < DEATHS:
                raise
    return not any(each.lost for each in deaths)


def _kill_carrier(members: Sequence[Firewall], download: Download, echoes: Echoes, screen: Screen) -> Death:
    """Kill the firewall that carries the download, and see how it goes on."""
    victim = find_carrier(members)
    screen.step(f"{victim.name} carries the download, and loses its power")
    died, noticed_s = cluster.kill_and_watch(victim)
    before = download.received
    wait_until(lambda: download.received > before + _GOES_ON_BYTES, "the download does not go on", every_s=0.1)
    pause_s = download.paused_since(died)
    return Death(victim.name, find_carrier(members).name, noticed_s, pause_s, echoes.count_alive(), echoes.count)


def _revive(members: Sequence[Firewall], dead: Sequence[str], download: Download, screen: Screen) -> Return:
    """Give firewalls their power back, and wait until they have taken all entries and serve."""
    screen.step(f"{' and '.join(dead)} come back")
    begun = time.monotonic()
    for each in members:
        if each.name in dead:
            cluster.revive(each)
    wait_until(lambda: all(map(cluster.is_up, members)), "a firewall does not serve again", every_s=0.1)
    whole_s = time.monotonic() - begun
    return Return(tuple(dead), whole_s, download.paused_since(begun))


def find_carrier(members: Sequence[Firewall]) -> Firewall:
    """Return the firewall that forwards most just now."""
    before = [each.forwarder.count_forwarded() for each in members]
    time.sleep(_LOOK_S)
    forwarded = [each.forwarder.count_forwarded() - was for each, was in zip(members, before, strict=True)]
    return members[forwarded.index(max(forwarded))]


def _tell_pauses(lab: Lab, members: Sequence[Firewall], download: Download, screen: Screen) -> Callable[[], None]:
    """Return a function that tells the download's pause since its last call."""
    since = time.monotonic()

    def tell_pause() -> None:
        nonlocal since
        now = time.monotonic()
        pause_s = download.paused_since(since)
        since = now
        if pause_s < _TOLD_PAUSE_S or not lab.layout.state_file.exists():
            return
        try:
            screen.show_pause(pause_s, find_carrier(members).name)
        except AclflowError:  # the lab is being removed
            return

    return tell_pause
