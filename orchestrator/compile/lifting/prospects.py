"""Estimate the tables that a switch searches for a rule, in its list and lifted.

Open vSwitch searches a table shape by shape (a shape: which bits of which fields are matched), those with the highest
priority first, and ends when no shape that is left can hold a better entry. Prefixes are kept in tries, so of an
address only the bits are remembered that tell it from all prefixes there are: as many regions as the trie has ends.
Taken together: the shapes that hold a rule as high as ours, for addresses like ours, and the ends of the tries of the
other side's addresses and ports, if one of these shapes looks at them; no more than there are addresses and ports on
that side of the rule's packets, so that one connection is one region however closely it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.compile.lifting.lifted import MOST_ROWS, lift_of
from orchestrator.compile.lifting.lifts import OTHER_WAY, Lift, Lists
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.boxes import box_atoms
from orchestrator.compile.lists.levels import Levels, levels
from orchestrator.compile.openflow.encoder import MaskedRules, with_port_masks
from orchestrator.placement.choice import Look, Prospect
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy import spans
from orchestrator.policy.fields import WORD_BITS
from orchestrator.policy.model import Action, Direction, Policy, Tenant
from orchestrator.policy.space import Box
from orchestrator.program.rules import EGRESS, INGRESS, RuleTable

_WAYS = {Direction.INGRESS: INGRESS, Direction.EGRESS: EGRESS}
_MOST_REGIONS = 2.0**48
_LAST_LEVEL = np.iinfo(np.int32).max
Column = npt.NDArray[Any]


class Prospector:
    """Answers for one policy; what is found out about a list is kept."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tenants = {tenant.id: tenant for tenant in policy.tenants}
        self._known: dict[str, _Known] = {}

    def of(self, name: LiftedRule) -> Prospect | str:
        """Return the effect of lifting a rule, or why it cannot be lifted."""
        tenant = self._tenants.get(name.tenant)
        if tenant is None:
            return "there is no such tenant"
        known = self._known.get(name.tenant)
        if known is None:
            known = self._known[name.tenant] = _Known.of(tenant, self._policy)
        return known.prospect(name)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A tenant's lists as tables of shapes."""

    tenant: Tenant
    lists: Lists
    tables: dict[Direction, _Shapes]

    @classmethod
    def of(cls, tenant: Tenant, policy: Policy) -> _Known:
        """Make a tenant's lists, with the operator's rules ahead, tables of shapes."""
        own = atoms(tenant.acl.rules, tenant.acl.groups, tenant=tenant.number)
        level = levels(own)
        above = atoms(policy.operator, {}).in_one_list()
        tables = {}
        for direction, way in _WAYS.items():
            mine = own.direction == way
            joined = RuleTable.join_tables([above, own.take(mine)])
            first = np.concatenate((np.full(len(above), -1, np.int32), level[mine]))
            is_rule = np.concatenate((np.zeros(len(above), np.bool_), np.ones(int(mine.sum()), np.bool_)))
            tables[direction] = _Shapes.of(joined, first, is_rule, direction)
        return cls(tenant, Lists.of(tenant, policy), tables)

    def prospect(self, name: LiftedRule) -> Prospect | str:
        """Return what lifting a rule would save, or why it cannot be lifted."""
        place = next((place for place, rule in enumerate(self.tenant.acl.rules) if rule.id == name.rule), None)
        if place is None:
            return "the list has no such rule"
        lift = lift_of(name, place, self.lists)
        if lift.form is None:
            return lift.because
        rule = self.tenant.acl.rules[place]
        here, back = rule.direction, OTHER_WAY[rule.direction]
        now = self._look_at_lift(here, lift, self.tables[here].level_of(place))
        answers = rule.action is Action.PERMIT
        replies = self._look_at_lift(back, lift, _LAST_LEVEL) if answers else Look()
        return Prospect(now, _look_lifted(here, lift), replies, _look_lifted(back, lift) if lift.replies else replies)

    def _look_at_lift(self, direction: Direction, lift: Lift, level: int) -> Look:
        boxes = [box for way, box in lift.asked if way is direction]
        return _find_widest(self.tables[direction].look(box, level) for box in boxes)


def _look_lifted(direction: Direction, lift: Lift) -> Look:
    """Return the search of the table of lifted rules for the parts of one lift."""
    boxes = [part.box for part in lift.parts if part.direction is direction]
    table = box_atoms(boxes, MOST_ROWS)
    if table is None or not len(table):
        return Look()
    shapes = _Shapes.of(table, np.zeros(len(table), np.int32), np.zeros(len(table), np.bool_), direction)
    return _find_widest(shapes.look(box, _LAST_LEVEL) for box in boxes)


def _find_widest(looks: Iterable[Look]) -> Look:
    return max(looks, key=lambda look: (look.regions, look.visits), default=Look())


