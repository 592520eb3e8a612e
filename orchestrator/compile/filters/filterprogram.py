"""Compile a domain's policy for the planes of its firewall VNFs, as one program.

    Policy ──┬── addresses, operator rules ────── the frame, on each plane ──┐
             ├── tenant ── its two lists ──────── a part, on each plane ─────┤
             ├── tenant ── its list as it is ──── a row, where they share ───┤── Blocks, digest ── Program
             └── lifted rules ─────────────────── rows of a flow cache ──────┘

The same policy gives the same program, from scratch or from another one (`FilterProgram.after`). Then only the lists
that are not the same objects as before are compiled, and the frame where it is made of something else; what a tenant's
part was is read from the program before. All is compiled anew where the lists are asked in another way than before, and
where stateless rules stand among connections: nftables then has one table that knows of all lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from orchestrator.compile.filters.cacherows import cache_table
from orchestrator.compile.filters.clusterlists import cluster_rows, tenant_key
from orchestrator.compile.filters.filterlists import Part
from orchestrator.compile.filters.filterrows import CLOSED, FILTERS, Filter, filter_row
from orchestrator.compile.filters.flowcache import flow_cache
from orchestrator.compile.filters.iptables import FORWARD, iptables_chains
from orchestrator.compile.filters.queuerows import queue_objects
from orchestrator.compile.nftables.plan import plan
from orchestrator.compile.nftables.script import nftables_objects
from orchestrator.errors import Stale
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Family
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Policy, ReturnTraffic, Tenant
from orchestrator.policy.stateless import is_mixed
from orchestrator.program.delta import difference
from orchestrator.program.flows import FewFlows, Flow, FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.wire.firewalls import Plane


@dataclass(frozen=True, slots=True, eq=False)
class FilterProgram:
    """A program of firewalls, and what it was made of.

    `lists` is the policy whose lists firewalls get that share their connections; None where they do not. `cached` are
    the rows of the flow cache.
    """

    policy: Policy
    planes: frozenset[Plane]
    lifted: tuple[LiftedRule, ...]
    lists: Policy | None
    cached: FlowTable
    program: Program

    @classmethod
    def of(
        cls,
        policy: Policy,
        planes: Iterable[Plane],
        *,
        domain: str,
        generation: int,
        lifted: Sequence[LiftedRule] = (),
        lists: Policy | None = None,
    ) -> FilterProgram:
        """Compile from scratch; see `filter_program`."""
        wanted = frozenset(planes)
        shared = () if lists is None else cluster_rows(lists)
        rows = FlowTable.of((*make_rows(policy, wanted, Part.WHOLE), *shared))
        cached = _cached_rows(policy, lifted)
        program = Program.of(domain, Tier.SERVER, generation, FlowTable.join_tables([rows, cached]), ())
        return cls(policy, wanted, tuple(lifted), lists, cached, program)

    def after(
        self,
        policy: Policy,
        planes: Iterable[Plane],
        *,
        generation: int,
        lifted: Sequence[LiftedRule] = (),
        lists: Policy | None = None,
    ) -> FilterProgram:
        """Compile another policy of the domain from what both have in common.

        Raises what `filter_program` raises.
        """
        wanted, domain = frozenset(planes), self.program.domain
        if wanted != self.planes or (lists is None) is not (self.lists is None) or not _asks_alike(policy, self.policy):
            return self.of(policy, wanted, domain=domain, generation=generation, lifted=lifted, lists=lists)
        gone, come = find_replaced(self.policy.tenants, policy.tenants)
        before = {_key(row): row for tenant in gone for row in self._find_rows(tenant)}
        rows = [*make_rows(replace(policy, tenants=tuple(come)), wanted, Part.LISTS)] if come else []
        if _frame_source(policy) != _frame_source(self.policy):
            before |= {_key(row): row for row in make_rows(self.policy, wanted, Part.FRAME)}
            rows += make_rows(policy, wanted, Part.FRAME)
        if lists is not None and self.lists is not None:
            before |= {_key(row): row for row in cluster_rows(replace(self.lists, tenants=()))}
            rows += cluster_rows(replace(lists, tenants=tuple(come)))
        after = {_key(row): row for row in rows}
        cached = _cached_rows(policy, lifted)
        uncached, newly_cached = difference(self.cached, cached)
        removed = FewFlows.of(row for key, row in before.items() if after.get(key) != row)
        added = FewFlows.of(row for key, row in after.items() if before.get(key) != row)
        blocks = self.program.blocks.replace_rows(
            FlowTable.join_tables([removed, uncached]), FlowTable.join_tables([added, newly_cached])
        )
        program = Program.of(domain, Tier.SERVER, generation, blocks, ())
        return replace(self, policy=policy, lifted=tuple(lifted), lists=lists, cached=cached, program=program)

    def _find_rows(self, tenant: Tenant) -> Iterator[Flow]:
        """Find the rows of a tenant's part.

        Most bear its number, and the others are known by name.
        """
        blocks = self.program.blocks
        yield from (row for row in blocks.of_tenant(tenant.number).rows() if row.table in _TABLES)
        named = [filter_row(table, name, "") for table, name in _unnumbered_names(tenant.number, self.planes)]
        for row in (*named, *([] if self.lists is None else [tenant_key(tenant)])):
            with suppress(Stale):
                yield from blocks.find_rows(FewFlows.of([row])).rows()


def filter_program(
    policy: Policy,
    planes: Iterable[Plane],
    *,
    domain: str,
    generation: int,
    lifted: Sequence[LiftedRule] = (),
    lists: Policy | None = None,
) -> Program:
    """Compile the firewall tier: the policy for each plane, and lifted rules for flow caches.

    `lists` is the policy whose lists are rows too, for firewalls that share their connections (`clusterlists.py`).

    Where connections are tracked there are no such rules, for a flow cache passes the filter by; and planes that cannot
    track take replies for what they look like.

    Raises what the compilers raise (TooLarge, BadPolicy, NotExpressible), with the place of the rule.
    """
    made = FilterProgram.of(policy, planes, domain=domain, generation=generation, lifted=lifted, lists=lists)
    return made.program


def without_connections(policy: Policy) -> Policy:
    """Return the policy for planes that do not track connections.

    There, replies come in by what they look like.
    """
    if policy.return_traffic is not ReturnTraffic.TRACKED:
        return policy
    return replace(policy, return_traffic=ReturnTraffic.ESTABLISHED)


def make_rows(policy: Policy, planes: frozenset[Plane], part: Part) -> Iterator[Flow]:
    """Yield the rows of a part of a policy on some planes."""
    untracked = without_connections(policy)
    for plane in Plane:
        if plane in planes:
            yield from _make_plane_rows(policy if plane.tracks else untracked, plane, part)


def _asks_alike(policy: Policy, other: Policy) -> bool:
    """Return whether unchanged lists of two policies make the same rows."""
    if is_mixed(policy) or is_mixed(other):
        return False
    return _way_of(policy) == _way_of(other)


def _way_of(policy: Policy) -> tuple[object, ...]:
    return policy.return_traffic, policy.log_limit, policy.path_mtu_rate


def _frame_source(policy: Policy) -> tuple[object, ...]:
    tenants = [(tenant.number, tenant.prefixes) for tenant in policy.tenants]
    return policy.operator, policy.operator_numbers, tenants


def _cached_rows(policy: Policy, lifted: Sequence[LiftedRule]) -> FlowTable:
    if not lifted or policy.return_traffic is ReturnTraffic.TRACKED:
        return FlowTable.of(())
    return cache_table(flow_cache(policy, lifted).rows)


def _make_plane_rows(policy: Policy, plane: Plane, part: Part) -> Iterator[Flow]:
    for family, objects in _COMPILERS[plane](policy, part).items():
        for name, lines in objects.items():
            first = (CLOSED,) if name == FORWARD else ()
            yield filter_row(FILTERS[plane][family], name, "\n".join((*first, *lines)))


def _key(row: Flow) -> tuple[int, bytes]:
    """Return what identifies a row: its table and match."""
    return row.table, row.match


_TABLES = frozenset(int(table) for of_family in FILTERS.values() for table in of_family.values())


def _unnumbered_names(tenant: int, planes: frozenset[Plane]) -> Iterator[tuple[Filter, str]]:
    """Yield the names of a tenant's objects whose rows do not bear its number."""
    for plane in planes:
        for table in FILTERS[plane].values():
            yield from ((table, name.format(tenant)) for name in _UNNUMBERED[plane])


_UNNUMBERED: Mapping[Plane, tuple[str, ...]] = {
    Plane.NFTABLES: ("chain errors_{}", "limit logs_{}", "limit path_mtu_{}"),
    Plane.IPTABLES: ("errors_{}",),
    Plane.QUEUE: (),
}

_COMPILERS: Mapping[Plane, Callable[[Policy, Part], Mapping[Family, Mapping[str, tuple[str, ...]]]]] = {
    Plane.NFTABLES: lambda policy, part: nftables_objects(policy, plan, part),
    Plane.IPTABLES: iptables_chains,
    Plane.QUEUE: queue_objects,
}
