"""What ended long ago costs nothing: the same work on a list of ten versions and of two hundred takes as many steps.

Counted in the steps of SQLite's machine, which are the same in every run. Every version of the history is a list with
no rule, group or member in common with the one before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from store.scenes import group, populate, prefix, rule
from store.steps import ticking

from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, GroupName, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import open_store
from orchestrator.store.hits.hitrecords import HitOrder
from orchestrator.store.unit import Unit

SHORT, LONG = 10, 200
GROUPS, MEMBERS, RULES = 3, 10, 20
NEWEST, NEXT = 5_000, 5_001

Work = Callable[[Unit], object]


def full(number: int) -> Acl:
    """A list that has nothing in common with that of another number."""
    groups = {}
    for at in range(1, GROUPS + 1):
        members = tuple(Prefix(Family.IPV4, (at << 24) + (number << 8) + 2 * index, 32) for index in range(MEMBERS))
        groups[GroupName(f"group-{at}")] = AddressGroup(GroupName(f"group-{at}"), members, f"of {number}")
    rules = [
        Rule(
            RuleId(f"rule-{index}"),
            Action.PERMIT,
            protocol=TCP,
            source=Addresses(groups=(GroupName(f"group-{1 + index % GROUPS}"),)),
            destination_ports=(PortRange(1 + number, 100 + number + index),),
        )
        for index in range(RULES)
    ]
    return Acl(tuple(rules), groups)


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Databases whose list has had few versions, and many; the newest is the same."""
    short, long = (tmp_path_factory.mktemp("history") / "store.db" for _ in range(2))
    return filled(short, SHORT), filled(long, LONG)


def filled(path: Path, versions: int) -> Path:
    with closing(open_store(f"sqlite:///{path}")) as store:
        populate(store)
        for number in [*range(versions), NEWEST]:
            for each in (Acl(), full(number)):
                with store.write() as unit:
                    unit.acls.replace("blue", each, author="me")
    return path


def costs(path: Path, folder: Path, work: Work) -> tuple[int, int, int]:
    """Ticks of a change; of another process' next look, which knows the list before it; and of one that knows none."""
    copy = folder / f"{path.parent.name}.db"
    shutil.copyfile(path, copy)
    with ticking(copy) as (store, changing), ticking(copy) as (other, following):
        for each in (store, other):
            with each.read() as unit:
                unit.domains.policy("pop")
        changing[0] = following[0] = 0
        with store.write() as unit:
            work(unit)
        with other.read() as unit:
            unit.domains.policy("pop")
        with ticking(copy) as (stranger, reading):
            with stranger.read() as unit:
                unit.domains.policy("pop")
            return changing[0], following[0], reading[0]


CHANGES: dict[str, Work] = {
    "a rule more": lambda unit: unit.acls.insert_rule("blue", rule("new"), position=9, author="me"),
    "a rule moved": lambda unit: unit.acls.move_rule("blue", "rule-3", position=9, author="me"),
    "a rule edited": lambda unit: unit.acls.put_rule("blue", rule("rule-3"), author="me"),
    "a rule less": lambda unit: unit.acls.delete_rule("blue", "rule-3", author="me"),
    "a group more": lambda unit: unit.groups.put("blue", group("new", "10.3.0.1/32"), author="me"),
    "a group written": lambda unit: unit.groups.put("blue", group("group-1", "10.3.0.1/32"), author="me"),
    "members changed": lambda unit: unit.groups.change(
        "blue", "group-1", add=[prefix("10.9.0.1/32")], remove=[full(NEWEST).groups[GroupName("group-1")].prefixes[2]],
        author="me",
    ),
    "another list": lambda unit: unit.acls.replace("blue", full(NEXT), author="me"),
    "half of the list": lambda unit: unit.acls.replace(
        "blue", Acl(full(NEWEST).rules[: RULES // 2], full(NEWEST).groups), author="me"
    ),
    "no list": lambda unit: unit.acls.replace("blue", Acl(), author="me"),
}  # fmt: skip

LOOKS: dict[str, Work] = {
    "the version before": lambda unit: unit.acls.at("blue", unit.acls.version("blue") - 2),
    "the newest versions": lambda unit: unit.acls.versions("blue", limit=5),
    "one rule": lambda unit: unit.acls.rule("blue", "rule-3"),
    "what changed lately": lambda unit: unit.acls.changed_between(
        "pop", unit.domains.get("pop").generation - 3, unit.domains.get("pop").generation, most=5
    ),
    "the version in force": lambda unit: unit.acls.in_force("blue", unit.domains.get("pop").generation),
    "what expires": lambda unit: (unit.expiry.next_due(), unit.expiry.overdue()),
    "the groups": lambda unit: unit.groups.list("blue"),
    "what rules decided": lambda unit: unit.hits.totals("blue"),
    "the first rules of the domain": lambda unit: unit.hits.first_rules("pop", HitOrder.RATE, limit=5),
    "how many rules there are": lambda unit: unit.hits.count_rules("pop"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_costs_no_more_after_many_versions(histories: tuple[Path, Path], tmp_path: Path, change: str) -> None:
    few, many = (costs(path, tmp_path, CHANGES[change]) for path in histories)
    assert few[0] > 0
    assert few[2] > 0
    assert all(late <= 1.1 * early + 2 for early, late in zip(few, many, strict=True)), (few, many)


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_costs_no_more_after_many_versions(histories: tuple[Path, Path], look: str) -> None:
    found = []
    for path in histories:
        with ticking(path) as (store, ticks):
            with store.read() as unit:
                assert LOOKS[look](unit) is not None
            found.append(ticks[0])
    few, many = found
    assert many <= 1.1 * few + 2, (few, many)
