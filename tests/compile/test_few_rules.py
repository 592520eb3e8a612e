"""The rules of a small change, looked at one by one: the same atoms and flow entries as by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls, rules

from orchestrator.compile.conjunctions.conjunctive import Hull
from orchestrator.compile.lists import atoms as by_column
from orchestrator.compile.lists import lists
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.lists import INGRESS_STAGE, OPERATOR_STAGE
from orchestrator.compile.lists.pieces import NO_LEVEL
from orchestrator.compile.lists.steps import Labelled
from orchestrator.compile.openflow import encoder as openflow
from orchestrator.compile.openflow import fewrules
from orchestrator.errors import TooLarge
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import HIGHEST_PORT, PortRange, masks
from orchestrator.policy.protocols import TCP
from orchestrator.program.rules import COLUMNS, RuleTable

STAGES = (INGRESS_STAGE, OPERATOR_STAGE)


def agree(acl: Acl, tenant: int) -> None:
    """Both ways lead to the same atoms and the same flow entries, wherever there is a short one."""
    numbers = np.arange(1, len(acl.rules) + 1, dtype=np.uint64)
    wanted = by_column.atoms_by_column(acl.rules, acl.groups, tenant, numbers)
    few = fewrules.few_atoms(acl.rules, acl.groups, tenant, numbers.tolist())
    if few is not None:
        found = fewrules.table_of(few)
        for name, kind in COLUMNS.items():
            assert getattr(found, name).dtype == kind
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist(), name
        agree_on_pieces(acl.rules, tenant, found, few)
    agree_on_flows(wanted.take(np.arange(min(len(wanted), fewrules.FEW))))


def agree_on_pieces(rules: Sequence[Rule], tenant: int, table: RuleTable, few: Sequence[fewrules.Atom]) -> None:
    """Every other rule is a hull, whose atoms have no rows."""
    listed = [Labelled(label, rule if label % 2 else hull_like(rule)) for label, rule in enumerate(rules, 7)]
    label, level = lists.label_column(listed)[table.order], np.full(len(table), NO_LEVEL, np.int32)
    wanted = lists.piece_of_table(table, label, level, [each.rule for each in listed])
    found = lists.piece_of_few(few, listed, tenant)
    assert wanted.flows.rows() == found.flows.rows()
    assert set(wanted.flows.instruction_set) <= set(found.flows.instruction_set)
    for name in ("label", "atoms", "level", "count"):
        mine, theirs = getattr(found, name), getattr(wanted, name)
        assert (mine.dtype, mine.tolist()) == (theirs.dtype, theirs.tolist()), name
    for name, column in wanted.flows.columns().items():
        if name != "instruction_set":
            assert (getattr(found.flows, name).dtype, getattr(found.flows, name).shape) == (column.dtype, column.shape)


def hull_like(rule: Rule) -> Hull:
    return Hull(**{each.name: getattr(rule, each.name) for each in fields(Rule)})


def agree_on_flows(table: RuleTable) -> None:
    masked = openflow.with_port_masks(table)
    assert fewrules.few_counts(table) == np.bincount(masked.atom, minlength=len(table)).tolist()
    for stage in STAGES:
        one, other = (way(table, stage.register) for way in (openflow.encode_few, openflow.encode_many))
        for mine, theirs in zip(one, other, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.tolist() == theirs.tolist()


@given(acls(max_rules=6), st.integers(0, 4095))
@settings(max_examples=examples(80))
def test_few_rules_are_what_they_are_by_column(acl: Acl, tenant: int) -> None:
    agree(acl, tenant)


@given(rules(), st.integers(0, 4095))
@settings(max_examples=examples(80))
def test_so_is_one(rule: Rule, tenant: int) -> None:
    agree(Acl((rule,)), tenant)


@given(st.lists(st.lists(st.integers(0, HIGHEST_PORT), min_size=2, max_size=2).map(sorted), max_size=40))
@example([[0, HIGHEST_PORT], [0, 0], [HIGHEST_PORT, HIGHEST_PORT], [1, HIGHEST_PORT - 1], [0, 1 << 15]])
def test_a_column_of_port_ranges_is_covered_as_each_is_alone(ends: list[list[int]]) -> None:
    low, high = (np.array([each[side] for each in ends], np.int64) for side in (0, 1))
    owner, pairs = openflow.port_masks(low, high)
    wanted = [(place, pair) for place, each in enumerate(ends) for pair in masks(PortRange(*each))]
    assert list(zip(owner.tolist(), map(tuple, pairs.tolist()), strict=True)) == wanted


def spoilt_fragments(real: Callable[..., int]) -> Callable[..., int]:
    return lambda rule, source, _destination: real(rule, source, source)


def spoilt_mask(real: Callable[..., bytes]) -> Callable[..., bytes]:
    return lambda field, value, mask: real(field, value, field.ones if mask else mask)


def spoilt_ports(real: Callable[..., object]) -> Callable[..., object]:
    return lambda low, high: real(low, high - 1 if high > low else high)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [("_number_fragments", spoilt_fragments), ("_masked_field", spoilt_mask), ("_make_covers", spoilt_ports)],
)
def test_the_law_notices(name: str, spoil: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewrules, name, spoil(getattr(fewrules, name)))

    @given(acls(max_rules=6), st.integers(0, 4095))
    @settings(max_examples=80, database=None, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate])
    def law(acl: Acl, tenant: int) -> None:
        agree(acl, tenant)

    with pytest.raises(AssertionError):
        law()


def test_too_many_are_left_to_the_columns() -> None:
    ports = tuple(PortRange(low, low) for low in range(1, 2 * fewrules.FEW, 2))
    wide = Rule(RuleId("wide"), Action.PERMIT, protocol=TCP, source_ports=ports, destination_ports=ports)
    assert fewrules.few_atoms((wide,), {}, 0, (1,)) is None
    assert len(atoms((wide,), {})) == 2 * len(ports) ** 2, "in both IP versions"
    assert fewrules.few_atoms((wide,) * (fewrules.FEW + 1), {}, 0, (1,) * (fewrules.FEW + 1)) is None


def test_an_error_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_column, "MOST_ATOMS", fewrules.FEW)
    ports = tuple(PortRange(low, low) for low in range(1, 11, 2))
    wide = Rule(RuleId("wide"), Action.PERMIT, protocol=TCP, source_ports=ports, destination_ports=ports)
    with pytest.raises(TooLarge, match="the list needs 50 matches") as raised:
        atoms((wide,), {})
    assert raised.value.place == "rules[0]"
