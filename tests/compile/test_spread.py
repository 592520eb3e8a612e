"""The rows of a spreading program: within what its pipeline declares, and no more of them change than must."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.compile.cookies import Cookie
from orchestrator.compile.openflow import groups, oxm
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.page import spread_page
from orchestrator.compile.pipelines.spread import SPREAD_REGISTERS, SPREAD_STAGES, SpreadTable
from orchestrator.compile.spreadprogram import Member, MemberState, Side, Spread, spread_program
from orchestrator.errors import BadInput
from orchestrator.program.delta import between
from orchestrator.program.flows import GROUPS, SYMBOL_BASE, Flow
from orchestrator.program.program import Program, Tier
from orchestrator.program.wire import decode_delta, decode_program, encode_delta, encode_program
from orchestrator.scaling.buckets import BUCKETS, NOBODY, Owners, assign, count_moved

STAGE_OF = {stage.table: stage for stage in SPREAD_STAGES}
SUBSETS = st.sets(st.integers(0, 5))


def member(number: int, state: MemberState = MemberState.SERVING) -> Member:
    sides = Side(f"l{number}", 2 * number + 1), Side(f"r{number}", 2 * number + 2)
    return Member(f"fw{number}", number, *sides, state)


def spread(serving: set[int], draining: set[int], before: Owners, *, stateful: bool) -> Spread:
    members = (*map(member, sorted(serving)), *(member(each, MemberState.DRAINING) for each in sorted(draining)))
    owners = assign(before, {f"fw{number}": 1.0 for number in serving})
    return Spread(members, owners, stateful)


def program(wanted: Spread, generation: int = 1) -> Program:
    return spread_program(wanted, domain="shop", generation=generation)


@settings(max_examples=examples(25))
@given(SUBSETS, SUBSETS, SUBSETS, st.booleans())
def test_rows_keep_to_the_declaration(before: set[int], serving: set[int], draining: set[int], stateful: bool) -> None:
    old = spread(before, set(), NOBODY, stateful=stateful)
    made = program(spread(serving, draining - serving, old.owners, stateful=stateful))
    assert made.tier is Tier.SPREAD
    assert len({flow.key for flow in made.flows.rows()}) == len(made.flows)
    assert decode_program(encode_program(made)).digest == made.blocks.digest(made.ports)
    for row in made.flows.rows():
        cookie = Cookie.unpack(row.cookie)
        assert cookie is not None
        assert cookie.tier is Tier.SPREAD
        if row.table != GROUPS:
            stage = STAGE_OF[SpreadTable(row.table)]
            assert {term.field for term in oxm.unpack(row.match)} <= set(stage.looks_at)
            following = _goto(row)
            assert following is None or following in stage.goes_to


def _goto(row: Flow) -> int | None:
    at = 0
    while at < len(row.instructions):
        kind, length = struct.unpack_from("!HH", row.instructions, at)
        if kind == 1:
            return row.instructions[at + 4]
        at += length
    return None


def test_the_page_is_current() -> None:
    assert (Path(__file__).parents[2] / "docs" / "spread-pipeline.md").read_text() == spread_page()


def test_registers_are_told_apart() -> None:
    assert len({register.field for register in SPREAD_REGISTERS}) == len(SPREAD_REGISTERS)


@given(SUBSETS.filter(bool), SUBSETS.filter(bool))
@settings(max_examples=examples(25))
def test_of_a_stateful_spread_only_rows_of_buckets_that_move_change(old: set[int], new: set[int]) -> None:
    everybody = old | new
    before = spread(old, everybody - old, NOBODY, stateful=False)
    after = spread(new, everybody - new, before.owners, stateful=False)
    one, two = (program(Spread(member_of(everybody, each), each.owners, stateful=True)) for each in (before, after))
    delta = between(one, two)
    assert {row.table for row in delta.added.rows()} <= {SpreadTable.OWNERS}
    assert len(delta.added) == len(delta.removed) == count_moved(before.owners, after.owners)
    assert len(decode_delta(encode_delta(delta)).added) == len(delta.added)


def member_of(everybody: set[int], wanted: Spread) -> tuple[Member, ...]:
    """All of them, so that nothing but owners differs."""
    serves = {each.name for each in wanted.members if each.state is MemberState.SERVING}
    states = {True: MemberState.SERVING, False: MemberState.DRAINING}
    return tuple(member(number, states[f"fw{number}" in serves]) for number in sorted(everybody))


def test_of_a_stateless_spread_the_two_groups_change() -> None:
    members = (member(0), member(1))
    owners = assign(NOBODY, {"fw0": 1.0, "fw1": 1.0})
    swapped = tuple({"fw0": "fw1", "fw1": "fw0"}[str(owner)] for owner in owners)
    delta = between(program(Spread(members, owners)), program(Spread(members, swapped)))
    assert [row.table for row in delta.added.rows()] == [GROUPS, GROUPS]


def test_a_group_has_256_buckets_whoever_owns_them() -> None:
    for owners in (NOBODY, assign(NOBODY, {"fw0": 1.0})):
        for row in program(Spread((member(0),), owners)).flows.rows():
            if row.table == GROUPS:
                _, buckets, _ = groups.split_group(row.instructions)
                assert [number for number, _, _ in groups.each_watched_bucket(buckets)] == list(range(BUCKETS))
                assert all(
                    bool(actions) is (owners is not NOBODY) for _, actions, _ in groups.each_watched_bucket(buckets)
                )


def test_a_synchronised_spread_watches_each_owners_port_and_hashes_both_directions_alike() -> None:
    members = (member(0), member(1))
    owners = assign(NOBODY, {"fw0": 1.0, "fw1": 1.0})
    made = program(Spread(members, owners, stateful=True, synchronised=True))
    plain = program(Spread(members, owners))
    assert {row.table for row in made.flows.rows()} == {row.table for row in plain.flows.rows()}, "no marks"
    symbol = {name: number for number, name in enumerate(made.ports, SYMBOL_BASE) if name}
    rows = [row for row in made.flows.rows() if row.table == GROUPS]
    for row, side in zip(rows, ("left", "right"), strict=True):
        _, buckets, properties = groups.split_group(row.instructions)
        assert properties == groups.dp_hash(symmetric=True)
        ports = {each.name: symbol[getattr(each, side).port] for each in members}
        watched = [watch for _, _, watch in groups.each_watched_bucket(buckets)]
        assert watched == [ports[str(owner)] for owner in owners]


def in_networks(*numbers: int) -> tuple[Member, ...]:
    """Firewalls in a network on either side, one port to each."""
    return tuple(Member(f"fw{each}", each, Side("left", 2 * each + 1), Side("right", 2 * each + 2)) for each in numbers)


def admissions(made: Program, *ports: str) -> list[dict[object, int]]:
    """What rows of `admission` about some ports look at."""
    symbol = {name: number for number, name in enumerate(made.ports, SYMBOL_BASE) if name}
    found = ({term.field: term.value for term in oxm.unpack(row.match)} for row in made.flows.rows()
             if row.table == SpreadTable.ADMISSION)  # fmt: skip
    return [each for each in found if each[oxm.IN_PORT] in {symbol[port] for port in ports}]


@pytest.mark.parametrize("stateful", [False, True])
def test_of_firewalls_behind_one_port_each_has_a_way_back_by_its_mac_address(stateful: bool) -> None:
    owners = assign(NOBODY, {"fw0": 1.0, "fw1": 1.0})
    made = program(Spread(in_networks(0, 1), owners, stateful))
    assert len({flow.key for flow in made.flows.rows()}) == len(made.flows)
    back = admissions(made, "left", "right")
    assert len(back) == 2 * 2 * 2, "each firewall, side and IP version"
    assert {each[oxm.ETH_DST] for each in back} == {GATEWAY_MAC}
    assert {each[oxm.ETH_SRC] for each in back} == {1, 2, 3, 4}


def test_a_firewall_with_a_link_of_its_own_is_told_by_the_port() -> None:
    made = program(Spread((member(0),), NOBODY))
    assert all(oxm.ETH_SRC not in each for each in admissions(made, "l0", "r0"))


def test_a_firewall_that_joins_a_network_changes_no_others_way_back() -> None:
    owners = assign(NOBODY, {"fw0": 1.0, "fw1": 1.0})
    two, three = (program(Spread(in_networks(*range(count)), owners, stateful=True)) for count in (2, 3))
    assert not len(between(two, three).removed)


def test_links_that_the_switch_could_not_tell_apart_are_refused() -> None:
    one, two = in_networks(0, 1)
    twin = Member("fw1", 1, one.left, two.right)
    crossed = Member("fw1", 1, Side("right", 9), Side("left", 10))
    for members, said in (((one, twin), "one MAC address"), ((one, crossed), "both sides")):
        with pytest.raises(BadInput, match=said):
            Spread(members, NOBODY)
    with pytest.raises(BadInput, match="give each its own"):
        Spread((one, two), NOBODY, stateful=True, synchronised=True)


def test_what_makes_no_sense_is_refused() -> None:
    serves, drains = member(0), member(1, MemberState.DRAINING)
    for members, owners in (
        ((serves, serves), NOBODY),
        ((drains,), ("fw1",) * BUCKETS),
        ((serves,), ("nobody",) * BUCKETS),
        ((serves,), NOBODY[1:]),
    ):
        with pytest.raises(BadInput):
            Spread(members, owners, stateful=True)
    with pytest.raises(BadInput):
        Spread((serves,), NOBODY, synchronised=True)
    with pytest.raises(BadInput):
        Member("fw", -1, serves.left, serves.right)
