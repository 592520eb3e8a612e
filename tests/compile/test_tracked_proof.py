"""The proof of programs that track connections refuses every fault that is planted in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.compile.equivalence import prove
from orchestrator.compile.host import compile_host
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
        row.table == Table.STATE
        or (row.table, row.priority) in ((Table.LIFTED, TRACK_PRIORITY), (Table.LOCAL, 2000), (Table.SEND, 20))
        or (row.table == Table.OUTPUT and row.priority > 10)
        or (row.table == Table.INGRESS and row.priority > STATIC_PRIORITY)
        or (row.table == Table.INGRESS and row.match == oxm.pack([Term(oxm.REGISTERS[1], 0)]))
    )


TRACKING = [row for row in ROWS if tracks(row)]
OF_RULES = [row for row in ROWS if row.table in (Table.EGRESS, Table.INGRESS) and row.tenant and row.priority > 300]


def refuses(rows: Sequence[Flow]) -> None:
    with pytest.raises(NotEquivalent):
        prove(POLICY, FlowTable.of(rows))


def swapped(old: Flow, new: Flow) -> list[Flow]:
    return [new if row is old else row for row in ROWS]


def spoiled(octets: bytes) -> list[bytes]:
    """The bytes with each of them changed in turn, and cut short."""
    return [
        octets[:at] + bytes((octets[at] ^ bit,)) + octets[at + 1 :] for at in range(len(octets)) for bit in (1, 128)
    ]


def test_the_program_itself_is_proven() -> None:
    assert len(TRACKING) == 24
    prove(POLICY, FlowTable.of(ROWS))


@pytest.mark.parametrize("row", TRACKING, ids=lambda row: f"{row.table}-{row.priority}")
def test_a_row_that_tracks_is_neither_missing_nor_other_than_it_must_be(row: Flow) -> None:
    refuses([each for each in ROWS if each is not row])
    refuses([*ROWS, row])
    for match in spoiled(row.match):
        refuses(swapped(row, replace(row, match=match)))
    for does in spoiled(row.instructions):
        refuses(swapped(row, replace(row, instructions=does)))
    refuses(swapped(row, replace(row, priority=row.priority + 1)))
    refuses(swapped(row, replace(row, instructions=instructions(goto=Table.SEND))))


@pytest.mark.parametrize(
    "extra",
    [
        Flow(Table.STATE, 35, b"", instructions(goto=Table.LIFTED), ROWS[0].cookie),
        Flow(Table.OUTPUT, 25, b"", instructions(goto=Table.SEND), TRACKING[0].cookie),
        Flow(Table.SEND, 30, b"", b"", TRACKING[0].cookie),
        Flow(Table.LIFTED, TRACK_PRIORITY + 1, b"", instructions(goto=Table.OPERATOR), TRACKING[0].cookie),
        Flow(Table.INGRESS, STATIC_PRIORITY + 2, b"", instructions(goto=Table.OUTPUT), TRACKING[0].cookie),
        Flow(Table.STATE, 35, b"", instructions(goto=Table.LIFTED), TRACKING[0].cookie),
    ],
    ids=lambda row: f"{row.table}-{row.priority}",
)
def test_no_other_row_goes_past(extra: Flow) -> None:
    refuses([*ROWS, extra])


@pytest.mark.parametrize("row", OF_RULES, ids=lambda row: f"{row.table}-{row.priority}-{row.cookie & 0xFF}")
def test_every_byte_of_a_rules_match_counts(row: Flow) -> None:
    for match in spoiled(row.match):
        refuses(swapped(row, replace(row, match=match)))


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
