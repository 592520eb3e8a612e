"""Intersection first, where rules change places, ends or lists that are long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from mixed_policies import (
    HIGHEST,
    deny,
    leaks,
    packets_of,
    passes,
    policy_with,
    step,
    too_large,
    with_list,
)
from strategies import policies

from orchestrator.policy import intersection, laid, listmoves
from orchestrator.policy.intersection import withheld
from orchestrator.policy.listed import Listed
from orchestrator.policy.listmoves import Comparisons
from orchestrator.policy.model import (
    Acl,
    Direction,
    Policy,
    Rule,
    RuleId,
)
from orchestrator.policy.narrowing import Narrowings, Withheld, narrow
from orchestrator.policy.oracle import Action


@pytest.mark.parametrize("many", [0, 8])
@pytest.mark.parametrize("opening", Direction)
@given(base=policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=3)
def test_rules_that_move_from_one_end_to_the_other_one_write_after_the_other(
    base: Policy, opening: Direction, many: int
) -> None:
    """One end opens with one write, the other one closes with the next; hosts may hold the list before both."""
    ends = {way: deny(way.value, 80).rules[0] for way in Direction}
    other = Direction.INGRESS if opening is Direction.EGRESS else Direction.EGRESS
    closed = policy_with(base, Acl((ends[opening], deny("ingress", 80).rules[1])))
    with_both = replace(ends[other], id=RuleId("not-in-either"))
    rules = closed.tenants[0].acl.listed.without(0)
    opened = with_list(closed, rules)
    newest = with_list(opened, rules.with_one(0, with_both))
    packets = packets_of(closed, newest)
    known, narrowings = Comparisons(), Narrowings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MANY_HELD", many)
        patch.setattr(listmoves, "find_moved", too_large)
        back = withheld([closed, opened], newest, known)
        assert {rule.direction for rules in back.rules.values() for rule in rules} == {opening}
        middle = narrow(newest, back, highest_number=HIGHEST, known=narrowings)
        assert leaks((closed, newest), (closed, newest), packets)
        assert not leaks((closed, middle), (closed, newest), packets)
        assert any(passes(middle, middle, packet) for packet in packets), "no more than these is held back"
        assert not withheld([middle], newest, known)


@given(base=policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=3)
def test_long_lists_that_turn_around_follow_their_own_intersection(base: Policy) -> None:
    """Such a list stayed held back for ever: its intersection was taken to close anything."""
    both = [deny(way, port).rules for way in ("egress", "ingress") for port in (80, 81)]
    denies = [replace(rules[0], id=RuleId(f"d{place}")) for place, rules in enumerate(both)]
    turned = [replace(rule, action=Action.PERMIT) for rule in denies]
    before = policy_with(base, Acl((denies[0], turned[1], denies[2], turned[3])))
    after = policy_with(base, Acl((turned[0], denies[1], turned[2], denies[3])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MOST_PARTS", 0)
        middle, back = step(before, after)
        assert back
        assert not withheld([middle], after)
        long = with_list(after, Listed.of(many_more(after.tenants[0].acl.rules)))
        middle = narrow(long, back, highest_number=HIGHEST)
        again = with_list(long, Listed.of(replace(rule) for rule in long.tenants[0].acl.rules))
        assert again == long
        assert not withheld([middle], again), "the same list, read again from the store"


def many_more(rules: tuple[Rule, ...]) -> Iterator[Rule]:
    yield from rules
    for number in range(100):
        yield replace(rules[number % len(rules)], id=RuleId(f"more{number}"))


@given(base=policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=3)
def test_a_tenant_keeps_nothing_back_by_what_it_calls_its_rules(base: Policy) -> None:
    """Rules of its own that are called as those that are laid on top of lists."""
    denies = [deny(way.value, 80).rules[0] for way in Direction]
    after = policy_with(base, Acl(tuple(replace(rule, id=RuleId(f"withheld-{at}")) for at, rule in enumerate(denies))))
    back = Withheld({after.tenants[0].id: tuple(denies)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MOST_PARTS", 0)
        assert not withheld([narrow(after, back, highest_number=HIGHEST)], after)


@given(base=policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=3)
def test_rules_that_change_places_are_no_few_rules_that_stay(base: Policy) -> None:
    (leaving, every), (arriving, _) = (deny(way, 80).rules for way in ("egress", "ingress"))
    arriving = replace(arriving, id=RuleId("no-in"))
    every_out = replace(every, id=RuleId("out"), direction=Direction.EGRESS)
    before = policy_with(base, Acl((leaving, every_out, every, arriving)))
    after = with_list(before, Listed.of((every_out, leaving, arriving, every)))
    packets = packets_of(before, after)
    assert leaks((before, after), (before, after), packets)
    assert not leaks((before, step(before, after)[0]), (before, after), packets)


@given(base=policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=3)
def test_what_was_held_back_opens_while_the_other_end_closes(base: Policy) -> None:
    """More was held back than had to be, and the other end closes some of it with the next write."""
    before = policy_with(base, Acl((deny("egress", 80).rules[0], deny("ingress", 80).rules[1])))
    opened = before.tenants[0].acl.listed.without(0)
    closing = [replace(deny("ingress", port).rules[0], id=RuleId(f"no{port}")) for port in (80, 81)]
    first = with_list(before, opened.with_one(0, closing[0]))
    second = with_list(first, first.tenants[0].acl.listed.with_one(0, closing[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(laid, "MOST_ENTRIES", 0)
        middle, _ = step(before, first)
        last, _ = step(middle, second)
    packets = packets_of(middle, second)
    assert leaks((middle, second), (middle, second), packets)
    assert not leaks((middle, last), (middle, second), packets)


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=5)
def test_a_deny_that_moves_between_long_lists(base: Policy) -> None:
    before, after = policy_with(base, deny("egress", 80)), policy_with(base, deny("ingress", 80))
    packets = packets_of(before, after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MOST_PARTS", 0)
        assert not leaks((before, step(before, after)[0]), (before, after), packets)


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=3)
def test_what_takes_too_many_spans_to_compare_is_held_back_whole(base: Policy) -> None:
    before, after = policy_with(base, deny("egress", 80)), policy_with(base, deny("ingress", 80))
    packets = packets_of(before, after)
    held_back = []
    for most in (intersection.MOST_SPANS, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(intersection, "MOST_SPANS", most)
            middle = step(before, after)[0]
            held_back.append(withheld([before], after))
        assert held_back[-1]
        assert not leaks((before, middle), (before, after), packets)
    assert held_back[0] != held_back[1]


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=5)
def test_long_lists_that_only_open_are_not_held_back(base: Policy) -> None:
    closed, opened = policy_with(base, Acl()), policy_with(base, Acl(deny("ingress", 80).rules[1:]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MOST_PARTS", 0)
        assert not withheld([closed], opened)
        assert not withheld([opened], closed)


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=5)
def test_a_deny_that_moves_from_one_end_to_the_other(base: Policy) -> None:
    before, after = policy_with(base, deny("egress", 80)), policy_with(base, deny("ingress", 80))
    packets = packets_of(before, after)
    assert leaks((before, after), (before, after), packets), "without the intersection it leaks"
    middle, back = step(before, after)
    assert not leaks((before, middle), (before, after), packets)
    assert {rule.direction for rules in back.rules.values() for rule in rules} == {Direction.EGRESS}  # type: ignore[attr-defined]
    permitted = [packet for packet in packets if passes(before, before, packet) and passes(after, after, packet)]
    assert permitted
    assert all(passes(middle, middle, packet) for packet in permitted), "what both permit passes all the while"


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=5)
def test_one_way_changes_need_no_intersection(base: Policy) -> None:
    closed, opened = policy_with(base, deny("ingress", 80)), policy_with(base, Acl(deny("ingress", 80).rules[1:]))
    assert not withheld([closed], opened)
    assert not withheld([opened], closed)
