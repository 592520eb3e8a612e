"""The classifier names the rules that the oracle names, for packets at the corners of every rule, in C and in NumPy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import OWNED, acls, corner_packets_of

from orchestrator.classify import grouping, search, space
from orchestrator.classify.deciding import NOBODY, Deciding
from orchestrator.classify.packets import PACKET, Packets, record
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


@contextmanager
def built(native: bool) -> Iterator[None]:
    """With the extension, or with what stands in for it."""
    if native and grouping.extension is None:
        pytest.skip("the extension was not built")
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(grouping, "extension", None)
            patch.setattr(search, "extension", None)
        yield


def records(packets: tuple[Packet, ...]) -> Packets:
    return np.array([record(packet) for packet in packets], PACKET)


def steps_of(deciding: Deciding, numbers: list[int]) -> tuple[Step, ...]:
    """What was asked, in the words of the oracle."""
    asked = [deciding.deciders[number] for number in numbers if number != NOBODY]
    tenant = TenantId("t")
    return tuple(Step(tenant, each.direction, each.action, None if each.is_default else each.id) for each in asked)


@pytest.mark.parametrize("native", [True, False])
@settings(deadline=None, max_examples=50)
@given(acl=acls(), returns=st.sampled_from(list(ReturnTraffic)))
def test_a_tenants_list_decides_as_the_oracle_says(native: bool, acl: Acl, returns: ReturnTraffic) -> None:
    packets = corner_packets_of(acl)
    with built(native):
        deciding = Deciding(acl, own=OWNED, returns=returns)
        verdicts = deciding.verdicts(records(packets))
    policy = Policy((Tenant(TenantId("t"), 1, OWNED, acl),), return_traffic=returns)
    for packet, *numbers in zip(packets, verdicts.let_out.tolist(), verdicts.decider.tolist(), strict=True):
        assert steps_of(deciding, numbers) == decide(policy, packet).steps, packet


@pytest.mark.parametrize("native", [True, False])
@settings(deadline=None, max_examples=50)
@given(acl=acls(), way=st.sampled_from(list(Direction)), returns=st.sampled_from(list(ReturnTraffic)))
def test_one_direction_decides_as_the_oracle_says(
    native: bool, acl: Acl, way: Direction, returns: ReturnTraffic
) -> None:
    packets = corner_packets_of(acl)
    with built(native):
        deciding = Deciding(acl, way=way, returns=returns)
        found = deciding.verdicts(records(packets))
    assert set(found.let_out.tolist()) == {NOBODY}
    for packet, number in zip(packets, found.decider.tolist(), strict=True):
        assert steps_of(deciding, [number]) == (ask(acl, packet, way, returns, TenantId("t")),), packet


@settings(deadline=None, max_examples=50)
@given(acl=acls())
def test_an_index_that_leaves_out_all_it_can_decides_the_same(acl: Acl) -> None:
    packets = records(corner_packets_of(acl))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "MOST_KEYS", 1)
        patch.setattr(space, "MOST_ALTOGETHER", 1)
        patch.setattr(space, "MOST_PORTS", 0)
        few = Deciding(acl, own=OWNED).verdicts(packets)
    many = Deciding(acl, own=OWNED).verdicts(packets)
    assert few.decider.tolist() == many.decider.tolist()
    assert few.let_out.tolist() == many.let_out.tolist()


@pytest.mark.parametrize(
    ("destinations", "first"),
    [
        (("198.51.100.1/32", "198.51.100.0/24", "198.51.100.7/32"), 1),
        (("198.51.100.7/32", "198.51.100.0/24", "203.0.0.0/16", "198.51.100.1/32"), 0),
    ],
)
def test_a_shape_is_asked_while_it_may_have_an_earlier_row(destinations: tuple[str, ...], first: int) -> None:
    """What the shape of the lowest row finds may stand just behind a row of the next; and rows of one lie apart."""
    rules = tuple(
        Rule(RuleId(f"r{place}"), Action.PERMIT, destination=Addresses((Prefix.parse(text),)))
        for place, text in enumerate(destinations)
    )
    packet = Packet(Family.IPV4, 1, Prefix.parse("198.51.100.7").network, TCP)
    assert Deciding(Acl(rules)).verdicts(records((packet,))).decider.tolist() == [first]


def test_large_groups_on_both_sides_cost_no_products() -> None:
    ours = AddressGroup(GroupName("ours"), tuple(Prefix(Family.IPV6, 1 << 64 | 2 * each, 128) for each in range(900)))
    theirs = AddressGroup(GroupName("theirs"), tuple(Prefix(Family.IPV6, 4 * each, 128) for each in range(700)))
    sides = Addresses((), ("theirs",)), Addresses((), ("ours",))
    ports = tuple(PortRange(port, port + 1) for port in range(0, 600, 3))
    rule = Rule(RuleId("r"), Action.PERMIT, Direction.INGRESS, TCP, *sides, ports, ports)
    acl = Acl((rule,), {"ours": ours, "theirs": theirs})
    (row,) = [box for box in space_of(acl).boxes if box.protocols == 1 << TCP]
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
    monkeypatch.setattr(space, "MOST_ALTOGETHER", altogether)
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
    monkeypatch.setattr(space, "MOST_ALTOGETHER", 5 * 11)
    assert len(space_of(acl).keys) == sum(blocks.values()) + 1
    assert Deciding(acl).verdicts(records(packets)).decider.tolist() == wanted
    assert set(wanted) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("native", [True, False])
def test_thousands_of_own_prefixes_cost_no_room_for_each(native: bool) -> None:
    """Every other address is the tenant's, on either side."""
    own = tuple(Prefix(Family.IPV4, 2 * each, 32) for each in range(1000))
    packets = np.zeros(2000, PACKET)
    packets["family"] = Family.IPV4.value
    packets["source"][:, 0] = packets["destination"][::-1, 0] = np.arange(2000, dtype=np.uint64) << np.uint64(32)
    with built(native):
        deciding = Deciding(Acl(), own=own)
        tracemalloc.start()
        try:
            verdicts = deciding.verdicts(packets)
            assert tracemalloc.get_traced_memory()[1] < 10 * packets.nbytes
        finally:
            tracemalloc.stop()
    egress, ingress = 0, 1
    assert verdicts.decider.tolist() == [egress, ingress] * 1000


