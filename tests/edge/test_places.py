"""Who serves whom follows from rules, traffic and chunks: what tenants bring along is spread over servers."""

from __future__ import annotations

import pytest

from orchestrator.edge.chunks import Allocation, allocate, settle_tenants
from orchestrator.edge.settings import EdgeSettings
from orchestrator.policy.addresses import Family, Prefix

OWNED = {number: (Prefix.parse(f"10.{number}.0.0/16"),) for number in range(1, 5)}
BOTH = {1: True, 2: True}


@pytest.fixture
def allocations() -> list[Allocation]:
    return [allocate(EdgeSettings().chunking(family), OWNED) for family in Family]


@pytest.mark.parametrize("one", OWNED)
def test_two_tenants_that_have_all_the_traffic_get_a_server_each(allocations: list[Allocation], one: int) -> None:
    for other in OWNED.keys() - {one}:
        places = settle_tenants(allocations, BOTH, {}, {}, {one: 5000.0, other: 5000.0})
        assert places[one] != places[other]
        assert places.keys() == OWNED.keys()


def test_rules_count_as_much_as_traffic_does(allocations: list[Allocation]) -> None:
    places = settle_tenants(allocations, BOTH, {}, {1: 10_000}, {2: 5000.0})
    assert places[1] != places[2]


def test_who_is_placed_stays_while_the_load_is_in_bounds(allocations: list[Allocation]) -> None:
    before = settle_tenants(allocations, BOTH, {}, {})
    little = {tenant: 100.0 + tenant for tenant in OWNED}
    assert settle_tenants(allocations, BOTH, before, {}, little) == before
