"""The file of lists beside a filter: what is in it, when it is written, and what becomes of it in foreign hands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from enforce.contract_filters import POLICIES
from hypothesis import HealthCheck, given, settings
from strategies import policies

from orchestrator.compile.filters.clusterlists import LISTS, OPERATOR, cluster_rows, list_row, write_rules
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.enforce import gap
from orchestrator.enforce.agent import close_if_bare
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.filters.driver import FilterDriver
from orchestrator.enforce.drivers.filters.listsfile import NO_LISTS, WithListsFile
from orchestrator.enforce.drivers.nftables.fake import FakeNft
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.errors import BadPolicy, Missing, Refused
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import TCP
from orchestrator.program.delta import Delta
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.statesync.lists import Lists, read_lists
from orchestrator.wire.firewalls import Plane

WHOLE, LESS = POLICIES["whole"], POLICIES["without a rule"]


def program(policy: Policy, generation: int = 7, *, shared: bool = True) -> Program:
    lists = policy if shared else None
    return filter_program(policy, [Plane.NFTABLES], domain="pop1", generation=generation, lists=lists)


class Filter:
    """A filter with a file, and what there was in the file when the filter changed."""

    def __init__(self, folder: Path) -> None:
        self.machine, self.file = FakeNft(), folder / "lists.json"
        self.inner = nftables_driver(self.machine.run)
        self.seen: list[tuple[int, int] | None] = []
        apply = self.inner.apply

        def watched(delta: Delta, stamp: Stamp) -> None:
            self.seen.append(self.mark())
            apply(delta, stamp)

        self.inner.apply = watched  # type: ignore[method-assign]
        self.device = WithListsFile(self.inner, self.file)

    def mark(self) -> tuple[int, int] | None:
        """The generation in the file, and which file it is."""
        if not self.file.exists():
            return None
        return int(json.loads(self.file.read_text())["generation"]), self.file.stat().st_ino

    def bring(self, wanted: Program) -> None:
        """What the loop does from whatever the device holds."""
        self.device.apply(gap.correction(self.device.observe(), wanted, self.device.resolve), gap.stamp_of(wanted))

    def is_at(self, wanted: Program) -> bool:
        rows = self.device.resolve(wanted.flows, ())
        return gap.mismatch(self.device.observe(), rows, gap.stamp_of(wanted)) is None


@pytest.fixture
def filtered(tmp_path: Path) -> Filter:
    return Filter(tmp_path)


def assert_is_of(lists: Lists, policy: Policy, generation: int) -> None:
    assert lists.generation == generation
    assert lists.operator == tuple(replace(rule, stateless=False) for rule in policy.operator)
    found = {each.prefixes: each.acl for each in lists.tenants}
    assert found == {each.prefixes: without_marks(each.acl) for each in policy.tenants}


def without_marks(acl: Acl) -> Acl:
    return replace(acl, rules=tuple(replace(rule, stateless=False) for rule in acl.rules))


@pytest.mark.parametrize("name", POLICIES)
def test_the_file_says_what_the_filter_was_compiled_from(filtered: Filter, name: str) -> None:
    wanted = program(POLICIES[name])
    filtered.bring(wanted)
    assert filtered.is_at(wanted)
    assert_is_of(read_lists(filtered.file), POLICIES[name], 7)
    assert filtered.file.stat().st_mode & 0o777 == 0o640


def without_dscp(policy: Policy) -> Policy:
    """The policy without what is refused where connections are shared."""

    def strip(rules: Sequence[Rule]) -> tuple[Rule, ...]:
        return tuple(replace(rule, dscp=None) for rule in rules)

    tenants = (replace(each, acl=replace(each.acl, rules=strip(each.acl.rules))) for each in policy.tenants)
    return replace(policy, operator=strip(policy.operator), tenants=tuple(tenants))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies(max_tenants=3, max_rules=6).map(without_dscp))
def test_every_list_is_read_back_as_it_was_written(tmp_path: Path, policy: Policy) -> None:
    file = tmp_path / "lists.json"
    file.unlink(missing_ok=True)
    device = WithListsFile(nftables_driver(FakeNft().run), file)
    wanted = Program.of("pop1", Tier.SERVER, 3, FlowTable.of(cluster_rows(policy)), ())
    device.apply(gap.correction(device.observe(), wanted, device.resolve), gap.stamp_of(wanted))
    assert gap.mismatch(device.observe(), device.resolve(wanted.flows, ()), gap.stamp_of(wanted)) is None
    assert_is_of(read_lists(file), policy, 3)


def test_lists_are_written_before_the_filter_changes_and_once_more_behind_it(filtered: Filter) -> None:
    """A connection that began before the filter had changed is looked at by the second file."""
    filtered.bring(program(WHOLE, 7))
    filtered.bring(program(LESS, 8))
    during, after = filtered.seen[-1], filtered.mark()
    assert during is not None
    assert after is not None
    assert (during[0], after[0]) == (8, 8)
    assert during != after


def test_a_generation_without_a_change_is_written_once(filtered: Filter) -> None:
    """Members compare generations, so all have to come to the newest one."""
    filtered.bring(program(WHOLE, 7))
    filtered.bring(program(WHOLE, 8))
    assert filtered.seen[-1] == filtered.mark()
    assert read_lists(filtered.file).generation == 8


def test_a_small_change_reaches_the_file(filtered: Filter) -> None:
    before, after = program(WHOLE, 7), program(LESS, 8)
    filtered.bring(before)
    delta = gap.step(before, after, (), filtered.device.resolve)
    assert set(delta.added.table.tolist()) >= {LISTS}
    filtered.device.apply(delta, gap.stamp_of(after))
    assert filtered.is_at(after)
    assert_is_of(read_lists(filtered.file), LESS, 8)


def test_a_filter_that_refuses_is_tried_again_with_its_lists(filtered: Filter) -> None:
    filtered.bring(program(WHOLE, 7))
    filtered.machine.fails += ["no"] * 2
    with pytest.raises(Refused):
        filtered.bring(program(LESS, 8))
    assert not filtered.is_at(program(WHOLE, 7)), "the file is of another generation than the filter"
    filtered.bring(program(LESS, 8))
    assert filtered.is_at(program(LESS, 8))
    assert_is_of(read_lists(filtered.file), LESS, 8)


def edited(text: str) -> str:
    return text.replace('"permit"', '"deny"', 1)


@pytest.mark.parametrize(
    "spoil", [lambda _: "", lambda text: text[: len(text) // 2], lambda _: "[]", lambda _: '{"generation":7}', edited,
              lambda text: text.replace('"generation":7', '"generation":6')],
)  # fmt: skip
def test_what_somebody_did_to_the_file_is_put_right(filtered: Filter, spoil: Callable[[str], str]) -> None:
    wanted = program(WHOLE)
    filtered.bring(wanted)
    filtered.file.write_text(spoil(filtered.file.read_text()))
    assert not filtered.is_at(wanted)
    filtered.bring(wanted)
    assert filtered.is_at(wanted)
    assert_is_of(read_lists(filtered.file), WHOLE, 7)


def test_a_file_that_is_gone_comes_again(filtered: Filter) -> None:
    wanted = program(WHOLE)
    filtered.bring(wanted)
    filtered.file.unlink()
    assert not filtered.is_at(wanted)
    filtered.bring(wanted)
    assert filtered.is_at(wanted)


def test_where_no_file_can_be_written_the_filter_changes_all_the_same(tmp_path: Path) -> None:
    """It denies packets, which is more urgent than to close connections. The step fails, so that it is tried again."""
    filtered = Filter(tmp_path / "nowhere")
    with pytest.raises(Missing, match=r"lists\.json"):
        filtered.bring(program(WHOLE, 7))
    stamp = filtered.inner.observe().stamp
    assert stamp is not None
    assert stamp.generation == 7
    assert not filtered.is_at(program(WHOLE, 7))
    filtered.file.parent.mkdir()
    filtered.bring(program(WHOLE, 7))
    assert filtered.is_at(program(WHOLE, 7))


def test_without_lists_there_is_no_file_and_it_is_said(filtered: Filter) -> None:
    close_if_bare(filtered.device, "pop1")
    assert not filtered.file.exists()
    filtered.bring(program(WHOLE, 7))
    assert filtered.device.trouble() is None
    filtered.bring(program(WHOLE, 8, shared=False))
    assert filtered.is_at(program(WHOLE, 8, shared=False))
    assert not filtered.file.exists()
    assert filtered.device.trouble() == NO_LISTS


def test_a_filter_alone_passes_over_lists() -> None:
    driver = nftables_driver(FakeNft().run)
    assert isinstance(driver, FilterDriver)
    assert LISTS not in driver.resolve(program(WHOLE).flows, ()).table.tolist()


# ----------------------------------------------------------------------------------------------------------- the rows


def test_a_row_of_rules_has_a_line_for_each() -> None:
    """So that edits of a program carry the rule that changed."""
    lines = write_rules([{"id": "a", "action": "permit"}, {"id": "b", "action": "deny", "stateless": True}])
    assert lines == '[\n{"id":"a","action":"permit"},\n{"id":"b","action":"deny"}\n]'
    assert list_row(OPERATOR, lines).match == b"operator"


FAST = Rule(RuleId("fast"), Action.PERMIT, protocol=TCP, stateless=True)
MARKED = Rule(RuleId("marked"), Action.PERMIT, protocol=TCP, dscp=1 << 46)


def with_rule(rule: Rule, returns: ReturnTraffic) -> Policy:
    tenant = replace(WHOLE.tenants[0], acl=Acl((rule,)), rule_numbers={rule.id: 1})
    return Policy((tenant,), return_traffic=returns)


def test_a_stateless_rule_is_refused_where_connections_are_tracked() -> None:
    with pytest.raises(BadPolicy) as refused:
        list(cluster_rows(with_rule(FAST, ReturnTraffic.TRACKED)))
    assert refused.value.place == "tenants[shop].acl.rules[0]"
    texts = [row.instructions for row in cluster_rows(with_rule(FAST, ReturnTraffic.ESTABLISHED))]
    assert any(b'"fast"' in text for text in texts)
    assert not any(b"stateless" in text for text in texts)


@pytest.mark.parametrize("returns", ReturnTraffic)
def test_a_rule_about_dscp_is_refused(returns: ReturnTraffic) -> None:
    with pytest.raises(BadPolicy, match="marked") as refused:
        list(cluster_rows(with_rule(MARKED, returns)))
    assert refused.value.place == "tenants[shop].acl.rules[0]"
