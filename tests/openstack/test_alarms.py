"""A group that grows and shrinks by signals and by webhooks, in a real Heat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from allinone.stack import AllInOne
from realbench import QUIET, RealBench, settings_for, until

from orchestrator.cloud.base import VnfState
from orchestrator.cloud.heat.alarms import AlarmGroups, AlarmLimits
from orchestrator.compile.filterrows import Plane
from orchestrator.errors import NotFound, TooLarge

pytestmark = [pytest.mark.system, pytest.mark.openstack, pytest.mark.timeout(900), QUIET]

LIMITS = AlarmLimits(fewest=1, most=3, cooldown_s=0, alarms=False)
DOMAIN = "pop2"


@pytest.fixture
def bench(all_in_one: AllInOne, tmp_path: Path) -> Iterator[RealBench]:
    made = RealBench(all_in_one.place, settings_for(all_in_one.place, tmp_path))
    yield made
    made.cloud.close()


def test_signals_and_webhooks_move_it(bench: RealBench) -> None:
    groups = AlarmGroups(bench.settings, bench.openstack)
    before = bench.machines()
    groups.create(DOMAIN, "http://192.0.2.1:8420", Plane.NFTABLES, LIMITS)

    def is_of(size: int) -> None:
        until(f"a group of {size}", lambda: (found := groups.show(DOMAIN)).settled and found.size == size)
        assert groups.show(DOMAIN).trouble == ""
        assert bench.machines() == before + size

    is_of(1)
    [vnf] = bench.cloud.list(f"aclflow-alarms-{DOMAIN}")  # so it can enrol
    assert vnf.state is VnfState.RUNNING
    assert len(vnf.addresses) == 3
    urls = groups.webhooks(DOMAIN)
    groups.grow(DOMAIN)
    is_of(2)
    assert httpx.post(urls.grow, timeout=60).status_code == 200  # no token: the URL is signed
    is_of(3)
    with pytest.raises(TooLarge):
        groups.grow(DOMAIN)
    assert httpx.post(urls.shrink, timeout=60).status_code == 200
    is_of(2)
    groups.shrink(DOMAIN)
    is_of(1)
    assert httpx.post(urls.shrink, timeout=60).status_code == 200  # at the fewest, dropped without a word
    is_of(1)
    assert bench.cloud.list() == ()  # it is no fleet: nobody's sweep may take it
    groups.delete(DOMAIN)

    def is_gone() -> bool:
        try:
            groups.show(DOMAIN)
        except NotFound:
            return True
        return False

    until("the group's end", is_gone)
    assert bench.machines() == before
