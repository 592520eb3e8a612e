"""The host tier's program: a domain's whole policy, for every switch with endpoints.

    Policy ──┬── operator rules ──────────────────────────────┐
             ├── lifted rules, if there are any ──────────────┤
             ├── tenant ── list ── atoms, levels, rows ───────┤── Blocks, digest ── Program
             ├── endpoints ── rows with symbolic ports ───────┤
             └── (the pipeline's own rows) ───────────────────┘

The same policy gives the same program, with a cache or without. With one, each part says which of its rows are new and
which are gone, and only those go into the program's blocks and into the delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.compile.conjunctions.grouped import TenantList
from orchestrator.compile.lifting.lifted import Lifted
from orchestrator.compile.lifting.lifts import Lift
from orchestrator.compile.lists.alone import move_to_alone, numbers_alone, rules_alone, tenant_alone
from orchestrator.compile.lists.exchange import RowChange, together
from orchestrator.compile.lists.lists import operator_rows
from orchestrator.compile.openflow.meters import meter_row, path_mtu_meter_row
from orchestrator.compile.openflow.symbols import UPLINK_SYMBOL
from orchestrator.compile.pipelines.ownside import copies_own_side, own_side_rows
from orchestrator.compile.pipelines.sites import Sites
from orchestrator.compile.pipelines.structure import default_rows, elsewhere_rows, endpoint_rows, fixed_rows
from orchestrator.compile.pipelines.tracked import Tracking, about_connections, zone_of
from orchestrator.compile.pipelines.wholeports import find_whole_ways, whole_port_rows
from orchestrator.errors import AclflowError
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.connections import check_list, check_rules
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Direction, Endpoint, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.stateless import is_mixed, view_of_operator, view_of_tracking
from orchestrator.program.blocks import Blocks
from orchestrator.program.delta import Delta, delta_of, difference
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import UPLINK, Program, Tier


def compile_host(
    policy: Policy,
    *,
    domain: str,
    generation: int,
    lifted: Sequence[LiftedRule] = (),
    cache: CompileCache | None = None,
) -> Program:
    """Compile a policy, with rules `lifted` ahead of lists where that changes nothing.

    Raises TooLarge where a list needs more than there is (``tenants[t].acl.rules[3]``) and BadPolicy where endpoints
    contradict each other or a rule has no number.
    """
    known = CompileCache() if cache is None else cache
    return known.compile_program(policy, domain=domain, generation=generation, lifted=lifted)


class CompileCache:
    """The parts of the last program and what each was made of.

    A part whose source is the same is used again, a tenant's list is brought up to date from what it has in common with
    the last one, and the program's blocks by the rows that differ. It changes how long compiling takes, never what
    comes out. One cache serves one domain and one thread at a time; what was refused leaves no trace in it.
    """

    def __init__(self) -> None:
        self._policy = Policy()
        self._sites = Sites.of(self._policy)
        self._parts: dict[_Name, _Part] = {}
        self._kept: dict[_Name, _Source] = {}
        """The parts that a restored program has and that are not compiled here yet."""
        self._logging: frozenset[int] = frozenset()
        self._program: Program | None = None
        self.change: Delta | None = None
        """From the program that was compiled before to the last one; None when there was none before."""

    @property
    def lifts(self) -> tuple[Lift, ...]:
        """The result for every rule that was to be lifted in the last program."""
        part = self._parts.get(_LIFTED)
        return part.lifted.lifts if part is not None and part.lifted is not None else ()

    def fork(self) -> CompileCache:
        """Return a cache that knows the same and goes its own way."""
        other = copy(self)
        other._parts, other._kept = dict(self._parts), dict(self._kept)
        return other

    def restore_program(self, policy: Policy, kept: Program, same: Set[str], *, generation: int) -> Program:
        """Return a policy's program, from one that the same code made of another policy.

        Of the tenants `same`, both policies make the same rows: their parts are compiled when they change. All others
        are compiled now, and what the kept program has in their place goes. Nothing is lifted in either. For an empty
        cache. Raises what `compile_program` raises.
        """
        sites = Sites.of(policy)
        is_tracked = policy.return_traffic is ReturnTraffic.TRACKED
        tracking = Tracking(zone_of(kept.domain), policy.holds_replies, is_mixed(policy)) if is_tracked else None
        parts: dict[_Name, _Part] = {}
        for name, source in _sources(policy, policy.tenants, sites, tracking):
            if name[1] in same:
                self._kept[name] = source
            else:
                parts[name] = source.compile_part(None)
        logging = frozenset([each.number for each in policy.tenants if any(rule.log for rule in each.acl.rules)])
        reporting = _reporting(policy, logging)
        if reporting:
            parts[_METERS] = _Meters(reporting, policy.log_limit).compile_part(None)
        stays = {each.number for each in policy.tenants if each.id in same}
        gone = [kept.blocks.of_tenant(number) for number in kept.blocks.tenants if number not in stays]
        made = FlowTable.join_tables([part.rows for part in parts.values()])
        made = made.take(~np.isin(made.tenant, np.array(sorted(stays), np.uint32)))
        come = about_connections(made) if is_tracked else made
        removed, added = difference(FlowTable.join_tables(gone), come)
        program = Program.of(kept.domain, Tier.HOST, generation, kept.blocks.replace_rows(removed, added), sites.ports)
        self._parts, self._sites, self._logging = parts, sites, logging
        self._program, self._policy = program, policy
        return program

    def compile_program(
        self, policy: Policy, *, domain: str, generation: int, lifted: Sequence[LiftedRule] = ()
    ) -> Program:
        """The program of a policy; see `compile_host`. Parts that the policy lacks are forgotten."""
        sites = self._sites.after(self._policy, policy)
        gone, come = self._touched_tenants(policy)
        dropped = [(kind, tenant.id) for tenant in gone for kind in _OF_TENANTS]
        dropped += [(_Alone, tenant.id) for tenant in come if not _decides_alone(tenant, policy.return_traffic)]
        moved = sites.moved - {tenant.id for tenant in (*gone, *come)}
        is_tracked = policy.return_traffic is ReturnTraffic.TRACKED
        tracking = Tracking(zone_of(domain), policy.holds_replies, is_mixed(policy)) if is_tracked else None
        sources = dict(_sources(policy, come, sites, tracking)) | self._moved_places(moved, sites)
        made = {
            name: self._make_part(name, source) for name, source in sources.items() if not self._is_kept(name, source)
        }
        logging = self._logging_after(gone, made)
        reporting = _reporting(policy, logging)
        if reporting or _METERS in self._parts:
            made[_METERS] = self._make_part(_METERS, _Meters(reporting, policy.log_limit))
        if lifted or _LIFTED in self._parts:
            made[_LIFTED] = self._make_part(_LIFTED, _Lifted(tuple(lifted), policy))
        steps: list[_Step] = [(self._parts.get(name), part) for name, part in made.items()]
        steps += [(self._known_part(name), None) for name in dropped]
        change = self._exchange_rows(steps, tracked=is_tracked)
        before = self._program
        blocks = Blocks.of(change.added) if before is None else before.blocks.replace_rows(change.removed, change.added)
        program = Program.of(domain, Tier.HOST, generation, blocks, sites.ports)
        self.change = None if before is None else delta_of(before, program, change.removed, change.added)
        for name in dropped:
            self._parts.pop(name, None)
        self._parts |= made
        self._sites, self._logging, self._program, self._policy = sites, logging, program, policy
        return program

    def _exchange_rows(self, steps: Sequence[_Step], *, tracked: bool) -> RowChange:
        """Return the rows of the last program that go, and the next program's that come."""
        were_tracked = self._policy.return_traffic is ReturnTraffic.TRACKED
        if tracked is not were_tracked and self._program is not None:
            for name in tuple(self._kept):
                self._known_part(name)
            replaced = {id(old) for old, _ in steps}
            kept = [part for part in self._parts.values() if id(part) not in replaced]
            whole = FlowTable.join_tables(
                [part.rows for part in (*kept, *(new for _, new in steps if new is not None))]
            )
            found = difference(self._program.flows, about_connections(whole) if tracked else whole)
            return RowChange(*(rows.compact_sets() for rows in found))
        changes = [_change(old, new) for old, new in steps if old is not new]
        sides = together(each.removed for each in changes), together(each.added for each in changes)
        return RowChange(*((about_connections(each) if tracked else each).compact_sets() for each in sides))

    def _touched_tenants(self, policy: Policy) -> tuple[list[Tenant], Sequence[Tenant]]:
        """Return the tenants that went, and those that are not the same objects as before."""
        before = self._policy
        if _returns_of(policy) == _returns_of(before):
            left, come = find_replaced(before.tenants, policy.tenants)
        else:
            left, come = before.tenants, policy.tenants
        known = {tenant.id for tenant in come}
        return [tenant for tenant in left if tenant.id not in known], come

    def _logging_after(self, gone: Iterable[Tenant], made: Mapping[_Name, _Part]) -> frozenset[int]:
        """Return the numbers of the tenants with rules that log."""
        lists = [part.rules for part in made.values() if part.rules is not None]
        numbers = {tenant.number for tenant in gone} | {each.tenant.number for each in lists}
        return self._logging - numbers | {each.tenant.number for each in lists if each.logging}

    def _is_kept(self, name: _Name, source: _Source) -> bool:
        """Return whether a part is as in the restored program, and not needed now."""
        kept = self._kept.get(name)
        return kept is not None and source.is_same(kept)

    def _known_part(self, name: _Name) -> _Part | None:
        """Return a part of the last program, compiled now where that was put off."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            self._parts[name] = kept.compile_part(None)
        return self._parts.get(name)

    def _moved_places(self, moved: Set[str], sites: Sites) -> dict[_Name, _Source]:
        """Return the places of tenants of which nothing but endpoints changed."""
        names = [(_Places, tenant) for tenant in moved]
        known = [(name[1], self._kept.get(name) or self._parts[name].source) for name in names if self._has_part(name)]
        return {
            (_Places, name): _find_places(name, old.number, sites) for name, old in known if isinstance(old, _Places)
        }

    def _has_part(self, name: _Name) -> bool:
        return name in self._kept or name in self._parts

    def _make_part(self, name: _Name, source: _Source) -> _Part:
        known = self._known_part(name)
        return known if known is not None and source.is_same(known.source) else source.compile_part(known)


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """The inputs of a tenant's endpoint rows."""

    number: int
    endpoints: tuple[Endpoint, ...]
    symbols: tuple[int, ...]

    def is_same(self, other: _Source) -> bool:
        """Whether the rows would be the same."""
        mine = (self.number, self.endpoints, self.symbols)
        return isinstance(other, _Places) and mine == (other.number, other.endpoints, other.symbols)

    def compile_part(self, before: _Part | None) -> _Part:  # noqa: ARG002 -- cheap enough from scratch
        pairs = zip(self.endpoints, self.symbols, strict=True)
        own = [row for endpoint, symbol in pairs for row in endpoint_rows(endpoint, self.number, symbol)]
        return _Part(self, FlowTable.of([*own, *elsewhere_rows(self.endpoints, self.number)]))


