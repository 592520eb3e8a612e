"""Groups that alarms grow and shrink, over the OpenStack in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from cloud.contract_heat import FLEET, URL
from cloud.test_heat_fake import settings_in

from orchestrator.cloud.heat.alarms import AlarmGroup, AlarmGroups, AlarmLimits
from orchestrator.cloud.heat.fake import FakeOpenStack
from orchestrator.cloud.heat.fleets import HeatCloud
from orchestrator.compile.filterrows import Plane
from orchestrator.errors import BadInput, Busy, Missing, NotFound, TooLarge, Unreachable

LIMITS = AlarmLimits(fewest=1, most=3, cooldown_s=0)


@pytest.fixture
def openstack() -> FakeOpenStack:
    return FakeOpenStack()


@pytest.fixture
def groups(openstack: FakeOpenStack, tmp_path: Path) -> AlarmGroups:
    made = AlarmGroups(settings_in(tmp_path), openstack)
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    assert settled(made).size == 1
    return made


def settled(groups: AlarmGroups) -> AlarmGroup:
    for _ in range(20):
        found = groups.show(FLEET)
        if found.settled:
            return found
    raise AssertionError(found)


def test_it_grows_and_shrinks_within_its_limits(groups: AlarmGroups) -> None:
    for size in (2, 3):
        groups.grow(FLEET)
        assert settled(groups).size == size
    with pytest.raises(TooLarge, match="3 are the most"):
        groups.grow(FLEET)
    for size in (2, 1):
        groups.shrink(FLEET)
        assert settled(groups).size == size
    with pytest.raises(TooLarge, match="1 are the fewest"):
        groups.shrink(FLEET)


def test_a_signal_that_heat_would_drop_is_not_sent(groups: AlarmGroups) -> None:
    groups.grow(FLEET)
    with pytest.raises(Busy, match="drop the signal"):
        groups.grow(FLEET)
    assert settled(groups).size == 2


def test_creating_it_again_changes_nothing(groups: AlarmGroups) -> None:
    groups.grow(FLEET)
    settled(groups)
    groups.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    assert settled(groups).size == 2


def test_an_answer_that_was_lost_is_asked_for_again(openstack: FakeOpenStack, tmp_path: Path) -> None:
    made = AlarmGroups(settings_in(tmp_path), openstack)
    openstack.after["create_stack"] = [Unreachable("no answer")]
    with pytest.raises(Unreachable):
        made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    assert settled(made).size == 1
    assert len(openstack.machines) == 1


def test_what_failed_is_said(groups: AlarmGroups, openstack: FakeOpenStack) -> None:
    openstack.limit = 1
    groups.grow(FLEET)
    assert "quota of instances is used up: 1 of 1" in settled(groups).trouble


def test_a_fleet_does_not_see_it(groups: AlarmGroups, openstack: FakeOpenStack, tmp_path: Path) -> None:
    assert HeatCloud(settings_in(tmp_path), openstack).list() == ()


def test_it_can_be_deleted_and_is_not_there_then(groups: AlarmGroups) -> None:
    urls = groups.webhooks(FLEET)
    assert urls.grow != urls.shrink
    groups.delete(FLEET)
    while True:
        try:
            groups.show(FLEET)
        except NotFound:
            break
    groups.delete(FLEET)
    with pytest.raises(NotFound):
        groups.webhooks(FLEET)


def test_without_a_group_token_nothing_is_created(groups: AlarmGroups) -> None:
    with pytest.raises(Missing, match="invite-group"):
        groups.create("pop9", URL, Plane.NFTABLES, LIMITS)


@pytest.mark.parametrize(("fewest", "most", "cooldown"), [(2, 1, 0), (-1, 1, 0), (0, 0, 0), (1, 2, -1)])
def test_limits_that_cannot_be_are_refused(fewest: int, most: int, cooldown: int) -> None:
    with pytest.raises(BadInput):
        AlarmLimits(fewest, most, cooldown)
