"""The point of presence to measure: who owns what, what theory expects of it, and frames made from one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bench.attack.floods import Attack, expected_share, targets
from orchestrator.bench.pop.flood import PAYLOAD_OCTETS, frames_to
from orchestrator.bench.pop.shots import datagram
from orchestrator.bench.pop.world import (
    CLIENT,
    EVERY_CHUNK,
    LENGTH,
    PERMITTED_PORT,
    ROUTABLE,
    Sizes,
    World,
    addresses,
    machine,
)
from orchestrator.enforce.drivers.openflow.frames import checksum
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Action, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask
from orchestrator.policy.prefilter import Fate, Misdirect, verdict
from orchestrator.policy.protocols import UDP

_INGRESS, _EXPLICIT = Direction.INGRESS, ReturnTraffic.EXPLICIT
SMALL = Sizes(tenants=6, chunks=8, servers=3, per_line=8, functions=3, width=32)


@pytest.fixture(scope="module", params=[True, False], ids=["repaired", "unrepaired"])
def world(request: pytest.FixtureRequest) -> World:
    return World(SMALL, 3, repaired=request.param)


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
    assert set(world.allocation.key.tolist()) <= set(ROUTABLE.tolist())
    assert len(world.allocation) == SMALL.tenants * SMALL.chunks
    assert set(world.servers.tolist()) == {1, 2, 3}
    for tenant in world.tenants:
        keys = np.array([prefix.network >> 16 for prefix in tenant.prefixes], np.uint64)
        assert set(world.right_server(keys).tolist()) == {world.server_of_tenant[tenant.number]}
    assert world.right_server(EVERY_CHUNK).astype(bool).sum() == len(world.allocation)


def test_a_machine_hears_its_client_and_nobody_else(world: World) -> None:
    for tenant in world.tenants:
        address = Prefix.parse(machine(tenant)).network
        mine = Packet(Family.IPV4, CLIENT.network, address, UDP, 40_000, PERMITTED_PORT)
        strange = Packet(Family.IPV4, CLIENT.network + 1, address, UDP, 40_000, PERMITTED_PORT)
        assert [ask(tenant.acl, each, _INGRESS, _EXPLICIT).action for each in (mine, strange)] == [
            Action.PERMIT,
            Action.DENY,
        ]


@pytest.mark.parametrize("mode", list(Misdirect))
def test_theory_says_what_the_servers_oracle_says(world: World, mode: Misdirect) -> None:
    """Every block's packet, sent where the lines send it, decided by the oracle of each server on its way."""
    asked = np.concatenate([world.allocation.key, ROUTABLE[::97]])
    sent = world.lines.server_of(asked).tolist()
    for key, server, leaks in zip(asked.tolist(), sent, world.leaks(asked, mode).tolist(), strict=True):
        packet = Packet(Family.IPV4, CLIENT.network + 1, addresses(np.array([key], np.uint64))[0], UDP, 40_000, 666)
        assert _reaches(world, mode, packet, server) == leaks


def _reaches(world: World, mode: Misdirect, packet: Packet, server: int) -> bool:
    if server < 1:
        return False
    found = verdict(world.policy, world.share(server, mode), packet)
    if found.fate is Fate.REHOME and found.server is not None:
        found = verdict(world.policy, world.share(found.server, mode), packet, rehomed=True)
    return found.fate is Fate.PERMIT


def test_floods_are_for_whom_they_are_for(world: World) -> None:
    victims = {prefix.network >> 16 for prefix in world.tenants[0].prefixes}
    sweep, target, tenant = (targets(world, attack, 1) for attack in (Attack.SWEEP, Attack.TARGET, Attack.TENANT))
    assert sorted(address >> (32 - LENGTH) for address in sweep) == ROUTABLE.tolist()
    assert len(target) == 1
    assert target[0] >> 16 in victims
    assert {address >> 16 for address in tenant} == victims
    assert sweep == targets(world, Attack.SWEEP, 1) != targets(world, Attack.SWEEP, 2)
    assert expected_share(world, sweep, Misdirect.REHOME) == expected_share(world, sweep, Misdirect.DROP) == 0
    assert expected_share(world, sweep, Misdirect.WAN) == world.leaks(ROUTABLE, Misdirect.WAN).mean() > 0


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_frames_are_those_that_are_made_one_by_one(destinations: list[int]) -> None:
    for found, destination in zip(frames_to(np.array(destinations, np.uint32)), destinations, strict=True):
        alone = datagram(destination, octets=PAYLOAD_OCTETS)
        assert found[:40] == alone[:40]
        assert found[40:42] == b"\0\0"
        assert found[42:] == alone[42:]
        assert checksum(found[14:34]) == 0
