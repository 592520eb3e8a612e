"""Hosts and endpoints: where a domain's packets leave and arrive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, func, insert, literal_column, select

from orchestrator.errors import BadInput, BadPolicy, Conflict, NotFound
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.legs import find_clash, find_wide_prefix
from orchestrator.policy.model import Endpoint, TenantId, check_name
from orchestrator.program.program import UPLINK
from orchestrator.store.hostrows import add_switch, switch_rows, take_out_switch
from orchestrator.store.prefixrows import insert_prefixes, overlapping, owned_prefixes
from orchestrator.store.records import Change, EndpointRecord, HostRecord, check_interface
from orchestrator.store.schema.core import endpoint_prefixes, endpoints, host_ports, hosts, points, tenants
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction, expect
from orchestrator.wire.domains import HostEndpoints
from orchestrator.wire.points import PointState

_FIRST_HOST = Prepared(
    select(func.min(hosts.c.name).label("name")).where(
        hosts.c.domain == bindparam("of_domain"), hosts.c.plane.is_(None)
    )
)

_HAS_MAC = endpoints.c.mac > literal_column("0")
"""Always so, and said for SQLite, which looks through all endpoints of a domain for one port otherwise."""
_AT_PORT = Prepared(
    select(endpoints.c.name).where(
        endpoints.c.domain == bindparam("of_domain"),
        endpoints.c.port == bindparam("at"),
        _HAS_MAC,
        endpoints.c.generation <= bindparam("upto"),
    )
)


class Sites:
    """The part of the domains' repository that says what is where."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # ------------------------------------------------------------------------------------------------ hosts

    def hosts(self, domain: str) -> tuple[HostRecord, ...]:
        """The hosts with a switch, by name; firewall VNFs are in `firewalls/machines.py`. Raises NotFound."""
        self._tx.domain(domain)
        return switch_rows(self._tx, domain, None)

    def host(self, domain: str, name: str) -> HostRecord:
        """Return one of them. Raises NotFound."""
        self._tx.domain(domain)
        found = switch_rows(self._tx, domain, None, name)
        if not found:
            raise NotFound(f"the domain has no host '{name}'")
        return found[0]

    def has_hosts(self, domain: str) -> bool:
        """Whether there is a host with a switch in a domain."""
        first = self._tx.row(_FIRST_HOST, of_domain=domain)
        return first is not None and first.name is not None

    def add_host(self, domain: str, host: HostRecord) -> int:
        """Onboard a host; returns the generation it must reach. Raises NotFound, Conflict (name, datapath id).

        The domain's lists need not have been compiled for hosts until then.
        """
        return add_switch(self._tx, domain, host, None)

    def remove_host(self, domain: str, name: str) -> None:
        """Remove a host from a domain. Raises NotFound."""
        self._tx.domain(domain)
        if not take_out_switch(self._tx, domain, name, None):
            raise NotFound(f"the domain has no host '{name}'")

    # ------------------------------------------------------------------------------------------------ endpoints

    def endpoints(self, domain: str) -> tuple[EndpointRecord, ...]:
        """All endpoints by name. Raises NotFound."""
        self._tx.domain(domain)
        return self._read_endpoints(self._tx.read(_select_endpoints(domain)).all(), _select_addresses(domain))

    def page_endpoints(self, domain: str, *, limit: int, marker: str | None = None) -> tuple[EndpointRecord, ...]:
        """Endpoints in the order of their names, those after `marker`, at most `limit`. Raises NotFound."""
        self._tx.domain(domain)
        return self._read_page(domain, _select_endpoints(domain), limit, marker)

    def page_of_tenant(self, tenant: str, *, limit: int, marker: str | None = None) -> tuple[EndpointRecord, ...]:
        """A tenant's endpoints, as `page_endpoints`. Raises NotFound."""
        owner = self._tx.tenant(tenant)
        mine = endpoints.c.tenant == owner.number  # nothing else, or a database may look through the domain's
        return self._read_page(owner.domain, _select_endpoints_where(mine), limit, marker)

    def _read_page(
        self, domain: str, statement: Select[Any], limit: int, marker: str | None
    ) -> tuple[EndpointRecord, ...]:
        if marker is not None:
            statement = statement.where(endpoints.c.name > marker)
        rows = self._tx.read(statement.limit(limit)).all()
        names = [row.name for row in rows]
        return self._read_endpoints(rows, _select_addresses(domain).where(endpoint_prefixes.c.endpoint.in_(names)))

    def _read_endpoints(self, rows: Sequence[Row[Any]], addresses: Select[Any]) -> tuple[EndpointRecord, ...]:
        """Return endpoints with their addresses, which another query selects."""
        found: defaultdict[str, list[Prefix]] = defaultdict(list)
        for row in self._tx.read(addresses):
            found[row.endpoint].append(Prefix.parse(row.prefix))
        return tuple(_read_endpoint(row, found[row.name]) for row in rows)

    def endpoint(self, domain: str, name: str) -> EndpointRecord:
        """Return an endpoint. Raises NotFound."""
        self._tx.domain(domain)
        row = self._tx.read(_select_endpoints(domain).where(endpoints.c.name == name)).one_or_none()
        if row is None:
            raise NotFound(f"the domain has no endpoint '{name}'")
        columns = endpoint_prefixes.c
        mine = select(columns.prefix).where(columns.domain == domain, columns.endpoint == name).order_by(columns.first)
        return _read_endpoint(row, [Prefix.parse(text) for text in self._tx.read(mine).scalars()])

    def put_endpoint(self, domain: str, endpoint: Endpoint, *, expected_version: int | None = None) -> Change:
        """Add or change an endpoint. `expected_version=0` means: only if there is none of that name.

        Raises NotFound, Stale, BadInput, BadPolicy (not the tenant's domain or prefixes), Conflict (port or addresses
        of another endpoint; behind a shared port, its MAC address or another tenant).
        """
        row = self._tx.domain(domain)
        _check_endpoint(endpoint)
        old = self._tx.read(_select_endpoints(domain).where(endpoints.c.name == endpoint.name)).one_or_none()
        expect(expected_version, 0 if old is None else old.version)
        if old is not None and self.endpoint(domain, endpoint.name).endpoint == _in_order(endpoint):
            return Change(old.version, row.generation, changed=False)
        owner = self._owner(domain, endpoint)
        version = 1 if old is None else old.version + 1
        self._tx.write(delete(endpoints).where(endpoints.c.domain == domain, endpoints.c.name == endpoint.name))
        self._check_free(domain, endpoint)
        generation = self._tx.bump_for_endpoint(domain, endpoint.name)
        self._tx.write(
            insert(endpoints).values(
                domain=domain,
                name=endpoint.name,
                tenant=owner,
                port=endpoint.port,
                mac=endpoint.mac,
                version=version,
                generation=generation,
                shared=int(endpoint.shared),
            )
        )
        insert_prefixes(self._tx, endpoint_prefixes, endpoint.prefixes, domain=domain, endpoint=endpoint.name)
        return Change(version, generation)

    def remove_endpoint(self, domain: str, name: str, *, expected_version: int | None = None) -> int:
        """Returns the new generation. Raises NotFound, Stale."""
        expect(expected_version, self.endpoint(domain, name).version)
        self._tx.write(delete(endpoints).where(endpoints.c.domain == domain, endpoints.c.name == name))
        return self._tx.bump_for_endpoint(domain, name)

    def endpoints_in_force(self, domain: str, host: str) -> HostEndpoints:
        """Return the endpoints on a host whose rows were read back there. Raises NotFound.

        They are returned as they are now.
        """
        row = self._tx.read(_select_reported(domain, host)).one_or_none()
        if row is None:
            self._tx.domain(domain)
            raise NotFound(f"the domain has no host '{host}'")
        if row.state != PointState.ENFORCED.value:
            return HostEndpoints(host=host, state=row.state, generation=None, endpoints=())
        there = (row.ports or "").splitlines()
        found = (self._tx.rows(_AT_PORT, of_domain=domain, at=port, upto=row.generation) for port in there)
        names = sorted(each.name for rows in found for each in rows)
        return HostEndpoints(host=host, state=row.state, generation=row.generation, endpoints=tuple(names))

    def _owner(self, domain: str, endpoint: Endpoint) -> int:
        """Return the number of an endpoint's tenant, which must own its prefixes.

        Raises BadPolicy where it does not, or is not of the domain.
        """
        try:
            owner = self._tx.tenant(endpoint.tenant)
        except NotFound as error:
            raise BadPolicy(error.reason, place="tenant") from None
        if owner.domain != domain:
            raise BadPolicy(f"tenant '{endpoint.tenant}' is not of domain '{domain}'", place="tenant")
        owned = owned_prefixes(self._tx, owner.number)
        for index, prefix in enumerate(endpoint.prefixes):
            if not any(other.contains(prefix) for other in owned):
                raise BadPolicy(f"{prefix} is not among the tenant's own prefixes", place=f"prefixes[{index}]")
        return int(owner.number)

    def _check_free(self, domain: str, endpoint: Endpoint) -> None:
        at_port = (endpoints.c.domain == domain) & (endpoints.c.port == endpoint.port) & _HAS_MAC
        same_port = _select_endpoints_where(at_port).order_by(None)
        beside = {row.mac: _read_endpoint(row, ()).endpoint for row in self._tx.read(same_port)}
        clash = find_clash(endpoint, beside)
        if clash is not None:
            raise Conflict(clash.reason, place=clash.field)
        for index, prefix in enumerate(endpoint.prefixes):
            held = overlapping(self._tx, endpoint_prefixes, prefix)
            if held is not None:
                raise Conflict(
                    f"{prefix} overlaps {held.prefix} of endpoint '{held.endpoint}'", place=f"prefixes[{index}]"
                )


