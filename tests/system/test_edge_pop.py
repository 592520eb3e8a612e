"""A PoP with real packets: what a rule permits arrives whichever way it goes, nothing else does, and every way is told.

The lab's default point of presence with an edge switch and two firewall servers, run by service, controllers, agents.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from patience import until
from system.crossing import Site, arrived_by, check, from_outside, nothing_leaks

from orchestrator.client.records import Json
from orchestrator.lab import pop, scenes
from orchestrator.lab.demo import STRAYS, settled_traffic, strays
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.service import EDGE_CONTROLLER, POP, SERVICE, ControlPlane
from orchestrator.lab.wire import Wire
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP

PATIENCE_S = 60.0
FS1_AGENT = "agent-fs1"


@pytest.fixture(scope="module")
def site(layout: Layout) -> Iterator[Site]:
    scene = scenes.shipped_scene()
    with pop.temporary(layout, scene.spec) as lab:
        plane = ControlPlane(lab)
        plane.start(scene.acls)
        yield Site(lab, plane, policy_of(scene.spec, scene.acls), scene.acls)


def counted(site: Site) -> Json:
    with site.plane.client() as client:
        return settled_traffic(client)


def test_packets_arrive_where_the_policy_permits_and_are_counted_by_their_way(site: Site) -> None:
    assert check(site) > 0
    with Wire(site.lab) as wire:
        assert all(not landing.nodes for landing in wire.fire(strays(site.lab, site.policy)))
    seen = counted(site)
    assert seen["nobody"]["packets"] >= STRAYS
    assert seen["spoofed"]["packets"] == STRAYS
    assert seen["heavy"] == []
    sent = {name: each["lines"]["packets"] + each["exceptions"]["packets"] for name, each in seen["servers"].items()}
    assert sum(sent.values()) == len(from_outside(site))
    assert all(sent[name] > 0 for name, each in seen["servers"].items() if each["tenants"])


def test_behind_the_edge_a_server_hears_nobody_in_the_name_of_its_tenants(site: Site) -> None:
    """A liar on the wire between edge and server, in the name of an endpoint of another host than the receiver's."""
    with site.plane.client() as client:
        places = client.pops.read(POP)["places"]
    hosts = {endpoint.name: endpoint for endpoint in site.lab.spec.endpoints}
    tried = 0
    for _, receiver, packet in from_outside(site):
        mine = hosts[receiver]
        for liar in site.lab.spec.endpoints:
            names = [each.network for each in liar.addresses if each.family is packet.family]
            lies = [replace(packet, source=name) for name in names]
            both = places.get(liar.tenant) == places.get(mine.tenant)
            if liar.host == mine.host or not both or not all(decide(site.policy, each).permitted for each in lies):
                continue
            if decide(site.policy, packet).permitted:
                server = next(each for each in site.lab.spec.servers if each.name == places[mine.tenant])
                port, _, mac = server.ports[0]
                assert arrived_by(site.lab, port, mac, receiver, [*lies, packet]) == [False] * len(lies) + [True]
                tried += 1
    assert tried


def test_who_moves_is_reached_although_the_new_server_does_not_know_yet(site: Site) -> None:
    """The edge follows at once, the server does not: its agent is dead. It hands the packets over to the old one."""
    with site.plane.client() as client:
        assert client.pops.read(POP)["heavy"] == []  # or the permitted ones would not meet the servers
        places = client.pops.read(POP)["places"]
        moving = {tenant: "fs1" for tenant, server in places.items() if server == "fs2"}
        assert moving
        site.lab.kill(FS1_AGENT)
        generation, domain = client.pops.place_tenants(POP, moving), client.pops.read(POP)["domain"]
        until(
            lambda: [each.host for each in client.domains.read_generation(domain, generation).laggards] == ["fs1"],
            PATIENCE_S,
        )
        assert check(site) > 0
        assert FS1_AGENT in site.plane.supervise()
        site.plane.wait_enforced(client, generation, PATIENCE_S)
    assert check(site) > 0


