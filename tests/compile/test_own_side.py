"""An ingress list of connections asks for its own address and port before it asks for strangers' addresses."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from enforce.dummy_ovs import DummyOvs
from lifted_shop import WEB, policy, rule
from traced_switch import GATEWAY, PORT_A, UPLINK, Bridge, Tracer, rows_of
from tracked_domain import TrackedDomain, conversation

from orchestrator.compile.equivalence import Proof, prove
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines.host import FIRST_DESTINATION, FIRST_PORT, Table
from orchestrator.compile.pipelines.ownside import names_both_sides
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.model import Acl, Direction, Packet, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import ICMP, TCP, UDP
from orchestrator.program.delta import difference
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Program

SHOP = 7
OUT = Direction.EGRESS
SSH = rule("ssh", "deny", "192.88.77.0/24", WEB, 22)
HTTP = rule("http", "permit", "", WEB, 80)
PARTNERS = rule("partners", "permit", "198.51.100.0/24", "", 8080)
SIX = rule("six", "permit", "2001:db8:9::/48", "2001:db8::/64", 443)
OPEN = rule("open", "permit", "198.51.100.0/24")
RULES = (SSH, HTTP, PARTNERS, SIX, OPEN)
PLAIN = (HTTP, OPEN)
COPIES = {register.field for register in (*FIRST_DESTINATION, FIRST_PORT)}
OWN_SIDE = {oxm.CT_NW_DST, oxm.CT_IPV6_DST, oxm.CT_TP_DST}


def tracked(*rules: Rule) -> Policy:
    return policy(*rules, operator=(), returns=ReturnTraffic.TRACKED)


def compiled(world: Policy) -> Program:
    return compile_host(world, domain="d1", generation=1)


def copying_rows(rows: Sequence[Flow]) -> list[Flow]:
    return [row for row in rows if row.table == Table.RECEIVER_PORTS and row.tenant]


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        (RULES, True),
        ((SSH,), True),
        ((PARTNERS,), True),
        ((SIX,), True),
        (PLAIN, False),
        ((replace(SSH, direction=OUT),), False),
        ((OPEN, HTTP, replace(PARTNERS, direction=OUT)), False),
        ((), False),
    ],
)
def test_lists_that_name_both_sides_are_found(rules: tuple[Rule, ...], names: bool) -> None:
    assert names_both_sides(Acl(rules)) is names


def test_only_their_packets_are_copied_and_only_where_connections_are_tracked() -> None:
    assert [row.tenant for row in copying_rows(compiled(tracked(*RULES)).flows.rows())] == [SHOP, SHOP]
    assert copying_rows(compiled(tracked(*PLAIN)).flows.rows()) == []
    assert copying_rows(compiled(policy(*RULES)).flows.rows()) == []


def test_rows_that_name_a_source_ask_for_the_copies_and_no_others_do() -> None:
    turned = tuple(replace(each, id=RuleId(f"{each.id}-out"), direction=OUT) for each in RULES)
    world = tracked(*RULES, *turned, rule("ping", "permit", "10.9.0.0/16", WEB, protocol=ICMP))
    seen = set()
    for row in compiled(world).flows.rows():
        fields = {term.field for term in oxm.unpack(row.match)}
        names_source = not fields.isdisjoint((oxm.CT_NW_SRC, oxm.CT_IPV6_SRC))
        if row.table == Table.INGRESS and names_source:
            assert fields.isdisjoint(OWN_SIDE)
            seen |= fields & COPIES
        else:
            assert fields.isdisjoint(COPIES)
    assert seen == {FIRST_DESTINATION[0].field, FIRST_DESTINATION[1].field, FIRST_PORT.field}, "a /64 has two parts"


def test_a_change_of_the_list_brings_and_takes_the_rows() -> None:
    cache = CompileCache()
    for generation, rules in enumerate((PLAIN, RULES, RULES[1:], PLAIN, (PARTNERS,)), 1):
        world = tracked(*rules)
        program = compile_host(world, domain="d1", generation=generation, cache=cache)
        assert program.digest == compile_host(world, domain="d1", generation=generation).digest


def test_conversations_with_named_strangers_pass_as_the_oracle_decides() -> None:
    dns = rule("dns", "permit", "192.88.77.0/24", WEB, 53, protocol=UDP)
    ping = rule("ping", "permit", "198.51.100.0/24", WEB, protocol=ICMP)
    domain = TrackedDomain(tracked(SSH, HTTP, PARTNERS, dns, ping))
    opened = []
    for source in ("8.8.8.8", "192.88.77.5", "198.51.100.9"):
        ends = parse_address(source)[1], parse_address("10.29.4.2")[1]
        asks = [(TCP, 22), (TCP, 80), (TCP, 8080), (UDP, 53), (UDP, 8080)]
        firsts = [Packet(Family.IPV4, *ends, protocol, 9000, port) for protocol, port in asks]
        firsts.append(Packet(Family.IPV4, *ends, ICMP, icmp_type=8))
        opened += [all(domain.meet(packet, fully=True) for packet in conversation(first)) for first in firsts]
    assert opened == [False, True, *[False] * 4, False, True, False, True, *[False] * 3, True, True, False, False, True]


# ---------------------------------------------------------------------------------------------------------- the proof


def follow(before: Policy, after: Policy, spoil: Callable[[FlowTable], FlowTable] = lambda rows: rows) -> Proof:
    """Prove a policy, and the step to another one whose rows somebody spoils."""
    old, new = compiled(before).flows, spoil(compiled(after).flows)
    return prove(before, old).after(after, *difference(old, new), rows_by_tenant(new))


def rows_by_tenant(rows: FlowTable) -> Callable[[int], FlowTable]:
    return lambda number: rows.take(rows.tenant == number)


def without_copies(rows: FlowTable) -> FlowTable:
    return rows.take((rows.table != Table.RECEIVER_PORTS) | (rows.tenant == 0))


def test_steps_to_lists_that_ask_for_copies_and_back_are_proven() -> None:
    for before, after in ((PLAIN, RULES), (RULES, PLAIN), (RULES, RULES[1:]), (PLAIN, (*PLAIN, PARTNERS))):
        follow(tracked(*before), tracked(*after))


@pytest.mark.parametrize("before", [PLAIN, RULES[1:], RULES])
def test_a_step_to_rows_that_ask_for_copies_which_nobody_makes_is_refused(before: tuple[Rule, ...]) -> None:
    with pytest.raises(NotEquivalent, match="ask for copies"):
        follow(tracked(*before), tracked(*RULES), without_copies)


def test_a_later_step_is_refused_that_takes_the_copies_away() -> None:
    plain, asking, later = (tracked(*rules) for rules in (PLAIN, RULES, RULES[:-1]))
    proof = follow(plain, asking)
    held, new = compiled(asking).flows, without_copies(compiled(later).flows)
    with pytest.raises(NotEquivalent, match="ask for copies"):
        proof.after(later, *difference(held, new), rows_by_tenant(new))


def test_half_of_the_rows_that_copy_are_refused_in_a_step() -> None:
    def halve(rows: FlowTable) -> FlowTable:
        copies = np.flatnonzero((rows.table == Table.RECEIVER_PORTS) & (rows.tenant > 0))
        keep = np.ones(len(rows), np.bool_)
        keep[copies[:1]] = False
        return rows.take(keep)

    with pytest.raises(NotEquivalent, match="are not what they must be"):
        follow(tracked(*PLAIN), tracked(*RULES), halve)


# --------------------------------------------------------------------------------------------- the real switch's cache


@pytest.fixture
def traced(ovs: DummyOvs) -> Tracer:
    return Tracer(ovs)


@pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")
@pytest.mark.parametrize(
    ("source", "port", "arrives", "looks_at_sources"),
    [
        ("8.8.8.8", 80, True, False),
        ("192.88.77.5", 80, True, False),
        ("8.8.8.8", 22, False, True),
        ("192.88.77.5", 22, False, True),
        ("198.51.100.9", 8080, True, True),
        ("8.8.8.8", 8080, False, True),
        ("8.8.8.8", 443, False, False),
    ],
)
def test_strangers_are_looked_at_where_a_rule_about_the_port_names_some(
    bridge: Bridge, traced: Tracer, source: str, port: int, arrives: bool, looks_at_sources: bool
) -> None:
    world = tracked(SSH, HTTP, PARTNERS)
    bridge.hold(rows_of(compiled(world), {"web0": PORT_A}))
    first = f"ct_nw_src={source},ct_nw_dst=10.29.4.2,ct_nw_proto=6,ct_tp_src=9999,ct_tp_dst={port}"
    flow = (
        f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={GATEWAY},tcp,nw_src={source},nw_dst=10.29.4.2,tp_src=9999,"
        f"tp_dst={port},tcp_flags=0x10,ct_state=trk|est,{first}"
    )
    assert traced.actions(flow).endswith(str(PORT_A)) is arrives
    assert ("ct_nw_src=" in traced.megaflow(flow)) is looks_at_sources
