"""Intersection first: whatever mix of policies the switches hold, nothing passes that no policy permits."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import acls, policies
from tracked_domain import SYN, trackable

from orchestrator.errors import TooLarge
from orchestrator.policy import difference, intersection
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.connections import check_trackable
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.intersection import Comparisons, withheld
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import (
    Acl,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
    trusted_acl,
)
from orchestrator.policy.narrowing import Narrowings, Withheld, narrowed
from orchestrator.policy.oracle import Action, ask, matches, owner
from orchestrator.policy.space import Box

HIGHEST = 10**6
PHASES = (Phase.explicit, Phase.generate)
"""A counterexample has thousands of packets: making it smaller takes longer than reading it."""


def passes_point(policy: Policy, packet: Packet, direction: Direction) -> bool:
    """What the sender's (egress) or the receiver's switch (ingress) says of a packet between two addresses of ours."""
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    if operator is not None:
        return operator.action is Action.PERMIT
    address = packet.source if direction is Direction.EGRESS else packet.destination
    tenant = owner(policy, packet.family, address)
    return tenant is not None and ask(tenant.acl, packet, direction, policy.return_traffic).action is Action.PERMIT


def passes(sender: Policy, receiver: Policy, packet: Packet) -> bool:
    """Whether a packet passes when the sender's switch holds one policy and the receiver's another."""
    return passes_point(sender, packet, Direction.EGRESS) and passes_point(receiver, packet, Direction.INGRESS)


def leaks(policies_held: tuple[Policy, ...], allowed: tuple[Policy, ...], packets: tuple[Packet, ...]) -> list[Packet]:
    """The packets that some mix lets through and no policy of `allowed` permits."""
    return [
        packet
        for packet in packets
        if any(passes(one, other, packet) for one in policies_held for other in policies_held)
        and not any(passes(each, each, packet) for each in allowed)
    ]


def step(before: Policy, after: Policy) -> tuple[Policy, Withheld]:
    back = withheld([before], after)
    return narrowed(after, back, highest_number=HIGHEST), back


def packets_of(*several: Policy) -> tuple[Packet, ...]:
    found: dict[Packet, None] = {}
    for policy in several:
        found.update(dict.fromkeys(policy_packets(policy)))
    return tuple(
        packet
        for packet in found
        if all(owner(several[0], packet.family, end) is not None for end in (packet.source, packet.destination))
    )


def alike(before: Policy, after: Policy) -> Policy:
    """The other policy with the first one's tenants and operator, so that only lists differ."""
    lists = {tenant.id: tenant for tenant in after.tenants}
    tenants = tuple(
        replace(tenant, acl=lists[tenant.id].acl, rule_numbers=lists[tenant.id].rule_numbers)
        if tenant.id in lists
        else tenant
        for tenant in before.tenants
    )
    return replace(before, tenants=tenants, return_traffic=after.return_traffic)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4))
@settings(max_examples=40, phases=PHASES)
def test_no_mix_lets_through_what_neither_policy_permits(before: Policy, other: Policy) -> None:
    after = alike(before, other)
    middle, _ = step(before, after)
    packets = packets_of(before, after, middle)
    assert not leaks((before, middle), (before, after), packets)
    assert not leaks((middle, after), (before, after), packets)
    assert not withheld([middle], after), "once the intersection is everywhere, the target may follow"


@given(policies(max_tenants=2, max_rules=3), policies(max_tenants=2, max_rules=3), policies(max_tenants=2, max_rules=3))
@settings(max_examples=8, phases=PHASES)
def test_nor_when_switches_lag_by_more_than_one_policy(first: Policy, second: Policy, third: Policy) -> None:
    second, third = alike(first, second), alike(first, third)
    middle = narrowed(third, withheld([first, second], third), highest_number=HIGHEST)
    packets = packets_of(first, second, third, middle)
    for lagging in (first, second):
        assert not leaks((lagging, middle), (lagging, third), packets)
    assert not leaks((middle, third), (third,), packets)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4))
@settings(max_examples=8, phases=PHASES)
def test_prefixes_that_move_are_held_back_whole(before: Policy, after: Policy) -> None:
    first, *others = after.tenants
    moved = (*first.prefixes, *(prefix for tenant in others for prefix in tenant.prefixes[:1]))
    rest = tuple(replace(tenant, prefixes=tenant.prefixes[1:]) for tenant in others)
    after = replace(after, tenants=(replace(first, prefixes=moved), *rest), operator=before.operator)
    middle, _ = step(before, after)
    packets = packets_of(before, after, middle)
    assert not leaks((before, middle), (before, after), packets)
    assert not leaks((middle, after), (before, after), packets)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4))
