"""Switches for the tests of enforcement points: a fake one each, a real one for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    "enforce.contract_driver",
    "enforce.contract_groups",
    "enforce.contract_spread",
    "enforce.launched",
    "enforce.loop_bench",
    "enforce.real_switch",
)

from enforce.dummy_ovs import missing  # noqa: E402
from enforce.launched import launcher, observer, switch  # noqa: E402, F401  # fixtures
from enforce.loop_bench import bench, watchful  # noqa: E402, F401  # fixtures
from enforce.real_switch import RealSwitch  # noqa: E402
from enforce.tls_links import certificates, tls, tls_launcher  # noqa: E402, F401  # fixtures


@pytest.fixture(scope="session")
def real_switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSwitch]:
    """A real Open vSwitch for the whole session; `reset` it before use."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    running = RealSwitch(Path(tmp_path_factory.mktemp("ovs")))
    yield running
    running.stop()
