"""The classifier names the rules that the oracle names, at the corners of every rule, with every instruction set."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import OWNED, acls, corner_packets_of

from orchestrator.classify import _forest, grouping, search
from orchestrator.classify.columns import I32, columns
from orchestrator.classify.devices import tuples
from orchestrator.classify.listdecider import NOBODY, Deciding
from orchestrator.classify.packets import PACKET, Packets, record
from orchestrator.classify.search import IN_ORDER, WAYS, Search
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    GroupName,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.oracle import Step, ask, decide
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import Box


def records(packets: tuple[Packet, ...]) -> Packets:
    return np.array([record(packet) for packet in packets], PACKET)


@dataclass(frozen=True, slots=True)
class With:
    """A search with one instruction set."""

    search: Search
    way: str

    def first(self, packets: Packets) -> I32:
        return self.search.first(packets, self.way)


def with_only(way: str) -> Callable[[Family, Sequence[Box]], With]:
    """What makes rows ready to be asked with one instruction set."""
    return lambda family, boxes: With(Search(family, boxes), way)


def steps_of(deciding: Deciding, numbers: list[int]) -> tuple[Step, ...]:
    """What was asked, in the words of the oracle."""
    asked = [deciding.deciders[number] for number in numbers if number != NOBODY]
    tenant = TenantId("t")
    return tuple(Step(tenant, each.direction, each.action, None if each.is_default else each.id) for each in asked)


@pytest.mark.parametrize("instructions", [*WAYS, IN_ORDER])
@settings(deadline=None, max_examples=examples(50))
@given(acl=acls(), returns=st.sampled_from(list(ReturnTraffic)))
def test_a_tenants_list_decides_as_the_oracle_says(instructions: str, acl: Acl, returns: ReturnTraffic) -> None:
    packets = corner_packets_of(acl)
    deciding = Deciding(acl, own=OWNED, returns=returns, searching=with_only(instructions))
    verdicts = deciding.verdicts(records(packets))
    policy = Policy((Tenant(TenantId("t"), 1, OWNED, acl),), return_traffic=returns)
    for packet, *numbers in zip(packets, verdicts.let_out.tolist(), verdicts.decider.tolist(), strict=True):
        assert steps_of(deciding, numbers) == decide(policy, packet).steps, packet


@pytest.mark.parametrize("instructions", [*WAYS, IN_ORDER])
@settings(deadline=None, max_examples=examples(50))
@given(acl=acls(), way=st.sampled_from(list(Direction)), returns=st.sampled_from(list(ReturnTraffic)))
def test_one_direction_decides_as_the_oracle_says(
    instructions: str, acl: Acl, way: Direction, returns: ReturnTraffic
) -> None:
    packets = corner_packets_of(acl)
    deciding = Deciding(acl, way=way, returns=returns, searching=with_only(instructions))
    found = deciding.verdicts(records(packets))
    assert set(found.let_out.tolist()) == {NOBODY}
    for packet, number in zip(packets, found.decider.tolist(), strict=True):
        assert steps_of(deciding, [number]) == (ask(acl, packet, way, returns, TenantId("t")),), packet


@settings(deadline=None, max_examples=examples(50))
@given(acl=acls())
def test_joined_intervals_decide_the_same(acl: Acl) -> None:
    """A row that may become one entry has all its intervals joined, and is checked."""
    packets = records(corner_packets_of(acl))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MOST_ENTRIES", 0)
        patch.setattr(search, "LEAST_SHARE", 1)
        few = Deciding(acl, own=OWNED).verdicts(packets)
    many = Deciding(acl, own=OWNED).verdicts(packets)
    assert few.decider.tolist() == many.decider.tolist()
    assert few.let_out.tolist() == many.let_out.tolist()


def test_large_groups_on_both_sides_cost_no_products() -> None:
    ours = AddressGroup(GroupName("ours"), tuple(Prefix(Family.IPV6, 1 << 64 | 2 * each, 128) for each in range(900)))
    theirs = AddressGroup(GroupName("theirs"), tuple(Prefix(Family.IPV6, 4 * each, 128) for each in range(700)))
    sides = Addresses((), ("theirs",)), Addresses((), ("ours",))
    ports = tuple(PortRange(port, port + 1) for port in range(0, 600, 3))
    rule = Rule(RuleId("r"), Action.PERMIT, Direction.INGRESS, TCP, *sides, ports, ports)
    acl = Acl((rule,), {"ours": ours, "theirs": theirs})
    (row,) = [box for box in boxes_of(acl) if box.protocols == 1 << TCP]
    assert len(space_of(acl).keys) == 700 + 1
    packets = tuple(
        Packet(Family.IPV6, source, 1 << 64 | destination, protocol, port, port)
        for source in (0, 3, 4, 2796, 2800) for destination in (0, 1, 1798, 1800)
        for port in (0, 2, 598, 599) for protocol in (TCP, UDP)
    )  # fmt: skip
    found = Deciding(acl).verdicts(records(packets)).decider.tolist()
    assert [number == 0 for number in found] == [row.holds(packet) for packet in packets]
    assert 0 < found.count(0) < len(found)


@pytest.mark.parametrize(
    ("altogether", "keys"),
    [
        (5 * 2 * 16 * 12, 2 * 16 * 12 + 1),
        (5 * 2 * 16 * 12 - 1, 2 * 12 + 1),
        (5 * 2 * 12, 2 * 12 + 1),
        (5 * 2 * 12 - 1, 2 + 1),
        (1, 2 + 1),
    ],
    ids=["both sides", "less than both", "the smaller side", "less than the smaller", "less than a key a row"],
)
def test_many_rules_with_the_same_groups_share_out_what_the_index_may_hold(
    altogether: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five rows, for the default has its share, too; each of the four rules names two ports."""
    monkeypatch.setattr(tuples, "MOST_ALTOGETHER", altogether)
    ours = AddressGroup(GroupName("ours"), tuple(Prefix(Family.IPV6, 1 << 64 | 2 * each, 128) for each in range(16)))
    theirs = AddressGroup(GroupName("theirs"), tuple(Prefix(Family.IPV6, 4 * each, 128) for each in range(12)))
    sides = Addresses((), ("ours",)), Addresses((), ("theirs",))
    ports = (PortRange(22, 22), PortRange(80, 80))
    rules = tuple(
        Rule(RuleId(f"r{each}"), Action.PERMIT, Direction.INGRESS, TCP, *sides, destination_ports=ports)
        for each in range(4)
    )
    assert len(space_of(Acl(rules, {"ours": ours, "theirs": theirs})).keys) == keys


