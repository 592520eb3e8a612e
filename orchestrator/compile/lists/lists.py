"""Compile access lists to rows of rule tables: atoms, levels, priorities, cookies, entries.

A `CompiledList` keeps what was found on the way, so that when a few rules of a tenant's list change, the rest is taken
over: `update_list` gives the same as starting from scratch, at the cost of the rules that changed and of those whose
level moves with them. Its rows are in pieces; a piece that did not change is the same object in the list after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _index
from orchestrator.compile.conjunctions.conjunctive import Hull
from orchestrator.compile.conjunctions.sides import Members, Sides
from orchestrator.compile.cookies import NUMBER_BITS, Cookie, Kind
from orchestrator.compile.lists.atoms import MOST_ATOMS, atoms, atoms_one_by_one, return_atoms
from orchestrator.compile.lists.exchange import RowChange, exchange_atoms
from orchestrator.compile.lists.labels import LabelColumn, Labels
from orchestrator.compile.lists.levels import Levels, few_packed, levels, pack_atoms
from orchestrator.compile.lists.pieces import NO_LEVEL, Piece, Pieces, Run
from orchestrator.compile.lists.steps import Difference, Labelled, Step
from orchestrator.compile.openflow.encoder import (
    MOST_FLOWS,
    RuleStage,
    doings,
    flow_counts,
    meter_of,
    path_mtu_meter_of,
    rule_flows,
)
from orchestrator.compile.openflow.fewrules import Atom, matches_of
from orchestrator.compile.openflow.instructions import DROP, instructions, limiting, set_field
from orchestrator.compile.pipelines.host import (
    DESTINATION_TENANT,
    HIGHEST_RULE_PRIORITY,
    LOWEST_RULE_PRIORITY,
    OPERATOR_PERMIT,
    SOURCE_TENANT,
    STATIC_PRIORITY,
    Table,
)
from orchestrator.errors import AclflowError, TooLarge
from orchestrator.policy.model import Direction, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.oracle import PATH_MTU_RULES
from orchestrator.program.flows import U16, Flow, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import EGRESS, INGRESS, PERMIT, RuleTable

INGRESS_STAGE = RuleStage(Table.INGRESS, DESTINATION_TENANT.field, instructions(goto=Table.OUTPUT), DROP)
EGRESS_STAGE = RuleStage(Table.EGRESS, SOURCE_TENANT.field, instructions(goto=Table.LOCAL), DROP)
OPERATOR_STAGE = RuleStage(
    Table.OPERATOR, None, instructions([set_field(OPERATOR_PERMIT.field, 1)], goto=Table.LOCAL), DROP
)

RETURN_PRIORITY = LOWEST_RULE_PRIORITY
"""Where return traffic is admitted, its rule is the last of every list and keeps the lowest priority for itself."""

_STAGES = (
    (INGRESS, INGRESS_STAGE, Kind.INGRESS_RETURN),
    (EGRESS, EGRESS_STAGE, Kind.EGRESS_RETURN),
)
ROW_STAGES = {Direction.INGRESS: INGRESS_STAGE, Direction.EGRESS: EGRESS_STAGE}
"""What the rows of each direction's rules are."""


@dataclass(frozen=True, slots=True)
class _Range:
    """The priorities that the levels of a list take, from the highest downwards."""

    highest: int
    lowest: int

    def priorities(self, level: Levels, position: npt.NDArray[np.uint32], rules: Sequence[Rule]) -> U16:
        """Return the priority of every level.

        `position` is its rule's. Raises TooLarge for the first that is too low.
        """
        beyond = np.flatnonzero(level > self.highest - self.lowest)
        if len(beyond):
            first = int(position[beyond[0]])
            raise TooLarge(
                f"rule '{rules[first].id}' is the last of {int(level[beyond[0]]) + 1} rules that each overlap the "
                f"next; there are priorities for {self.highest - self.lowest + 1}",
                place=f"rules[{first}]",
            )
        return (self.highest - level).astype(np.uint16)


def priorities(level: Levels, table: RuleTable, rules: Sequence[Rule], *, highest: int, lowest: int) -> U16:
    """Return the priority of every atom of a list; level 0 is highest.

    Raises TooLarge with the rule's place.
    """
    return _Range(highest, lowest).priorities(level, table.order, rules)


_FEW, _SHARE = 64, 8
"""When more rules come than this, or than every 8th atom of the list, starting from scratch is the faster way."""

_RANGES = {
    ReturnTraffic.ESTABLISHED: _Range(HIGHEST_RULE_PRIORITY, RETURN_PRIORITY + 1),
    ReturnTraffic.PATH_MTU: _Range(HIGHEST_RULE_PRIORITY, RETURN_PRIORITY + 1),
    ReturnTraffic.EXPLICIT: _Range(HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY),
    ReturnTraffic.TRACKED: _Range(HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY),
}
_RULE_COOKIE = np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())
_OPERATOR_COOKIE = np.uint64(Cookie(Tier.HOST, Kind.OPERATOR_RULE).pack())


