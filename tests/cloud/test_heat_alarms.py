"""Groups that alarms grow and shrink, over the OpenStack in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cloud.contract_alarms import AlarmContract
from cloud.contract_heat import FLEET, URL
from cloud.test_heat_fake import settings_in

from orchestrator.cloud.base import VnfState
from orchestrator.cloud.heat.alarms import AlarmGroup, AlarmGroups, AlarmLimits
from orchestrator.cloud.heat.fakeopenstack import FakeOpenStack
from orchestrator.cloud.heat.fleets import HeatCloud
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.errors import (
    AclflowError,
    BadInput,
    Busy,
    Conflict,
    Missing,
    NotFound,
    Refused,
    TooLarge,
    Unreachable,
)
from orchestrator.wire.firewalls import Plane

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


@pytest.mark.parametrize("lost", [Unreachable("no answer"), Busy("it already exists")], ids=["time-out", "409"])
def test_one_that_was_begun_although_the_answer_was_lost_is_found(
    openstack: FakeOpenStack, tmp_path: Path, lost: AclflowError
) -> None:
    made = AlarmGroups(settings_in(tmp_path), openstack)
    openstack.after["create_stack"] = [lost]
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    assert settled(made).size == 1
    assert len(openstack.machines) == 1


def test_without_an_answer_and_without_a_group_it_says_to_ask_again(openstack: FakeOpenStack, tmp_path: Path) -> None:
    made = AlarmGroups(settings_in(tmp_path), openstack)
    openstack.before["create_stack"] = [Unreachable("no answer")]
    with pytest.raises(Unreachable, match="no answer; ask again"):
        made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    assert settled(made).size == 1


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(LIMITS, most=5), "with most 3, not 5: delete it first"),
        (replace(LIMITS, alarms=False, notice_s=7), "notice 30, not 7; with_alarms True, not False"),
    ],
)
def test_one_that_is_there_with_other_limits_is_not_taken_for_what_is_asked(
    groups: AlarmGroups, other: AlarmLimits, words: str
) -> None:
    with pytest.raises(Conflict, match=words):
        groups.create(FLEET, URL, Plane.NFTABLES, other)
    assert (groups.show(FLEET).fewest, groups.show(FLEET).most) == (LIMITS.fewest, LIMITS.most)


def test_a_cloud_without_alarms_is_said_to_have_webhooks(openstack: FakeOpenStack, tmp_path: Path) -> None:
    made = AlarmGroups(settings_in(tmp_path), openstack)
    openstack.before["create_stack"] = [Refused("Service aodh is not available for OS::Aodh::GnocchiThing.")]
    with pytest.raises(Refused, match="--webhooks-only"):
        made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    openstack.before["create_stack"] = [Refused("Flavor big is unknown.")]
    with pytest.raises(Refused, match=r"unknown\.$"):
        made.create(FLEET, URL, Plane.NFTABLES, LIMITS)


def test_what_failed_is_said(groups: AlarmGroups, openstack: FakeOpenStack) -> None:
    openstack.limit = 1
    groups.grow(FLEET)
    assert "quota of instances is used up: 1 of 1" in settled(groups).trouble


@dataclass
class FakeBench:
    """See `cloud.contract_alarms.Bench`."""

    settings: HeatSettings
    openstack: FakeOpenStack = field(default_factory=lambda: FakeOpenStack(slow=6))

    def __post_init__(self) -> None:
        self.cloud = HeatCloud(self.settings, self.openstack)
        self.groups = AlarmGroups(self.settings, self.openstack)

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        assert any(is_so() for _ in range(60)), what

    def post(self, url: str) -> None:
        self.openstack.post(url)

    def machines(self) -> int:
        return len(self.openstack.machines)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> FakeBench:
    return FakeBench(settings_in(tmp_path_factory.mktemp("alarms")))


class TestFake(AlarmContract):
    """In memory."""


def test_one_that_could_not_be_created_is_taken_away_before_another_is(
    openstack: FakeOpenStack, tmp_path: Path
) -> None:
    made = AlarmGroups(settings_in(tmp_path), openstack)
    openstack.limit = 0
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    assert "quota of instances" in settled(made).trouble
    openstack.limit = 100
    with pytest.raises(Busy, match=r"quota of instances is used up.*takes away"):
        made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    with pytest.raises(Busy, match="still deleting"):
        made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    made.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    found = settled(made)
    assert (found.size, found.trouble) == (1, "")


def test_what_cannot_be_told_of_a_group_is_not_told(openstack: FakeOpenStack, tmp_path: Path) -> None:
    bench = FakeBench(settings_in(tmp_path), openstack)
    bench.groups.create(FLEET, URL, Plane.NFTABLES, LIMITS)
    for verb in ("stacks", "stack", "members", "servers", "ports"):
        openstack.before[verb] = [Unreachable("no answer")]
        with pytest.raises(Unreachable):
            bench.cloud.list()


def test_a_signal_to_replace_that_got_lost_is_given_again(
    groups: AlarmGroups, openstack: FakeOpenStack, tmp_path: Path
) -> None:
    cloud = HeatCloud(settings_in(tmp_path), openstack)
    [first] = cloud.list(FLEET)
    openstack.before["signal"] = [Unreachable("no answer")]
    with pytest.raises(Unreachable):
        cloud.delete(FLEET, [first.name])
    assert [vnf.state for vnf in cloud.list(FLEET)] == [VnfState.FAILED]
    with pytest.raises(Busy):
        cloud.delete(FLEET, [first.name])
    settled(groups)
    [second] = cloud.list(FLEET)
    assert second.name != first.name


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
    with pytest.raises(Missing, match="domain group invite"):
        groups.create("pop9", URL, Plane.NFTABLES, LIMITS)


@pytest.mark.parametrize(("fewest", "most", "cooldown"), [(2, 1, 0), (-1, 1, 0), (0, 0, 0), (1, 2, -1)])
def test_limits_that_cannot_be_are_refused(fewest: int, most: int, cooldown: int) -> None:
    with pytest.raises(BadInput):
        AlarmLimits(fewest, most, cooldown)