def test_nothing_permitted_is_lost_while_tenants_move_back_and_forth(site: Site) -> None:
    """Make before break: whatever edge and servers hold meanwhile, one of the two servers decides a packet."""
    started, ended = threading.Event(), threading.Event()

    def move() -> list[int]:
        generations = []
        with site.plane.client() as client:
            assert client.pops.read(POP)["heavy"] == []
            tenants = sorted(client.pops.read(POP)["places"])
            while len(generations) < 2 * len(tenants) or not ended.is_set():
                tenant = tenants[len(generations) % len(tenants)]
                to = {"fs1": "fs2", "fs2": "fs1"}[client.pops.read(POP)["places"][tenant]]
                generations.append(client.pops.place_tenants(POP, {tenant: to}))
                site.plane.wait_enforced(client, generations[-1], PATIENCE_S)
                started.set()
        return generations

    with ThreadPoolExecutor(1) as mover:
        moving = mover.submit(move)
        try:
            assert started.wait(PATIENCE_S)
            for _ in range(5):
                check(site)
        finally:
            ended.set()
        assert moving.result()


def test_heavy_hitters_go_past_the_servers_and_nothing_else_does(site: Site) -> None:
    before = counted(site)
    with site.plane.client() as client:
        round_ = client.pops.choose_heavy_hitters(POP)
        site.plane.wait_enforced(client, round_["generation"], PATIENCE_S)
    assert round_["chosen"]
    permitted = check(site)
    seen = counted(site)
    bypassed = sum(each["packets"] for each in seen["heavy"])
    assert 0 < bypassed <= permitted
    served = sum(ways["packets"] for each in seen["servers"].values() for ways in (each["lines"], each["exceptions"]))
    earlier = sum(
        ways["packets"] for each in before["servers"].values() for ways in (each["lines"], each["exceptions"])
    )
    assert served - earlier + bypassed == len(from_outside(site))
    assert any((each["bypass_share"] or 0) > 0 for each in seen["tenants"].values())


def test_a_lost_servers_tenants_are_served_by_the_other(site: Site) -> None:
    with site.plane.client() as client:
        site.lab.kill(FS1_AGENT)
        generation = client.pops.set_server(POP, "fs1", "lost")
        nothing_leaks(site, site.policy)  # on the way
        assert FS1_AGENT in site.plane.supervise()
        site.plane.wait_enforced(client, generation, PATIENCE_S)
        assert set(client.pops.read(POP)["places"].values()) == {"fs2"}
    assert check(site) > 0
    with site.plane.client() as client:
        site.plane.wait_enforced(client, client.pops.set_server(POP, "fs1", "serving"), PATIENCE_S)


def test_the_edge_goes_on_while_its_controller_is_dead_and_follows_when_it_is_back(site: Site) -> None:
    site.lab.kill(EDGE_CONTROLLER)
    assert check(site) > 0
    with site.plane.client() as client:
        generation = client.pops.rebuild_lines(POP)
        assert EDGE_CONTROLLER in site.plane.supervise()
        site.plane.wait_enforced(client, generation, PATIENCE_S)
        assert client.pops.read(POP)["lines"]["ipv4"]["stale"] == 0
    assert check(site) > 0


def test_a_manager_killed_in_a_window_loses_no_change_and_lets_nothing_pass(site: Site) -> None:
    """The second change waits in windows of servers when the service is killed; its successor ends where it should."""
    rule = Rule(RuleId("mail"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(25, 25),))
    shop = replace(site.acls["shop"], rules=(rule, *site.acls["shop"].rules))
    new = policy_of(site.lab.spec, {**site.acls, "shop": shop})
    with site.plane.client() as client:
        site.plane.wait_enforced(client, client.pops.configure(POP, {"window_ms": 60_000.0}), PATIENCE_S)
        client.acls.put("shop", Acl(()))
        generation = client.acls.put("shop", shop).generation
    site.lab.kill(SERVICE)
    nothing_leaks(site, site.policy, new)
    assert SERVICE in site.plane.supervise()
    with site.plane.client() as client:
        site.plane.wait_enforced(client, generation, PATIENCE_S)
    assert check(site._replace(policy=new)) > 0