@dataclass(frozen=True, slots=True, eq=False)
class _Lists:
    """The inputs of a tenant's rule rows."""

    tenant: Tenant
    returns: ReturnTraffic

    def is_same(self, other: _Source) -> bool:
        """Return whether the rows would be the same.

        By identity, for comparing two lists costs as much as their rules.
        """
        if not isinstance(other, _Lists):
            return False
        mine, theirs = self.tenant, other.tenant
        same_list = mine.acl is theirs.acl and mine.rule_numbers is theirs.rule_numbers
        return same_list and mine.number == theirs.number and self.returns is other.returns

    def compile_part(self, before: _Part | None) -> _Part:
        tenant = self.tenant
        if self.returns is ReturnTraffic.TRACKED:
            check_list(tenant.acl, f"tenants[{tenant.id}].acl.rules", carries_stateless=True)
            if tenant.acl.has_stateless:
                tenant = replace(tenant, acl=view_of_tracking(tenant.acl))
        return _Part(self, _NO_ROWS, _compile_list(tenant, self.returns, before))


def _compile_list(tenant: Tenant, returns: ReturnTraffic, before: _Part | None) -> TenantList:
    try:
        if before is None or before.rules is None:
            return TenantList.of(tenant, returns)
        return before.rules.update_list(tenant, returns)
    except AclflowError as error:
        raise error.within(f"tenants[{tenant.id}].acl") from None


