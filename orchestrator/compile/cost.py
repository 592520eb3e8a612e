"""Estimate an access list's cost before it is committed.

Flow entries cost memory and time to load. Levels cost priorities. Shapes are what packets pay for: entries that look at
the same bits share one hash table in the switch, and a packet that starts a new flow is looked up in one after the
other (about 40 ns each in Open vSwitch's userspace datapath), so a list of many shapes is slow at its first packets
however short it is.

An access list's size in a ternary CAM, the classical measure of tenants and hardware.

An entry is a value and a mask over one key, so a rule needs one for each pair of a source and a destination prefix and
each pair of port blocks: a range of ports is cut into aligned blocks of powers of two (at most 30 for 16 bits). Nothing
that only a software switch can do is counted on: no conjunctive matches, no tuple spaces. Each direction ends with a
default in each IP version.

    key, bits   source + destination   protocol   ports or ICMP   TCP flags   DSCP   fragment   tenant   direction
    IPv4  153        32 + 32               8         16 + 16           8        6        2         32        1
    IPv6  345       128 + 128              8         16 + 16           8        6        2         32        1

TCAMs are organised in slots of 160 bits, of which 1, 2 or 4 make a wider one: an IPv4 entry takes one, an IPv6 entry
four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.compile.conjunctions.clauses import Placed, clause_atoms, conjunctive_flows
from orchestrator.compile.conjunctions.conjunctive import Parts, hull, is_conjunctive, parts_of
from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.compile.lists.alone import tenant_alone
from orchestrator.compile.lists.atoms import atoms, return_atoms
from orchestrator.compile.lists.levels import levels
from orchestrator.compile.lists.lists import INGRESS_STAGE
from orchestrator.compile.openflow.encoder import MaskedRules, flow_counts, mask_counts, with_port_masks
from orchestrator.compile.pipelines.host import HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY
from orchestrator.policy.addresses import Family
from orchestrator.policy.dscp import code_point_masks
from orchestrator.policy.maskedword import FLAG_BITS
from orchestrator.policy.model import Acl, Direction, ReturnTraffic, RuleId, Tenant, TenantId
from orchestrator.policy.stateless import view_of_tracking
from orchestrator.program.rules import EGRESS, FRAG_LATER, FRAG_NOT_LATER, INGRESS, RuleTable
from orchestrator.wire.costs import Cost, ListCost, TcamCost

SLOTS_OF_IPV4 = 1
SLOTS_OF_IPV6 = 4
_DIRECTIONS = 2


def tcam_cost(rules: RuleTable) -> TcamCost:
    """The cost of a list's atoms, return traffic among them."""
    counts = mask_counts(rules)
    ipv6 = rules.family == 6
    return tcam_slots(int(counts[~ipv6].sum()) + _DIRECTIONS, int(counts[ipv6].sum()) + _DIRECTIONS)


def tcam_slots(ipv4_entries: int, ipv6_entries: int) -> TcamCost:
    """The cost of so many entries."""
    return TcamCost(ipv4_entries, ipv6_entries, ipv4_entries * SLOTS_OF_IPV4 + ipv6_entries * SLOTS_OF_IPV6)


