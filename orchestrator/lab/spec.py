"""The description of a point of presence, valid from the start.

`specfile.py` reads it from YAML.

MAC addresses and datapath ids are numbered in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.errors import BadInput, BadPolicy, NotFound
from orchestrator.hosts.switch import ROUTED_PORT
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import TenantId
from orchestrator.wire.firewalls import Plane

ENDPOINT_MACS = 0x0AAC1F010000
CLIENT_MACS = 0x0AAC1F020000
FIREWALL_MACS = 0x0AAC1F030000
HOST_DATAPATHS = 0x0000AC1F00000100
"""Locally administered MAC addresses and datapath ids are these plus the item's position, from 1."""

ROUTER, ROUTER_PORT, ROUTER_MAC = "router", "to-router", 0x0AAC1F040001
"""The router between the edge and hosts with routed uplinks: its name, its port on the edge bridge, its MAC there."""

_OF_ROUTED_HOSTS = (ROUTED_PORT, ROUTER_PORT, "fabric")
"""Interfaces that a routed host, or the edge bridge in front of the router, has anyway."""

RESERVED_NAMES = frozenset(
    {"edge", "spread", "spread-out", "spread-in", "sp-out", "sp-in", "pop", "pop-out", "out-pop", "pop-wan", "wan-pop"}
    | {"rehome", "ovs", "mgmt", "ovs-netdev", "lo"}
)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """A machine on the Internet's side. It receives what is sent to its `addresses`."""

    name: str
    mac: int
    addresses: tuple[Prefix, ...]
    silent: bool = False

    @property
    def port(self) -> str:
        """Its interface on the edge bridge."""
        return f"cl-{self.name}"


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A machine with a VNF-ACL bridge.

    `datapath_id` is its switch's, 16 hexadecimal digits. A `routed` one has a network stack and an Open vSwitch of its
    own; its uplink is the product's, which its kernel routes to.
    """

    name: str
    datapath_id: str
    routed: bool = False

    @property
    def uplink(self) -> str:
        """Its bridge's interface towards the edge."""
        return ROUTED_PORT if self.routed else f"up-{self.name}"

    @property
    def edge_port(self) -> str:
        """The edge bridge's port towards it."""
        return ROUTER_PORT if self.routed else f"to-{self.name}"

    @property
    def interfaces(self) -> tuple[str, ...]:
        """Interfaces that it has to itself among all switches."""
        return (self.name,) if self.routed else (self.name, self.uplink, self.edge_port)


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """A project and the addresses it owns."""

    id: TenantId
    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """A tenant's machine: `port` is its interface's name on the host's bridge."""

    name: str
    tenant: TenantId
    host: str
    port: str
    mac: int
    addresses: tuple[Prefix, ...]
    silent: bool = False


LEFT, RIGHT = "left", "right"
"""The names of a firewall's interfaces inside it: towards clients, towards tenants."""


@dataclass(frozen=True, slots=True)
class FirewallSpec:
    """A firewall VNF between the edge and the hosts, with its kind of filter.

    `number` tells several apart.
    """

    name: str
    plane: Plane = Plane.NFTABLES
    number: int = 0

    @property
    def ports(self) -> tuple[tuple[str, str, int], ...]:
        """Interface on the edge bridge, interface inside, MAC address inside: left, then right."""
        first = FIREWALL_MACS + 2 * self.number
        return (f"fl-{self.name}", LEFT, first + 1), (f"fr-{self.name}", RIGHT, first + 2)

    @property
    def rehome_port(self) -> str:
        """Interface on the bridge on which servers meet."""
        return f"fh-{self.name}"


