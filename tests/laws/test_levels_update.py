"""Levels and lists brought up to date are what they would be from scratch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import acls

from orchestrator.compile import levels as module
from orchestrator.compile import lists
from orchestrator.compile.atoms import atoms
from orchestrator.compile.levels import PACKED, Splice, levels, packed, updated_levels
from orchestrator.compile.lists import CompiledList
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import Flow


def tenant(acl: Acl, numbers: dict[str, int] | None = None) -> Tenant:
    named = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    return Tenant(TenantId("t"), 1, (), acl, named if numbers is None else numbers)


def rows(compiled: CompiledList) -> list[Flow]:
    return [row for piece in compiled.rows for row in piece.rows()]


@st.composite
def stories(draw: st.DrawFn) -> tuple[Tenant, ...]:
    """A list, and lists that each replace some rules in a row of the one before, at times with moved ones."""
    pool = draw(acls(max_rules=14, min_rules=4))
    fresh = [replace(rule, id=RuleId(f"x{rule.id}")) for rule in draw(acls(max_rules=6, with_groups=False)).rules]
    numbers = {rule.id: number for number, rule in enumerate((*pool.rules, *fresh), 1)}
    found = [tenant(pool, numbers)]
    for _ in range(draw(st.integers(1, 4))):
        rules = list(found[-1].acl.rules)
        start = draw(st.integers(0, len(rules)))
        stop = draw(st.integers(start, min(len(rules), start + 2)))
        free = [rule for rule in (*pool.rules, *fresh) if rule.id not in {other.id for other in rules}]
        more = draw(st.lists(st.sampled_from(free), max_size=2, unique_by=lambda rule: rule.id)) if free else []
        if stop > start and draw(st.booleans()):
            flipped = Action.DENY if rules[start].action is Action.PERMIT else Action.PERMIT
            more = [replace(rules[start], action=flipped), *more]
        rules[start:stop] = more
        found.append(replace(found[-1], acl=replace(pool, rules=tuple(rules))))
    return tuple(found)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(stories(), st.sampled_from(list(ReturnTraffic)))
def test_updated_lists_are_what_scratch_gives(story: tuple[Tenant, ...], returns: ReturnTraffic) -> None:
    check_story(story, returns)


def check_story(story: tuple[Tenant, ...], returns: ReturnTraffic) -> None:
    compiled = CompiledList.of(story[0], returns)
    for following in story[1:]:
        compiled = compiled.updated(following, returns)
        assert rows(compiled) == rows(CompiledList.of(following, returns))


def test_the_law_notices_levels_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "updated_levels", lambda atoms, rule, level, change: level)

    @settings(
        max_examples=100, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(stories())
    def law(story: tuple[Tenant, ...]) -> None:
        check_story(story, ReturnTraffic.EXPLICIT)

    with pytest.raises(AssertionError):
        law()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(min_rules=2, max_rules=6))
def test_other_numbers_groups_or_settings_start_from_scratch(acl: Acl) -> None:
    before = CompiledList.of(tenant(acl), ReturnTraffic.ESTABLISHED)
    renumbered = tenant(acl, {rule.id: number for number, rule in enumerate(acl.rules, 50)})
    regrouped = tenant(replace(acl, groups={name: replace(each, prefixes=()) for name, each in acl.groups.items()}))
    for after, returns in (
        (renumbered, ReturnTraffic.ESTABLISHED),
        (regrouped, ReturnTraffic.ESTABLISHED),
        (tenant(acl), ReturnTraffic.EXPLICIT),
        (replace(tenant(acl), number=2), ReturnTraffic.ESTABLISHED),
    ):
        assert rows(before.updated(after, returns)) == rows(CompiledList.of(after, returns))


def many_rules(count: int, seed: int) -> list[Rule]:
    """Rules of a few shapes that overlap in long chains."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        length, far = draw.choice((16, 20, 24, 28, 32)), draw.choice((0, 8, 8, 16))
        network = (0x0A000000 | draw.getrandbits(16)) >> (32 - length) << (32 - length)
        source = draw.getrandbits(far) << (32 - far) if far else 0
        low = draw.choice((0, 0, 22, 80, 443, 1024))
        ports = (PortRange(low, draw.choice((low, 65535))),)
        found.append(
            Rule(
                RuleId(f"r{number}"),
                Action.PERMIT,
                draw.choice(list(Direction)),
                TCP,
                Addresses((Prefix(Family.IPV4, source, far),)),
                Addresses((Prefix(Family.IPV4, network, length),)),
                EVERY_PORT,
                ports,
            )
        )
    return found


def followed(before: Sequence[Rule], after: Sequence[Rule], first: int, gone: int) -> np.ndarray | None:  # type: ignore[type-arg]
    """The levels of `after`, from those of `before`, from which rules `first`.. gave way."""
    old, new = atoms(before, {}), atoms(after, {})
    old_level = levels(old)
    added = gone + len(after) - len(before)
    level = np.concatenate((old_level[:first], np.zeros(added, np.int32), old_level[first + gone :]))
    change = Splice(first, added, packed(old)[first : first + gone], old_level[first : first + gone])
    return updated_levels(packed(new), new.order, level, change)


def test_long_lists_are_followed_exactly() -> None:
    """One rule gone, come, or replaced, at any place of a list with deep chains."""
    assert module._extension is not None
    draw = random.Random(7)
    rules, spare = many_rules(1000, 1), many_rules(90, 2)
    depth = int(levels(atoms(rules, {})).max())
    assert depth > 30
    followed_at_all = 0
    for number, fresh in enumerate(spare):
        first, gone = draw.randrange(len(rules)), number % 2
        come = [replace(fresh, id=RuleId(f"s{number}"))] if number % 3 else []
        after = [*rules[:first], *come, *rules[first + gone :]]
        found = followed(rules, after, first, gone)
        if found is not None:
            followed_at_all += 1
            assert found.tolist() == levels(atoms(after, {})).tolist()
        rules = after
    assert followed_at_all > 60


def test_too_many_moves_are_given_up() -> None:
    """A rule that overlaps all, put first into a list of one chain, moves every rule."""
    everything = Rule(RuleId("top"), Action.PERMIT, source=Addresses((Prefix.parse("0.0.0.0/0"),)))
    chain = [replace(everything, id=RuleId(f"r{i}")) for i in range(100)]
    assert followed(chain, [everything, *chain], 0, 0) is None


def test_without_the_extension_everything_starts_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_extension", None)
    rules = many_rules(5, 1)
    assert followed(rules, rules[:-1], 4, 1) is None


@pytest.mark.parametrize(
    ("count", "gone", "first", "added", "most"), [(3, 0, 2, 2, 16), (3, 20, 0, 0, 16), (3, 0, 2**32 - 1, 2**32 - 1, 16)]
)
def test_the_extension_refuses_what_does_not_fit(count: int, gone: int, first: int, added: int, most: int) -> None:
    assert module._extension is not None
    table, lost = np.zeros(count, PACKED), np.zeros(gone, PACKED)
    column, lost_level = np.zeros(count, np.int32), np.zeros(gone, np.int32)
    with pytest.raises(ValueError, match="sizes do not agree"):
        module._extension.relevel(table, column.astype(np.uint32), column, lost, lost_level, first, added, most)
