"""Lists as they decide about packets alone, before connections are looked up.

Where connections are tracked, the first rule that matches a packet itself may be stateless: then it decides. So the
tables `alone_egress` and `alone_ingress` have the rules of a list down to its last stateless one, and `alone_operator`
all of the operator's, for these go before tenants' stateless rules. They have levels as every list has:

    rule                its rows                                                              they count
    stateless           do what the rule says                                                 for the rule
    another             leave the packet to be asked about by its connection (`ASK_LISTS`)    nothing (`LEAVES`)

The rules are compiled as any list. Those that leave packets are denies there, and have the part `LEAVES` in their
numbers; `move_to_alone` puts the rows into their tables. A row becomes another by what it is itself, so what changed of
a list says what changed of these rows, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from orchestrator.compile.cookies import LEAVES, PART_BITS
from orchestrator.compile.pipelines.host import ASK_LISTS, Table
from orchestrator.policy.model import Action, Rule, Tenant, trusted_acl
from orchestrator.program.flows import FlowTable

_ALONE = np.arange(256, dtype=np.uint8)
_ALONE[Table.OPERATOR], _ALONE[Table.EGRESS] = Table.ALONE_OPERATOR, Table.ALONE_EGRESS
_ALONE[Table.INGRESS] = Table.ALONE_INGRESS


def rules_alone(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return rules as they decide alone: all that are not stateless are denies."""
    return tuple(rule if rule.stateless else replace(rule, action=Action.DENY, log=False) for rule in rules)


def numbers_alone(rules: Sequence[Rule], numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of these rules, as far as they have any."""
    known = [(rule, numbers[rule.id]) for rule in rules if rule.id in numbers]
    return {rule.id: number if rule.stateless else number | LEAVES for rule, number in known}


def tenant_alone(tenant: Tenant) -> Tenant:
    """Return a tenant with its list up to the last stateless rule, deciding alone."""
    length = max((place for place, rule in enumerate(tenant.acl.rules, 1) if rule.stateless), default=0)
    rules = rules_alone(tenant.acl.rules[:length])
    acl = trusted_acl(rules, tenant.acl.groups, Action.DENY, Action.DENY)
    return replace(tenant, acl=acl, rule_numbers=numbers_alone(rules, tenant.rule_numbers))


def move_to_alone(flows: FlowTable) -> FlowTable:
    """Return a list's rows as those of the tables that decide alone."""
    if not len(flows):
        return flows
    table = _ALONE[flows.table]
    leaves = flows.cookie & np.uint64(PART_BITS) == LEAVES
    doings = flows.instructions.copy()
    for place, each in enumerate(ASK_LISTS, len(flows.instruction_set)):
        doings[leaves & (table == each)] = place
    whole = (*flows.instruction_set, *ASK_LISTS.values())
    return replace(flows, table=table, instructions=doings, instruction_set=whole).compact_sets()
