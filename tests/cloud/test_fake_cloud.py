"""The cloud in memory keeps what every cloud keeps, and fails as it is told to."""

from __future__ import annotations

import pytest
from cloud.contract import *  # noqa: F403 -- the contract's tests
from cloud.contract import Bench

from orchestrator.cloud.base import VnfState
from orchestrator.cloud.fake import FakeCloud
from orchestrator.errors import TooLarge, Unreachable


@pytest.fixture(params=[0, 1, 3])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(FakeCloud(slow=request.param), "pop")


def test_over_the_quota_nothing_is_built() -> None:
    bench = Bench(FakeCloud(quota=2), "pop")
    with pytest.raises(TooLarge, match="over the quota of 2 VNFs, 0 are there"):
        bench.cloud.create([bench.order(number) for number in range(3)])
    assert bench.there() == {}


def test_an_answer_that_is_lost_may_be_of_something_that_was_done() -> None:
    cloud = FakeCloud(before={"create": [Unreachable("lost")]}, after={"create": [Unreachable("lost")]})
    bench = Bench(cloud, "pop")
    with pytest.raises(Unreachable):
        cloud.create([bench.order(0)])
    assert bench.there() == {}
    with pytest.raises(Unreachable):
        cloud.create([bench.order(0)])
    assert list(bench.there()) == ["fw-0"]
    cloud.create([bench.order(0)])
    assert cloud.created == ["fw-0"]


def test_what_cannot_be_built_has_failed() -> None:
    bench = Bench(FakeCloud(unbuildable={"fw-0"}), "pop")
    bench.cloud.create([bench.order(0)])
    found = bench.until(lambda found: found["fw-0"].state is not VnfState.COMING)
    assert (found["fw-0"].state, found["fw-0"].progress) == (VnfState.FAILED, "no valid host was found")
