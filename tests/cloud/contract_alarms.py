"""What a group that alarms move must do, and what is seen of its VNFs: one suite, over the OpenStack in memory and over
a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from cloud.contract_heat import URL

from orchestrator.cloud.base import Vnf, VnfState
from orchestrator.cloud.heat.alarms import AlarmGroup, AlarmGroups, AlarmLimits
from orchestrator.cloud.heat.fleets import HeatCloud
from orchestrator.control.enrolment import name_by_cloud
from orchestrator.errors import Busy, NotFound, TooLarge
from orchestrator.wire.firewalls import Plane

DOMAIN = "pop2"
NOTICE_S = 6
LIMITS = AlarmLimits(fewest=1, most=2, cooldown_s=0, notice_s=NOTICE_S, alarms=False)


class Bench(Protocol):
    """A cloud, and who posts to its webhooks."""

    cloud: HeatCloud
    groups: AlarmGroups

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        ...

    def post(self, url: str) -> None:
        """As an alarm does: without a token."""
        ...

    def machines(self) -> int:
        """How many virtual machines there are."""
        ...


def settled(bench: Bench, size: int) -> dict[str, Vnf]:
    """The group's VNFs, once it has a size and nothing is under way."""

    def is_so() -> bool:
        found = bench.groups.show(DOMAIN)
        return found.settled and found.size == size and len(bench.cloud.list(DOMAIN)) == size

    bench.until(f"a group of {size}", is_so)
    assert bench.groups.show(DOMAIN) == AlarmGroup(DOMAIN, size, LIMITS.fewest, LIMITS.most, True, "")
    return {vnf.name: vnf for vnf in bench.cloud.list(DOMAIN)}


class AlarmContract:
    """See the module. Each story begins and ends with a group of one."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _group(cls, bench: Bench) -> Iterator[None]:
        before = bench.machines()
        bench.groups.create(DOMAIN, URL, Plane.NFTABLES, LIMITS)
        bench.groups.create(DOMAIN, URL, Plane.NFTABLES, LIMITS)  # the answer was lost, so it is asked again
        settled(bench, 1)
        yield
        bench.groups.delete(DOMAIN)

        def is_gone() -> bool:
            try:
                bench.groups.show(DOMAIN)
            except NotFound:
                return True
            return False

        bench.until("the group's end", is_gone)
        assert bench.cloud.list(DOMAIN) == ()
        assert bench.machines() == before

    def test_what_a_webhook_makes_and_takes_is_seen_as_the_domains(self, bench: Bench) -> None:
        [first] = settled(bench, 1).values()
        urls = bench.groups.webhooks(DOMAIN)
        bench.post(urls.grow)
        there = settled(bench, 2)
        for vnf in there.values():
            assert (vnf.fleet, vnf.state, vnf.autonomous) == (DOMAIN, VnfState.RUNNING, True)
            assert vnf.left != vnf.right
            assert vnf.instance_id is not None
            assert name_by_cloud(bench.cloud, DOMAIN, vnf.instance_id, vnf.addresses[0]) == vnf.name
        assert there[first.name] == first
        assert {vnf.name for vnf in bench.cloud.list() if vnf.fleet == DOMAIN} == set(there)
        with pytest.raises(TooLarge, match="2 are the most"):
            bench.groups.grow(DOMAIN)

        bench.post(urls.shrink)
        bench.until("one that is taken away", lambda: VnfState.LEAVING in _states(bench))
        going = next(vnf for vnf in bench.cloud.list(DOMAIN) if vnf.state is VnfState.LEAVING)
        assert going.name in there  # and it is still there, so that what it carries can end
        with pytest.raises(Busy, match="drop the signal"):
            bench.groups.grow(DOMAIN)
        assert set(settled(bench, 1)) == set(there) - {going.name}
        with pytest.raises(TooLarge, match="1 are the fewest"):
            bench.groups.shrink(DOMAIN)

    def test_one_that_is_given_back_is_replaced_by_another(self, bench: Bench) -> None:
        [first] = settled(bench, 1)
        bench.groups.grow(DOMAIN)
        [second] = set(settled(bench, 2)) - {first}
        with pytest.raises(Busy, match="replace 1"):
            bench.cloud.delete(DOMAIN, [second])
        bench.until("the end of what was given back", lambda: second not in _names(bench))
        there = settled(bench, 2)
        assert first in there
        bench.cloud.delete(DOMAIN, [second])  # it is gone: nothing is done
        assert set(settled(bench, 2)) == set(there)
        bench.groups.shrink(DOMAIN)
        settled(bench, 1)


def _states(bench: Bench) -> set[VnfState]:
    return {vnf.state for vnf in bench.cloud.list(DOMAIN)}


def _names(bench: Bench) -> set[str]:
    return {vnf.name for vnf in bench.cloud.list(DOMAIN)}
