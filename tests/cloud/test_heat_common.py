"""A fleet in Heat keeps what every cloud keeps, over the OpenStack in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from cloud.contract import *  # noqa: F403 -- the contract's tests
from cloud.contract import Bench
from cloud.test_heat_fake import settings_in

from orchestrator.cloud.heat.fakeopenstack import FakeOpenStack
from orchestrator.cloud.heat.fleets import HeatCloud


@pytest.fixture(params=[0, 1, 5])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(HeatCloud(settings_in(tmp_path), FakeOpenStack(slow=request.param)), "pop1")