def space_of(acl: Acl) -> space.Space:
    return space.space([row.box for row in rule_rows(acl, Direction.INGRESS)[Family.IPV6]])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30))
def test_groups_are_the_same_in_c_and_in_numpy(pairs: list[tuple[int, int]]) -> None:
    found = np.array([(one, other, place) for place, (one, other) in enumerate(pairs)], "u8,u2,u4")
    first, group = grouping.groups(found, 10)
    assert [pairs[place] for place in first.tolist()] == list(dict.fromkeys(pairs))
    assert [pairs[first[number]] for number in group.tolist()] == pairs
    others = grouping.reference(found, 10)
    assert [each.tolist() for each in others] == [first.tolist(), group.tolist()]


@pytest.mark.skipif(grouping.extension is None, reason="the extension was not built")
def test_arrays_that_do_not_fit_together_are_refused() -> None:
    assert grouping.extension is not None
    made = space_of(Acl())
    rows = made.columns
    whole = [
        made.masks, made.lowest, made.shape_of, made.keys, made.starts, made.listed,
        rows.rows, rows.address_starts, rows.addresses, rows.port_starts, rows.ports, rows.sets,
    ]  # fmt: skip
    assert grouping.extension.Index(*whole)
    for place, part in enumerate(whole):
        numbers_elsewhere = part.dtype == np.int32 and part is not made.lowest
        for other in (part[:0], np.full_like(part, -1)) if numbers_elsewhere else (part[:0],):
            with pytest.raises(ValueError, match="do not fit together"):
                grouping.extension.Index(*whole[:place], other, *whole[place + 1 :])