@dataclass(frozen=True, slots=True, eq=False)
class _Alone(_Lists):
    """The inputs of a tenant's rows that decide before connections are looked up."""

    def compile_part(self, before: _Part | None) -> _Part:
        return _Part(self, _NO_ROWS, _compile_list(tenant_alone(self.tenant), self.returns, before))


def _decides_alone(tenant: Tenant, returns: ReturnTraffic) -> bool:
    return returns is ReturnTraffic.TRACKED and tenant.acl.has_stateless


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """The inputs of the ends of a tenant's lists, and of its path MTU meter."""

    tenant: Tenant
    path_mtu_rate: int | None
    """None: the domain lets no such messages in."""
    whole_ways: tuple[Direction, ...]
    copies_own_side: bool
    """What is read before lists are asked: destination ports, and the own address and port."""

    def is_same(self, other: _Source) -> bool:
        """Whether the rows would be the same."""
        return isinstance(other, _Ends) and self._content == other._content

    @property
    def _content(self) -> tuple[object, ...]:
        acl, asked = self.tenant.acl, (self.whole_ways, self.copies_own_side)
        return self.tenant.number, acl.ingress_default, acl.egress_default, self.path_mtu_rate, asked

    def compile_part(self, before: _Part | None) -> _Part:  # noqa: ARG002 -- cheap enough from scratch
        tenant, rate = self.tenant, self.path_mtu_rate
        meters = [] if rate is None else [path_mtu_meter_row(tenant.number, rate)]
        reading = [*whole_port_rows(tenant, self.whole_ways), *(own_side_rows(tenant) if self.copies_own_side else ())]
        return _Part(self, FlowTable.of([*default_rows(tenant), *meters, *reading]))