@settings(max_examples=8, phases=PHASES)
def test_too_large_a_difference_is_held_back_whole(before: Policy, other: Policy) -> None:
    after = alike(before, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "find_moved", too_large)
        middle, _ = step(before, after)
        packets = packets_of(before, after, middle)
        assert not leaks((before, middle), (before, after), packets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "MOST_RULES", 0)
        assert not leaks((before, step(before, after)[0]), (before, after), packets)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4))
@settings(max_examples=12, phases=PHASES)
def test_lists_that_are_too_long_to_be_compared_leak_nothing(before: Policy, other: Policy) -> None:
    after = alike(before, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "MOST_PARTS", 0)
        middle, _ = step(before, after)
        packets = packets_of(before, after, middle)
        assert not leaks((before, middle), (before, after), packets)
        assert not leaks((middle, after), (before, after), packets)
        if before.return_traffic is after.return_traffic:
            assert not withheld([middle], after), "a list of any length follows its own intersection"


SMALL_EDITS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from((0, -1)), st.randoms()), min_size=1, max_size=4)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4), SMALL_EDITS, st.sampled_from((0, 8)))
@settings(max_examples=15, deadline=None, phases=PHASES)
def test_nor_while_others_write_beside_what_is_held_back(
    first: Policy, other: Policy, changes: list[tuple[int, int, random.Random]], many: int
) -> None:
    """Each edit of a rule or two is published narrowed, and hosts may hold any of these."""
    newest = alike(first, other)
    known, narrowings, held = Comparisons(), Narrowings(), [first]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "_MANY_HELD", many)
        for step_of in [None, *changes]:
            newest = newest if step_of is None else edited(newest, *step_of)
            back = withheld(held, newest, known)
            middle = narrowed(newest, back, highest_number=HIGHEST, known=narrowings)
            assert middle == narrowed(newest, back, highest_number=HIGHEST), "a memory changes nothing"
            packets = packets_of(first, newest, middle)
            for lagging in held:
                assert not leaks((lagging, middle), (lagging, newest), packets)
            held.append(middle)
        assert not withheld([middle], newest, known), "once the intersection is everywhere, the target may follow"


def edited(policy: Policy, which: int, place: int, rng: random.Random) -> Policy:
    """One rule of a tenant's list taken out, or turned around and put in again; the others stay the same objects."""
    tenants = list(policy.tenants)
    tenant = tenants[which % len(tenants)]
    rules = tenant.acl.listed
    if not len(rules):
        return policy
    rule = rules[place]
    left = rules.without(place % len(rules))
    if rng.random() < 0.7:
        action = Action.DENY if rule.action is Action.PERMIT else Action.PERMIT
        left = left.with_one(rng.randrange(len(left) + 1), replace(rule, action=action))
    acl = trusted_acl(left, tenant.acl.groups, tenant.acl.ingress_default, tenant.acl.egress_default)
    tenants[which % len(tenants)] = replace(tenant, acl=acl)
    return replace(policy, tenants=tuple(tenants))


def test_a_list_that_is_held_back_stays_the_same_object_while_others_write() -> None:
    red, blue = (Tenant(TenantId(name), number, (Prefix.parse(f"10.{number}.0.0/16"),), deny("egress", 80), NUMBERED)
                 for number, name in enumerate(("red", "blue"), 1))  # fmt: skip
    back, narrowings = Withheld({red.id: deny("ingress", 22).rules[:1]}), Narrowings()
    first = narrowed(Policy((red, blue)), back, highest_number=HIGHEST, known=narrowings)
    changed = replace(blue, acl=deny("egress", 81))
    second = narrowed(Policy((red, changed)), back, highest_number=HIGHEST, known=narrowings)
    assert second.tenants[0] is first.tenants[0]
    assert second.tenants[1] is changed
    some, more = (tuple(deny("ingress", port).rules[0] for port in range(20, most)) for most in (22, 25))
    for of_blue in (some, more):  # its numbers follow those of red's
        for of_red in (some, more, some):
            back = Withheld({red.id: of_red, blue.id: of_blue})
            assert narrowed(Policy((red, blue)), back, highest_number=HIGHEST, known=narrowings) == narrowed(
                Policy((red, blue)), back, highest_number=HIGHEST
            )