def _select_reported(domain: str, host: str) -> Select[Any]:
    """Select the last report of a host: its state, its generation, its interfaces."""
    reports = (points.c.domain == hosts.c.domain) & (points.c.host == hosts.c.name)
    interfaces = (host_ports.c.domain == hosts.c.domain) & (host_ports.c.host == hosts.c.name)
    return (
        select(points.c.state, points.c.generation, host_ports.c.ports)
        .select_from(hosts)
        .outerjoin(points, reports)
        .outerjoin(host_ports, interfaces)
        .where(hosts.c.domain == domain, hosts.c.name == host, hosts.c.plane.is_(None))
    )


def _select_endpoints(domain: str) -> Select[Any]:
    return _select_endpoints_where(endpoints.c.domain == domain)


def _select_endpoints_where(condition: ColumnElement[bool]) -> Select[Any]:
    return (
        select(endpoints, tenants.c.id.label("tenant_id"))
        .join(tenants, tenants.c.number == endpoints.c.tenant)
        .where(condition)
        .order_by(endpoints.c.name)
    )


def _select_addresses(domain: str) -> Select[Any]:
    columns = endpoint_prefixes.c
    return select(columns.endpoint, columns.prefix).where(columns.domain == domain).order_by(columns.first)


def _read_endpoint(row: Row[Any], addresses: Sequence[Prefix]) -> EndpointRecord:
    endpoint = Endpoint(row.name, TenantId(row.tenant_id), row.port, row.mac, tuple(addresses), bool(row.shared))
    return EndpointRecord(endpoint, row.version)


