"""A cluster that gets and loses members while packets pass: they take connections over, and none is cut."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from system.sharing_ground import FULL, REPEATED_S, SILENT_S, Ends, talks

from orchestrator.bench.state_sync.programs import Cluster
from orchestrator.bench.state_sync.syncworld import Between, World
from orchestrator.errors import BadInput
from orchestrator.lab.processes import wait_until
from orchestrator.statesync.layout import MOST_MEMBERS

MANY = 20
ACLFLOW = (sys.executable, "-m", "orchestrator.cli", "statesync")


@pytest.fixture
def grown() -> Iterator[tuple[World, Cluster]]:
    """A cluster of three, in a world with room for a fourth."""
    with World(4, "sstest4-", between=Between.ROUTER) as world:
        world.members = range(1, 4)
        with Cluster(world, silent_s=SILENT_S, **FULL) as cluster:
            yield world, cluster


def test_a_member_that_is_added_takes_connections_over_and_cuts_none(grown: tuple[World, Cluster]) -> None:
    world, cluster = grown
    with Ends.only(world) as ends:
        before = [ends.connect() for _ in range(MANY)]
        world.members = range(1, 5)
        for number in (1, 2, 3):
            world.run(number, *ACLFLOW, "add", f"4={world.address(4)}")
            assert cluster.nodes[number].member.is_whole
        assert talks(*ends.connect()), "nobody waits for one that has not come"
        cluster.start(4)
        cluster.wait_whole()
        world.via(4)
        assert all(talks(*pair) for pair in before)
        begun = ends.connect()
        cluster.stop(4)
        world.via(2)
        assert talks(*begun), "what began through the new one is known to the others"
        assert all(talks(*pair) for pair in before)


def test_an_owner_that_dies_while_a_member_comes_costs_no_connection(grown: tuple[World, Cluster]) -> None:
    """The one that comes has not taken its entries, and takes them from the others, who know the same connections."""
    world, cluster = grown
    with Ends.only(world) as ends:
        before = [ends.connect() for _ in range(MANY)]
        world.members = range(1, 5)
        for number in (1, 2, 3):
            cluster.nodes[number].member.add(4, world.address(4))
        coming = cluster.start(4).member
        wait_until(lambda: bool(coming.following), "it follows nobody", 5)
        cluster.stop(1)
        wait_until(lambda: coming.is_whole, "it does not become whole by those that are left", 5)
        world.via(4)
        assert all(talks(*pair) for pair in before)
        begun = ends.connect(patience_s=REPEATED_S)
        world.via(2)
        assert all(talks(*pair) for pair in (*before, begun))


def test_no_more_members_than_there_may_be(grown: tuple[World, Cluster]) -> None:
    member = grown[1].nodes[1].member
    for number in range(4, MOST_MEMBERS + 1):
        member.add(number, f"10.9.{number}.9")
    member.add(4, "10.9.4.9")
    with pytest.raises(BadInput, match="at most"):
        member.add(MOST_MEMBERS + 1, "10.9.200.9")
    member.remove(4)
    member.add(MOST_MEMBERS + 1, "10.9.200.9")


def test_a_member_that_left_makes_room_and_is_no_member_until_it_is_added_again(grown: tuple[World, Cluster]) -> None:
    world, cluster = grown
    with Ends.only(world) as ends:
        before = [ends.connect() for _ in range(MANY)]
        cluster.stop(3)
        for number in (1, 2):
            kernel = cluster.nodes[number].kernel
            wait_until(lambda kernel=kernel: 3 not in kernel.settings().members, "it still takes part", 5)
            world.run(number, *ACLFLOW, "remove", "3")
            wait_until(lambda number=number: 3 not in cluster.nodes[number].member.peers, "it is a member still", 5)
        back = cluster.start(3)
        assert talks(*ends.connect())
        time.sleep(2 * SILENT_S)
        assert cluster.nodes[1].member.followers == {2}, "nobody waits for one that was taken out"
        assert not back.member.following, "it is told nothing"
        stream = cluster.nodes[1].kernel.stream(3, 0)
        assert not stream.is_open, "its messages are not believed"
        assert all(cluster.nodes[number].member.is_whole for number in (1, 2))
        for number in (1, 2):
            cluster.nodes[number].member.add(3, world.address(3))
        cluster.wait_whole()
        world.via(3)
        assert all(talks(*pair) for pair in before)
