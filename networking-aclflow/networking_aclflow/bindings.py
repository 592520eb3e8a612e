"""What the service is to know, read from Neutron's database: ports as endpoints, projects as tenants with prefixes.

A project owns the subnets that it made on these networks. Of a subnet on a shared network nobody owns all: each
project owns the addresses of its own ports there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from neutron.db import models_v2
from neutron.db.models import allowed_address_pair, segment
from neutron.db.rbac_db_models import NetworkRBAC
from neutron.plugins.ml2 import models as ml2_models
from neutron_lib import constants
from neutron_lib.db import standard_attr

from networking_aclflow.service import Endpoint

DRIVER = "aclflow"
"""The driver's name among ML2's, and the entity that holds a port back until it is in force."""
_INTERFACE_LENGTH = 14
"""So many characters of `tap` and the port's id name the interface that Nova plugs."""
_Pair = allowed_address_pair.AllowedAddressPair


@dataclass(frozen=True)
class Site:
    """A subnet on one of the driver's networks."""

    id: str
    network: str
    project: str
    cidr: str


def is_ours(segments: Iterable[Any], physical_networks: Collection[str]) -> bool:
    """Tell whether one of a network's segments is on a physical network of the driver."""
    return any(each.get("physical_network") in physical_networks for each in segments)


def interface_of(port_id: str) -> str:
    """Return the name of the interface that Nova plugs for a port."""
    return f"{constants.TAP_DEVICE_PREFIX}{port_id}"[:_INTERFACE_LENGTH]


def prefix_of(address: str) -> str:
    """Return an address or a prefix as the service writes it."""
    return str(ipaddress.ip_network(address, strict=False))


# ------------------------------------------------------------------------------------------------------------- ports


def endpoint_of(session: Any, port_id: str) -> Endpoint | None:
    """Return the endpoint that a port is now; None where it is to be none: gone, not bound by us, without address."""
    return endpoints_of(session, [port_id]).get(port_id)


def endpoints_of(session: Any, among: Collection[str] | None = None) -> dict[str, Endpoint]:
    """Return the endpoints of all ports, or of those among some, by port: a few queries for any number of ports."""
    ports, fixed = models_v2.Port, models_v2.IPAllocation
    bound = _bound(session, (ports.id, ports.project_id, ports.mac_address), ports.id, among).all()
    addresses: dict[str, set[str]] = {}
    for row in _bound(session, (fixed.port_id, fixed.ip_address), fixed.port_id, among):
        addresses.setdefault(row.port_id, set()).add(prefix_of(row.ip_address))
    pairs: dict[str, set[str]] = {}
    for row in _bound(session, (_Pair.port_id, _Pair.ip_address), _Pair.port_id, among):
        pairs.setdefault(row.port_id, set()).add(prefix_of(row.ip_address))
    claims = Claims.read(session) if pairs else None
    found = {}
    for row in bound:
        own = addresses.get(row.id, set())
        held = claims.held(row.id, own, pairs.get(row.id, set())) if claims is not None else set()
        if row.project_id and own | held:
            mac, prefixes = str(row.mac_address).lower(), tuple(sorted(own | held))
            found[row.id] = Endpoint(row.id, row.project_id, interface_of(row.id), mac, prefixes)
    return found


def bound_ports(session: Any, among: Collection[str] | None = None) -> set[str]:
    """Return the ports that the driver has bound to some host, all of them or those among some."""
    return {row.id for row in _bound(session, (models_v2.Port.id,), models_v2.Port.id, among)}


def _bound(session: Any, columns: Iterable[Any], port: Any, among: Collection[str] | None) -> Any:
    """Begin a query of ports that the driver has bound; `port` is the column with a port's id."""
    levels = ml2_models.PortBindingLevel
    query = session.query(*columns).join(levels, levels.port_id == port).filter(levels.driver == DRIVER).distinct()
    return query if among is None else query.filter(port.in_(list(among)))


def waiting_ports(session: Any) -> list[tuple[str, str]]:
    """Return (port, host) of each port that is bound by the driver and is to be active, and is not.

    Some are held back by no provisioning block any more: a live migration that ends brings a port down without one.
    """
    ports, levels, bindings = models_v2.Port, ml2_models.PortBindingLevel, ml2_models.PortBinding
    found = (
        session.query(ports.id, bindings.host)
        .join(bindings, bindings.port_id == ports.id)
        .join(levels, (levels.port_id == ports.id) & (levels.host == bindings.host))
        .filter(levels.driver == DRIVER, bindings.status == constants.ACTIVE)
        .filter(ports.admin_state_up == sa.true(), ports.status != constants.PORT_STATUS_ACTIVE)
    )
    return [(row.id, row.host) for row in found]


def lock_binding(session: Any, port_id: str, host: str) -> bool:
    """Lock a port's active binding until the transaction ends. False: the port is bound to another host."""
    found = session.query(ml2_models.PortBinding).filter_by(port_id=port_id, host=host, status=constants.ACTIVE)
    return found.with_for_update().one_or_none() is not None