@dataclass(frozen=True, slots=True)
class PopSpec:
    """A point of presence.

    Raises BadInput or BadPolicy, with the place, for one that could not be built.
    """

    domain: str
    clients: tuple[ClientSpec, ...]
    hosts: tuple[HostSpec, ...]
    tenants: tuple[TenantSpec, ...]
    endpoints: tuple[EndpointSpec, ...]
    firewalls: tuple[FirewallSpec, ...] = ()
    spread: bool = False
    servers: tuple[FirewallSpec, ...] = ()

    def __post_init__(self) -> None:
        self._check_names()
        self._check_firewalls()
        self._check_tenants()
        if self.routed:
            self._check_routed()
        for index, endpoint in enumerate(self.endpoints):
            self._check_endpoint(endpoint, f"endpoints[{index}]")
        self._check_addresses()

    def _check_names(self) -> None:
        if not self.hosts:
            raise BadInput("a point of presence needs at least one host", place="hosts")
        nodes: dict[str, str] = {}
        interfaces: dict[str, str] = {}
        if self.routed:
            nodes[ROUTER] = "the router"
            interfaces |= dict.fromkeys(_OF_ROUTED_HOSTS, "routed hosts")
        for index, client in enumerate(self.clients):
            _claim_name(nodes, client.name, f"clients[{index}].name")
            _claim_name(interfaces, client.port, f"clients[{index}].name")
        for index, host in enumerate(self.hosts):
            _claim_name(nodes, host.name, f"hosts[{index}].name")
            for interface in host.interfaces:
                _claim_name(interfaces, interface, f"hosts[{index}].name")
        for index, endpoint in enumerate(self.endpoints):
            _claim_name(nodes, endpoint.name, f"endpoints[{index}].name")
            _claim_name(interfaces, endpoint.port, f"endpoints[{index}].port")
        for index, server in enumerate(self.servers):
            _claim_name(nodes, server.name, f"servers[{index}].name")
            for interface in (*(port for port, _, _ in server.ports), server.rehome_port):
                _claim_name(interfaces, interface, f"servers[{index}].name")
        for index, firewall in enumerate(self.firewalls):
            _claim_name(nodes, firewall.name, f"firewalls[{index}].name")
            for port, _, _ in firewall.ports:
                _claim_name(interfaces, port, f"firewalls[{index}].name")

    def _check_firewalls(self) -> None:
        if len(self.firewalls) > 1:
            raise BadInput("a lab has one firewall in its path at most", place="firewalls[1]")
        if bool(self.firewalls) + self.spread + bool(self.servers) > 1:
            reason = "a lab has a firewall in its path, spreads over several, or has an edge switch: one of these"
            raise BadInput(reason, place="spread" if self.spread else "servers")

    def _check_routed(self) -> None:
        if not all(host.routed for host in self.hosts):
            raise BadInput("either all hosts have routed uplinks or none", place="routed")
        for index, tenant in enumerate(self.tenants):
            for place, prefix in enumerate(tenant.prefixes):
                if not prefix.length:
                    raise BadInput(
                        f"{prefix} is every address: no router can take it from a host",
                        place=_name_prefix_place(index, place),
                    )

    def _check_tenants(self) -> None:
        owned: list[tuple[Prefix, TenantId]] = []
        for index, tenant in enumerate(self.tenants):
            if tenant.id in (other.id for other in self.tenants[:index]):
                raise BadInput(f"'{tenant.id}' is described twice", place=f"tenants[{index}].id")
            for place, prefix in enumerate(tenant.prefixes):
                for other, owner in owned:
                    if prefix.overlaps(other):
                        raise BadPolicy(f"{prefix} overlaps {other} of {owner}", place=_name_prefix_place(index, place))
                owned.append((prefix, tenant.id))

    def _check_endpoint(self, endpoint: EndpointSpec, place: str) -> None:
        if endpoint.host not in (host.name for host in self.hosts):
            raise BadInput(f"no host is called '{endpoint.host}'", place=f"{place}.host")
        owner = next((tenant for tenant in self.tenants if tenant.id == endpoint.tenant), None)
        if owner is None:
            raise BadInput(f"no tenant is called '{endpoint.tenant}'", place=f"{place}.tenant")
        for index, prefix in enumerate(endpoint.addresses):
            if not any(own.contains(prefix) for own in owner.prefixes):
                raise BadPolicy(f"{prefix} is not {owner.id}'s", place=f"{place}.addresses[{index}]")

    def _check_addresses(self) -> None:
        holders: dict[Prefix, str] = {}
        for node, place in self._list_placed_nodes():
            for index, prefix in enumerate(node.addresses):
                if prefix in holders:
                    raise BadInput(f"{prefix} is already {holders[prefix]}'s", place=f"{place}.addresses[{index}]")
                holders[prefix] = node.name

    def _list_placed_nodes(self) -> Iterator[tuple[ClientSpec | EndpointSpec, str]]:
        for index, client in enumerate(self.clients):
            yield client, f"clients[{index}]"
        for index, endpoint in enumerate(self.endpoints):
            yield endpoint, f"endpoints[{index}]"

    @property
    def routed(self) -> bool:
        """Whether hosts have routed uplinks, with a plain router between them and the edge."""
        return any(host.routed for host in self.hosts)

    def with_uplinks(self, *, routed: bool) -> PopSpec:
        """Return the PoP with all uplinks routed, or all private links to the edge.

        Raises BadInput.
        """
        return replace(self, hosts=tuple(replace(host, routed=routed) for host in self.hosts))

    @property
    def steers_hosts(self) -> bool:
        """Whether what hosts send passes firewalls that the edge steers it to."""
        return bool(self.firewalls) or self.spread

    @property
    def inner_ports(self) -> tuple[str, ...]:
        """The edge bridge's ports towards hosts."""
        return tuple(dict.fromkeys(host.edge_port for host in self.hosts))

    @property
    def has_agents(self) -> bool:
        """Whether there are, or may come, firewalls whose agents must reach the service."""
        return bool(self.filters) or self.spread

    @property
    def filters(self) -> tuple[FirewallSpec, ...]:
        """Every firewall that has a namespace and an agent of its own here."""
        return self.firewalls + self.servers

    @property
    def nodes(self) -> tuple[ClientSpec | EndpointSpec, ...]:
        """Everything that has a network stack of its own: clients, then endpoints."""
        return (*self.clients, *self.endpoints)

    def host(self, name: str) -> HostSpec:
        """Return a host by its name. Raises NotFound."""
        return _take_first((host for host in self.hosts if host.name == name), f"no host is called '{name}'")

    def endpoint(self, name: str) -> EndpointSpec:
        """Return an endpoint by its name. Raises NotFound."""
        return _take_first((item for item in self.endpoints if item.name == name), f"no endpoint is called '{name}'")

    def node(self, name: str) -> ClientSpec | EndpointSpec:
        """Return a client or an endpoint by its name. Raises NotFound."""
        return _take_first(
            (node for node in self.nodes if node.name == name), f"no client or endpoint is called '{name}'"
        )


def _take_first(found: Iterator[Item], otherwise: str) -> Item:
    for item in found:
        return item
    raise NotFound(otherwise)


def _claim_name(taken: dict[str, str], name: str, place: str) -> None:
    if name in RESERVED_NAMES:
        raise BadInput(f"'{name}' is a name that the lab itself uses", place=place)
    if name in taken:
        raise BadInput(f"'{name}' is taken by {taken[name]}", place=place)
    taken[name] = place


def _name_prefix_place(tenant: int, prefix: int) -> str:
    return f"tenants[{tenant}].prefixes[{prefix}]"