def test_ranges_of_ports_are_in_the_index_where_addresses_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = AddressGroup(GroupName("ours"), tuple(Prefix(Family.IPV6, 1 << 64 | 2 * each, 128) for each in range(16)))
    theirs = AddressGroup(GroupName("theirs"), tuple(Prefix(Family.IPV6, 4 * each, 128) for each in range(12)))
    sides = Addresses((), ("ours",)), Addresses((), ("theirs",))
    blocks = {0: 4, 32: 4, 60: 6, 1023: 4}
    rules = tuple(
        Rule(RuleId(f"r{low}"), Action.PERMIT, Direction.INGRESS, TCP, *sides, EVERY_PORT, (PortRange(low, low + 50),))
        for low in blocks
    )
    acl = Acl(rules, {"ours": ours, "theirs": theirs})
    packets = tuple(
        Packet(Family.IPV6, source, destination, TCP, 7, port)
        for source in (1 << 64, 1 << 64 | 1) for destination in (4, 5)
        for port in (0, 31, 32, 50, 51, 59, 60, 82, 83, 110, 111, 1022, 1023, 1024, 1073, 1074)
    )  # fmt: skip
    wanted = Deciding(acl).verdicts(records(packets)).decider.tolist()
    monkeypatch.setattr(tuples, "MOST_ALTOGETHER", 5 * 11)
    assert len(space_of(acl).keys) == sum(blocks.values()) + 1
    assert Deciding(acl).verdicts(records(packets)).decider.tolist() == wanted
    assert set(wanted) == {0, 1, 2, 3, 4}


def test_thousands_of_own_prefixes_cost_no_room_for_each() -> None:
    """Every other address is the tenant's, on either side."""
    own = tuple(Prefix(Family.IPV4, 2 * each, 32) for each in range(1000))
    packets = np.zeros(2000, PACKET)
    packets["family"] = Family.IPV4.value
    packets["source"][:, 0] = packets["destination"][::-1, 0] = np.arange(2000, dtype=np.uint64) << np.uint64(32)
    deciding = Deciding(Acl(), own=own)
    tracemalloc.start()
    try:
        verdicts = deciding.verdicts(packets)
        assert tracemalloc.get_traced_memory()[1] < 10 * packets.nbytes
    finally:
        tracemalloc.stop()
    egress, ingress = 0, 1
    assert verdicts.decider.tolist() == [egress, ingress] * 1000


def boxes_of(acl: Acl) -> list[Box]:
    return [row.box for row in rule_rows(acl, Direction.INGRESS)[Family.IPV6]]


def space_of(acl: Acl) -> tuples.Space:
    return tuples.space(boxes_of(acl))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30))
def test_a_group_is_what_begins_alike(pairs: list[tuple[int, int]]) -> None:
    found = np.array([(one, other, place) for place, (one, other) in enumerate(pairs)], "u8,u2,u4")
    first, group = grouping.groups(found, 10)
    assert [pairs[place] for place in first.tolist()] == list(dict.fromkeys(pairs))
    assert [pairs[first[number]] for number in group.tolist()] == pairs


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    made = columns(Family.IPV6, [row.box for row in rule_rows(Acl(), Direction.INGRESS)[Family.IPV6]])
    whole = [made.rows, made.address_starts, made.addresses, made.port_starts, made.ports, made.sets]
    assert _forest.Forest(True, 1, *whole)
    for place, part in enumerate(whole):
        numbers_elsewhere = part.dtype == np.int32
        for other in (part[:0], np.full_like(part, -1)) if numbers_elsewhere else (part[:0],):
            if place:
                with pytest.raises(ValueError, match="do not fit together"):
                    _forest.Forest(True, 1, *whole[:place], other, *whole[place + 1 :])


def test_no_rows_hold_nothing() -> None:
    assert Search(Family.IPV4, []).first(np.zeros(3, PACKET)).tolist() == [-1, -1, -1]