def sharers(session: Any, port_id: str, addresses: Collection[str]) -> set[str]:
    """Return other ports that may use some allowed addresses too: what one of them gives up, another may get."""
    if not addresses:
        return set()
    others = session.query(_Pair.port_id).filter(_Pair.ip_address.in_(list(addresses)), _Pair.port_id != port_id)
    return {row.port_id for row in others}


@dataclass(frozen=True)
class Claims:
    """Who may have which address: the ports' own, and the allowed ones with their ports, the first made port first.

    The service lets one endpoint have an address. An allowed address is no other port's own, and of several ports that
    may use it the first made one's.
    """

    own: dict[Any, set[str]]
    allowed: list[tuple[str, Any]]

    @classmethod
    def read(cls, session: Any) -> Claims:
        """Read those of all ports that the driver has bound."""
        fixed, attributes = models_v2.IPAllocation, standard_attr.StandardAttribute
        own: dict[Any, set[str]] = {}
        for row in _bound(session, (fixed.port_id, fixed.ip_address), fixed.port_id, None):
            own.setdefault(ipaddress.ip_network(row.ip_address), set()).add(row.port_id)
        pairs = _bound(session, (_Pair.port_id, _Pair.ip_address, attributes.created_at), _Pair.port_id, None)
        pairs = pairs.join(models_v2.Port, models_v2.Port.id == _Pair.port_id)
        pairs = pairs.join(attributes, attributes.id == models_v2.Port.standard_attr_id)
        ordered = pairs.order_by(attributes.created_at, _Pair.port_id)
        return cls(own, [(row.port_id, ipaddress.ip_network(prefix_of(row.ip_address))) for row in ordered])

    def held(self, port: str, own: set[str], pairs: set[str]) -> set[str]:
        """Return which of a port's allowed addresses it has."""
        held: set[str] = set()
        for pair in sorted(pairs - own):
            network = ipaddress.ip_network(pair)
            mine = map(ipaddress.ip_network, own | held)
            if not any(map(network.overlaps, mine)) and not self._is_of_another(port, network):
                first = next((name for name, each in self.allowed if network.overlaps(each)), port)
                held |= {pair} if first == port else set()
        return held

    def _is_of_another(self, port: str, network: Any) -> bool:
        if network.num_addresses == 1:
            return bool(self.own.get(network, set()) - {port})
        return any(owners - {port} and network.overlaps(each) for each, owners in self.own.items())


# ---------------------------------------------------------------------------------------------------------- projects


def sites(session: Any, physical_networks: Collection[str]) -> list[Site]:
    """Return the subnets on the driver's networks."""
    segments, subnets = segment.NetworkSegment, models_v2.Subnet
    found = (
        session.query(subnets.id, subnets.network_id, subnets.project_id, subnets.cidr)
        .join(segments, segments.network_id == subnets.network_id)
        .filter(segments.physical_network.in_(list(physical_networks)))
        .distinct()
    )
    return [Site(row.id, row.network_id, row.project_id, prefix_of(row.cidr)) for row in found]


def shared_networks(session: Any) -> set[str]:
    """Return the networks on which projects other than the owner may have ports."""
    shared = session.query(NetworkRBAC.object_id).filter(NetworkRBAC.action == "access_as_shared")
    return {row.object_id for row in shared}


def prefixes_of(session: Any, project: str, physical_networks: Collection[str]) -> frozenset[str]:
    """Return what a project owns of the driver's networks."""
    mine = session.query(models_v2.Port.id).filter(models_v2.Port.project_id == project)
    found = _prefixes(session, physical_networks, endpoints_of(session, [row.id for row in mine]))
    return found.get(project, frozenset())


def prefixes_by_project(session: Any, physical_networks: Collection[str]) -> dict[str, frozenset[str]]:
    """Return what each project owns of the driver's networks."""
    return _prefixes(session, physical_networks, endpoints_of(session))


def _prefixes(
    session: Any, physical_networks: Collection[str], endpoints: Mapping[str, Endpoint]
) -> dict[str, frozenset[str]]:
    """Return the subnets of each project, and the addresses of the endpoints that no subnet of their own holds."""
    shared = shared_networks(session)
    own: dict[str, set[str]] = {}
    for site in sites(session, physical_networks):
        if site.network not in shared and site.project:
            own.setdefault(site.project, set()).add(site.cidr)
    for endpoint in endpoints.values():
        own.setdefault(endpoint.tenant, set()).update(endpoint.prefixes)
    return {project: frozenset(map(str, outermost(each))) for project, each in own.items()}


def outermost(texts: Iterable[str]) -> list[Any]:
    """Return prefixes without those that lie in another one."""
    found: list[Any] = []
    for each in sorted(map(ipaddress.ip_network, texts), key=lambda one: (one.version, one)):
        if not (found and found[-1].version == each.version and each.subnet_of(found[-1])):
            found.append(each)
    return found
