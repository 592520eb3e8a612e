"""The tier of edge switches: places, lines and heavy hitters, compiled and proven.

Published beside the hosts' program, under the same generation.

    policy, PoP ──▶ chunks ──▶ places ──▶ lines (kept up) ──┐
              └───▶ heavy hitters (hoisted) ────────────────┴──▶ program ──▶ proof ──▶ published

Places and lines are kept in the transaction that moves the generation, so what stands after a crash is what the last
commit says. An edge only ever sends packets to fewer places than the policy lets them reach, so a mix of old and new
edges and hosts lets nothing through that the hosts do not: it needs no intersection first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import structlog

from orchestrator.compile.edgeprogram import Edge, FamilyLines, Way, edge_rows
from orchestrator.compile.equivalence.liftedproof import EdgeProof
from orchestrator.compile.lifting.edgeheavy import Heavy, HeavyTable
from orchestrator.control.publisher import PublishedTier
from orchestrator.edge.chunks import Allocation, Chunking, Places, allocate, servers_of, settle_tenants
from orchestrator.edge.lines import Lines
from orchestrator.edge.upkeep import Kept, LinesReport, Standing, keep, rebuild, report, standing_of
from orchestrator.errors import AclflowError, NotEquivalent
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Direction, Policy
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import Program, Tier
from orchestrator.store.pops.poprecords import Pop, ServerState
from orchestrator.store.pops.pops import digest_of_lines
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit

log = structlog.get_logger()

_TRAFFIC_OF = dt.timedelta(hours=1)
"""How far back a tenant's traffic counts when it is placed."""


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """The result of an edge's program.

    The lines in each IP version, heavy hitters with why one is none, and for each tenant the addresses of its chunks
    that are nobody's.
    """

    lines: Mapping[Family, LinesReport]
    heavy: Heavy
    over: Mapping[Family, Mapping[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The inputs of an edge except heavy hitters."""

    pop: Pop
    owned: Mapping[int, tuple[Prefix, ...]]

    def is_same(self, other: _Asked) -> bool:
        """Whether everything would come out the same."""
        one, two = self.pop, other.pop
        laid_out = (one.settings, one.servers, one.places, one.lines) == (
            two.settings,
            two.servers,
            two.places,
            two.lines,
        )
        return laid_out and self.owned == other.owned


@dataclass(frozen=True, slots=True, eq=False)
class _Base:
    """An edge without heavy hitters; `asked` are the inputs for the next one."""

    asked: _Asked
    rows: FlowTable
    ports: tuple[str, ...]
    lines: Mapping[Family, LinesReport]
    over: Mapping[Family, Mapping[int, int]]


@dataclass(slots=True, eq=False)
class _Known:
    """The cached state of a domain."""

    heavy: HeavyTable = field(default_factory=HeavyTable)
    proof: EdgeProof = field(default_factory=EdgeProof)
    base: _Base | None = None
    program: Program | None = None
    said: EdgeReport | None = None


class EdgeTier(PublishedTier[_Known]):
    """Compiles and publishes. Safe between threads; one compilation at a time."""

    def compile(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> Program | None:
        """Compile a domain's edge; None without a PoP.

        Keeps places and lines if the unit may write.

        Raises TooLarge where a part of the TCAM is too small, with what would fit; BadPolicy, NotEquivalent.
        """
        pop = unit.pops.of_domain(domain)
        if pop is None:
            return None
        with self._lock:
            known = self._known.setdefault(domain, _Known())
            try:
                program = _compile_edge(unit, pop, snapshot.policy, known)
            except AclflowError as error:
                raise error.within(f"pops[{pop.name}]") from None
        return replace(program, generation=snapshot.generation)

    def report(self, domain: str) -> EdgeReport | None:
        """Return the last program's result; None while there is none."""
        return self._known.get(domain, _Known()).said

    def reports(self) -> Mapping[str, EdgeReport]:
        """Return the report of every domain that has a PoP."""
        return {domain: known.said for domain, known in tuple(self._known.items()) if known.said is not None}


def _compile_edge(unit: Unit, pop: Pop, policy: Policy, known: _Known) -> Program:
    """The program of a PoP's edge, proven; of generation 0."""
    asked = _Asked(pop, {tenant.number: tenant.prefixes for tenant in policy.tenants})
    base = known.base
    if base is None or not base.asked.is_same(asked):
        base = _laid_out(unit, asked, policy)
    heavy = known.heavy.of([each.rule for each in pop.heavy], policy)
    program = known.program
    if program is None or known.said is None or base is not known.base or heavy is not known.said.heavy:
        pop.settings.edge.check_heavy(len(heavy.rows))
        flows = FlowTable.join_tables((base.rows, heavy.rows))
        program = Program.of(pop.domain, Tier.EDGE, 0, flows, base.ports)
    _prove_program(known.proof, policy, heavy, program, is_known=program is known.program)
    known.base, known.program, known.said = base, program, EdgeReport(base.lines, heavy, base.over)
    return program


def _laid_out(unit: Unit, asked: _Asked, policy: Policy) -> _Base:
    """Lay out chunks, places and lines of a PoP's edge."""
    pop, settings = asked.pop, asked.pop.settings
    allocations = [allocate(settings.edge.chunking(family), asked.owned) for family in Family]
    places = _place_tenants(unit, pop, policy, allocations)
    kept = [_updated_lines(unit, pop, each, places) for each in allocations]
    edge = Edge(
        outside=settings.outside,
        ways=tuple(Way(each.number, each.port, each.mac) for each in pop.servers),
        owned=tuple(prefix for prefixes in asked.owned.values() for prefix in prefixes),
        families=tuple(FamilyLines(each.chunking, each.lines) for each in kept if len(each.standing.key)),
        heavy=FlowTable.of(()),
    )
    lines = {each.chunking.family: digest_of_lines(each.body) for each in kept}
    return _Base(
        _Asked(replace(pop, places=places, lines=lines), asked.owned),
        edge_rows(edge),
        edge.ports(),
        {each.chunking.family: report(each.standing, each.lines) for each in kept},
        {each.chunking.family: each.over for each in allocations},
    )


def _place_tenants(unit: Unit, pop: Pop, policy: Policy, allocations: list[Allocation]) -> Places:
    servers = {
        each.number: each.state is ServerState.SERVING for each in pop.servers if each.state is not ServerState.LOST
    }
    if not unit.pops.writing and _stand(pop.places, servers, allocations):
        return pop.places
    rules = {tenant.number: len(tenant.acl.rules) for tenant in policy.tenants}
    places = settle_tenants(allocations, servers, pop.places, rules, _traffic(unit, pop.domain, policy))
    if places != pop.places and unit.pops.writing:
        unit.pops.keep_places(pop.name, places)
        moved = sum(1 for tenant, server in pop.places.items() if places.get(tenant) not in (None, server))
        if moved:
            unit.events.append("pop.moved", pop.domain, {"pop": pop.name, "tenants": moved})
    return places


def _stand(places: Places, servers: Mapping[int, bool], allocations: list[Allocation]) -> bool:
    """Return whether all owners are placed with existing servers.

    Then nobody moves but in a transaction that keeps it, for a tenant's traffic is another at every look.
    """
    owners = {tenant for each in allocations for tenants in each.cohorts for tenant in tenants}
    return owners <= places.keys() and set(places.values()) <= servers.keys()


def _traffic(unit: Unit, domain: str, policy: Policy) -> Mapping[int, float]:
    """Return each tenant's recent ingress packets a second, as hosts counted them."""
    counted = unit.hits.rates(domain, since=unit.now - _TRAFFIC_OF)
    rates = dict(zip(counted.number.tolist(), counted.rate_pps.tolist(), strict=True))
    if not any(rates.values()):
        return {}
    return {
        tenant.number: sum(
            rates.get(tenant.rule_numbers[rule.id], 0.0)
            for rule in tenant.acl.rules
            if rule.direction is Direction.INGRESS
        )
        for tenant in policy.tenants
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """One IP version's lines: as values, for a switch, and as bytes."""

    chunking: Chunking
    standing: Standing
    lines: Lines
    body: bytes


def _updated_lines(unit: Unit, pop: Pop, allocation: Allocation, places: Places) -> _Lines:
    """Return one IP version's lines, updated to chunks and servers."""
    chunking = allocation.chunking
    servers = servers_of(allocation, places)
    keys, servers = allocation.key[servers >= 0], servers[servers >= 0]
    record = unit.pops.lines(pop.name, chunking.family)
    before = None if record is None else standing_of(record.body)
    settings, seed = pop.settings.edge, f"{pop.name}/{chunking.length}"
    if before is not None and not set(before.server.tolist()) <= {each.number for each in pop.servers}:
        kept = rebuild(before, keys, servers, settings, seed, "a server is no more")
    else:
        kept = keep(before, keys, servers, settings, seed)
    body = kept.standing.to_bytes()
    if unit.pops.writing and (record is None or record.body != body):
        _note(unit, pop, chunking.family, kept, body, is_first=record is None)
    return _Lines(chunking, kept.standing, kept.standing.lines(servers), body)


def _note(unit: Unit, pop: Pop, family: Family, kept: Kept, body: bytes, *, is_first: bool) -> None:
    """Keep the lines, and tell of lines that were built anew."""
    unit.pops.keep_lines(pop.name, family, body, kept.because)
    if kept.because and not is_first:
        said = {"pop": pop.name, "family": family.value, "lines": len(kept.standing.server), "because": kept.because}
        unit.events.append("pop.rebuilt", pop.domain, said)


def _prove_program(proof: EdgeProof, policy: Policy, heavy: Heavy, program: Program, *, is_known: bool) -> None:
    try:
        proof.check(policy, heavy.rows, None if is_known else program.flows)
    except NotEquivalent as error:
        log.critical("not published: the edge's program is not the policy", domain=program.domain, error=str(error))
        raise