NUMBERED = {"no": 1, "all": 2}


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
        patch.setattr(intersection, "_MANY_HELD", many)
        patch.setattr(intersection, "find_moved", too_large)
        back = withheld([closed, opened], newest, known)
        assert {rule.direction for rules in back.rules.values() for rule in rules} == {opening}
        middle = narrowed(newest, back, highest_number=HIGHEST, known=narrowings)
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
        patch.setattr(intersection, "MOST_PARTS", 0)
        middle, back = step(before, after)
        assert back
        assert not withheld([middle], after)
        long = with_list(after, Listed.of(many_more(after.tenants[0].acl.rules)))
        middle = narrowed(long, back, highest_number=HIGHEST)
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
        patch.setattr(intersection, "MOST_PARTS", 0)
        assert not withheld([narrowed(after, back, highest_number=HIGHEST)], after)


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
        patch.setattr(intersection, "MOST_RULES", 0)
        middle, _ = step(before, first)
        last, _ = step(middle, second)
    packets = packets_of(middle, second)
    assert leaks((middle, second), (middle, second), packets)
    assert not leaks((middle, last), (middle, second), packets)


def with_list(policy: Policy, rules: Listed[Rule]) -> Policy:
    tenant = policy.tenants[0]
    acl = trusted_acl(rules, tenant.acl.groups, tenant.acl.ingress_default, tenant.acl.egress_default)
    numbers = {rule.id: 1 + place for place, rule in enumerate(rules)}
    return replace(policy, tenants=(replace(tenant, acl=acl, rule_numbers=numbers),))


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=5)
def test_a_deny_that_moves_between_long_lists(base: Policy) -> None:
    before, after = policy_with(base, deny("egress", 80)), policy_with(base, deny("ingress", 80))
    packets = packets_of(before, after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "MOST_PARTS", 0)
        assert not leaks((before, step(before, after)[0]), (before, after), packets)


