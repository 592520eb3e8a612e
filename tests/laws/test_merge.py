"""A merge of two edits decides each packet as the side does that changed its fate, or it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from law_examples import examples
from strategies import OWN_POOL, acls, corner_packets_of

from orchestrator.errors import ChangeTheRequest
from orchestrator.policy import oracle
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.merge import merge, take_mine
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    GroupName,
    Packet,
    ReturnTraffic,
    Rule,
    RuleId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.policy.rulechanges import list_changes


def permit(name: str, port: int, source: Addresses = ANY) -> Rule:
    ports = (PortRange(port, port),)
    return Rule(RuleId(name), Action.PERMIT, protocol=TCP, source=source, destination_ports=ports)


@st.composite
def edited(draw: DrawFn, base: Acl, side: str) -> Acl:
    """The base after a few edits by somebody."""
    acl = base
    for step in range(draw(st.integers(0, 3))):
        rules = [*acl.rules]
        what = draw(st.sampled_from(("add", "add", "remove", "replace", "move", "group", "default")))
        fresh = draw(acls(1, 1)).rules[0]
        if what == "group":
            members = draw(st.lists(st.sampled_from(OWN_POOL), max_size=2, unique=True))
            acl = replace(acl, groups={**acl.groups, "ours": AddressGroup(GroupName("ours"), tuple(members))})
            continue
        if what == "default":
            acl = replace(acl, ingress_default=draw(st.sampled_from(list(Action))))
            continue
        if what != "add" and not rules:
            continue
        place = draw(st.integers(0, len(rules) - (what != "add")))
        if what == "add":
            rules.insert(place, replace(fresh, id=RuleId(draw(st.sampled_from((f"{side}{step}", f"same{step}"))))))
        elif what == "replace":
            rules[place] = replace(fresh, id=rules[place].id)
        else:
            rule = rules.pop(place)
            if what == "move":
                rules.insert(draw(st.integers(0, len(rules))), rule)
        try:
            acl = replace(acl, rules=tuple(rules))
        except ChangeTheRequest:
            assume(False)
    return acl


def decided(acl: Acl, packet: Packet, way: Direction) -> tuple[Action, RuleId | None]:
    step = oracle.ask(acl, packet, way, ReturnTraffic.EXPLICIT)
    return step.action, step.rule


@settings(max_examples=examples(200), deadline=None)
@given(acls(6, 2), st.data())
def test_a_merged_list_decides_as_the_side_that_changed_it(base: Acl, data: st.DataObject) -> None:
    mine, theirs = data.draw(edited(base, "m")), data.draw(edited(base, "t"))
    found = merge(base, mine, theirs)
    if found.acl is None:
        assert found.conflicts
        return
    for packet in corner_packets_of(base, mine, theirs):
        for way in Direction:
            before, my, their, now = (decided(acl, packet, way) for acl in (base, mine, theirs, found.acl))
            if my == before:
                assert now == their
            elif their == before:
                assert now == my
            else:
                assert now == my == their


@settings(max_examples=examples(200), deadline=None)
@given(acls(6, 2), st.data())
def test_a_person_who_keeps_his_own_keeps_what_others_did_elsewhere(base: Acl, data: st.DataObject) -> None:
    """Mine has every rule that I touched as I wrote it; packets of untouched rules alone are decided as theirs."""
    mine, theirs = data.draw(edited(base, "m")), data.draw(edited(base, "t"))
    merged = take_mine(base, mine, theirs)
    mine_now, merged_now = ({rule.id: rule for rule in acl.rules} for acl in (mine, merged))
    for change in list_changes(base, mine).rules:
        assert merged_now.get(change.id) == mine_now.get(change.id)
    found = merge(base, mine, theirs)
    if found.acl is not None:
        assert all(
            decided(found.acl, packet, way) == decided(merged, packet, way)
            for packet in corner_packets_of(base, mine, theirs)
            for way in Direction
        )


def test_what_both_changed_is_as_i_have_it_and_the_rest_as_they_have_it() -> None:
    base = Acl((permit("web", 443), permit("ssh", 22)))
    theirs = Acl((permit("web", 445), permit("ssh", 22), permit("dns", 53)))
    merged = take_mine(base, Acl((permit("web", 444), permit("ssh", 22))), theirs)
    assert merged.rules == (permit("web", 444), permit("ssh", 22), permit("dns", 53))


def test_a_rule_keeps_the_group_that_the_other_side_removed() -> None:
    group = AddressGroup(GroupName("office"), (Prefix.parse("192.0.2.0/24"),))
    base = Acl((permit("web", 443),), {"office": group})
    mine = replace(base, rules=(*base.rules, permit("mine", 22, Addresses((), ("office",)))))
    assert take_mine(base, mine, Acl(base.rules)) == mine
    assert take_mine(base, Acl(base.rules), mine) == mine


@settings(max_examples=examples(100), deadline=None)
@given(acls(5), acls(5))
def test_one_side_alone_is_taken_as_it_is(base: Acl, changed: Acl) -> None:
    assert merge(base, changed, base).acl == changed
    assert merge(base, base, changed).acl == changed
    assert merge(base, changed, changed).acl == changed


def test_rules_that_match_the_same_packets_are_both_named() -> None:
    base = Acl((permit("web", 443),))
    mine = Acl((permit("mine", 80), *base.rules))
    theirs = Acl((*base.rules, permit("theirs", 80, Addresses((Prefix.parse("192.0.2.0/24"),)))))
    found = merge(base, mine, theirs)
    assert found.acl is None
    assert found.conflicts == ("your rule 'mine' and their rule 'theirs' match the same packets",)


def test_a_rule_that_both_changed_is_named() -> None:
    base = Acl((permit("web", 443),))
    found = merge(base, Acl((permit("web", 444),)), Acl((permit("web", 445),)))
    assert found.conflicts == ("rule 'web' was changed on both sides",)


def test_rules_stay_before_the_rule_that_they_were_put_before() -> None:
    deny = Rule(RuleId("rest"), Action.DENY)
    base = Acl((permit("web", 443), deny))
    found = merge(base, Acl((permit("web", 443), permit("a", 1), deny)), Acl((permit("b", 2), *base.rules)))
    assert found.acl is not None
    assert [rule.id for rule in found.acl.rules] == ["b", "web", "a", "rest"]


def test_a_rule_whose_group_the_other_side_removed_is_refused() -> None:
    group = AddressGroup(GroupName("office"), (Prefix.parse("192.0.2.0/24"),))
    base = Acl((permit("web", 443),), {"office": group})
    mine = replace(base, rules=(*base.rules, permit("mine", 22, Addresses((), ("office",)))))
    found = merge(base, mine, Acl(base.rules))
    assert found.acl is None
    assert "office" in found.conflicts[0]


def test_a_changed_group_touches_the_rules_that_name_it() -> None:
    office, more = (
        AddressGroup(GroupName("office"), tuple(map(Prefix.parse, members)))
        for members in (["192.0.2.0/25"], ["192.0.2.0/24"])
    )
    base = Acl((permit("ssh", 22, Addresses((), ("office",))),), {"office": office})
    theirs = replace(base, rules=(*base.rules, permit("theirs", 22, Addresses((Prefix.parse("192.0.2.200/32"),)))))
    found = merge(base, replace(base, groups={"office": more}), theirs)
    assert found.conflicts == ("your rule 'ssh' and their rule 'theirs' match the same packets",)


def test_a_rule_that_one_side_moved_is_not_moved_back() -> None:
    base = Acl((permit("one", 1), permit("two", 2), permit("three", 3)))
    moved = Acl((base.rules[2], *base.rules[:2]))
    found = merge(base, moved, Acl((*base.rules, permit("four", 4))))
    assert found.acl is not None
    assert [rule.id for rule in found.acl.rules] == ["three", "one", "two", "four"]


def test_the_same_rule_at_two_places_is_refused() -> None:
    base = Acl((permit("one", 1), Rule(RuleId("rest"), Action.DENY)))
    new = permit("new", 9)
    found = merge(base, Acl((new, *base.rules)), Acl((*base.rules, new)))
    assert found.conflicts == ("rule 'new' stands at different places on the two sides",)


def kinds(before: Sequence[Rule], after: Sequence[Rule]) -> list[tuple[str, str]]:
    return [(change.kind, change.id) for change in list_changes(Acl(tuple(before)), Acl(tuple(after))).rules]


def test_changes_of_rules_are_told_apart() -> None:
    one, two, three = (permit(name, port) for port, name in enumerate(("one", "two", "three"), 1))
    assert kinds([one, two, three], [three, one, permit("two", 9)]) == [("moved", "three"), ("changed", "two")]
    assert kinds([one, two], [two, three]) == [("removed", "one"), ("added", "three")]
    assert kinds([one, two], [one, two]) == []
