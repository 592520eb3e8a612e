"""The places of a domain's endpoints: ports as symbols, and the owner of each.

`Sites.after` follows a policy by the endpoints and tenants that came and went, and gives what `Sites.of` would: ten
thousand endpoints cost a change copies of a few tables, which C makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from orchestrator.compile.openflow.symbols import PortTable
from orchestrator.compile.pipelines.host import SERVICES_PORT
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.legs import find_clash, find_wide_prefix, matched_prefixes
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Endpoint, Policy
from orchestrator.program.program import UPLINK

_FEW = 64
"""More endpoints or tenants than so many that came or went are read with all others."""


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """The endpoints of a policy, checked against each other. Never changes.

    `symbols` are the numbers that stand for ports, `moved` the tenants whose endpoints or symbols are not what they
    were before; `prefixes` says which endpoint has which prefix.
    """

    by_port: Mapping[str, Mapping[int, Endpoint]]
    """The endpoint of each port, by its MAC address; several behind a shared leg, all of one tenant."""
    by_tenant: Mapping[str, tuple[Endpoint, ...]]
    prefixes: Mapping[Prefix, str]
    table: PortTable
    symbols: Mapping[str, int]
    moved: Set[str]

    @classmethod
    def of(cls, policy: Policy) -> Sites:
        """Read all endpoints. Raises BadPolicy where endpoints contradict each other."""
        by_port, prefixes = _check_endpoints(policy)
        table = PortTable.of(by_port)
        by_tenant: dict[str, list[Endpoint]] = {tenant.id: [] for tenant in policy.tenants}
        for endpoint in policy.endpoints:
            by_tenant[endpoint.tenant].append(endpoint)
        return cls(
            by_port,
            {tenant: _sort_endpoints(found) for tenant, found in by_tenant.items() if found},
            prefixes,
            table,
            table.symbols(),
            frozenset(by_tenant),
        )

    @property
    def ports(self) -> tuple[str, ...]:
        """The `ports` of the program."""
        return self.table.ports

    def of_tenant(self, tenant: str) -> tuple[Endpoint, ...]:
        """Return a tenant's endpoints, by name."""
        return self.by_tenant.get(tenant, ())

    def after(self, before: Policy, policy: Policy) -> Sites:
        """Read the endpoints of the policy that follows `before`, of which these are. Raises BadPolicy."""
        gone, come = find_replaced(before.endpoints, policy.endpoints)
        left, joined = find_replaced(before.tenants, policy.tenants)
        dropped = {tenant.id for tenant in left} - {tenant.id for tenant in joined}
        if len(gone) + len(come) > _FEW or dropped & self.by_tenant.keys():
            return self._all_moved(policy)
        if not gone and not come:
            return self if not self.moved else self._move_tenants(frozenset())
        followed = self._exchange_endpoints(gone, come, policy)
        return self._all_moved(policy) if followed is None else followed

    def _all_moved(self, policy: Policy) -> Sites:
        """Read all endpoints anew; tenants without endpoints now have moved, too."""
        found = Sites.of(policy)
        tenants = {tenant.id for tenant in policy.tenants}
        return found._move_tenants(tenants & (found.by_tenant.keys() | self.by_tenant.keys()))

    def _move_tenants(self, moved: Set[str]) -> Sites:
        return Sites(self.by_port, self.by_tenant, self.prefixes, self.table, self.symbols, moved)

    def _exchange_endpoints(self, gone: Sequence[Endpoint], come: Sequence[Endpoint], policy: Policy) -> Sites | None:
        """Exchange some endpoints; None where one contradicts another."""
        by_port, by_tenant, prefixes = dict(self.by_port), dict(self.by_tenant), dict(self.prefixes)
        for endpoint in gone:
            others = {mac: each for mac, each in by_port.pop(endpoint.port).items() if each.name != endpoint.name}
            if others:
                by_port[endpoint.port] = others
            for prefix in matched_prefixes(endpoint):
                del prefixes[prefix]
        known = {tenant.id for tenant in policy.tenants} if come else set()
        for endpoint in come:
            owned, beside = matched_prefixes(endpoint), by_port.get(endpoint.port, {})
            if endpoint.tenant not in known or not _is_name(endpoint.port):
                return None
            if find_clash(endpoint, beside) or find_wide_prefix(endpoint) is not None:
                return None
            if any(prefix in prefixes for prefix in owned):
                return None
            by_port[endpoint.port] = {**beside, endpoint.mac: endpoint}
            prefixes |= dict.fromkeys(owned, endpoint.name)
        vanished = [port for port in dict.fromkeys(each.port for each in gone) if port not in by_port]
        appeared = [port for port in dict.fromkeys(each.port for each in come) if port not in self.by_port]
        table, pushed = self.table.after(vanished, appeared)
        symbols = dict(self.symbols) if table.count == self.table.count else dict(table.symbols())
        for port in vanished:
            symbols.pop(port, None)
        symbols |= {port: table.symbol(port) for port in (*pushed, *appeared)}
        moved: set[str] = {each.tenant for each in (*gone, *come)} | {
            each.tenant for port in pushed for each in by_port.get(port, {}).values()
        }
        if table.count != self.table.count:
            moved |= by_tenant.keys()
        left = set(map(id, gone))
        for tenant in {each.tenant for each in (*gone, *come)}:
            kept = [each for each in by_tenant.pop(tenant, ()) if id(each) not in left]
            mine = [*kept, *(each for each in come if each.tenant == tenant)]
            if mine:
                by_tenant[tenant] = _sort_endpoints(mine)
        return Sites(by_port, by_tenant, prefixes, table, symbols, moved)


