"""The contract of a group that alarms move, over a real Heat: webhooks are posted to, signals sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from allinone.stack import AllInOne
from cloud.contract_alarms import AlarmContract
from realbench import REAL, RealBench, settings_for, until

from orchestrator.cloud.heat.alarms import AlarmGroups

pytestmark = REAL


class AlarmBench(RealBench):
    """See `cloud.contract_alarms.Bench`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.groups = AlarmGroups(self.settings, self.openstack)

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        until(what, is_so)

    def post(self, url: str) -> None:
        assert httpx.post(url, timeout=60).status_code == 200  # no token: the URL is signed


@pytest.fixture(scope="module")
def bench(all_in_one: AllInOne, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AlarmBench]:
    made = AlarmBench(all_in_one.place, settings_for(all_in_one.place, tmp_path_factory.mktemp("alarms")))
    yield made
    made.cloud.close()


class TestReal(AlarmContract):
    """Heat itself."""
