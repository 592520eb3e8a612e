"""Lists that change, and tenants that are deleted, while a firewall of a cluster dies: what they forbid is cut."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from system.sharing_ground import Ends, counted, heal, restrict, states, talks

from orchestrator.bench.state_sync.programs import Cluster
from orchestrator.bench.state_sync.syncworld import SERVER4, World
from orchestrator.lab.processes import wait_until
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.statesync.lists import Lists, TenantList
from orchestrator.statesync.states import OPEN, State

MANY = 30
WITHIN_S = 3.0
"""A second, and what a busy machine adds."""


def denying(generation: int, ports: Sequence[int] = ()) -> Lists:
    """The server's tenant permits everything but what comes from some ports of the client."""
    ranges = tuple(PortRange(port, port) for port in sorted(ports))
    rules = (Rule(RuleId("no"), Action.DENY, Direction.INGRESS, protocol=TCP, source_ports=ranges),) if ports else ()
    return Lists(generation, (TenantList((prefix(SERVER4),), Acl(rules, ingress_default=Action.PERMIT)),))


def prefix(address: str) -> Prefix:
    return Prefix(Family.IPV4, parse_address(address)[1], 32)


@dataclass
class Talking:
    """A connection, and the client's port."""

    near: socket.socket
    far: socket.socket

    @property
    def port(self) -> int:
        return int(self.near.getsockname()[1])


@pytest.fixture
def opened(cluster: Cluster, ends: Ends) -> list[Talking]:
    """Connections that all members know."""
    found = [Talking(*ends.connect()) for _ in range(MANY)]
    for number in (1, 2, 3):
        wait_until(lambda number=number: _open_at(cluster, number) == MANY, "a member lacks some", 5)
    return found


@pytest.fixture(autouse=True)
def anew(running: Cluster) -> None:
    """Each test has members without lists."""
    for number in list(running.nodes):
        running.stop(number)
    for number in running.world.members:
        running.start(number)
    running.wait_whole()


def _open_at(cluster: Cluster, number: int) -> int:
    return sum(state in OPEN for state in states(cluster, number))


def _forget_closed(cluster: Cluster, number: int) -> None:
    """As after their time-out: nobody says any more that they were cut."""
    kernel = cluster.nodes[number].kernel
    for entry in list(kernel.connections()):
        if entry.word.state is State.CLOSED:
            kernel.forget(entry.key.pack())


def assert_only(cluster: Cluster, world: World, kept: Sequence[Talking], cut: Sequence[Talking]) -> None:
    """Hold that every member knows these connections and no other, and that packets say so."""
    for number in cluster.nodes:
        wait_until(lambda number=number: _open_at(cluster, number) == len(kept), "a member has others", WITHIN_S)
    for number in cluster.nodes:
        world.via(number)
        assert all(talks(each.near, each.far) for each in kept), number
    for each in cut:
        each.near.settimeout(0.05)
        each.far.settimeout(0.05)
        assert not talks(each.near, each.far)