@dataclass(frozen=True, slots=True, eq=False)
class _Operator:
    """The inputs of the common rows."""

    rules: tuple[Rule, ...]
    numbers: Mapping[str, int]
    tracking: Tracking | None

    def is_same(self, other: _Source) -> bool:
        """Whether the rows would be the same."""
        mine = (self.rules, self.numbers, self.tracking)
        return isinstance(other, _Operator) and mine == (other.rules, other.numbers, other.tracking)

    def compile_part(self, before: _Part | None) -> _Part:  # noqa: ARG002 -- cheap enough from scratch
        rules = self.rules
        alone = rules_alone(rules) if self.tracking is not None and self.tracking.is_mixed else ()
        if self.tracking is not None:
            check_rules(rules, "operator", carries_stateless=True)
            rules = view_of_operator(rules)
        fixed = FlowTable.of(fixed_rows({UPLINK: UPLINK_SYMBOL}, self.tracking))
        try:
            operator = operator_rows(Policy(operator=rules, operator_numbers=self.numbers))
            first = operator_rows(Policy(operator=alone, operator_numbers=numbers_alone(alone, self.numbers)))
        except AclflowError as error:
            raise error.within("operator") from None
        return _Part(self, FlowTable.join_tables((fixed, operator, move_to_alone(first))))


@dataclass(frozen=True, slots=True, eq=False)
class _Lifted:
    """The inputs of the rows ahead of all lists."""

    names: tuple[LiftedRule, ...]
    policy: Policy

    def is_same(self, other: _Source) -> bool:
        """Whether the rows would be the same."""
        return isinstance(other, _Lifted) and self.names == other.names and self.policy is other.policy

    def compile_part(self, before: _Part | None) -> _Part:
        lifted = Lifted.of(self.names, self.policy, before.lifted if before is not None else None)
        return _Part(self, lifted.rows, lifted=lifted)


