"""What an access list will cost, told before it is committed.

Flow entries cost memory and time to load. Levels cost priorities. Shapes are what packets pay for: entries that look at
the same bits share one hash table in the switch, and a packet that starts a new flow is looked up in one after the
other (about 40 ns each in Open vSwitch's userspace datapath), so a list of many shapes is slow at its first packets
however short it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.atoms import atoms
from orchestrator.compile.levels import levels
from orchestrator.compile.lists import return_atoms
from orchestrator.compile.openflow import MaskedRules, with_port_masks
from orchestrator.compile.tcam import TcamCost, tcam_cost
from orchestrator.policy.model import Acl, ReturnTraffic
from orchestrator.program.rules import EGRESS, FRAG_LATER, FRAG_NOT_LATER, INGRESS, RuleTable

SHAPE_NS = 40
"""What looking into one more hash table costs the first packet of a flow, in nanoseconds (measured, OVS 3.1)."""


@dataclass(frozen=True, slots=True)
class ListCost:
    """One direction of a list: its rules, the flow entries they become, levels and shapes, return traffic included."""

    rules: int
    flows: int
    levels: int
    shapes: int

    @property
    def first_packet_ns(self) -> int:
        """At most so much longer does the first packet of a flow take than without the list."""
        return self.shapes * SHAPE_NS


@dataclass(frozen=True, slots=True)
class Cost:
    """A list on each kind of device: a switch, by direction, and a ternary CAM.

    `widest_rule` is the id of the rule that needs the most flow entries, if any does.
    """

    ingress: ListCost
    egress: ListCost
    tcam: TcamCost
    widest_rule: str | None
    widest_rule_flows: int

    @property
    def flows(self) -> int:
        return self.ingress.flows + self.egress.flows

    @property
    def levels(self) -> int:
        return max(self.ingress.levels, self.egress.levels)

    @property
    def shapes(self) -> int:
        """In the larger of the two tables."""
        return max(self.ingress.shapes, self.egress.shapes)


def cost(acl: Acl, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> Cost:
    """The cost of a list. Raises TooLarge where it cannot even be expanded."""
    table = atoms(acl.rules, acl.groups)
    level = levels(table)
    masked = with_port_masks(table)
    extra = return_atoms(0) if returns is ReturnTraffic.ESTABLISHED else RuleTable.empty()
    by_rule = np.bincount(table.order[masked.atom], minlength=1)
    widest = int(by_rule.argmax())
    return Cost(
        ingress=_list_cost(table, level, extra, INGRESS),
        egress=_list_cost(table, level, extra, EGRESS),
        tcam=tcam_cost(RuleTable.joined([table, extra])),
        widest_rule=acl.rules[widest].id if len(table) else None,
        widest_rule_flows=int(by_rule[widest]),
    )


def _list_cost(table: RuleTable, level: npt.NDArray[np.int32], extra: RuleTable, direction: int) -> ListCost:
    mine = table.direction == direction
    with_returns = RuleTable.joined([table.take(mine), extra.take(extra.direction == direction)])
    masked = with_port_masks(with_returns)
    return ListCost(
        rules=len(np.unique(table.order[mine])),
        flows=len(masked.atom) + 1,  # the default
        levels=int(level[mine].max(initial=-1)) + 1 + bool(len(extra)),
        shapes=len(np.unique(shapes(with_returns, masked))) + 1,
    )


def shapes(rules: RuleTable, masked: MaskedRules) -> npt.NDArray[np.uint64]:
    """A number for each flow entry, equal for entries that look at the same bits of a packet."""
    row = rules.take(masked.atom)
    icmp_type, icmp_code = row.icmp_type >= 0, row.icmp_code >= 0
    fragments = np.where(row.frag == FRAG_NOT_LATER, 2, np.where(row.frag == FRAG_LATER, 3, 0))
    fields = (
        ((row.family == 6) & (row.src_len | row.dst_len != 0), 1),  # else both versions look at the same bits
        (row.src_len, 8),
        (row.dst_len, 8),
        (row.protocol >= 0, 1),
        (np.where(icmp_type, 0xFFFF, masked.sp_mask), 16),  # the switch keeps ICMP types where it keeps ports
        (np.where(icmp_code, 0xFFFF, masked.dp_mask), 16),
        (row.flags_mask, 8),
        (fragments, 2),
    )
    number = np.zeros(len(row), np.uint64)
    for column, bits in fields:
        number = number << np.uint64(bits) | column.astype(np.uint64)
    return number