def test_a_changed_list_cuts_what_it_forbids_on_all_members(
    cluster: Cluster, world: World, opened: list[Talking]
) -> None:
    """One member has it; the others are told."""
    forbidden = {each.port for each in random.Random(1).sample(opened, MANY // 5)}
    cut, kept = [[each for each in opened if (each.port in forbidden) is of] for of in (True, False)]
    cluster.nodes[2].member.hold_to(denying(2, [*forbidden]))
    assert_only(cluster, world, kept, cut)
    assert cluster.nodes[2].member.held_to.closed == len(cut)


def test_a_list_that_changes_while_a_firewall_dies(cluster: Cluster, world: World, opened: list[Talking]) -> None:
    """The one whose traffic it was dies; another has the list late; all messages about it are lost; the dead one comes
    back with the old list, and takes what the late one has not cut yet."""
    for node in cluster.nodes.values():
        node.member.hold_to(denying(1))
    forbidden = {each.port for each in random.Random(2).sample(opened, MANY // 5)}
    cut, kept = [[each for each in opened if (each.port in forbidden) is of] for of in (True, False)]
    restrict(world, "udp dport 3781 drop")
    try:
        dying = threading.Thread(target=cluster.stop, args=(1,))
        dying.start()
        world.via(2)
        cluster.nodes[2].member.hold_to(denying(2, [*forbidden]))
        dying.join()
        assert _open_at(cluster, 3) == MANY
    finally:
        heal(world)
    cluster.start(1).member.hold_to(denying(1))
    cluster.wait_whole()
    cluster.nodes[3].member.hold_to(denying(2, [*forbidden]))
    cluster.nodes[1].member.hold_to(denying(2, [*forbidden]))
    assert_only(cluster, world, kept, cut)


def test_a_member_that_takes_forbidden_connections_from_one_that_dies_cuts_them(
    cluster: Cluster, world: World, opened: list[Talking]
) -> None:
    """Member 1 comes back with the newest list and takes everything of member 3, which never gets it.

    Member 2 does not reach member 3: it would take forbidden connections, too, and cut them first.
    """
    cluster.stop(1)
    world.via(2)
    forbidden = {each.port for each in random.Random(3).sample(opened, MANY // 5)}
    cut, kept = [[each for each in opened if (each.port in forbidden) is of] for of in (True, False)]
    restrict(world, "udp dport 3781 drop")
    try:
        cluster.nodes[2].member.hold_to(denying(2, [*forbidden]))
        wait_until(lambda: _open_at(cluster, 2) == len(kept), "it cuts nothing", WITHIN_S)
        assert _open_at(cluster, 3) == MANY
        _forget_closed(cluster, 2)
        restrict(world, "ip saddr 10.9.3.1 drop; ip daddr 10.9.3.1 drop")
        back = cluster.start(1)
        back.member.hold_to(denying(2, [*forbidden]))
        wait_until(lambda: back.member.held_to.generation == 2, "it does not look", WITHIN_S)
        apart = "ip saddr { 10.9.2.1, 10.9.3.1 } ip daddr { 10.9.2.1, 10.9.3.1 } drop"
        restrict(world, f"udp dport 3781 drop; {apart}", anew=True)
        wait_until(lambda: back.member.held_to.closed == len(cut), "it keeps what it took", 5)
    finally:
        heal(world)
    cluster.stop(3)
    assert_only(cluster, world, kept, cut)
    cluster.start(3)
    cluster.wait_whole()


def test_a_tenant_that_is_deleted_while_a_firewall_dies(cluster: Cluster, world: World, opened: list[Talking]) -> None:
    """Nobody owns either address any more: nothing of it survives, on any member."""
    dying = threading.Thread(target=cluster.stop, args=(1,))
    dying.start()
    world.via(2)
    for number in (2, 3):
        cluster.nodes[number].member.hold_to(Lists(2, ()))
    dying.join()
    assert_only(cluster, world, [], opened)
    cluster.start(1)
    cluster.wait_whole()


def test_a_member_with_an_older_list_cuts_nothing_that_a_newer_one_permits(
    cluster: Cluster, world: World, opened: list[Talking]
) -> None:
    everything = [each.port for each in opened]
    cluster.nodes[1].member.hold_to(denying(7))
    wait_until(lambda: cluster.nodes[1].member.held_to.generation == 7, "it does not look", WITHIN_S)
    time.sleep(0.3)  # reports come every 0.1 s
    cluster.nodes[2].member.hold_to(denying(6, everything))
    time.sleep(0.3)
    assert_only(cluster, world, opened, [])


def test_a_connection_that_was_cut_may_begin_again_once_it_is_permitted(
    cluster: Cluster, world: World, ends: Ends
) -> None:
    port = 23_456
    near, far = ends.connect(port=port)
    cluster.nodes[1].member.hold_to(denying(2, [port]))
    wait_until(lambda: _open_at(cluster, 1) == 0, "it is not cut", WITHIN_S)
    for each in (near, far):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        each.close()
    cluster.nodes[1].member.hold_to(denying(3))
    assert talks(*ends.connect(port=port))
    assert counted(cluster, 1, "open_full") == 0