@dataclass(frozen=True, slots=True, eq=False)
class CompiledList:
    """A tenant's rules in both directions.

    `change` is what turned the rows of the list that this one was brought up to date from into its own; None where it
    was compiled from scratch. `members` is None until a group changes for the first time. `sides` remembers what sides
    stand for.
    """

    tenant: Tenant
    returns: ReturnTraffic
    sides: Sides
    labels: Labels
    pieces: Pieces
    index: _index.Index
    return_rows: tuple[FlowTable, ...]
    members: Members | None = None
    change: RowChange | None = None

    @property
    def rows(self) -> tuple[FlowTable, ...]:
        """Return the flow entries: the pieces' in list order, and return traffic's."""
        return (*[piece.flows for piece in self.pieces.items], *self.return_rows)

    @classmethod
    def of(cls, tenant: Tenant, returns: ReturnTraffic, sides: Sides | None = None) -> CompiledList:
        """Compile from scratch; `sides` are those of the tenant's groups, if they are there already.

        Raises TooLarge with the rule's place if the list needs more levels than there are priorities, or more rows than
        a table can hold; BadPolicy if a rule has no number.
        """
        acl, among = tenant.acl, _RANGES[returns]
        table = atoms(acl.rules, acl.groups, tenant=tenant.number, numbers=tenant.rule_numbers)
        level = levels(table)
        for direction, _, _ in _STAGES:
            mine = table.direction == direction
            among.priorities(level[mine], table.order[mine], acl.rules)
        labels = Labels.of(len(acl.rules))
        label = labels.between(0, len(labels))[table.order]
        whole = piece_of_table(table, label, level, acl.rules).set_priorities(among.highest)
        index = _index.build(whole.label, whole.atoms, level)
        return_rows = tuple(_make_return_rows(tenant.number, returns))
        return cls(tenant, returns, sides or Sides(acl.groups), labels, Pieces.of(whole), index, return_rows)

    def update_list(self, tenant: Tenant, returns: ReturnTraffic, difference: Difference | None = None) -> CompiledList:
        """Return the result of `of`, computed from the difference to this list.

        Raises as `of` does.

        `difference` is that to the new list, if it is known. This list stays as it is, whatever becomes of the new one.
        """
        if difference is None:
            difference = Difference.between(self.tenant.acl, tenant.acl, self.sides)
        found = None
        if returns is self.returns and difference.come <= self.most_come:
            found = self._follow_difference(tenant, difference)
        return CompiledList.of(tenant, returns, difference.groups.after) if found is None else found

    @property
    def most_come(self) -> int:
        """When more rules come, starting from scratch is the faster way."""
        return max(_FEW, self.pieces.how_many_atoms // _SHARE)

    def priorities_of(self, positions: Sequence[int]) -> list[int | None]:
        """Return the priorities of rules at some positions; None for one that never matches."""
        if not positions:
            return []
        level = self.pieces.levels_of(np.array([self.labels.at(each) for each in positions], np.uint64)).tolist()
        return [None if each == NO_LEVEL else _RANGES[self.returns].highest - each for each in level]

    def _follow_difference(self, tenant: Tenant, difference: Difference) -> CompiledList | None:
        """Update the list.

        None where starting from scratch is faster, or gives a better error.
        """
        step = Step.between(self.tenant, tenant, self.labels, self.members, difference)
        if step is None or len(step.come) > self.most_come:
            return None
        try:
            gone = self._find_removed_run(step)
            come = _come(step.come, tenant)
        except AclflowError:
            return None
        among = _RANGES[self.returns]
        found = exchange_atoms(self.pieces, self.index, gone, come, among.highest, among.lowest)
        if found is None or found.pieces.how_many_atoms > MOST_ATOMS or found.pieces.how_many_rows > MOST_FLOWS:
            return None
        return CompiledList(
            tenant, self.returns, difference.groups.after, step.labels, found.pieces, found.index, self.return_rows,
            step.members, found.change,
        )  # fmt: skip

    def _find_removed_run(self, step: Step) -> Run:
        runs = [self.pieces.between(low, high) for low, high in step.gone]
        if not step.lost and len(runs) <= 1:
            return runs[0] if runs else Run.join_runs(())
        if step.lost:
            table = atoms([each.rule for each in step.lost], self.tenant.acl.groups, tenant=self.tenant.number)
            runs.append(Run(label_column(step.lost)[table.order], pack_atoms(table)))
        whole = Run.join_runs(runs)
        order = np.argsort(whole.label, kind="stable")
        return Run(whole.label[order], whole.atoms[order])


def _come(rules: Sequence[Labelled], tenant: Tenant) -> Piece:
    """The atoms that come, without levels. Raises as `atoms` and `rule_flows` do."""
    if not rules:
        return _NO_PIECE
    plain, groups = [each.rule for each in rules], tenant.acl.groups
    few = atoms_one_by_one(plain, groups, tenant=tenant.number, numbers=tenant.rule_numbers)
    if few is not None:
        return piece_of_few(few, rules, tenant.number)
    table = atoms(plain, groups, tenant=tenant.number, numbers=tenant.rule_numbers)
    return piece_of_table(table, label_column(rules)[table.order], np.full(len(table), NO_LEVEL, np.int32), plain)


def label_column(rules: Sequence[Labelled]) -> LabelColumn:
    """Return the labels of rules as a column."""
    return np.array([each.label for each in rules], np.uint64)


def piece_of_table(table: RuleTable, label: LabelColumn, level: Levels, rules: Sequence[Rule]) -> Piece:
    """Build a piece of atoms with rows, priorities left out.

    The atoms of hulls have no rows.
    """
    has_rows = np.array([type(rule) is not Hull for rule in rules], np.bool_)[table.order]
    count = flow_counts(table) * has_rows
    mine = [(stage, np.flatnonzero((table.direction == direction) & has_rows)) for direction, stage, _ in _STAGES]
    parts = [_flows(table if len(rows) == len(table) else table.take(rows), stage) for stage, rows in mine if len(rows)]
    if len(parts) == 1:
        return Piece(label, pack_atoms(table), level, count, parts[0])
    order = np.argsort(np.concatenate([np.repeat(rows, count[rows]) for _, rows in mine]), kind="stable")
    return Piece(label, pack_atoms(table), level, count, FlowTable.join_tables(parts).take(order))


def piece_of_few(atoms: Sequence[Atom], rules: Sequence[Labelled], tenant: int) -> Piece:
    """Compile a few atoms of `rules`, which come as values."""
    count: list[int] = []
    rows: list[Flow] = []
    meter = meter_of(tenant)
    for atom in atoms:
        rule = rules[atom.order].rule
        stage = ROW_STAGES[rule.direction]
        does = doings(stage, meter)[(atom.action != PERMIT) + 2 * atom.log]
        matches = [] if type(rule) is Hull else matches_of(atom, stage.register)
        cookie = atom.number | int(_RULE_COOKIE)
        rows += [Flow(stage.table, 0, match, does, cookie, tenant) for match in matches]
        count.append(len(matches))
    label, level = label_column([rules[atom.order] for atom in atoms]), np.full(len(atoms), NO_LEVEL, np.int32)
    flows = FlowTable.with_set(rows, _all_doings(meter))
    return Piece(label, few_packed(atoms), level, np.array(count, np.int64), flows)


def _flows(table: RuleTable, stage: RuleStage) -> FlowTable:
    """The rows of one direction; all pieces have the same instruction set."""
    meter = meter_of(int(table.tenant[0])) if len(table) else 0
    flows = rule_flows(table, stage, np.zeros(len(table), np.uint16), table.number | _RULE_COOKIE, meter)
    whole = _all_doings(meter)
    numbers = np.array([whole.index(each) for each in flows.instruction_set], np.uint32)
    return replace(flows, instructions=numbers[flows.instructions], instruction_set=whole)


@lru_cache(maxsize=1024)
def _all_doings(meter: int) -> tuple[bytes, ...]:
    """The instruction set of a list's rows."""
    return tuple(dict.fromkeys(each for _, stage, _ in _STAGES for each in doings(stage, meter)))


_NO_PIECE = piece_of_table(RuleTable.empty(), label_column(()), np.empty(0, np.int32), ())


def operator_rows(policy: Policy) -> FlowTable:
    """Compile the operator's rules.

    Their directions do not count: each is looked up once, whichever way the packet goes.
    """
    rules = policy.operator
    table = atoms(rules, {}, numbers=policy.operator_numbers).in_one_list()
    priority = priorities(levels(table), table, rules, highest=STATIC_PRIORITY, lowest=LOWEST_RULE_PRIORITY)
    return rule_flows(table, OPERATOR_STAGE, priority, table.number | _OPERATOR_COOKIE, meter_of(0))


def limited_stage(stage: RuleStage, tenant: int) -> RuleStage:
    """Return the stage whose permits limit a tenant's messages about path MTU."""
    return replace(stage, permit=limiting(stage.permit, path_mtu_meter_of(tenant)))


def return_part(protocol: int | None) -> int:
    """The part of the cookie that return traffic of a protocol has."""
    return _PATH_MTU_PARTS.get(protocol, 0)


_PATH_MTU_PARTS = {rule.protocol: part for part, rule in enumerate(PATH_MTU_RULES, 1)}


def _make_return_rows(tenant: int, returns: ReturnTraffic) -> Iterator[FlowTable]:
    table = return_atoms(tenant, returns)
    part = np.array([return_part(protocol) for protocol in table.protocol.tolist()], np.uint64)
    for direction, stage, kind in _STAGES:
        base = np.uint64(Cookie(Tier.HOST, kind, tenant).pack())
        for is_limited in (False, True):
            mine = np.flatnonzero((table.direction == direction) & ((part > 0) == is_limited))
            if len(mine):
                priority = np.full(len(mine), RETURN_PRIORITY, np.uint16)
                cookie = base + (part[mine] << np.uint64(NUMBER_BITS))
                used = limited_stage(stage, tenant) if is_limited else stage
                yield rule_flows(table.take(mine), used, priority, cookie)
