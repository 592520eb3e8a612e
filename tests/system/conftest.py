"""Shared by the tests that need root and real switches: labs under a prefix of their own, removed whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from statesync.programbench import bench  # noqa: F401  # a fixture
from system.direct import Direct
from system.leftovers import leftovers
from system.sharing_ground import cluster, ends, lossy, running, world  # noqa: F401  # fixtures
from system.shooting import POP, SHOP, Range

from orchestrator.lab import pop
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.wire import Wire
from orchestrator.policy.model import TenantId

LAYOUT = Layout(os.environ.get("ACLFLOW_TEST_PREFIX", "actest-"))
"""Two runs beside each other need a prefix each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.system)
            if os.geteuid():
                item.add_marker(pytest.mark.skip(reason="needs root: network namespaces and Open vSwitch"))


@pytest.fixture(scope="module")
def layout() -> Iterator[Layout]:
    """An unused prefix; whatever the module leaves there is removed."""
    pop.down(LAYOUT)
    yield LAYOUT
    pop.down(LAYOUT)
    assert leftovers(LAYOUT) == []


@pytest.fixture(scope="module")
def aim(layout: Layout) -> Iterator[Range]:
    lab = pop.up(layout, POP)
    policy = policy_of(POP, {TenantId("shop"): SHOP})
    with Direct(lab) as direct, Wire(lab) as wire:
        direct.enforce(policy)
        yield Range(lab, wire, policy)
