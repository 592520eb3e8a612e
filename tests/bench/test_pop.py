"""The point of presence to measure: who owns what, what theory expects of it, and frames made from one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.bench.attack.suite import Attack, expected_share, targets
from orchestrator.bench.pop.flood import PAYLOAD_OCTETS, frames_to
from orchestrator.bench.pop.shots import datagram, permitted_frame
from orchestrator.bench.pop.world import ATTACKED_PORT, BLOCKS, IPV4, IPV6, PERMITTED_PORT, Grid, Sizes, World, machine
from orchestrator.enforce.drivers.openflow.frames import checksum
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask
from orchestrator.policy.prefilter import Fate, Misdirect, verdict
from orchestrator.policy.protocols import UDP

_INGRESS, _EXPLICIT = Direction.INGRESS, ReturnTraffic.EXPLICIT
SMALL = Sizes(tenants=6, chunks=8, servers=3, per_line=8, functions=3, width=32)


@pytest.fixture(scope="module", params=[IPV4, IPV6], ids=["ipv4", "ipv6"])
def grid(request: pytest.FixtureRequest) -> Grid:
    found: Grid = request.param
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["repaired", "unrepaired"])
def world(request: pytest.FixtureRequest, grid: Grid) -> World:
    return World(SMALL, 3, grid=grid, repaired=request.param)


def test_a_grid_is_every_block_of_a_space_and_its_senders_are_nobodys(grid: Grid) -> None:
    space = {IPV4: Prefix.parse("0.0.0.0/0"), IPV6: Prefix.parse("2001:db8::/32")}[grid]
    first, last = grid.every[[0, -1]].tolist()
    assert len(np.unique(grid.every)) == BLOCKS == 1 << (grid.chunking.length - space.length)
    assert grid.chunking.prefix(first).network == space.network
    assert grid.chunking.prefix(last).last == space.last
    for sender in (grid.client.network, grid.stranger):
        assert grid.chunking.key(sender) not in grid.routable.tolist()


def test_addresses_are_in_their_blocks(grid: Grid) -> None:
    keys, hosts = grid.every[::999], range(1, 1 + len(grid.every[::999]))
    for key, host, address in zip(keys.tolist(), hosts, grid.addresses(keys, hosts), strict=True):
        assert grid.chunking.key(address) == key
        assert address - grid.chunking.prefix(key).network == host < grid.hosts


def test_frames_say_who_sends_and_what(grid: Grid) -> None:
    destination = grid.addresses(grid.routable[:1])[0]
    for frame, source, port in (
        (datagram(grid, destination), grid.stranger, ATTACKED_PORT),
        (permitted_frame(grid, destination), grid.client.network, PERMITTED_PORT),
    ):
        octets = grid.family.bits // 8
        assert source.to_bytes(octets, "big") + destination.to_bytes(octets, "big") in frame
        assert (40_000).to_bytes(2, "big") + port.to_bytes(2, "big") in frame


def test_the_same_world_every_time() -> None:
    one, other = World(SMALL, 3), World(SMALL, 3)
    assert one.policy == other.policy
    assert (one.lines.bits == other.lines.bits).all()
    assert World(SMALL, 4).policy != one.policy


def test_repaired_lines_misdirect_nobody_and_unrepaired_ones_do() -> None:
    repaired, unrepaired = World(SMALL, 3), World(SMALL, 3, repaired=False)
    keys = repaired.allocation.key
    assert (repaired.lines.server_of(keys) == repaired.right_server(keys)).all()
    wrong = unrepaired.lines.server_of(keys) != unrepaired.right_server(keys)
    assert wrong.sum() == unrepaired.lines.misdirected > 0


def test_tenants_own_blocks_that_are_routed_and_every_server_has_some(world: World) -> None:
    assert set(world.allocation.key.tolist()) <= set(world.grid.routable.tolist())
    assert len(world.allocation) == SMALL.tenants * SMALL.chunks
    assert set(world.servers.tolist()) == {1, 2, 3}
    for tenant in world.tenants:
        keys = np.array([world.grid.chunking.key(prefix.network) for prefix in tenant.prefixes], np.uint64)
        assert set(world.right_server(keys).tolist()) == {world.server_of_tenant[tenant.number]}
    assert world.right_server(world.grid.every).astype(bool).sum() == len(world.allocation)


def test_a_machine_hears_its_client_and_nobody_else(world: World) -> None:
    for tenant in world.tenants:
        address = Prefix.parse(machine(tenant)).network
        family, client = world.grid.family, world.grid.client.network
        mine = Packet(family, client, address, UDP, 40_000, PERMITTED_PORT)
        strange = Packet(family, client + 1, address, UDP, 40_000, PERMITTED_PORT)
        assert [ask(tenant.acl, each, _INGRESS, _EXPLICIT).action for each in (mine, strange)] == [
            Action.PERMIT,
            Action.DENY,
        ]


@pytest.mark.parametrize("mode", list(Misdirect))
def test_theory_says_what_the_servers_oracle_says(world: World, mode: Misdirect) -> None:
    """Every block's packet, sent where the lines send it, decided by the oracle of each server on its way."""
    grid = world.grid
    asked = np.concatenate([world.allocation.key, grid.routable[::97]])
    sent = world.lines.server_of(asked).tolist()
    for key, server, leaks in zip(asked.tolist(), sent, world.leaks(asked, mode).tolist(), strict=True):
        address = grid.addresses(np.array([key], np.uint64))[0]
        packet = Packet(grid.family, grid.stranger, address, UDP, 40_000, ATTACKED_PORT)
        assert _reaches(world, mode, packet, server) == leaks


def _reaches(world: World, mode: Misdirect, packet: Packet, server: int) -> bool:
    if server < 1:
        return False
    found = verdict(world.policy, world.share(server, mode), packet)
    if found.fate is Fate.REHOME and found.server is not None:
        found = verdict(world.policy, world.share(found.server, mode), packet, rehomed=True)
    return found.fate is Fate.PERMIT


def test_floods_are_for_whom_they_are_for(world: World) -> None:
    key, routable = world.grid.chunking.key, world.grid.routable
    victims = {key(prefix.network) for prefix in world.tenants[0].prefixes}
    sweep, target, tenant = (targets(world, attack, 1) for attack in (Attack.SWEEP, Attack.TARGET, Attack.TENANT))
    assert sorted(map(key, sweep)) == routable.tolist()
    assert len(target) == 1
    assert key(target[0]) in victims
    assert set(map(key, tenant)) == victims
    assert sweep == targets(world, Attack.SWEEP, 1) != targets(world, Attack.SWEEP, 2)
    assert expected_share(world, sweep, Misdirect.REHOME) == expected_share(world, sweep, Misdirect.DROP) == 0
    assert expected_share(world, sweep, Misdirect.WAN) == world.leaks(routable, Misdirect.WAN).mean() > 0


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_frames_are_those_that_are_made_one_by_one(destinations: list[int]) -> None:
    for found, destination in zip(frames_to(np.array(destinations, np.uint32)), destinations, strict=True):
        alone = datagram(IPV4, destination, size=PAYLOAD_OCTETS)
        assert found[:40] == alone[:40]
        assert found[40:42] == b"\0\0"
        assert found[42:] == alone[42:]
        assert checksum(found[14:34]) == 0
