"""What the service is to know, read from Neutron's database: ports as endpoints, projects as tenants with prefixes.

A project owns the subnets that it made on these networks. Of a subnet on a shared network nobody owns all: each
project owns the addresses of its own ports there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from neutron.db import models_v2
from neutron.db.models import allowed_address_pair, provisioning_block, segment
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
    port = session.query(models_v2.Port).filter_by(id=port_id).one_or_none()
    if port is None or port_id not in bound_ports(session, [port_id]):
        return None
    addresses = {prefix_of(each.ip_address) for each in port.fixed_ips}
    addresses |= _pairs_held(session, port, addresses)
    if not addresses:
        return None
    mac = str(port.mac_address).lower()
    return Endpoint(port_id, port.project_id, interface_of(port_id), mac, tuple(sorted(addresses)))


def bound_ports(session: Any, among: Collection[str] | None = None) -> set[str]:
    """Return the ports that the driver has bound to some host, all of them or those among some."""
    levels = ml2_models.PortBindingLevel
    query = session.query(levels.port_id).filter(levels.driver == DRIVER)
    if among is not None:
        query = query.filter(levels.port_id.in_(list(among)))
    return {row.port_id for row in query}


def waiting_ports(session: Any) -> list[tuple[str, str]]:
    """Return (port, host) of each port that is bound by the driver and held back until it is in force."""
    blocks, ports = provisioning_block.ProvisioningBlock, models_v2.Port
    levels, bindings = ml2_models.PortBindingLevel, ml2_models.PortBinding
    found = (
        session.query(ports.id, bindings.host)
        .join(blocks, blocks.standard_attr_id == ports.standard_attr_id)
        .join(bindings, bindings.port_id == ports.id)
        .join(levels, (levels.port_id == ports.id) & (levels.host == bindings.host))
        .filter(blocks.entity == DRIVER, levels.driver == DRIVER, bindings.status == constants.ACTIVE)
    )
    return [(row.id, row.host) for row in found]


def sharers(session: Any, port_id: str) -> set[str]:
    """Return other ports that name one of a port's allowed addresses: what one of them gives up, another may get."""
    mine = session.query(_Pair.ip_address).filter(_Pair.port_id == port_id)
    addresses = {row.ip_address for row in mine}
    if not addresses:
        return set()
    others = session.query(_Pair.port_id).filter(_Pair.ip_address.in_(addresses), _Pair.port_id != port_id)
    return {row.port_id for row in others}


def _pairs_held(session: Any, port: Any, fixed: set[str]) -> set[str]:
    """Return the allowed addresses that are this port's: no other port's own, and of several sharers the first one's.

    The first is the one that was made first among those that are bound: the service lets one endpoint have an address.
    """
    pairs = {prefix_of(row.ip_address) for row in session.query(_Pair).filter(_Pair.port_id == port.id)}
    held: set[str] = set()
    for pair in sorted(pairs - fixed):
        network = ipaddress.ip_network(pair)
        if any(network.overlaps(ipaddress.ip_network(each)) for each in fixed | held):
            continue
        if not _is_of_another(session, port.id, network) and port.id == _first_sharer(session, network):
            held.add(pair)
    return held


def _is_of_another(session: Any, port_id: str, network: Any) -> bool:
    """Tell whether an address of another port that is bound by the driver lies in a prefix."""
    levels, fixed = ml2_models.PortBindingLevel, models_v2.IPAllocation
    query = session.query(fixed.ip_address).join(levels, levels.port_id == fixed.port_id)
    others = query.filter(levels.driver == DRIVER, fixed.port_id != port_id)
    return any(network.overlaps(ipaddress.ip_network(row.ip_address)) for row in others)


def _first_sharer(session: Any, network: Any) -> str | None:
    levels, attributes = ml2_models.PortBindingLevel, standard_attr.StandardAttribute
    found = (
        session.query(_Pair.port_id, _Pair.ip_address)
        .join(levels, levels.port_id == _Pair.port_id)
        .join(models_v2.Port, models_v2.Port.id == _Pair.port_id)
        .join(attributes, attributes.id == models_v2.Port.standard_attr_id)
        .filter(levels.driver == DRIVER)
        .order_by(attributes.created_at, _Pair.port_id)
    )
    sharing = (row.port_id for row in found if network.overlaps(ipaddress.ip_network(prefix_of(row.ip_address))))
    return next(sharing, None)


# ---------------------------------------------------------------------------------------------------------- projects


def sites(session: Any, physical_networks: Collection[str]) -> list[Site]:
    """Return the subnets on the driver's networks."""
    segments, subnets = segment.NetworkSegment, models_v2.Subnet
    found = (
        session.query(subnets)
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
    shared, own, common = shared_networks(session), set(), set()
    for site in sites(session, physical_networks):
        if site.network in shared:
            common.add(site.network)
        elif site.project == project:
            own.add(site.cidr)
    ports = session.query(models_v2.Port.id).filter(
        models_v2.Port.project_id == project, models_v2.Port.network_id.in_(list(common))
    )
    for row in ports.all() if common else ():
        endpoint = endpoint_of(session, row.id)
        own |= set(endpoint.prefixes) if endpoint is not None else set()
    return frozenset(map(str, outermost(own)))


def outermost(texts: Iterable[str]) -> list[Any]:
    """Return prefixes without those that lie in another one."""
    found = [ipaddress.ip_network(each) for each in texts]
    return [each for each in found if not any(each != other and _lies_in(each, other) for other in found)]


def projects(session: Any, physical_networks: Collection[str]) -> set[str]:
    """Return the projects that own something of the driver's networks, or have ports there."""
    owners = {site.project for site in sites(session, physical_networks)}
    bound = bound_ports(session)
    query = session.query(models_v2.Port.project_id).filter(models_v2.Port.id.in_(list(bound)))
    return (owners | {row.project_id for row in (query if bound else ())}) - {None, ""}


def _lies_in(one: Any, other: Any) -> bool:
    return bool(one.version == other.version and one.subnet_of(other))