def _in_order(endpoint: Endpoint) -> Endpoint:
    """The endpoint as it will be read back: its prefixes sorted."""
    return replace(endpoint, prefixes=tuple(sorted(endpoint.prefixes)))


def _check_endpoint(endpoint: Endpoint) -> None:
    check_name(endpoint.name, "an endpoint's name", place="name")
    check_interface(endpoint.port, place="port")
    if endpoint.port == UPLINK:
        raise BadInput(f"'{UPLINK}' stands for every host's port towards the edge: choose another name", place="port")
    if not 0 < endpoint.mac < 1 << 48 or endpoint.mac >> 40 & 1:
        raise BadInput(f"{endpoint.mac:#x} is not the MAC address of one interface", place="mac")
    if not endpoint.prefixes:
        raise BadInput("an endpoint without an address could neither send nor receive", place="prefixes")
    wide = find_wide_prefix(endpoint)
    if wide is not None:
        raise BadInput(
            f"{endpoint.prefixes[wide]} is more than one address, and port '{endpoint.port}' is shared",
            place=f"prefixes[{wide}]",
        )
    for index, prefix in enumerate(endpoint.prefixes):
        for other in endpoint.prefixes[:index]:
            if prefix.overlaps(other):
                raise BadInput(f"{prefix} overlaps {other}, which is in the same list", place=f"prefixes[{index}]")
