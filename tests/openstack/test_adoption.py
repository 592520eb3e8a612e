"""A webhook of a real Heat makes a VNF: it becomes a row of the fleet, serves, is drained, and is gone without a word
of failure. Agents are played, for Nova's machines exist in its memory only."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest
from allinone.stack import AllInOne
from cloud.contract_heat import URL
from fleet_world import SETTINGS, START, Agent, World, fresh
from realbench import REAL, RealBench, settings_for, until

from orchestrator.cloud.base import VnfOrder, VnfState
from orchestrator.cloud.heat.alarms import AlarmGroups, AlarmLimits
from orchestrator.control.enrolment import name_by_cloud
from orchestrator.scaling.lifecycle import Patience
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane

pytestmark = REAL

DOMAIN = "pop"
LIMITS = AlarmLimits(fewest=1, most=2, cooldown_s=0, notice_s=15, alarms=False)
PATIENT = replace(SETTINGS, size=None, alarms=True, patience=Patience(load_s=240, prove_s=240, spread_s=240))


@pytest.fixture
def bench(all_in_one: AllInOne, tmp_path: Path) -> Iterator[RealBench]:
    made = RealBench(all_in_one.place, settings_for(all_in_one.place, tmp_path), DOMAIN)
    (tmp_path / f"{DOMAIN}.token").write_text("a-token-for-nobody\n")
    yield made
    made.cloud.close()


def _invited(expires: dt.datetime, name: str, unit: Unit) -> str:
    return unit.enforcers.invite(DOMAIN, expires=expires, author="a test", name=name)


class RealWorld(World):
    """The store and the loop of fleets over a real cloud, as fast as time goes by."""

    def __init__(self, address: str, bench: RealBench) -> None:
        super().__init__(address, PATIENT)
        self.bench = bench
        self.heat = self.new_keeper("heat", cloud=bench.cloud, lease_s=600)
        self.began = time.monotonic()

    def moment(self) -> None:
        self.wall.now = START + dt.timedelta(seconds=time.monotonic() - self.began)
        if set(self.members()) - set(self.agents):
            self._boot_those_that_run()
        self.live()
        self.heat.tick()

    def _boot_those_that_run(self) -> None:
        """Whoever is in such a machine is vouched for, by the name that its row has."""
        for vnf in self.bench.cloud.list(DOMAIN):
            if vnf.state is not VnfState.RUNNING or vnf.name not in self.members() or vnf.name in self.agents:
                continue
            name = name_by_cloud(self.bench.cloud, DOMAIN, vnf.instance_id or "", vnf.addresses[0])
            assert name == vnf.name
            expires = self.wall.now + dt.timedelta(hours=1)
            token = self.write(partial(_invited, expires, name))
            self.agents[name] = Agent(VnfOrder(DOMAIN, name, 0, Plane.NFTABLES, URL, token), packets_pps=1000)

    def until_so(self, what: str, is_so: Callable[[], bool]) -> None:
        def looked() -> bool:
            self.moment()
            return is_so()

        until(what, looked)


def test_what_webhooks_make_and_take_is_adopted_and_drained(bench: RealBench, tmp_path: Path) -> None:
    world = RealWorld(fresh(tmp_path / "store.db"), bench)
    groups = AlarmGroups(bench.settings, bench.openstack)
    groups.create(DOMAIN, URL, Plane.NFTABLES, LIMITS)
    world.until_so("one that serves", lambda: len(world.serving()) == 1)
    urls = groups.webhooks(DOMAIN)

    world.until_so("a group at rest", lambda: groups.show(DOMAIN).settled)
    assert httpx.post(urls.grow, timeout=60).status_code == 200
    world.until_so("two that serve", lambda: len(world.serving()) == 2)
    both = world.serving()
    assert world.shares() == dict.fromkeys(both, 128)

    world.until_so("a group at rest", lambda: groups.show(DOMAIN).settled)
    assert httpx.post(urls.shrink, timeout=60).status_code == 200
    world.until_so("one that is drained", lambda: "draining" in world.states().values())
    [going] = (name for name, state in world.states().items() if state == "draining")
    [staying] = both - {going}
    world.moment()
    assert world.shares() == {staying: 256}
    world.agents[going].packets_pps = 0
    world.until_so("its end", lambda: world.states() == {staying: "serving"})

    groups.delete(DOMAIN)
    world.until_so("the last one's end", lambda: world.members() == {})
    assert len(world.told("vnf.adopted")) == 2
    assert world.told("vnf.failed", "vnf.orphan", "fleet.resized", "fleet.refused") == []
    world.close()
