"""The rows of table `lifted`: parts of lists, decided ahead of the lists' tables.

    packets         the row asks for          the line permits                          the line denies
    ingress         reg2 = 1 (uplink)         operator_permit := 1, on to local         drop
    egress          reg0 = the tenant         operator: operator_permit := 1, local     drop
                                              tenant: on to local

A row does what its line would have done, bears its cookie, and so counts for it. Packets that ingress permits go on
with the bit that passes the ingress table by, for that has been asked; what egress permits goes on as from the egress
table, and the receiver's list is asked. Where a packet goes is still found out in `local`: lifted rows know nothing of
ports.

Order. Overlapping parts of one list have levels in list order, as lists have (`levels.py`). Where a rule and all that
goes with it looks only at the tenant's own side, it is put above the others: a switch looks rows up by shape, from the
highest priority down, and every shape that it looks at adds its bits to what it remembers of a packet. So packets of
these rules are remembered by no bit of the other side's. They may go above, for whatever of their list comes before
them and meets their packets is among them: a packet that one of their rows holds is decided by one of their rows.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.lifting.lifts import CLIENT_PORTS, Part
from orchestrator.compile.lists.boxes import box_atoms
from orchestrator.compile.lists.levels import Levels, levels
from orchestrator.compile.lists.lists import limited_stage, return_part
from orchestrator.compile.openflow.encoder import MOST_FLOWS, RuleStage, meter_of, rule_flows
from orchestrator.compile.openflow.instructions import DROP, instructions, set_field
from orchestrator.compile.pipelines.host import FROM_UPLINK, LIFTED_PRIORITY, OPERATOR_PERMIT, SOURCE_TENANT, Table
from orchestrator.placement.composed import Composed, Speaker
from orchestrator.policy.model import Direction
from orchestrator.policy.space import ALL_ADDRESSES, ALL_PORTS, remaining
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import COLUMNS, DENY, EGRESS, INGRESS, PERMIT, RuleTable

_OWN_SIDE_LEVELS = 1000
"""So many priorities are kept for lifts that look at the tenant's own side only."""

_ARRIVED = instructions([set_field(OPERATOR_PERMIT.field, 1)], goto=Table.LOCAL)
_LEAVES = instructions(goto=Table.LOCAL)
_STAGES = {
    (Direction.INGRESS, False): RuleStage(Table.LIFTED, FROM_UPLINK.field, _ARRIVED, DROP),
    (Direction.INGRESS, True): RuleStage(Table.LIFTED, FROM_UPLINK.field, _ARRIVED, DROP),
    (Direction.EGRESS, False): RuleStage(Table.LIFTED, SOURCE_TENANT.field, _LEAVES, DROP),
    (Direction.EGRESS, True): RuleStage(Table.LIFTED, SOURCE_TENANT.field, _ARRIVED, DROP),
}
"""By direction, and by whether the operator says the line."""


@dataclass(frozen=True, slots=True)
class Target:
    """The tier where parts of lists are decided early.

    By direction and by whether the operator wrote the line: the match and the instructions of its rows, and whether
    lines that log are reported there.
    """

    tier: Tier
    stages: Mapping[tuple[Direction, bool], RuleStage]
    reports: bool


HOSTS = Target(Tier.HOST, _STAGES, reports=True)

_KINDS = {
    (Direction.INGRESS, Speaker.RETURN): Kind.INGRESS_RETURN,
    (Direction.INGRESS, Speaker.DEFAULT): Kind.INGRESS_DEFAULT,
    (Direction.EGRESS, Speaker.RETURN): Kind.EGRESS_RETURN,
    (Direction.EGRESS, Speaker.DEFAULT): Kind.EGRESS_DEFAULT,
}
_WAYS = {Direction.INGRESS: INGRESS, Direction.EGRESS: EGRESS}


@dataclass(frozen=True, slots=True)
class Unit:
    """Parts of one list that are lifted for one rule.

    Everything of the list ahead of them is included.
    """

    composed: Composed
    parts: tuple[Part, ...]

    @property
    def is_of_own_side(self) -> bool:
        """Return whether they match nothing of the far side, or only a client's port."""
        return all(map(_is_of_own_side, self.parts))


def _is_of_own_side(part: Part) -> bool:
    box, ingress = part.box, part.direction is Direction.INGRESS
    addresses, ports = (box.source, box.source_ports) if ingress else (box.destination, box.destination_ports)
    return addresses == ALL_ADDRESSES[box.family] and ports in (ALL_PORTS, CLIENT_PORTS)


def rows_of(units: Sequence[Unit], operator_numbers: Mapping[str, int], target: Target = HOSTS) -> FlowTable:
    """The rows of some units; `operator_numbers` are those of the operator's rules."""
    bands = [_Band.OWN_SIDE if unit.is_of_own_side else _Band.OTHERS for unit in units]
    arranged = _Arranged.of(units, bands)
    if arranged.levels_of_own_side > _OWN_SIDE_LEVELS:  # no use is known for so many; they are right below as well
        arranged = _Arranged.of(units, [_Band.OTHERS] * len(units))
    return FlowTable.join_tables(list(arranged.rows(operator_numbers, target)))


class _Band(enum.IntEnum):
    """The order of parts: a part of an earlier band is searched first."""

    OWN_SIDE = 0
    OTHERS = 1

    @property
    def highest(self) -> int:
        """The priority of level 0."""
        return LIFTED_PRIORITY - self * _OWN_SIDE_LEVELS


