"""The host tier's program: the whole policy of a domain, for every switch that carries its endpoints.

    Policy ──┬── operator rules ──────────────────────────────┐
             ├── tenant ── list ── atoms, levels, rows ───────┤── FlowTable, digest ── Program
             ├── endpoints ── rows with symbolic ports ───────┤
             └── (the pipeline's own rows) ───────────────────┘

The same policy gives the same program, with a cache or without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from orchestrator.compile.lists import CompiledList, operator_rows
from orchestrator.compile.structure import default_rows, elsewhere_rows, endpoint_rows, fixed_rows
from orchestrator.compile.symbols import port_table, symbols
from orchestrator.errors import AclflowError, BadPolicy
from orchestrator.policy.addresses import Prefix, aggregate
from orchestrator.policy.model import Endpoint, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.program.delta import difference
from orchestrator.program.digest import MerkleDigest
from orchestrator.program.flows import FlowTable
from orchestrator.program.program import UPLINK, Program, Tier


def compile_host(policy: Policy, *, domain: str, generation: int, cache: CompileCache | None = None) -> Program:
    """The program of a policy.

    Raises TooLarge where a list needs more than there is (``tenants[t].acl.rules[3]``) and BadPolicy where endpoints
    contradict each other or a rule has no number.
    """
    cache = CompileCache() if cache is None else cache
    _check_endpoints(policy)
    ports = port_table(endpoint.port for endpoint in policy.endpoints)
    flows, tree = cache.compiled(policy, symbols(ports))
    return Program(domain, Tier.HOST, generation, tree.root(ports), flows, ports)


@dataclass(frozen=True, slots=True)
class _Places:
    """What a tenant's endpoint rows are made of."""

    number: int
    endpoints: tuple[Endpoint, ...]
    symbols: tuple[int, ...]

    def compiled(self, before: _Part | None) -> _Part:  # noqa: ARG002 -- cheap enough from scratch
        pairs = zip(self.endpoints, self.symbols, strict=True)
        own = [row for endpoint, symbol in pairs for row in endpoint_rows(endpoint, self.number, symbol)]
        return _Part(self, (FlowTable.of([*own, *elsewhere_rows(self.endpoints, self.number)]),))


@dataclass(frozen=True, slots=True)
class _Lists:
    """What a tenant's rule rows are made of."""

    tenant: Tenant
    returns: ReturnTraffic

    def compiled(self, before: _Part | None) -> _Part:
        try:
            if before is None or before.rules is None:
                rules = CompiledList.of(self.tenant, self.returns)
            else:
                rules = before.rules.updated(self.tenant, self.returns)
        except AclflowError as error:
            raise error.within(f"tenants[{self.tenant.id}].acl") from None
        return _Part(self, (FlowTable.of(default_rows(self.tenant)), *rules.rows), rules)


@dataclass(frozen=True, slots=True)
class _Operator:
    """What everybody's rows are made of."""

    rules: tuple[Rule, ...]
    numbers: Mapping[str, int]
    uplink: int

    def compiled(self, before: _Part | None) -> _Part:  # noqa: ARG002 -- cheap enough from scratch
        fixed = FlowTable.of(fixed_rows({UPLINK: self.uplink}))
        try:
            operator = operator_rows(Policy(operator=self.rules, operator_numbers=self.numbers))
        except AclflowError as error:
            raise error.within("operator") from None
        return _Part(self, (fixed, operator))


_Source = _Places | _Lists | _Operator


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The rows of one source, in pieces, and what they were made from."""

    source: _Source
    rows: tuple[FlowTable, ...]
    rules: CompiledList | None = None


_NO_ROWS = FlowTable.of(())
_NO_PART = _Part(_Places(0, (), ()), ())


class CompileCache:
    """The parts of the last program and what each was made of.

    A part whose source is equal is used again, a tenant's list is brought up to date from what it has in common with
    the last one, and the digest's tree by the rows that differ. It changes how long compiling takes, never what comes
    out. One cache serves one domain and one thread at a time.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[type, str], _Part] = {}
        self._tree = MerkleDigest(_NO_ROWS)

    def compiled(self, policy: Policy, numbers: Mapping[str, int]) -> tuple[FlowTable, MerkleDigest]:
        """The rows of a policy in a fixed order, and the tree over them. Parts that the policy lacks are forgotten."""
        fresh: dict[tuple[type, str], _Part] = {}
        for name, source in _sources(policy, numbers):
            key = (type(source), name)
            known = self._parts.get(key)
            fresh[key] = known if known is not None and known.source == source else source.compiled(known)
        flows = FlowTable.joined([piece for part in fresh.values() for piece in part.rows])
        tree = self._tree_over(fresh, flows)
        self._parts, self._tree = fresh, tree
        return flows, tree

    def _tree_over(self, fresh: Mapping[tuple[type, str], _Part], flows: FlowTable) -> MerkleDigest:
        differences = []
        for key in self._parts.keys() | fresh.keys():
            pieces = self._parts.get(key, _NO_PART).rows, fresh.get(key, _NO_PART).rows
            for old, new in zip_longest(*pieces, fillvalue=_NO_ROWS):
                if old is not new:
                    differences.append(difference(old, new))
        removed = FlowTable.joined([gone for gone, _ in differences])
        added = FlowTable.joined([come for _, come in differences])
        few = 4 * (len(removed) + len(added)) < len(flows)
        return self._tree.replaced(removed, added) if few else MerkleDigest(flows)


def _sources(policy: Policy, numbers: Mapping[str, int]) -> Iterable[tuple[str, _Source]]:
    yield "", _Operator(policy.operator, policy.operator_numbers, numbers[UPLINK])
    places: dict[str, list[Endpoint]] = {tenant.id: [] for tenant in policy.tenants}
    for endpoint in policy.endpoints:
        places[endpoint.tenant].append(endpoint)
    for tenant in policy.tenants:
        mine = tuple(places[tenant.id])
        yield tenant.id, _Lists(tenant, policy.return_traffic)
        yield tenant.id, _Places(tenant.number, mine, tuple(numbers[endpoint.port] for endpoint in mine))


def _check_endpoints(policy: Policy) -> None:
    """Refuse endpoints that no switch could tell apart: one port, or one prefix, for two of them."""
    tenants = {tenant.id for tenant in policy.tenants}
    ports: dict[str, str] = {UPLINK: "the uplink"}
    prefixes: dict[Prefix, str] = {}
    for index, endpoint in enumerate(policy.endpoints):
        place = f"endpoints[{index}]"
        if endpoint.tenant not in tenants:
            raise BadPolicy(f"there is no tenant '{endpoint.tenant}'", place=f"{place}.tenant")
        if not endpoint.port or "\0" in endpoint.port:
            raise BadPolicy(f"{endpoint.port!r} is not the name of a port", place=f"{place}.port")
        if endpoint.port in ports:
            raise BadPolicy(f"port '{endpoint.port}' belongs to {ports[endpoint.port]}", place=f"{place}.port")
        ports[endpoint.port] = f"endpoint '{endpoint.name}'"
        for prefix in aggregate(endpoint.prefixes):
            if prefix in prefixes:
                raise BadPolicy(f"{prefix} belongs to endpoint '{prefixes[prefix]}'", place=f"{place}.prefixes")
            prefixes[prefix] = endpoint.name
