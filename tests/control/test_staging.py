"""Intersection first, through the control loop: what is published when, and what a restart in the middle comes to."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S, until
from staging_world import HOSTS, Plant, deny_web, everywhere, planted

from orchestrator.control.compiler import Compiled, Compiler
from orchestrator.control.reports import Report
from orchestrator.control.staging import CACHE_FOLLOWS_S
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Tenant
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.pops.poprecords import PopSettings
from orchestrator.store.records import Committed, HostRecord, PolicySnapshot
from orchestrator.store.sql.notices import Notices
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def plant(url: str) -> Iterator[Plant]:
    with planted(url) as made:
        yield made


def test_a_deny_that_changes_ends_is_staged(plant: Plant) -> None:
    before = everywhere(plant, deny_web("egress"))
    target = plant.put(deny_web("ingress"))
    assert target == before + 2
    middle = plant.program
    assert middle.generation == target - 1
    plant.read_back("h1")
    time.sleep(0.1)
    assert plant.program is middle, "one host may still hold the old list"
    plant.read_back("h2")
    until(lambda: plant.program.generation == target)
    assert not plant.enforcement.enforced_state("pop", target).done
    plant.read_back(*HOSTS)
    assert plant.enforcement.enforced_state("pop", target).done


def test_a_change_in_one_direction_is_not_staged(plant: Plant) -> None:
    before = everywhere(plant, deny_web("ingress"))
    first, *others = deny_web("ingress").rules
    assert plant.put(Acl((*others, first))) == before + 1 == plant.program.generation, "it only opens"
    plant.read_back(*HOSTS)
    assert plant.put(Acl(tuple(others))) == before + 2 == plant.program.generation


def test_two_changes_that_some_host_has_not_seen_are_staged_together(plant: Plant) -> None:
    everywhere(plant, deny_web("egress"))
    rules = (*deny_web("egress").rules[:1], *deny_web("ingress").rules)
    both = plant.put(Acl(rules))
    assert plant.program.generation == both
    target = plant.put(deny_web("ingress"))
    assert plant.program.generation == target - 1, "h1 and h2 may hold the first list or the second"
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == target)


def test_whole_lists_that_no_host_holds_any_more_are_forgotten(plant: Plant) -> None:
    def whole(number: int) -> Acl:
        ports = range(100 * number + 1, 100 * number + 101)
        rules = [{"id": f"p{port}", "action": "permit", "protocol": "tcp", "destination_ports": port} for port in ports]
        return acl_from_json({"rules": rules})

    for number in range(16):
        everywhere(plant, whole(number))
    time.sleep(CACHE_FOLLOWS_S)
    for number in range(16, 20):
        everywhere(plant, whole(number))
    gc.collect()
    held = {id(each.acl) for each in gc.get_objects() if isinstance(each, Tenant) and len(each.acl.rules) == 100}
    assert len(held) < 8


def test_an_edge_switch_does_not_hold_the_hosts_back(plant: Plant) -> None:
    plant.control.write(lambda unit: unit.pops.add("p1", "pop", PopSettings(("outside",))))
    plant.control.write(lambda unit: unit.pops.add_edge("p1", HostRecord("edge1", 0xE1, "wan")))
    everywhere(plant, deny_web("egress"))
    point = PointReport("edge1", plant.program.generation, bytes(16), PointState.ENFORCED, None, 1)
    plant.enforcement.report("pop", plant.enforcer, Report((point,)))
    target = plant.put(deny_web("ingress"))
    assert plant.program.generation == target - 1
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == target)


def test_a_change_that_nobody_confirms_goes_back_in_two_steps_too(plant: Plant) -> None:
    before = everywhere(plant, deny_web("ingress"))

    def put_to_confirm(unit: Unit) -> int:
        change = unit.acls.replace("all", deny_web("egress"), author="test")
        unit.acls.await_confirmation("all", change.version - 1, 60)
        return change.generation

    changed = plant.control.write(put_to_confirm)
    assert changed == before + 2
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == changed)
    plant.read_back(*HOSTS)
    time.sleep(CACHE_FOLLOWS_S)
    passed_s = 0.0
    keeper = Timekeeper(uptime=lambda: passed_s)
    keeper.tick(plant.control)
    assert plant.program.generation == changed
    passed_s = 61.0
    keeper.tick(plant.control)
    target = plant.control.read(lambda unit: unit.domains.get("pop")).generation
    assert target == changed + 2
    assert plant.program.generation == target - 1, "a host that denies at one end only must not meet one that does not"
    plant.read_back("h1")
    time.sleep(0.1)
    assert plant.program.generation == target - 1
    plant.read_back("h2")
    until(lambda: plant.program.generation == target)
    assert plant.control.read(lambda unit: unit.acls.current("all")).acl == deny_web("ingress")


def test_the_latest_goal_wins(plant: Plant) -> None:
    everywhere(plant, deny_web("egress"))
    plant.put(deny_web("ingress"))
    target = plant.put(deny_web("egress"))
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == target)
    plant.read_back(*HOSTS)
    assert plant.enforcement.enforced_state("pop", target).done


def test_a_host_that_is_taken_out_is_not_waited_for(plant: Plant) -> None:
    everywhere(plant, deny_web("egress"))
    target = plant.put(deny_web("ingress"))
    plant.read_back("h1")
    plant.control.write(lambda unit: unit.domains.remove_host("pop", "h2"))
    until(lambda: plant.program.generation >= target)


def test_what_may_follow_is_decided_by_what_was_published_last(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on to a target while somebody commits what must not follow on that: not between his decision and
    its publication, for one host would deny at one end and another at the other."""
    everywhere(plant, deny_web("egress"))
    target = plant.put(deny_web("ingress"))
    at_it, go_on, committed = threading.Event(), threading.Event(), threading.Event()
    compile_latest = Compiler.compile

    def compile_in_turn(compiler: Compiler, domain: str, snapshot: PolicySnapshot, **named: bool) -> Compiled:
        if snapshot.generation == target and threading.current_thread().name == "control":
            at_it.set()
            assert go_on.wait(PATIENCE_S)
        return compile_latest(compiler, domain, snapshot, **named)

    def wait_for_the_loop(_: Committed) -> None:
        committed.set()
        until(lambda: plant.program.generation >= target)

    monkeypatch.setattr(Compiler, "compile", compile_in_turn)
    plant.read_back(*HOSTS)
    assert at_it.wait(PATIENCE_S)
    heard = plant.control.hear
    monkeypatch.setattr(plant.store, "_notices", Notices(plant.store.engine))
    plant.store.subscribe(wait_for_the_loop)  # before the control hears of it
    plant.store.subscribe(heard)
    written: list[int] = []
    writer = threading.Thread(target=lambda: written.append(plant.put(deny_web("egress"))))
    writer.start()
    committed.wait(0.5)
    go_on.set()
    writer.join(PATIENCE_S)
    assert written == [target + 2]
    assert plant.program.generation == target + 1, "hosts may hold the target by now"


@pytest.mark.parametrize("reached", [(), ("h1",), HOSTS])
def test_a_restart_in_the_middle_ends_with_the_target(plant: Plant, url: str, reached: tuple[str, ...]) -> None:
    everywhere(plant, deny_web("egress"))
    target = plant.put(deny_web("ingress"))
    middle = plant.program
    if reached:
        plant.read_back(*reached)
    if reached == HOSTS:
        until(lambda: plant.program.generation == target)
    plant.close()
    again = Plant(url)
    again.start()
    try:
        assert (again.program.generation, again.program.digest) == (target - 1, middle.digest)
        again.read_back(*HOSTS)
        until(lambda: again.program.generation == target)
    finally:
        again.close()


def test_a_restart_before_anything_was_read_back_at_the_new_list(plant: Plant, url: str) -> None:
    everywhere(plant, deny_web("egress"))
    old = plant.program
    plant.read_back(*HOSTS)
    target = plant.put(deny_web("ingress"))
    plant.close()
    again = Plant(url)
    again.start()
    try:
        again.read_back("h1")
        again.read_back("h2", program=old)
        time.sleep(0.1)
        assert again.program.generation == target - 1
    finally:
        again.close()
