"""Rules as conjunctions decide and count what they decide and count written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from flow_interpreter import Switch, fields_of
from hypothesis import HealthCheck, Phase, given, settings
from law_examples import examples
from strategies import acls, corner_packets_of

from orchestrator.compile.conjunctions import clauses, conjunctive
from orchestrator.compile.conjunctions.clauses import Placed, conjunctive_flows
from orchestrator.compile.conjunctions.conjunctive import Parts, hull, is_conjunctive, parts_of
from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.encoder import RuleStage
from orchestrator.compile.openflow.instructions import DROP, instructions, output
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, GroupName, Packet, ReturnTraffic, Rule
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.flows import FlowTable

STAGE = RuleStage(50, None, instructions([output(2)]), DROP)
HIGHEST = 1000


def placed_by_hulls(acl: Acl) -> list[Placed]:
    """Every rule at the priority that the levels of the hulls give it, both directions in one list."""
    sides = Sides(acl.groups)
    table = atoms([hull(rule, sides) for rule in acl.rules], acl.groups).in_one_list()
    level = levels(table)
    deepest = {int(order): int(level[table.order == order].max()) for order in table.order}
    return [Placed(rule, number, HIGHEST - deepest.get(number - 1, 0)) for number, rule in enumerate(acl.rules, 1)]


def conjunctions(acl: Acl) -> FlowTable:
    return conjunctive_flows(placed_by_hulls(acl), Sides(acl.groups), STAGE, 7)


def check(acl: Acl, flows: FlowTable) -> None:
    """Every corner packet is decided by the first rule that matches it, and the entry carries the rule's cookie."""
    one_way = replace(acl, rules=tuple(replace(rule, direction=Direction.INGRESS) for rule in acl.rules))
    switch = Switch(replace(flows, table=flows.table * 0))
    for packet in corner_packets_of(one_way):
        decision = ask(one_way, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT)
        journey = switch.send(fields_of(packet, 1, 0x02, 0x04))
        numbers = [Cookie.unpack(cookie) for cookie in journey.cookies]
        if decision.rule is None:
            assert not numbers, packet
            continue
        wanted = 1 + [rule.id for rule in one_way.rules].index(decision.rule)
        assert [(each and (each.kind, each.number)) for each in numbers] == [(Kind.RULE, wanted)], packet
        assert bool(journey.out) == (decision.action is Action.PERMIT), packet


laws = settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))


@laws
@given(acls(max_rules=5))
def test_conjunctions_decide_and_count_as_the_list_does(acl: Acl) -> None:
    check(acl, conjunctions(acl))


@laws
@given(acls(max_rules=4))
def test_source_ports_as_a_clause_of_their_own_change_nothing(acl: Acl) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conjunctive, "PORTS_WORTH", 2)
        patch.setattr(conjunctive, "GAIN", 0)
        check(acl, conjunctions(acl))


@laws
@given(acls(max_rules=5))
def test_no_two_entries_have_one_key_and_the_same_list_gives_the_same_rows(acl: Acl) -> None:
    flows = conjunctions(acl)
    assert len(set(flows.keys())) == len(flows)
    assert flows.rows() == conjunctions(acl).rows()
    assert all(oxm.unpack(row.match) for row in flows.rows())


@laws
@given(acls(max_rules=4))
def test_a_hull_matches_whatever_its_rule_matches(acl: Acl) -> None:
    sides = Sides(acl.groups)
    for rule in acl.rules:
        for packet in corner_packets_of(replace(acl, rules=(rule,))) if sides.families(rule) else ():
            assert matches(acl, hull(rule, sides), packet) or not matches(acl, rule, packet)


def matches(acl: Acl, rule: Rule, packet: Packet) -> bool:
    alone = replace(acl, rules=(rule,))
    return ask(alone, packet, rule.direction, ReturnTraffic.EXPLICIT).rule == rule.id


def dies(spoil: Callable[[pytest.MonkeyPatch], None]) -> bool:
    """Whether a spoiled encoder is found out by the law."""
    law = settings(
        max_examples=examples(60),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(acls(max_rules=5))(lambda acl: check(acl, conjunctions(acl))))
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch)
        try:
            law()
        except BaseException:  # noqa: BLE001  (Hypothesis may give a group of them)
            return True
    return False


def one_number_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clauses._Unit, "conj_id", property(lambda unit: 2))


def nothing_but_addresses(patch: pytest.MonkeyPatch) -> None:
    whole = clauses.rule_clauses
    patch.setattr(clauses, "rule_clauses", lambda rule, *given: (*whole(rule, *given)[:-1], Rule(rule.id, rule.action)))


def no_destinations(patch: pytest.MonkeyPatch) -> None:
    whole = clauses.rule_clauses
    patch.setattr(clauses, "rule_clauses", lambda *given: whole(*given)[:1] + whole(*given)[-1:])


def one_action_a_key(patch: pytest.MonkeyPatch) -> None:
    merged = clauses.merge_entries

    def first_only(flows: FlowTable, actions: list[bytes]) -> FlowTable:
        once = merged(flows, actions)
        return replace(once, instruction_set=tuple(instructions([each[8:24]]) for each in once.instruction_set))

    patch.setattr(clauses, "merge_entries", first_only)


def hulls_of_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conjunctive, "_around", lambda prefixes: prefixes[0])


@pytest.mark.parametrize("spoil", [one_number_for_all, nothing_but_addresses, one_action_a_key])
def test_the_law_finds_out(spoil: Callable[[pytest.MonkeyPatch], None]) -> None:
    assert dies(spoil)