@given(policies(max_tenants=1, max_rules=0, with_operator=False))
@settings(max_examples=5)
def test_long_lists_that_only_open_are_not_held_back(base: Policy) -> None:
    closed, opened = policy_with(base, Acl()), policy_with(base, Acl(deny("ingress", 80).rules[1:]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intersection, "MOST_PARTS", 0)
        assert not withheld([closed], opened)
        assert not withheld([opened], closed)


@given(acls(), acls(), st.sampled_from(Direction))
@settings(max_examples=60)
def test_moved_packets_are_all_that_differ(before: Acl, after: Acl, direction: Direction) -> None:
    exact = difference.difference(before, after)
    with pytest.MonkeyPatch.context() as patch:
        for most in (difference.MOST_CUTS, 0):
            patch.setattr(difference, "MOST_CUTS", most)
            moved = difference.find_moved(before, after, direction, ())
            for changes, boxes in ((exact.permitted, moved.permitted), (exact.denied, moved.denied)):
                for change in changes:
                    if change.direction is direction:
                        assert any(box.holds(change.witness) for box in boxes)
                if most:
                    assert all(
                        ask(after, box.witness(), direction, ReturnTraffic.EXPLICIT).action
                        is not ask(before, box.witness(), direction, ReturnTraffic.EXPLICIT).action
                        for box in boxes
                    ), "few rules are told exactly"


def crossing_ports(rules: int, ports: int, *, flipped: bool) -> Acl:
    """Rules of many source ports and rules of many destination ports: every pair of them shares packets."""
    made = []
    for number in range(rules):
        odd = [(number * ports + each) * 2 % 65_535 + 1 for each in range(ports)]
        side = "source_ports" if number % 2 else "destination_ports"
        action = "deny" if bool(number // 2 % 2) != flipped else "permit"
        made.append({"id": f"r{number}", "action": action, "protocol": "tcp", side: sorted(set(odd))})
    return acl_from_json({"rules": made[:: -1 if flipped else 1]})


def test_lists_cannot_ask_for_work_without_end() -> None:
    """Before there was a limit, such lists of a few hundred rules held up all writers for minutes."""
    done: list[int] = []
    cut = difference.remaining

    def counted(boxes: tuple[Box, ...], others: tuple[Box, ...]) -> tuple[Box, ...]:
        done.append(sum(map(difference.count_spans, (*boxes, *others))))
        return cut(boxes, others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difference, "remaining", counted)
        lists = (crossing_ports(40, 200, flipped=flipped) for flipped in (False, True))
        with contextlib.suppress(TooLarge):
            difference.find_moved(*lists, Direction.INGRESS, ())
    assert done
    assert sum(done) <= 2 * difference.MOST_CUTS


def too_large(*_: object, **__: object) -> None:
    raise TooLarge("too many boxes")


# ------------------------------------------------------------------------------------ where connections are tracked


def answered(packet: Packet) -> Packet:
    """The packet that this one may answer, which opened the connection."""
    ends = {"source": packet.destination, "destination": packet.source, "tcp_flags": SYN if packet.tcp_flags else 0}
    return replace(packet, **ends, source_port=packet.destination_port, destination_port=packet.source_port)


def lets(policy: Policy, packet: Packet, direction: Direction) -> bool:
    """Whether one end lets a packet by, be it as what answers a packet that the end knows."""
    if passes_point(policy, packet, direction):
        return True
    other = Direction.INGRESS if direction is Direction.EGRESS else Direction.EGRESS
    knows = policy.return_traffic is ReturnTraffic.TRACKED and not policy.holds_replies
    return knows and passes_point(policy, answered(packet), other)


def may_pass(sender: Policy, receiver: Policy, packet: Packet, held: tuple[Policy, ...]) -> bool:
    """Whether a packet may pass, whatever the ends have seen: what a sender answers, its receiver must have sent."""
    if not lets(receiver, packet, Direction.INGRESS):
        return False
    if passes_point(sender, packet, Direction.EGRESS):
        return True
    was_sent = any(passes_point(each, answered(packet), Direction.EGRESS) for each in held)
    return was_sent and lets(sender, packet, Direction.EGRESS)


def tracked_leaks(held: tuple[Policy, ...], allowed: tuple[Policy, ...], packets: tuple[Packet, ...]) -> list[Packet]:
    return [
        packet
        for packet in packets
        if any(may_pass(one, other, packet, held) for one in held for other in held)
        and not any(may_pass(each, each, packet, (each,)) for each in allowed)
    ]


SETTINGS = st.sampled_from(ReturnTraffic)


@given(
    policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4), SETTINGS, st.booleans(), st.randoms()
)
@settings(max_examples=40, deadline=None, phases=PHASES)
def test_nor_where_connections_are_tracked_before_or_after(
    before: Policy, other: Policy, setting: ReturnTraffic, to_tracked: bool, rng: random.Random
) -> None:
    after = alike(before, other)
    before = replace(trackable(before), return_traffic=setting)
    if to_tracked or setting is not ReturnTraffic.TRACKED:
        after = trackable(after)
    else:
        after = replace(after, operator=before.operator)
    middle, _ = step(before, after)
    check_trackable(middle)
    packets = packets_of(before, after, middle)
    packets = tuple(rng.sample(packets, min(len(packets), 300)))
    packets = tuple(dict.fromkeys((*packets, *map(answered, packets))))
    assert not tracked_leaks((before, middle), (before, after), packets)
    assert not tracked_leaks((middle, after), (before, after), packets)
    assert not withheld([middle], after), "once the intersection is everywhere, the target may follow"


@given(policies(max_tenants=2, max_rules=2, with_operator=False))
@settings(max_examples=4, phases=PHASES)
def test_replies_are_held_while_a_domain_begins_to_track(base: Policy) -> None:
    """One end tracks and has sent a packet that the other end refused: an answer would come in."""
    before = replace(policy_with(base, deny("ingress", 80)), return_traffic=ReturnTraffic.ESTABLISHED)
    after = replace(before, return_traffic=ReturnTraffic.TRACKED)
    middle, back = step(before, after)
    assert (back.holds_replies, back.rules) == (True, {})
    assert (middle.holds_replies, middle.return_traffic) == (True, ReturnTraffic.TRACKED)
    assert step(after, before)[1].holds_replies
    assert not withheld([middle], before)
    assert not withheld([middle], after)


# ---------------------------------------------------------------------------------------------------- by example


def deny(direction: str, port: int) -> Acl:
    return acl_from_json(
        {
            "rules": [
                {"id": "no", "action": "deny", "direction": direction, "protocol": "tcp", "destination_ports": port},
                {"id": "all", "action": "permit"},
            ]
        }
    )


def policy_with(policy: Policy, acl: Acl) -> Policy:
    numbers = {rule.id: 1 + place for place, rule in enumerate(acl.rules)}
    return replace(policy, operator=(), tenants=(replace(policy.tenants[0], acl=acl, rule_numbers=numbers),))


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
