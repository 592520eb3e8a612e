"""What lists cost: told in advance, and true; the numbers known of public rule sets."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from public_data import DATA
from strategies import acls

from orchestrator.compile.conjunctions import conjunctive
from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.compile.cost import cost
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.encoder import with_port_masks
from orchestrator.compile.pipelines.host import Table
from orchestrator.compile.pipelines.structure import default_rows
from orchestrator.control.quota import Usage
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import SCTP, TCP, WITH_PORTS
from orchestrator.policy.tcpflags import FlagMatch
from orchestrator.program.flows import FlowTable
from orchestrator.wire.costs import ListCost, TcamCost

CLASSBENCH = DATA / "classbench"


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(max_rules=8))
def test_the_cost_is_what_compiling_gives(acl: Acl) -> None:
    check_cost(acl)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(max_rules=6))
def test_the_cost_of_conjunctions_is_what_compiling_gives(acl: Acl) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conjunctive, "WORTH", 2)
        patch.setattr(conjunctive, "GAIN", 0)
        patch.setattr(conjunctive, "PORTS_WORTH", 2)
        check_cost(acl)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(max_rules=6), st.sets(st.integers(0, 5), min_size=1))
def test_the_cost_of_a_list_with_stateless_rules_is_what_its_domain_takes(acl: Acl, places: set[int]) -> None:
    """Rows of both tables of each direction, in a program of the whole domain."""
    rules = tuple(replace(rule, stateless=place in places, dscp=None) for place, rule in enumerate(acl.rules))
    plain = (replace(rule, established=False, tcp_flags=None, fragments=False) for rule in rules)
    fit = tuple(rule if rule.stateless else odd for rule, odd in zip(rules, plain, strict=True))
    fit = tuple(rule for rule in fit if rule.stateless or rule.protocol not in (0, SCTP))
    mixed = replace(acl, rules=fit)
    if not mixed.has_stateless:
        return
    numbers = {rule.id: i for i, rule in enumerate(fit, 1)}
    tenant = Tenant(TenantId("t"), 1, (Prefix.parse("10.0.0.0/8"),), mixed, numbers)
    policy = Policy((tenant,), return_traffic=ReturnTraffic.TRACKED)
    program = CompileCache().compile_program(policy, domain="d1", generation=1)
    flows = program.flows
    told = cost(mixed, ReturnTraffic.TRACKED)
    for one, tables in (
        (told.ingress, (Table.INGRESS, Table.ALONE_INGRESS)),
        (told.egress, (Table.EGRESS, Table.ALONE_EGRESS)),
    ):
        assert one.flows == int((np.isin(flows.table, tables) & (flows.tenant == 1)).sum())
    assert Usage().of(program)[1] == told.ingress.flows + told.egress.flows


def check_cost(acl: Acl) -> None:
    for returns in ReturnTraffic:
        told = cost(acl, returns)
        tenant = Tenant(TenantId("t"), 1, (), acl, {rule.id: i for i, rule in enumerate(acl.rules, 1)})
        rows = FlowTable.join_tables((*TenantList.of(tenant, returns).rows, FlowTable.of(default_rows(tenant))))
        for one, table in ((told.ingress, Table.INGRESS), (told.egress, Table.EGRESS)):
            mine = rows.take(rows.table == table)
            assert one.flows == len(mine)
            assert one.shapes == len({shape_of(row.match) for row in mine.rows()})
            rules = {row.priority for row in mine.rows() if row.priority > 301}
            assert one.levels == len(rules) + bool(return_rules(returns))
        meters = int((rows.table == Table.METERS).sum())
        assert told.ingress.flows + told.egress.flows + meters == len(rows)


def shape_of(match: bytes) -> frozenset[tuple[str, int]]:
    """Which bits a match looks at, as the switch counts: transport ports and ICMP types share a place."""
    places = {
        "tcp_src": "source", "udp_src": "source", "sctp_src": "source", "icmp_type": "source", "icmpv6_type": "source",
        "tcp_dst": "target", "udp_dst": "target", "sctp_dst": "target", "icmp_code": "target", "icmpv6_code": "target",
    }  # fmt: skip
    found = set()
    for term in oxm.unpack(match):
        name = term.field.name
        mask = 0xFFFF if name.startswith("icmp") else term.full_mask
        found.add((places.get(name, name), mask))
    return frozenset(found)


def test_an_empty_list_costs_its_ends() -> None:
    told = cost(Acl(), ReturnTraffic.EXPLICIT)
    end = ListCost(rules=0, flows=1, levels=0, shapes=1)
    assert (told.ingress, told.egress, told.tcam) == (end, end, TcamCost(2, 2, slots=10))
    assert (told.widest_rule, told.widest_rule_flows) == (None, 0)


def test_the_widest_rule_is_named() -> None:
    narrow = Rule(RuleId("narrow"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
    wide = Rule(RuleId("wide"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(1, 65534),))
    told = cost(Acl((narrow, wide)))
    assert (told.widest_rule, told.widest_rule_flows) == ("wide", 60)


def classbench(name: str) -> Acl:
    """A filter set in ClassBench's format: `@src dst low : high low : high proto/mask flags/mask`, flags a byte up."""
    path = CLASSBENCH / name
    if not path.exists():
        pytest.skip(f"there is no {path}")
    rules = []
    with gzip.open(path, "rt") as lines:
        for number, line in enumerate(lines):
            source, destination, low, _, high, low2, _, high2, protocol, flags = line[1:].split()
            kind, looked_at = (int(part, 16) for part in protocol.split("/"))
            value, mask = (int(part, 16) >> 8 for part in flags.split("/"))
            with_ports = looked_at and kind in WITH_PORTS
            with_flags = looked_at and kind == TCP and mask
            rules.append(
                Rule(
                    RuleId(f"r{number}"),
                    Action.PERMIT,
                    protocol=kind if looked_at else None,
                    source=Addresses((Prefix.parse(source),)),
                    destination=Addresses((Prefix.parse(destination),)),
                    source_ports=(PortRange(int(low), int(high)),) if with_ports else EVERY_PORT,
                    destination_ports=(PortRange(int(low2), int(high2)),) if with_ports else EVERY_PORT,
                    tcp_flags=FlagMatch(value, mask) if with_flags else None,
                )
            )
    return Acl(tuple(rules))


@pytest.mark.parametrize(
    ("name", "growth", "deepest"), [("acl1_10k", 1.36, 39), ("fw1_10k", 3.4, 75), ("ipc1_10k", 1.3, 132)]
)
def test_numbers_known_of_public_sets(name: str, growth: float, deepest: int) -> None:
    """Port ranges as masks, and levels (whether TCP flags and ICMP types are read moves a set by one)."""
    acl = classbench(f"{name}.rules.gz")
    table = atoms(acl.rules, acl.groups)
    assert len(with_port_masks(table).atom) / len(table) == pytest.approx(growth, abs=0.05)
    assert int(levels(table).max()) + 1 == pytest.approx(deepest, abs=1)
