"""A domain goes over to tracking connections, and from it: replies are held until every host follows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from staging_world import HOSTS, Plant, deny_web, everywhere, planted

from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import DROP
from orchestrator.compile.openflow.tracking import State
from orchestrator.compile.pipelines.host import Table
from orchestrator.errors import BadPolicy
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import ReturnTraffic
from orchestrator.program.program import Program

SETTINGS = [
    (ReturnTraffic.ESTABLISHED, ReturnTraffic.TRACKED),
    (ReturnTraffic.EXPLICIT, ReturnTraffic.TRACKED),
    (ReturnTraffic.TRACKED, ReturnTraffic.ESTABLISHED),
    (ReturnTraffic.TRACKED, ReturnTraffic.EXPLICIT),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def plant(url: str) -> Iterator[Plant]:
    with planted(url) as made:
        yield made


def choose(plant: Plant, setting: ReturnTraffic) -> int:
    return plant.control.write(lambda unit: unit.domains.set_return_traffic("pop", setting)).generation


def begin(plant: Plant, setting: ReturnTraffic) -> None:
    """Have every host hold a list under a setting."""
    everywhere(plant, deny_web("ingress"))
    target = choose(plant, setting)
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == target)
    plant.read_back(*HOSTS)


def replies(program: Program) -> set[bool] | None:
    """Whether replies go on from the table that looks at states; None: connections are not tracked."""
    wanted = State.TRACKED | State.REPLY
    rows = [row for row in program.flows.rows() if row.table == Table.STATE]
    found = {
        row.instructions != DROP
        for row in rows
        if [(term.field, term.value) for term in oxm.unpack(row.match)] == [(oxm.CT_STATE, wanted)]
    }
    return found if rows else None


@pytest.mark.parametrize(("old", "new"), SETTINGS)
def test_replies_are_held_until_every_host_follows(plant: Plant, old: ReturnTraffic, new: ReturnTraffic) -> None:
    begin(plant, old)
    target = choose(plant, new)
    middle = plant.program
    assert (middle.generation, replies(middle)) == (target - 1, {False})
    plant.read_back("h1")
    time.sleep(0.1)
    assert plant.program is middle, "the other host may still hold the old setting"
    plant.read_back("h2")
    until(lambda: plant.program.generation == target)
    assert replies(plant.program) == ({True} if new is ReturnTraffic.TRACKED else None)


@pytest.mark.parametrize(("old", "new"), SETTINGS)
@pytest.mark.parametrize("reached", [(), ("h1",)])
def test_a_restart_in_the_middle_holds_them_on(
    plant: Plant, url: str, reached: tuple[str, ...], old: ReturnTraffic, new: ReturnTraffic
) -> None:
    begin(plant, old)
    before = plant.program
    target = choose(plant, new)
    middle = plant.program
    plant.read_back(*reached)
    plant.close()
    again = Plant(url)
    again.start()
    try:
        assert (again.program.generation, again.program.digest) == (target - 1, middle.digest)
        again.read_back("h1")
        again.read_back("h2", program=before)
        time.sleep(0.1)
        assert again.program.generation == target - 1
        again.read_back(*HOSTS)
        until(lambda: again.program.generation == target)
    finally:
        again.close()


def test_from_one_stateless_setting_to_the_other_nothing_is_held(plant: Plant) -> None:
    begin(plant, ReturnTraffic.EXPLICIT)
    before = plant.program.generation
    assert choose(plant, ReturnTraffic.ESTABLISHED) == before + 1 == plant.program.generation


def test_a_list_that_no_connection_can_be_asked_for_keeps_its_setting(plant: Plant) -> None:
    rule = {"id": "back", "action": "permit", "protocol": "tcp", "established": True}
    before = everywhere(plant, acl_from_json({"rules": [rule]}))
    with pytest.raises(BadPolicy, match="TCP flags") as refused:
        choose(plant, ReturnTraffic.TRACKED)
    assert refused.value.place == "tenants[all].acl.rules[0]"
    assert plant.program.generation == before
    assert plant.control.read(lambda unit: unit.domains.get("pop")).return_traffic is ReturnTraffic.ESTABLISHED


def test_a_change_that_closes_and_opens_in_one_direction_is_staged_where_answers_meet(plant: Plant) -> None:
    """One egress list answers what another sends: a deny that goes from requests to answers is held back in between."""
    begin(plant, ReturnTraffic.TRACKED)
    rules = [
        {"id": "no", "action": "deny", "direction": "egress", "protocol": "udp", side: 53}
        for side in ("destination_ports", "source_ports")
    ]
    lists = [acl_from_json({"rules": [rule, {"id": "in", "action": "permit"}]}) for rule in rules]
    everywhere(plant, lists[0])
    target = plant.put(lists[1])
    assert plant.program.generation == target - 1
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == target)
