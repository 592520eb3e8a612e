"""Intersection first: whatever mix of policies the switches hold, nothing passes that no policy permits."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from typing import NoReturn

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from law_examples import examples
from mixed_policies import (
    HIGHEST,
    PHASES,
    alike,
    deny,
    leaks,
    packets_of,
    passes_point,
    policy_with,
    step,
    too_large,
)
from strategies import acls, policies
from tracked_domain import SYN, trackable

from orchestrator.errors import TooLarge
from orchestrator.policy import difference, laid, listmoves
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.connections import check_trackable
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.intersection import find_step, withheld
from orchestrator.policy.listmoves import Comparisons
from orchestrator.policy.model import (
    Acl,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Tenant,
    TenantId,
    trusted_acl,
)
from orchestrator.policy.narrowing import Narrowings, Withheld, narrow
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.policy.oracle import Action, ask
from orchestrator.policy.space import Box


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4))
@pytest.mark.timeout(1200)
@settings(max_examples=examples(40), phases=PHASES)
def test_no_mix_lets_through_what_neither_policy_permits(before: Policy, other: Policy) -> None:
    after = alike(before, other)
    middle, _ = step(before, after)
    packets = packets_of(before, after, middle)
    assert not leaks((before, middle), (before, after), packets)
    assert not leaks((middle, after), (before, after), packets)
    assert not withheld([middle], after), "once the intersection is everywhere, the target may follow"


@given(policies(max_tenants=2, max_rules=3), policies(max_tenants=2, max_rules=3), policies(max_tenants=2, max_rules=3))
@settings(max_examples=examples(8, fixed=4), phases=PHASES)
def test_nor_when_switches_lag_by_more_than_one_policy(first: Policy, second: Policy, third: Policy) -> None:
    second, third = alike(first, second), alike(first, third)
    middle = narrow(third, withheld([first, second], third), highest_number=HIGHEST)
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
        patch.setattr(listmoves, "find_moved", too_large)
        middle, _ = step(before, after)
        packets = packets_of(before, after, middle)
        assert not leaks((before, middle), (before, after), packets)
    for most in (0, 4):  # all between two tenants, and what is made wider until it takes few flow entries
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(laid, "MOST_ENTRIES", most)
            assert not leaks((before, step(before, after)[0]), (before, after), packets)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4))
@settings(max_examples=12, phases=PHASES)
def test_lists_that_are_too_long_to_be_compared_leak_nothing(before: Policy, other: Policy) -> None:
    after = alike(before, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MOST_PARTS", 0)
        middle, _ = step(before, after)
        packets = packets_of(before, after, middle)
        assert not leaks((before, middle), (before, after), packets)
        assert not leaks((middle, after), (before, after), packets)
        if before.return_traffic is after.return_traffic:
            assert not withheld([middle], after), "a list of any length follows its own intersection"


SMALL_EDITS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from((0, -1)), st.randoms()), min_size=1, max_size=4)


@given(policies(max_tenants=2, max_rules=4), policies(max_tenants=2, max_rules=4), SMALL_EDITS, st.sampled_from((0, 8)))
@settings(max_examples=examples(15, fixed=6), deadline=None, phases=PHASES)
def test_nor_while_others_write_beside_what_is_held_back(
    first: Policy, other: Policy, changes: list[tuple[int, int, random.Random]], many: int
) -> None:
    """Each edit of a rule or two is published narrowed, and hosts may hold any of these."""
    newest = alike(first, other)
    known, narrowings, held = Comparisons(), Narrowings(), [first]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "MANY_HELD", many)
        for step_of in [None, *changes]:
            newest = newest if step_of is None else edited(newest, *step_of)
            back = withheld(held, newest, known)
            middle = narrow(newest, back, highest_number=HIGHEST, known=narrowings)
            assert middle == narrow(newest, back, highest_number=HIGHEST), "a memory changes nothing"
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
    numbers = {"no": 1, "all": 2}
    red, blue = (
        Tenant(TenantId(name), number, (Prefix.parse(f"10.{number}.0.0/16"),), deny("egress", 80), numbers)
        for number, name in enumerate(("red", "blue"), 1)
    )
    back, narrowings = Withheld({red.id: deny("ingress", 22).rules[:1]}), Narrowings()
    first = narrow(Policy((red, blue)), back, highest_number=HIGHEST, known=narrowings)
    changed = replace(blue, acl=deny("egress", 81))
    second = narrow(Policy((red, changed)), back, highest_number=HIGHEST, known=narrowings)
    assert second.tenants[0] is first.tenants[0]
    assert second.tenants[1] is changed
    some, more = (tuple(deny("ingress", port).rules[0] for port in range(20, most)) for most in (22, 25))
    for of_blue in (some, more):  # its numbers follow those of red's
        for of_red in (some, more, some):
            back = Withheld({red.id: of_red, blue.id: of_blue})
            assert narrow(Policy((red, blue)), back, highest_number=HIGHEST, known=narrowings) == narrow(
                Policy((red, blue)), back, highest_number=HIGHEST
            )


@given(acls(), acls(), st.sampled_from(Direction))
@settings(max_examples=examples(60))
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


def test_only_so_many_parts_of_lists_are_compared() -> None:
    """Of all lists together, however many of them change at once."""
    compared: list[int] = []

    def too_long(before: Acl, after: Acl, *_: object) -> NoReturn:
        compared.append(difference.count_parts(before) + difference.count_parts(after))
        raise TooLarge("it is not done here")

    known = Comparisons()
    known.begin(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listmoves, "find_moved", too_long)
        for number in range(1, 40):
            before, after = (crossing_ports(8, 50, flipped=flipped) for flipped in (False, True))
            tenant = Tenant(TenantId(f"t{number}"), number, (Prefix.parse(f"10.{number}.0.0/16"),), after, {})
            known.moves(before, ReturnTraffic.EXPLICIT, tenant, ReturnTraffic.EXPLICIT, Direction.INGRESS)
    assert len(compared) > 1
    assert sum(compared) <= listmoves.MOST_PARTS


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
@settings(max_examples=examples(40), deadline=None, phases=PHASES)
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


BLOCKS = tuple(f"10.{number}.0.0/16" for number in range(4))
"""Of three tenants, and one that any of them may own."""
ANY_LISTS = st.lists(st.booleans(), min_size=24, max_size=24)


def lists_with(*permits: int) -> list[bool]:
    return [place in permits for place in range(24)]


def small_policy(permits: list[bool], owner_of_last: int, returns: ReturnTraffic) -> Policy:
    """A policy of three tenants whose lists say in either direction what they do with each block."""
    says, tenants = iter(["deny", "permit"][each] for each in permits), []
    for number in range(3):
        rules = [
            {"id": f"{way}{far}", "action": next(says), "direction": way, "protocol": "tcp", end: [block]}
            for way, end in (("egress", "destination"), ("ingress", "source"))
            for far, block in enumerate(BLOCKS)
        ]
        acl = acl_from_json({"rules": rules})
        own = (BLOCKS[number], *(BLOCKS[3:] if owner_of_last == number else ()))
        numbers = RuleNumbers({rule.id: 1 + place for place, rule in enumerate(acl.rules)})
        tenants.append(Tenant(TenantId(f"t{number}"), 1 + number, tuple(map(Prefix.parse, own)), acl, numbers))
    return Policy(tuple(tenants), return_traffic=returns)


SMALL = tuple(
    Packet(Family.IPV4, source=(10 << 24) + (one << 16) + 5, destination=(10 << 24) + (other << 16) + 6, protocol=6,
           source_port=7, destination_port=8, tcp_flags=SYN)
    for one in range(4) for other in range(4)
)  # fmt: skip


@given(
    ANY_LISTS,
    ANY_LISTS,
    st.sets(st.integers(0, 23), min_size=1, max_size=3),
    st.tuples(*[st.integers(0, 3)] * 3),
    st.booleans(),
    st.booleans(),
)
@example(lists_with(1), lists_with(), {2, 12}, (3, 3, 3), False, False)  # both changed, one of them reaches the other
@example(lists_with(17), lists_with(), {15}, (2, 3, 3), False, False)  # the addresses were a tenant's long ago
@settings(max_examples=examples(150), deadline=None, phases=PHASES)
def test_a_step_leaks_nothing_that_did_not_leak_before_it(
    old: list[bool], now: list[bool], flips: set[int], owners: tuple[int, int, int], moves: bool, tracked: bool
) -> None:
    """Hosts hold what they held long ago, or what was published last; the step changes some of the tenants."""
    returns = ReturnTraffic.TRACKED if tracked else ReturnTraffic.EXPLICIT
    then = [each is not (place in flips) for place, each in enumerate(now)]
    of_target = owners[2] if moves else owners[1]
    lists = zip((old, now, then), (*owners[:2], of_target), strict=True)
    first, published, target = (small_policy(*each, returns) for each in lists)
    both = zip(published.tenants, target.tenants, strict=True)
    target = replace(target, tenants=tuple(one if one == other else other for one, other in both))
    known = Comparisons()
    back = withheld([first, published], target, known, find_step(published, target, known))
    middle = narrow(target, back, highest_number=HIGHEST)
    leaking = tracked_leaks if tracked else leaks
    packets = (*SMALL, *map(answered, SMALL))
    for packet in leaking((first, middle), (first, target), packets):
        assert leaking((first, published), (first, published), (packet,)), "the step lets it through"
    assert not leaking((published, middle), (published, target), packets)
    known = Comparisons()
    assert withheld([published], target, known, find_step(published, target, known)) == withheld([published], target)


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