@dataclass(frozen=True, slots=True)
class _Placed:
    """A part, the list of its line, and its band."""

    composed: Composed
    part: Part
    band: _Band

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Where the part's line stands, among those of all lists in both bands."""
        return self.band, self.composed.tenant.number, _WAYS[self.part.direction], self.part.position

    @property
    def size(self) -> int:
        return self.part.box.size()

    @property
    def permits(self) -> bool:
        return self.composed.permits(self.part.position)

    @property
    def stage(self) -> tuple[Direction, bool]:
        return self.part.direction, self.composed.speaker(self.part.position) is Speaker.OPERATOR

    @property
    def meter(self) -> int:
        """That of the line's reports; 0 where it makes none."""
        rule = self.composed.rule(self.part.position)
        if rule is None or not rule.log:
            return 0
        return meter_of(0 if self.stage[1] else self.composed.tenant.number)

    @property
    def return_part(self) -> int:
        """The cookie's part for return traffic.

        It is above 0 where packets are limited.
        """
        rule = self.composed.returning(self.part.position)
        return 0 if rule is None else return_part(rule.protocol)

    def cookie(self, operator_numbers: Mapping[str, int], tier: Tier) -> int:
        """The cookie of the part's line."""
        tenant, speaker = self.composed.tenant, self.composed.speaker(self.part.position)
        rule = self.composed.rule(self.part.position)
        if rule is None:
            return Cookie(tier, _KINDS[self.part.direction, speaker], tenant.number, self.return_part).pack()
        if speaker is Speaker.OPERATOR:
            return Cookie(tier, Kind.OPERATOR_RULE, operator_numbers[rule.id]).pack()
        return Cookie(tier, Kind.RULE, tenant.rule_numbers[rule.id]).pack()


def _apart(placed: Iterable[_Placed]) -> tuple[_Placed, ...]:
    """Order parts by their lines.

    Parts of one line, which several rules may have asked for, are made disjoint.
    """
    found: dict[tuple[int, int, int, int], list[_Placed]] = {}
    for each in sorted(placed, key=attrgetter("size"), reverse=True):
        mine = found.setdefault(each.order, [])
        for piece in remaining((each.part.box,), [other.part.box for other in mine]):
            mine.append(replace(each, part=replace(each.part, box=piece)))
    return tuple(each for order in sorted(found) for each in found[order])


@dataclass(frozen=True, slots=True, eq=False)
class _Arranged:
    """Parts as atoms with levels; `of_atom` is the part that each atom is of."""

    placed: tuple[_Placed, ...]
    atoms: RuleTable
    of_atom: npt.NDArray[np.intp]
    band: npt.NDArray[np.uint8]
    level: Levels

    @classmethod
    def of(cls, units: Sequence[Unit], bands: Sequence[_Band]) -> _Arranged:
        """Arrange units by band; each list has levels of its own in each band."""
        placed = _apart(
            _Placed(unit.composed, part, band) for unit, band in zip(units, bands, strict=True) for part in unit.parts
        )
        atoms = box_atoms([each.part.box for each in placed], MOST_FLOWS)
        assert atoms is not None, "every lift is small"
        of_atom = atoms.order.astype(np.intp)
        ranks = {order: rank for rank, order in enumerate(dict.fromkeys(each.order for each in placed))}
        lists = {key: number for number, key in enumerate(dict.fromkeys(each.order[:-1] for each in placed))}

        def make_column(values: Iterable[int], name: str) -> npt.NDArray[Any]:
            return np.array(list(values), COLUMNS[name])[of_atom]

        atoms = replace(
            atoms,
            order=make_column((ranks[each.order] for each in placed), "order"),
            tenant=make_column((lists[each.order[:-1]] for each in placed), "tenant"),
            action=make_column((PERMIT if each.permits else DENY for each in placed), "action"),
            log=make_column((each.meter > 0 for each in placed), "log"),
        )
        level = levels(atoms)
        tenant = make_column((each.composed.tenant.number for each in placed), "tenant")
        band = np.array([each.band for each in placed], np.uint8)[of_atom]
        return cls(placed, replace(atoms, tenant=tenant), of_atom, band, level)

    @property
    def levels_of_own_side(self) -> int:
        """How many levels the parts on the rule's own side need."""
        return int(self.level[self.band == _Band.OWN_SIDE].max(initial=-1)) + 1

    def rows(self, operator_numbers: Mapping[str, int], target: Target) -> Iterator[FlowTable]:
        """The rows. They are nobody's: no tenant's quota pays for them."""
        cookies = np.array([each.cookie(operator_numbers, target.tier) for each in self.placed], np.uint64)
        highest = np.array([band.highest for band in _Band], np.int32)
        priority = (highest[self.band] - self.level).astype(np.uint16)
        keys = [(_stage_of(each, target), each.meter if target.reports else 0) for each in self.placed]
        for key in dict.fromkeys(keys):
            mine = np.array([each == key for each in keys], np.bool_)[self.of_atom]
            stage, meter = key
            atoms = self.atoms.take(mine)
            if not target.reports:
                atoms = replace(atoms, log=np.zeros(len(atoms), np.uint8))
            if stage.register is FROM_UPLINK.field:
                atoms = replace(atoms, tenant=np.ones(len(atoms), np.uint32))
            rows = rule_flows(atoms, stage, priority[mine], cookies[self.of_atom[mine]], meter)
            yield replace(rows, tenant=np.zeros(len(rows), np.uint32))


def _stage_of(placed: _Placed, target: Target) -> RuleStage:
    """Return the stage of a part's rows.

    Hosts limit messages about path MTU; tiers before them let them pass.
    """
    stage = target.stages[placed.stage]
    is_limited = placed.return_part and target is HOSTS
    return limited_stage(stage, placed.composed.tenant.number) if is_limited else stage
