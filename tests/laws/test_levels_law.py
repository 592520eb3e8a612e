"""Levels: valid, as few as there can be, and the fast way agrees with the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from law_examples import examples
from references.levels import reference_levels
from strategies import acls

from orchestrator.compile import _levels
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.space import Box, boxes_of
from orchestrator.program.rules import RuleTable


def by_definition(acl: Acl) -> list[int]:
    """The level of each rule by packet-space arithmetic that shares nothing with the compiler; -1: it never matches."""
    found: list[int] = []
    boxes: list[tuple[Box, ...]] = []
    for position, rule in enumerate(acl.rules):
        boxes.append(boxes_of(rule, acl.groups))
        below = [
            found[earlier]
            for earlier in range(position)
            if acl.rules[earlier].direction is rule.direction
            and any(one.overlaps(other) for one in boxes[earlier] for other in boxes[position])
        ]
        found.append(max(below, default=-1) + 1 if boxes[position] else -1)
    return found


def per_rule(table: RuleTable, level: np.ndarray, count: int) -> list[int]:  # type: ignore[type-arg]
    found = [-1] * count
    for order, each in zip(table.order.tolist(), level.tolist(), strict=True):
        assert found[order] in (-1, each), "the atoms of a rule share its level"
        found[order] = each
    return found


@settings(max_examples=examples(120), deadline=None)
@given(acls(max_rules=10))
def test_levels_are_the_longest_paths(acl: Acl) -> None:
    table = atoms(acl.rules, acl.groups)
    fast = per_rule(table, levels(table), len(acl.rules))
    exact = by_definition(acl)
    # The definition knows that an IPv6 later fragment has protocol 44; levels compare field by field and may be deeper.
    if all(rule.fragments is False for rule in acl.rules):
        assert fast == exact
    else:
        assert all(one >= other for one, other in zip(fast, exact, strict=True) if other >= 0)


@settings(max_examples=examples(120), deadline=None)
@given(acls(max_rules=10))
def test_of_two_overlapping_rules_the_earlier_is_above(acl: Acl) -> None:
    table = atoms(acl.rules, acl.groups)
    level = per_rule(table, levels(table), len(acl.rules))
    boxes = [boxes_of(rule, acl.groups) for rule in acl.rules]
    for later, rule in enumerate(acl.rules):
        for earlier in range(later):
            if acl.rules[earlier].direction is rule.direction and any(
                one.overlaps(other) for one in boxes[earlier] for other in boxes[later]
            ):
                assert level[earlier] < level[later]


@st.composite
def rule_tables(draw: st.DrawFn) -> RuleTable:
    """Lists of several tenants, one after the other."""
    lists = draw(st.lists(acls(max_rules=8), min_size=1, max_size=4))
    return RuleTable.join_tables(
        [atoms(acl.rules, acl.groups, tenant=7 * number) for number, acl in enumerate(lists, 1)]
    )


@settings(max_examples=examples(120), deadline=None)
@given(rule_tables())
@example(RuleTable.empty())
def test_native_equals_reference(table: RuleTable) -> None:
    assert levels(table).tolist() == reference_levels(table).tolist()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(acls(max_rules=6), min_size=2, max_size=3))
def test_tenants_do_not_meet(lists: list[Acl]) -> None:
    parts = [atoms(acl.rules, acl.groups, tenant=number) for number, acl in enumerate(lists, 1)]
    together = levels(RuleTable.join_tables(parts))
    assert together.tolist() == [level for part in parts for level in levels(part).tolist()]


@pytest.mark.parametrize("sizes", [(1, 2, 4, 4, 4), (64, 1, 4, 4, 4), (64, 2, 4, 4, 8)])
def test_the_extension_refuses_columns_that_do_not_fit(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sizes do not agree"):
        _levels.levels(*(bytearray(size) for size in sizes))


def test_the_extension_refuses_positions_outside() -> None:
    with pytest.raises(ValueError, match="sizes do not agree"):
        _levels.levels(bytes(64), bytes(2), b"\1\0\0\0", bytes(4), bytearray(4))


EXAMPLE = (
    ("deny", 6, "10.0.0.0/8", 22),
    ("permit", 17, "10.1.0.0/16", None),
    ("permit", 6, "10.1.2.0/24", None),
    ("deny", None, "10.1.2.3/32", None),
    ("permit", 6, "192.0.2.0/24", 22),
    ("deny", 6, "192.0.2.0/24", None),
)


def test_the_documented_example() -> None:
    """The list of docs/levels.md, and what that page says of it after a change."""
    listed = [
        Rule(
            RuleId(f"r{number}"),
            Action(action),
            protocol=protocol,
            source=Addresses((Prefix.parse(source),)),
            destination_ports=EVERY_PORT if port is None else (PortRange(port, port),),
        )
        for number, (action, protocol, source, port) in enumerate(EXAMPLE)
    ]
    assert levels(atoms(listed, {})).tolist() == [0, 0, 1, 2, 0, 1]
    assert levels(atoms([*listed[:2], *listed[3:]], {})).tolist() == [0, 0, 1, 0, 1]
    one_more = replace(listed[4], id=RuleId("x"), source=Addresses((Prefix.parse("192.0.2.7/32"),)))
    assert levels(atoms([*listed[:4], one_more, *listed[4:]], {})).tolist() == [0, 0, 1, 2, 0, 1, 2]
