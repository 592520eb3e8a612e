"""The proof of programs that track connections refuses every fault that is planted in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.compile.cookies import LEAVES
from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.instructions import instructions
from orchestrator.compile.openflow.oxm import Term
from orchestrator.compile.openflow.tracking import State
from orchestrator.compile.pipelines.host import STATIC_PRIORITY, TRACK_PRIORITY, Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.program.flows import Flow, FlowTable

FAR = Addresses((Prefix.parse("10.9.0.0/16"), Prefix.parse("2001:db8:9::/48")))
RULES = (
    Rule(RuleId("web"), Action.PERMIT, protocol=TCP, source=FAR, destination_ports=(PortRange(80, 82),)),
    Rule(RuleId("dns"), Action.PERMIT, Direction.EGRESS, protocol=UDP, destination_ports=(PortRange(53, 53),)),
    Rule(RuleId("ping"), Action.PERMIT, protocol=ICMP, icmp_type=8, icmp_code=0),
    Rule(RuleId("ping6"), Action.PERMIT, protocol=ICMPV6, icmp_type=128),
    Rule(RuleId("no"), Action.DENY, source=Addresses((Prefix.parse("10.9.1.0/24"),))),
)
TENANT = Tenant(
    TenantId("t"), 7, (Prefix.parse("10.0.0.0/16"),), Acl(RULES), {rule.id: at for at, rule in enumerate(RULES, 1)}
)
POLICY = Policy((TENANT,), return_traffic=ReturnTraffic.TRACKED)
ROWS = compile_host(POLICY, domain="d1", generation=1).flows.rows()


def tracks(row: Flow) -> bool:
    """Whether a row is one that tracks, as docs/pipeline.md tells them."""
    return (
        row.table in (Table.STATE, Table.ALONE_OPERATOR, Table.ALONE_EGRESS, Table.ALONE_INGRESS)
        or (row.table, row.priority)
        in ((Table.LIFTED, TRACK_PRIORITY), (Table.LOCAL, 2000), (Table.SEND, 20), (Table.RECEIVER_PORTS, 0))
        or (row.table == Table.OUTPUT and row.priority > 10)
        or (row.table == Table.INGRESS and row.priority > STATIC_PRIORITY)
        or (row.table == Table.INGRESS and row.match == oxm.pack([Term(oxm.REGISTERS[1], 0)]))
    )


BARE = Policy(return_traffic=ReturnTraffic.TRACKED)
BARE_ROWS = compile_host(BARE, domain="d1", generation=1).flows.rows()
TRACKING = [row for row in BARE_ROWS if tracks(row)]
OF_RULES = [row for row in ROWS if row.table in (Table.EGRESS, Table.INGRESS) and row.tenant and row.priority > 300]


COPYING = [row for row in ROWS if row.table == Table.RECEIVER_PORTS and row.tenant]


def refuses(rows: Sequence[Flow], policy: Policy = POLICY) -> None:
    with pytest.raises(NotEquivalent):
        prove(policy, FlowTable.of(rows))


def swapped(old: Flow, new: Flow) -> list[Flow]:
    return [new if row is old else row for row in ROWS]


def spoiled(octets: bytes, bits: Sequence[int] = (1, 128)) -> list[bytes]:
    """The bytes with each of them changed in turn, and cut short."""
    return [octets[:at] + bytes((octets[at] ^ bit,)) + octets[at + 1 :] for at in range(len(octets)) for bit in bits]


def test_the_program_itself_is_proven() -> None:
    assert len(TRACKING) == 62
    prove(POLICY, FlowTable.of(ROWS))


@pytest.mark.parametrize("row", TRACKING, ids=lambda row: f"{row.table}-{row.priority}")
def test_a_row_that_tracks_is_neither_missing_nor_other_than_it_must_be(row: Flow) -> None:
    def swap(new: Flow) -> list[Flow]:
        return [new if each is row else each for each in BARE_ROWS]

    refuses([each for each in BARE_ROWS if each is not row], BARE)
    refuses([*BARE_ROWS, row], BARE)
    for match in spoiled(row.match, bits=(1,)):
        refuses(swap(replace(row, match=match)), BARE)
    for does in spoiled(row.instructions, bits=(1,)):
        refuses(swap(replace(row, instructions=does)), BARE)
    refuses(swap(replace(row, priority=row.priority + 1)), BARE)
    refuses(swap(replace(row, instructions=instructions(goto=Table.METERS))), BARE)


@pytest.mark.parametrize(
    "extra",
    [
        Flow(Table.STATE, 35, b"", instructions(goto=Table.LIFTED), ROWS[0].cookie),
        Flow(Table.OUTPUT, 25, b"", instructions(goto=Table.SEND), TRACKING[0].cookie),
        Flow(Table.SEND, 30, b"", b"", TRACKING[0].cookie),
        Flow(Table.LIFTED, TRACK_PRIORITY + 1, b"", instructions(goto=Table.OPERATOR), TRACKING[0].cookie),
        Flow(Table.INGRESS, STATIC_PRIORITY + 2, b"", instructions(goto=Table.OUTPUT), TRACKING[0].cookie),
        Flow(Table.STATE, 35, b"", instructions(goto=Table.LIFTED), TRACKING[0].cookie),
        Flow(Table.STATE, 35, b"", instructions(goto=Table.LOCAL), TRACKING[0].cookie, TENANT.number),
        Flow(Table.OUTPUT, 25, b"", instructions(goto=Table.SEND), TRACKING[0].cookie, TENANT.number),
        Flow(Table.SEND, 30, b"", b"", TRACKING[0].cookie, TENANT.number),
        Flow(Table.RECEIVER_PORTS, 5, b"", instructions(goto=Table.OUTPUT), TRACKING[0].cookie),
        Flow(Table.RECEIVER_PORTS, 15, b"", instructions(goto=Table.OUTPUT), TRACKING[0].cookie, TENANT.number),
    ],
    ids=lambda row: f"{row.table}-{row.priority}-{row.tenant}",
)
def test_no_other_row_goes_past(extra: Flow) -> None:
    refuses([*ROWS, extra])


@pytest.mark.parametrize("row", OF_RULES, ids=lambda row: f"{row.table}-{row.priority}-{row.cookie & 0xFF}")
def test_every_byte_of_a_rules_match_counts(row: Flow) -> None:
    for match in spoiled(row.match):
        refuses(swapped(row, replace(row, match=match)))


@pytest.mark.parametrize("row", COPYING, ids=["IPv4", "IPv6"])
def test_a_row_that_copies_is_neither_missing_nor_other_than_it_must_be(row: Flow) -> None:
    refuses([each for each in ROWS if each is not row])
    refuses([*ROWS, row])
    for match in spoiled(row.match):
        refuses(swapped(row, replace(row, match=match)))
    for does in spoiled(row.instructions):
        refuses(swapped(row, replace(row, instructions=does)))
    for other in (replace(row, priority=row.priority + 1), replace(row, priority=10), replace(row, tenant=8)):
        refuses(swapped(row, other))


def test_copies_that_nobody_makes_are_asked_for_by_no_row() -> None:
    refuses([row for row in ROWS if row not in COPYING])


def test_only_rows_of_ingress_that_name_a_source_ask_for_copies() -> None:
    port = Term(oxm.REGISTERS[12], 53, 0xFFFF)
    for row in OF_RULES:
        terms = oxm.unpack(row.match)
        kept = [term for term in terms if term.field not in (oxm.CT_NW_SRC, oxm.CT_IPV6_SRC, oxm.CT_TP_DST)]
        if any(term.field is oxm.CT_TP_DST for term in terms):
            refuses(swapped(row, replace(row, match=oxm.pack([*kept, port]))))
        elif any(term.field is oxm.REGISTERS[12] for term in terms):
            refuses(swapped(row, replace(row, match=oxm.pack(kept))))


def test_a_row_that_asks_for_a_packets_own_header_is_refused() -> None:
    """What a program without connections has for the same rule."""
    others = compile_host(
        replace(POLICY, return_traffic=ReturnTraffic.EXPLICIT), domain="d1", generation=1
    ).flows.rows()
    for row in OF_RULES:
        plain = [
            each for each in others if (each.table, each.priority, each.cookie) == (row.table, row.priority, row.cookie)
        ]
        for other in plain:
            refuses(swapped(row, replace(row, match=other.match)))


@pytest.mark.parametrize("state", [State.TRACKED, State.TRACKED | State.NEW, State.TRACKED | State.INVALID])
def test_a_rule_asks_for_valid_connections_of_every_state(state: State) -> None:
    row = next(each for each in OF_RULES if len(each.match) > 30)
    terms = [term for term in oxm.unpack(row.match) if term.field is not oxm.CT_STATE]
    refuses(swapped(row, replace(row, match=oxm.pack(terms))))
    refuses(swapped(row, replace(row, match=oxm.pack([*terms, Term(oxm.CT_STATE, int(state), int(state))]))))


def test_two_zones_are_refused() -> None:
    other = compile_host(POLICY, domain="d2", generation=1).flows.rows()
    lifted = [row for row in other if row.priority == TRACK_PRIORITY]
    for row in [each for each in ROWS if each.priority == TRACK_PRIORITY]:
        refuses(swapped(row, next(each for each in lifted if each.match == row.match)))


# -------------------------------------------------------------------------------------------- rules that decide alone

MARKED = (
    RULES[0], replace(RULES[1], stateless=True), RULES[2],
    replace(RULES[4], stateless=True),
    Rule(RuleId("fast"), Action.PERMIT, protocol=TCP, established=True, stateless=True), RULES[3],
)  # fmt: skip
OPERATOR = (
    Rule(RuleId("mail"), Action.DENY, protocol=TCP, destination_ports=(PortRange(25, 25),)),
    Rule(RuleId("odd"), Action.PERMIT, protocol=0, stateless=True),
)
MIXED = Policy(
    (replace(TENANT, acl=Acl(MARKED), rule_numbers={rule.id: at for at, rule in enumerate(MARKED, 1)}),),
    OPERATOR, {"mail": 90, "odd": 91}, return_traffic=ReturnTraffic.TRACKED,
)  # fmt: skip
MIXED_ROWS = compile_host(MIXED, domain="d1", generation=1).flows.rows()
ALONE = [
    row
    for row in MIXED_ROWS
    if row.table in (Table.ALONE_OPERATOR, Table.ALONE_EGRESS, Table.ALONE_INGRESS) and row.cookie >> 48 & 0xF
]


def test_a_program_with_stateless_rules_is_proven() -> None:
    prove(MIXED, FlowTable.of(MIXED_ROWS))
    assert {row.table for row in ALONE} == {Table.ALONE_OPERATOR, Table.ALONE_EGRESS, Table.ALONE_INGRESS}


@pytest.mark.parametrize("row", ALONE, ids=lambda row: f"{row.table}-{row.priority}-{row.cookie & 0xFF}")
def test_a_row_that_decides_alone_is_neither_missing_nor_other_than_it_must_be(row: Flow) -> None:
    def swap(new: Flow) -> list[Flow]:
        return [new if each is row else each for each in MIXED_ROWS]

    refuses([each for each in MIXED_ROWS if each is not row], MIXED)
    for match in spoiled(row.match, bits=(1,)):
        refuses(swap(replace(row, match=match)), MIXED)
    for does in {each.instructions for each in (*ALONE, *OF_RULES)} - {row.instructions}:
        refuses(swap(replace(row, instructions=does)), MIXED)
    refuses(swap(replace(row, cookie=row.cookie ^ LEAVES)), MIXED)
    refuses(swap(replace(row, table=Table.EGRESS if row.table == Table.ALONE_EGRESS else Table.INGRESS)), MIXED)


@pytest.mark.parametrize("place", range(len(MARKED)))
def test_a_mark_that_changes_needs_other_rows(place: int) -> None:
    rules = list(MARKED)
    rules[place] = replace(rules[place], stateless=not rules[place].stateless)
    tenant = replace(MIXED.tenants[0], acl=Acl(tuple(rules)))
    refuses(MIXED_ROWS, replace(MIXED, tenants=(tenant,)))


def test_a_program_that_looks_up_at_once_is_refused_where_rules_are_stateless() -> None:
    at_once = [row for row in ROWS if row.priority == TRACK_PRIORITY]
    first = [row for row in MIXED_ROWS if row.priority == TRACK_PRIORITY]
    refuses([*(row for row in MIXED_ROWS if row not in first), *at_once], MIXED)
    refuses([*(row for row in ROWS if row not in at_once), *first])
