"""Rows by which stateless rules decide about packets alone, read as a list.

Where connections are tracked, the oracle looks for the first rule that matches the packet itself. A stateless one
decides; any other leaves the packet to be asked about by its connection. That is a list with three answers, which is
proven as all lists are:

    the row                                                       it is read as
    in alone_operator, alone_egress, alone_ingress                in operator, egress, ingress
    with part 1 in its cookie, and just the instructions that     a deny of the rule with that number and part
    have a list asked about the connection

A tenant's list ends with its last stateless rule, for all packets behind it are left to connections, as the table's
last row says. The operator's has all its rules, for one that is not stateless goes before tenants' that are. The rows
between these tables are held byte by byte in trackedproof.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from orchestrator.compile.equivalence.chain import Chain, apply_actions, goto
from orchestrator.compile.pipelines.host import DEFAULT_PRIORITY, MISS_PRIORITY, STATIC_PRIORITY, Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Action, Policy, Rule, Tenant
from orchestrator.policy.stateless import is_mixed
from orchestrator.program.flows import FlowTable

LISTS = {Table.ALONE_OPERATOR: Table.OPERATOR, Table.ALONE_EGRESS: Table.EGRESS, Table.ALONE_INGRESS: Table.INGRESS}
"""By table of packets decided alone: the table of the same list about connections."""
_PART = 1 << 40
_PART_AT, _A_PART = np.uint64(40), np.uint64(0xFF)


def set_asks(bits: int) -> bytes:
    """The action that sets bits of register 7, and leaves the others."""
    return struct.pack(">HHHBBII", 25, 16, 0x0001, 7 << 1 | 1, 8, bits, bits)


LEAVES = {
    Table.ALONE_OPERATOR: apply_actions(set_asks(16)) + goto(Table.ALONE_EGRESS),
    Table.ALONE_EGRESS: apply_actions(set_asks(1)) + goto(Table.LOCAL),
    Table.ALONE_INGRESS: apply_actions(set_asks(2)) + goto(Table.OUTPUT),
}
"""By table: the instructions that leave a packet to its connection."""


def chain_alone(policy: Policy, tenant: Tenant | None) -> Chain:
    """Return a tenant's list, or the operator's, as it decides alone."""
    if tenant is None:
        rules = _rules(policy.operator) if is_mixed(policy) else ()
        numbers = _numbers(rules, policy.operator_numbers)
        return Chain("operator", 0, rules, numbers, {}, (), (), STATIC_PRIORITY, MISS_PRIORITY + 1)
    kept = list(tenant.acl.rules)
    while kept and not kept[-1].stateless:
        kept.pop()
    rules, place = _rules(kept), f"tenants[{tenant.id}].acl"
    numbers, among = _numbers(rules, tenant.rule_numbers), (STATIC_PRIORITY - 1, DEFAULT_PRIORITY + 1)
    return Chain(place, tenant.number, rules, numbers, tenant.acl.groups, (), (), *among)


def _numbers(rules: Sequence[Rule], numbers: Mapping[str, int]) -> dict[str, int]:
    """The rules' numbers, with a part where they leave their packets."""
    known = [(rule, numbers[rule.id]) for rule in rules if rule.id in numbers]
    return {str(rule.id): number if rule.stateless else number + _PART for rule, number in known}


def _rules(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules, of which all that are not stateless leave their packets."""
    return tuple(each if each.stateless else replace(each, action=Action.DENY, log=False) for each in rules)


def read_alone(flows: FlowTable) -> FlowTable:
    """Return the rows of rules in these tables, read as rows of plain lists.

    Raises NotEquivalent.
    """
    alone = flows.take(np.isin(flows.table, list(LISTS)))
    doings, whole = alone.instructions.copy(), (*alone.instruction_set, b"")
    table = alone.table.copy()
    leaves = alone.cookie >> _PART_AT & _A_PART == np.uint64(1)
    for own, plain in LISTS.items():
        here = alone.table == own
        table[here] = plain
        wanted = [place for place, each in enumerate(alone.instruction_set) if each == LEAVES[own]]
        wrong = np.flatnonzero(here & leaves & ~np.isin(alone.instructions, wanted))
        if len(wrong):
            row = alone.row(int(wrong[0]))
            raise NotEquivalent(
                f"the flow entry of table {row.table}, priority {row.priority}, cookie {row.cookie:#x} does not leave "
                f"its packets to connections"
            )
    doings[leaves] = len(whole) - 1
    return replace(alone, table=table, instructions=doings, instruction_set=whole)
