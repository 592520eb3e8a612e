"""The contract over the OpenStack in memory, what only it can show, and the law of who goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cloud.contract_heat import FLEET, HeatContract, order, states
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cloud.base import Vnf, VnfState
from orchestrator.cloud.heat.fakeopenstack import FakeOpenStack
from orchestrator.cloud.heat.fleets import HeatCloud
from orchestrator.cloud.heat.settings import HeatSettings
from orchestrator.errors import BadInput, Busy, Missing, TooLarge, Unreachable

STACK = f"aclflow-fleet-{FLEET}"


def settings_in(folder: Path, **more: object) -> HeatSettings:
    """Settings whose files are there."""
    (folder / "environment.yaml").write_text("parameters: {image: i, flavor: f}\n")
    for group in (FLEET, "pop2"):
        (folder / f"{group}.token").write_text("secret\n")
    return HeatSettings(folder / "environment.yaml", folder, **more)  # type: ignore[arg-type]


@dataclass
class FakeBench:
    """A fleet in memory."""

    settings: HeatSettings
    openstack: FakeOpenStack = field(default_factory=lambda: FakeOpenStack(slow=5))

    def __post_init__(self) -> None:
        self.cloud = HeatCloud(self.settings, self.openstack)

    def settle(self) -> tuple[Vnf, ...]:
        for _ in range(60):
            found = self.cloud.list()
            if not {VnfState.COMING, VnfState.LEAVING} & {vnf.state for vnf in found}:
                return found
        raise AssertionError(found)

    @contextmanager
    def no_host(self) -> Iterator[None]:
        self.openstack.unbuildable = {str(number) for number in range(100)}
        yield
        self.openstack.unbuildable = set()

    @contextmanager
    def full(self) -> Iterator[None]:
        self.openstack.limit = len(self.openstack.machines)
        yield
        self.openstack.limit = 100

    def resize_group(self, by: int) -> None:
        stack = self.openstack.stack(STACK)
        assert stack is not None
        self.openstack.update_stack(stack, {"count": int(stack.parameters["count"]) + by})
        for _ in range(10):
            self.openstack.stack(STACK)

    def lose_machine(self, vnf: Vnf) -> None:
        del self.openstack.machines[vnf.instance_id or ""]

    def machines(self) -> int:
        return len(self.openstack.machines)


@pytest.fixture
def bench(tmp_path: Path) -> FakeBench:
    made = FakeBench(settings_in(tmp_path))
    made.cloud.create([order(0)])
    made.settle()
    return made


class TestFake(HeatContract):
    """In memory."""


def test_the_last_one_takes_the_stack_with_it(bench: FakeBench) -> None:
    bench.cloud.delete(FLEET, ["fw-0"])
    for number in (0, 1):
        with pytest.raises(Busy, match="still deleting"):
            bench.cloud.create([order(number)])
    assert bench.settle() == ()
    assert bench.openstack.stack(STACK) is None
    bench.cloud.delete(FLEET, ["fw-0"])
    bench.cloud.create([order(1)])
    assert states(bench.settle()) == {"fw-1": VnfState.RUNNING}


def test_failed_ones_are_deleted_together_so_that_none_is_tried_once_more(bench: FakeBench) -> None:
    with bench.no_host():
        bench.cloud.create([order(1), order(2)])
        there = states(bench.settle())
    assert there == {"fw-0": VnfState.RUNNING, "fw-1": VnfState.FAILED, "fw-2": VnfState.FAILED}
    bench.cloud.delete(FLEET, ["fw-1"])
    assert states(bench.settle()) == {"fw-0": VnfState.RUNNING}
    bench.cloud.delete(FLEET, ["fw-2"])
    assert bench.machines() == 1


@pytest.mark.parametrize("verb", ["create_stack", "update_stack", "delete_stack"])
def test_an_answer_that_was_lost_is_asked_for_again(tmp_path: Path, verb: str) -> None:
    bench = FakeBench(settings_in(tmp_path))
    for step in ("create_stack", "update_stack", "delete_stack"):
        if step == verb:
            bench.openstack.after[step] = [Unreachable("no answer")]
            with pytest.raises(Unreachable):
                _do(bench, step)
        _do_until_taken(bench, step)
        bench.settle()
        expected = {"create_stack": ["fw-0"], "update_stack": ["fw-0", "fw-1"], "delete_stack": []}[step]
        assert list(states(bench.settle())) == expected
        assert bench.machines() == len(expected)


def _do(bench: FakeBench, step: str) -> None:
    if step == "create_stack":
        bench.cloud.create([order(0)])
    elif step == "update_stack":
        bench.cloud.create([order(0), order(1)])
    else:
        bench.cloud.delete(FLEET, ["fw-0", "fw-1"])


def _do_until_taken(bench: FakeBench, step: str) -> None:
    for _ in range(10):
        try:
            _do(bench, step)
        except Busy:
            continue
        return
    raise AssertionError(step)


def test_a_stack_that_failed_before_its_group_was_begun_can_be_given_up(bench: FakeBench) -> None:
    bench.cloud.create([order(1)])
    stack = bench.openstack.stack(STACK)
    assert stack is not None
    bench.openstack.fail(stack, {"1"}, "You have reached the maximum server groups per project, 10.")
    there = states(bench.cloud.list(FLEET))
    assert there == {"fw-0": VnfState.RUNNING, "fw-1": VnfState.FAILED}
    bench.cloud.delete(FLEET, ["fw-1"])
    assert states(bench.settle()) == {"fw-0": VnfState.RUNNING}


def test_a_stack_that_could_not_be_deleted_is_deleted_again(bench: FakeBench) -> None:
    bench.cloud.delete(FLEET, ["fw-0"])
    stack = bench.openstack.stack(STACK)
    assert stack is not None
    bench.openstack.fail(stack, set(), "a port is in use")
    assert states(bench.cloud.list(FLEET)) == {"fw-0": VnfState.FAILED}
    with pytest.raises(Busy, match="a port is in use"):
        bench.cloud.create([order(1)])
    assert bench.settle() == ()
    assert bench.machines() == 0


def test_the_first_vnfs_are_measured_by_the_quota_too(tmp_path: Path) -> None:
    bench = FakeBench(settings_in(tmp_path), FakeOpenStack(limit=1))
    with pytest.raises(TooLarge, match="2 more VNFs take 2, so 1 more fit"):
        bench.cloud.create([order(0), order(1)])
    assert bench.cloud.list() == ()


def test_fleets_do_not_see_each_other(bench: FakeBench) -> None:
    bench.cloud.create([order(0, "pop2")])
    bench.settle()
    assert [(vnf.fleet, vnf.name) for vnf in bench.cloud.list()] == [(FLEET, "fw-0"), ("pop2", "fw-0")]
    bench.cloud.delete("pop2", ["fw-0"])
    assert [(vnf.fleet, vnf.name) for vnf in bench.settle()] == [(FLEET, "fw-0")]


def test_members_of_a_stack_that_is_no_fleet_are_known_by_its_name_and_left_alone(bench: FakeBench) -> None:
    """So they can enrol; the sweep, which asks for all fleets, does not see them."""
    bench.openstack.create_stack("edge", "edge-pop.yaml", {"count": 2}, "")
    assert [vnf.fleet for vnf in bench.settle()] == [FLEET]
    for _ in range(10):
        bench.cloud.list("edge")
    assert [vnf.name for vnf in bench.cloud.list("edge")] == ["edge-0", "edge-1"]
    assert all(vnf.state is VnfState.RUNNING and vnf.addresses for vnf in bench.cloud.list("edge"))
    bench.cloud.delete("edge", ["edge-0"])
    assert bench.machines() == 3


def test_orders_of_two_fleets_are_not_one_request(bench: FakeBench) -> None:
    with pytest.raises(BadInput, match="one fleet at a time"):
        bench.cloud.create([order(1), order(1, "pop2")])


def test_without_a_group_token_it_says_what_makes_one(bench: FakeBench) -> None:
    with pytest.raises(Missing, match="aclflow domain group invite pop3 pop3"):
        bench.cloud.create([order(0, "pop3")])


def test_what_cannot_be_told_is_not_told(bench: FakeBench) -> None:
    bench.openstack.before["servers"] = [Unreachable("Nova does not answer")]
    with pytest.raises(Unreachable):
        bench.cloud.list(FLEET)


@given(st.data())
def test_exactly_those_that_were_meant_come_and_go(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever was asked, refused or meddled with before: the fleet is the model, and who stays is not touched."""
    bench = FakeBench(settings_in(tmp_path_factory.getbasetemp()))
    model: dict[str, str] = {}
    number = 0
    for _ in range(data.draw(st.integers(1, 8), label="steps")):
        step = data.draw(st.sampled_from(["create", "delete", "skip", "fail", "meddle"]), label="step")
        if step == "create":
            more = data.draw(st.integers(1, 3), label="more")
            bench.cloud.create([order(number + index) for index in range(more)])
            wanted = {*model, *(f"fw-{number + index}" for index in range(more))}
            number += more
        elif step == "delete":
            victims = data.draw(st.sets(st.sampled_from(sorted(model))) if model else st.just(set()), label="victims")
            bench.cloud.delete(FLEET, sorted(victims))
            wanted = set(model) - victims
        else:
            wanted = set(model)
            number += 1
            if step == "fail":
                with bench.no_host():
                    bench.cloud.create([order(number)])
                    bench.settle()
                bench.cloud.delete(FLEET, [f"fw-{number}"])
                number += 1
            elif step == "meddle" and model:
                bench.resize_group(1)
                bench.cloud.delete(FLEET, [vnf.name for vnf in bench.settle() if vnf.name.startswith("stray-")])
        there = {vnf.name: vnf.instance_id for vnf in bench.settle()}
        assert set(there) == wanted
        assert {name: there[name] for name in model if name in there} == {
            name: model[name] for name in model if name in wanted
        }
        model = {name: instance or "" for name, instance in there.items()}
        assert bench.machines() == len(model)