def cost(acl: Acl, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> Cost:
    """The cost of a list on switches. Raises TooLarge where it cannot even be expanded.

    Where connections are tracked, a list with stateless rules is two: one about first packets, one about packets.
    """
    extra = return_atoms(0, returns)
    if returns is ReturnTraffic.TRACKED and acl.has_stateless:
        alone = tenant_alone(Tenant(TenantId("cost"), 0, (), acl)).acl
        parts = [_Expanded.of(view_of_tracking(acl)), _Expanded.of(alone)]
    else:
        parts = [_Expanded.of(acl)]
    by_rule = Counter[RuleId]()
    for part in parts:
        by_rule.update(part.flows_by_rule())
    widest, flows = max(by_rule.items(), key=lambda each: each[1], default=(None, 0))
    tcam = [part.tcam(extra) for part in parts]
    return Cost(
        ingress=_join_costs(
            acl, [_list_cost(part, extra, INGRESS, ends=part is parts[0]) for part in parts], Direction.INGRESS
        ),
        egress=_join_costs(
            acl, [_list_cost(part, extra, EGRESS, ends=part is parts[0]) for part in parts], Direction.EGRESS
        ),
        tcam=tcam_slots(sum(each.ipv4_entries for each in tcam), sum(each.ipv6_entries for each in tcam)),
        firewall=None,
        most_levels=HIGHEST_RULE_PRIORITY - LOWEST_RULE_PRIORITY + 1,
        widest_rule=widest if flows else None,
        widest_rule_flows=flows,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Expanded:
    """A list as atoms, with hulls for conjunctive rules; `own` marks atoms of no hull."""

    acl: Acl
    sides: Sides
    conjunctive: tuple[int, ...]
    table: RuleTable
    level: npt.NDArray[np.int32]
    own: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, acl: Acl) -> _Expanded:
        """Expand a list into atoms, with a hull in place of each conjunctive rule."""
        sides = Sides(acl.groups)
        conjunctive = tuple(place for place, rule in enumerate(acl.rules) if is_conjunctive(rule, sides))
        rules = list(acl.rules)
        for place in conjunctive:
            rules[place] = hull(rules[place], sides)
        table = atoms(rules, acl.groups)
        return cls(acl, sides, conjunctive, table, levels(table), ~np.isin(table.order, conjunctive))

    def flows_by_rule(self) -> dict[RuleId, int]:
        """Count each rule's flow entries.

        Those that conjunctive rules share are counted for each.
        """
        plain = self.table.take(self.own)
        found = np.bincount(plain.order, flow_counts(plain), minlength=len(self.acl.rules)).astype(np.int64)
        for place in self.conjunctive:
            found[place] = sum(parts.entries for parts in self._split_rule(place).values())
        return {rule.id: flows for rule, flows in zip(self.acl.rules, found.tolist(), strict=True)}

    def tcam(self, extra: RuleTable) -> TcamCost:
        """Return the cost in a ternary CAM: the product of each rule's sides.

        It has no conjunctions.
        """
        plain = tcam_cost(RuleTable.join_tables([self.table.take(self.own), extra]))
        found = dict.fromkeys(Family, 0)
        for place in self.conjunctive:
            dscp = self.acl.rules[place].dscp
            values = 1 if dscp is None else dscp.bit_count()  # of which a mask holds several
            for family, parts in self._split_rule(place).items():
                found[family] += parts.combinations // values * len(code_point_masks(dscp))
        four, six = found[Family.IPV4], found[Family.IPV6]
        return tcam_slots(plain.ipv4_entries + four, plain.ipv6_entries + six)

    def place_rules(self, direction: int) -> list[Placed]:
        """The conjunctive rules of one direction, by level."""
        deepest = {int(order): int(level) for order, level in zip(self.table.order, self.level, strict=True)}
        rules = [(place, self.acl.rules[place]) for place in self.conjunctive]
        wanted = Direction.INGRESS if direction == INGRESS else Direction.EGRESS
        return [
            Placed(rule, place + 1, HIGHEST_RULE_PRIORITY - deepest[place])
            for place, rule in rules
            if rule.direction is wanted
        ]

    def _split_rule(self, place: int) -> dict[Family, Parts]:
        rule = self.acl.rules[place]
        return {family: parts_of(rule, self.sides, family) for family in self.sides.families(rule)}


def _join_costs(acl: Acl, costs: Sequence[ListCost], direction: Direction) -> ListCost:
    """Return the cost of one direction, whose rules may be in two tables."""
    return replace(
        costs[0],
        rules=costs[0].rules if len(costs) == 1 else sum(rule.direction is direction for rule in acl.rules),
        flows=sum(each.flows for each in costs),
        levels=max(each.levels for each in costs),
        shapes=sum(each.shapes for each in costs),
    )


def _list_cost(expanded: _Expanded, extra: RuleTable, direction: int, *, ends: bool) -> ListCost:
    """Return the cost of one direction in one table.

    `ends`: the table has a default for the list.
    """
    table = expanded.table
    mine = table.direction == direction
    plain = RuleTable.join_tables([table.take(mine & expanded.own), extra.take(extra.direction == direction)])
    masked = with_port_masks(plain)
    looked_at = [shapes(plain, masked)]
    placed = expanded.place_rules(direction)
    conjunctions = 0
    if placed:
        conjunctions = len(conjunctive_flows(placed, expanded.sides, INGRESS_STAGE, 0))
        clauses = clause_atoms(placed, expanded.sides)
        looked_at.append(shapes(clauses, with_port_masks(clauses)))
    return ListCost(
        rules=len(np.unique(table.order[mine])),
        flows=len(masked.atom) + conjunctions + ends,
        levels=int(expanded.level[mine].max(initial=-1)) + 1 + bool(len(extra)),
        shapes=len(np.unique(np.concatenate(looked_at))) + bool(placed) + ends,  # what asks for conjunctions
    )


def shapes(rules: RuleTable, masked: MaskedRules) -> npt.NDArray[np.uint64]:
    """Return a number for each flow entry, equal for entries of one shape.

    Such entries look at the same bits of a packet.
    """
    row = rules.take(masked.atom)
    kinds, codes = (column >= 0 for column in row.icmp)
    fragments = np.where(row.frag == FRAG_NOT_LATER, 2, np.where(row.frag == FRAG_LATER, 3, 0))
    fields = (
        ((row.family == 6) & (row.src_len | row.dst_len != 0), 1),  # else both versions look at the same bits
        (row.src_len, 8),
        (row.dst_len, 8),
        (row.protocol >= 0, 1),
        (np.where(kinds, 0xFFFF, masked.sp_mask), 16),  # the switch keeps ICMP types where it keeps ports
        (np.where(codes, 0xFFFF, masked.dp_mask), 16),
        (row.word_mask & FLAG_BITS, 8),
        (masked.dscp >= 0, 1),
        (fragments, 2),
    )
    number = np.zeros(len(row), np.uint64)
    for column, bits in fields:
        number = number << np.uint64(bits) | column.astype(np.uint64)
    return number