def _sort_endpoints(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(sorted(endpoints, key=lambda each: (each.name, each.port)))


def _is_name(port: str) -> bool:
    return bool(port) and "\0" not in port and port not in (UPLINK, SERVICES_PORT)


def _check_endpoints(policy: Policy) -> tuple[dict[str, dict[int, Endpoint]], dict[Prefix, str]]:
    """Refuse endpoints that no switch could distinguish.

    They have one prefix, or a port that is not shared. Returns the endpoints of each port, and the endpoint of each
    prefix.
    """
    tenants = {tenant.id for tenant in policy.tenants}
    taken = {UPLINK: "the uplink", SERVICES_PORT: "the services of hosts"}
    ports: dict[str, dict[int, Endpoint]] = {}
    prefixes: dict[Prefix, str] = {}
    for index, endpoint in enumerate(policy.endpoints):
        place = f"endpoints[{index}]"
        if endpoint.tenant not in tenants:
            raise BadPolicy(f"there is no tenant '{endpoint.tenant}'", place=f"{place}.tenant")
        if not endpoint.port or "\0" in endpoint.port:
            raise BadPolicy(f"{endpoint.port!r} is not the name of a port", place=f"{place}.port")
        if endpoint.port in taken:
            raise BadPolicy(f"port '{endpoint.port}' belongs to {taken[endpoint.port]}", place=f"{place}.port")
        beside = ports.setdefault(endpoint.port, {})
        clash, wide = find_clash(endpoint, beside), find_wide_prefix(endpoint)
        if clash is not None:
            raise BadPolicy(clash.reason, place=f"{place}.{clash.field}")
        if wide is not None:
            reason = f"{endpoint.prefixes[wide]} is more than one address, and port '{endpoint.port}' is shared"
            raise BadPolicy(reason, place=f"{place}.prefixes[{wide}]")
        beside[endpoint.mac] = endpoint
        for prefix in matched_prefixes(endpoint):
            if prefix in prefixes:
                raise BadPolicy(f"{prefix} belongs to endpoint '{prefixes[prefix]}'", place=f"{place}.prefixes")
            prefixes[prefix] = endpoint.name
    return ports, prefixes