def test_the_hull_law_finds_out_a_hull_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    group = AddressGroup(GroupName("far"), (Prefix.parse("10.0.0.0/24"), Prefix.parse("10.9.0.0/24")))
    acl = Acl((Rule("a", Action.PERMIT, source=Addresses(groups=("far",))),), {"far": group})
    sides = Sides(acl.groups)
    assert hull(acl.rules[0], sides).source.prefixes == (Prefix.parse("10.0.0.0/12"),)
    hulls_of_nothing(monkeypatch)
    assert hull(acl.rules[0], sides).source.prefixes == (Prefix.parse("10.0.0.0/24"),)


def many(network: str, how_many: int) -> tuple[Prefix, ...]:
    """Addresses that do not aggregate."""
    base = Prefix.parse(network)
    return tuple(Prefix(Family.IPV4, base.network + 2 * index, 32) for index in range(how_many))


def test_a_rule_of_two_groups_takes_their_sum_and_not_their_product() -> None:
    groups = {
        "clients": AddressGroup(GroupName("clients"), many("10.0.0.0/8", 300)),
        "servers": AddressGroup(GroupName("servers"), many("192.0.0.0/8", 40)),
    }
    rule = Rule("web", Action.PERMIT, protocol=TCP, source=Addresses(groups=("clients",)),
                destination=Addresses(groups=("servers",)),
                destination_ports=(PortRange(80, 80), PortRange(443, 443)))  # fmt: skip
    sides = Sides(groups)
    assert parts_of(rule, sides, Family.IPV4) == Parts(300, 40, 0, 2)
    assert is_conjunctive(rule, sides)
    flows = conjunctive_flows([Placed(rule, 9, 500)], sides, STAGE, 7)
    assert len(flows) == 300 + 40 + 2 + 1
    assert set(flows.priority.tolist()) == {500}


def odd_ports(many: int) -> tuple[PortRange, ...]:
    return tuple(PortRange(2 * each + 1, 2 * each + 1) for each in range(many))


def test_a_rule_of_two_port_sets_takes_their_sum_and_not_their_product() -> None:
    rule = Rule("wide", Action.PERMIT, protocol=TCP, source_ports=odd_ports(300), destination_ports=odd_ports(300))
    assert is_conjunctive(rule, Sides({}))
    flows = conjunctive_flows([Placed(rule, 9, 500)], Sides({}), STAGE, 7)
    assert len(flows) == 2 * (300 + 300 + 1)


@pytest.mark.parametrize(("sources", "destinations", "wanted"), [(31, 31, False), (32, 32, True), (3, 400, True)])
def test_when_two_port_sets_pay(sources: int, destinations: int, wanted: bool) -> None:
    ports = odd_ports(sources), odd_ports(destinations)
    rule = Rule("r", Action.PERMIT, protocol=TCP, source_ports=ports[0], destination_ports=ports[1])
    assert is_conjunctive(rule, Sides({})) is wanted


def test_two_ranges_of_ports_are_no_conjunction() -> None:
    worst = (PortRange(1, 65534),)
    rule = Rule("r", Action.PERMIT, protocol=TCP, source_ports=worst, destination_ports=worst)
    assert not is_conjunctive(rule, Sides({}))


def test_rules_of_one_priority_share_the_entries_of_their_group() -> None:
    groups = {"clients": AddressGroup(GroupName("clients"), many("10.0.0.0/8", 100))}
    numbers = count(1)
    placed = [
        Placed(
            Rule(f"r{port}", Action.PERMIT, protocol=TCP, source=Addresses(groups=("clients",)),
                 destination_ports=(PortRange(port, port + 2),)),
            next(numbers), 500,
        )
        for port in (81, 181, 281)
    ]  # fmt: skip
    flows = conjunctive_flows(placed, Sides(groups), STAGE, 7)
    assert len(flows) == 100 + 3 * 2 + 3


def test_a_change_of_a_group_touches_its_members_only() -> None:
    before = {"clients": AddressGroup(GroupName("clients"), many("10.0.0.0/8", 100))}
    after = {"clients": AddressGroup(GroupName("clients"), many("10.0.0.0/8", 101))}
    rule = Rule("web", Action.PERMIT, protocol=TCP, source=Addresses(groups=("clients",)),
                destination_ports=(PortRange(81, 83),))  # fmt: skip
    old, new = (
        set(conjunctive_flows([Placed(rule, 9, 500)], Sides(each), STAGE, 7).rows()) for each in (before, after)
    )
    assert not old - new
    assert len(new - old) == 1


def test_all_three_clauses_must_be_met(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        "clients": AddressGroup(GroupName("clients"), many("10.0.0.0/8", 3)),
        "servers": AddressGroup(GroupName("servers"), many("192.0.0.0/8", 3)),
    }
    rule = Rule("web", Action.PERMIT, protocol=TCP, source=Addresses(groups=("clients",)),
                destination=Addresses(groups=("servers",)), destination_ports=(PortRange(80, 80),))  # fmt: skip
    acl = Acl((rule,), groups)
    check(acl, conjunctions(acl))
    no_destinations(monkeypatch)
    with pytest.raises(AssertionError):
        check(acl, conjunctions(acl))


@pytest.mark.parametrize(
    ("sources", "ports", "number", "wanted"),
    [(1, 14, 1, False), (100, 1, 1, False), (100, 14, 1, True), (100, 14, 1 << 31, False), (2, 14, 1, False)],
)
def test_when_a_conjunction_pays(sources: int, ports: int, number: int, wanted: bool) -> None:
    rule = Rule("r", Action.PERMIT, protocol=TCP, source=Addresses(many("10.0.0.0/8", sources)),
                destination_ports=tuple(PortRange(2 * port, 2 * port) for port in range(1, ports + 1)))  # fmt: skip
    assert is_conjunctive(rule, Sides({}), number) is wanted