@dataclass(frozen=True, slots=True, eq=False)
class _Shapes:
    """A table's atoms, the shape of each, and the lowest level of every shape."""

    table: RuleTable
    level: Levels
    is_rule: npt.NDArray[np.bool_]
    direction: Direction
    shape: npt.NDArray[np.intp]
    top: Levels

    @classmethod
    def of(cls, table: RuleTable, level: Levels, is_rule: npt.NDArray[np.bool_], direction: Direction) -> _Shapes:
        """Sort the atoms of a table by shape."""
        code = _shape_codes(table)
        distinct, shape = np.unique(code, return_inverse=True)
        top = np.full(len(distinct), _LAST_LEVEL, np.int32)
        np.minimum.at(top, shape, level)
        return cls(table, level, is_rule, direction, shape, top)

    def level_of(self, place: int) -> int:
        """The level of the rule at a place of the list."""
        mine = np.flatnonzero(self.is_rule & (self.table.order == place))
        return int(self.level[mine[0]]) if len(mine) else _LAST_LEVEL

    def look(self, box: Box, level: int) -> Look:
        """Return the search that finds an entry of a level for packets of a box."""
        table, own, other = self.table, *_sides(self.table, self.direction)
        mine = (box.destination, box.source) if self.direction is Direction.INGRESS else (box.source, box.destination)
        shift = 128 - box.family.bits
        near = (table.family == int(box.family)) & _meets(own, mine[0][0].low << shift, mine[0][-1].high << shift)
        visited = np.zeros(len(self.top), np.bool_)
        visited[self.shape[near]] = True
        visited &= self.top <= level
        there = visited[self.shape] & near
        if not there.any():
            return Look()
        regions = 1.0
        if (other.length[there] > 0).any():
            among = (table.family == int(box.family)) & _meets(
                other, mine[1][0].low << shift, mine[1][-1].high << shift
            )
            regions *= min(_ends(other.upper[among], other.length[among], 64), spans.size(mine[1]))
        ports = box.source_ports if self.direction is Direction.INGRESS else box.destination_ports
        regions *= min(self._port_regions(there), spans.size(ports))
        return Look(min(regions, _MOST_REGIONS), int(visited.sum()))

    def _port_regions(self, there: npt.NDArray[np.bool_]) -> float:
        """How many kinds of the other side's ports are told apart."""
        ingress = self.direction is Direction.INGRESS
        low, high = (self.table.sp_lo, self.table.sp_hi) if ingress else (self.table.dp_lo, self.table.dp_hi)
        looks = there & ~((low == 0) & (high == 0xFFFF))
        if not looks.any():
            return 1.0
        masked: MaskedRules = with_port_masks(self.table.take(looks))
        value, mask = (masked.sp_value, masked.sp_mask) if ingress else (masked.dp_value, masked.dp_mask)
        length = np.array([bin(each).count("1") for each in mask.tolist()], np.uint8)
        return _ends(value.astype(np.uint64) << np.uint64(48), length, 16)


@dataclass(frozen=True, slots=True)
class _Side:
    """One side's addresses: the upper 64 bits, and how many of the leading bits count."""

    upper: Column
    length: Column


def _sides(table: RuleTable, direction: Direction) -> tuple[_Side, _Side]:
    """The tenant's own side and the other."""
    source, destination = _Side(table.src_hi, table.src_len), _Side(table.dst_hi, table.dst_len)
    return (destination, source) if direction is Direction.INGRESS else (source, destination)


def _meets(side: _Side, low: int, high: int) -> npt.NDArray[np.bool_]:
    """Which prefixes meet an interval of addresses, left-aligned in 128 bits; by the upper half."""
    bits = np.minimum(side.length, 64).astype(np.uint64)
    behind = np.where(bits == 0, np.uint64(_ONES), np.uint64(_ONES) >> np.minimum(bits, np.uint64(63)))
    behind = np.where(bits == 64, np.uint64(0), behind)
    found: npt.NDArray[np.bool_] = (side.upper <= np.uint64(high >> 64)) & (
        (side.upper | behind) >= np.uint64(low >> 64)
    )
    return found


_ONES = (1 << 64) - 1


def _ends(upper: Column, length: Column, bits: int) -> float:
    """Count the ends of a binary trie of prefixes: its branches, and one more."""
    values, lengths = np.unique(np.stack((upper, length.astype(np.uint64))), axis=1)
    ends = 1
    for depth in range(min(bits, int(lengths.max(initial=0)))):
        longer = values[lengths > depth]
        ends += len(np.unique(longer >> np.uint64(64 - depth))) if depth else 1
    return float(ends)


def _shape_codes(table: RuleTable) -> npt.NDArray[np.uint64]:
    """Return a code per atom, equal for equal shapes.

    Ranges of ports count as one shape for each length.
    """
    digits: Sequence[tuple[Column, int]] = (
        (table.family == 6, 2), (table.src_len, 129), (table.dst_len, 129), (table.frag, 3), (table.protocol >= 0, 2),
        (_port_kind(table.sp_lo, table.sp_hi), 18), (_port_kind(table.dp_lo, table.dp_hi), 18),
        (table.word_mask, 1 << WORD_BITS), *((column >= 0, 2) for column in table.icmp),
    )  # fmt: skip
    code = np.zeros(len(table), np.uint64)
    for digit, radix in digits:
        code = code * np.uint64(radix) + digit.astype(np.uint64)
    return code


def _port_kind(low: Column, high: Column) -> Column:
    """How long a range of ports is, as a power of two."""
    return np.ceil(np.log2(high.astype(np.float64) - low + 1)).astype(np.uint64)