@dataclass(frozen=True, slots=True, eq=False)
class _Meters:
    """The inputs of the meters of tenants with logging rules."""

    tenants: frozenset[int]
    limit: LogLimit

    def is_same(self, other: _Source) -> bool:
        """Whether the rows would be the same."""
        return isinstance(other, _Meters) and self.tenants == other.tenants and self.limit == other.limit

    def compile_part(self, before: _Part | None) -> _Part:  # noqa: ARG002 -- cheap enough from scratch
        return _Part(self, FlowTable.of(meter_row(tenant, self.limit) for tenant in sorted(self.tenants)))


_Source = _Places | _Lists | _Ends | _Operator | _Lifted | _Meters
_Name = tuple[type, str]
"""The kind of a source, and the tenant that it belongs to."""

_LIFTED, _METERS = (_Lifted, ""), (_Meters, "")
_OF_TENANTS = (_Lists, _Alone, _Ends, _Places)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The rows of one source: made from scratch, or of a tenant's list."""

    source: _Source
    fixed: FlowTable
    rules: TenantList | None = None
    lifted: Lifted | None = None

    @property
    def rows(self) -> FlowTable:
        """All rows, copied together."""
        whole = FlowTable.join_tables((self.fixed, *(self.rules.rows if self.rules is not None else ())))
        return move_to_alone(whole) if isinstance(self.source, _Alone) else whole


_Step = tuple[_Part | None, _Part | None]
"""A part before and after; None where it is not there."""

_NO_ROWS = FlowTable.of(())
_NO_CHANGE = RowChange(_NO_ROWS, _NO_ROWS)


def _change(before: _Part | None, after: _Part | None) -> RowChange:
    """Return the change between two states of a part.

    None: it is not there.
    """
    if before is None or after is None:
        return RowChange(before.rows if before else _NO_ROWS, after.rows if after else _NO_ROWS)
    if after.lifted is not None and before.lifted is not None and after.fixed is before.fixed:
        return _NO_CHANGE
    if after.rules is None or after.rules.change is None:
        return RowChange(*difference(before.rows, after.rows))
    change = after.rules.change
    if isinstance(after.source, _Alone):
        return RowChange(move_to_alone(change.removed), move_to_alone(change.added))
    return change


def _sources(
    policy: Policy, tenants: Iterable[Tenant], sites: Sites, tracking: Tracking | None
) -> Iterator[tuple[_Name, _Source]]:
    """Yield the sources of shared parts and of some tenants; `tracking` tracks connections."""
    yield (_Operator, ""), _Operator(policy.operator, policy.operator_numbers, tracking)
    returns, rate = _returns_of(policy)
    for tenant in tenants:
        yield (_Lists, tenant.id), _Lists(tenant, returns)
        if _decides_alone(tenant, returns):
            yield (_Alone, tenant.id), _Alone(tenant, returns)
        ways, copies = find_whole_ways(tenant, returns), copies_own_side(tenant, returns)
        yield (_Ends, tenant.id), _Ends(tenant, rate, ways, copies)
        yield (_Places, tenant.id), _find_places(tenant.id, tenant.number, sites)


def _returns_of(policy: Policy) -> tuple[ReturnTraffic, int | None]:
    """Return how replies come in, and the rate of path MTU messages."""
    returns = policy.return_traffic
    return returns, policy.path_mtu_rate if returns is ReturnTraffic.PATH_MTU else None


def _find_places(tenant: str, number: int, sites: Sites) -> _Places:
    endpoints = sites.of_tenant(tenant)
    return _Places(number, endpoints, tuple([sites.symbols[each.port] for each in endpoints]))


def _reporting(policy: Policy, logging: frozenset[int]) -> frozenset[int]:
    """Add the operator, 0, to the tenants `logging` if its rules log."""
    return logging | {0} if any(rule.log for rule in policy.operator) else logging
