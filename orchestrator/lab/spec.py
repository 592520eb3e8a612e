"""What a point of presence consists of, read from YAML once and valid from then on.

    domain: pop1
    clients:   [{name, addresses, silent?}]                   somebody on the Internet's side
    hosts:     [{name, datapath_id?}]                         a machine with a VNF-ACL bridge
    tenants:   [{id, prefixes}]
    endpoints: [{name, tenant, host, addresses, port?, mac?, silent?}]
    firewalls: [{name, plane?}]                               a VNF between the edge and the hosts; one at most
    servers:   [{name, plane?}]                               instead: an edge switch, and firewall servers behind it
    spread:    true                                           instead: a switch that spreads over a fleet of VNFs

Addresses may be prefixes: a node then is sent everything inside them, but its own network stack holds single addresses
only; that of a `silent` node holds none, so that it answers nothing. Left out, `port` is the endpoint's name; MAC
addresses and datapath ids are numbered in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from orchestrator.compile.filterrows import Plane
from orchestrator.errors import AclflowError, BadInput, BadPolicy, Missing, NotFound
from orchestrator.lab.fields import DATAPATH, MAC, NODE, PORT, Fields
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import TenantId

DEFAULT_FILE = Path(__file__).with_name("pop.yaml")

ENDPOINT_MACS = 0x0AAC1F010000
CLIENT_MACS = 0x0AAC1F020000
FIREWALL_MACS = 0x0AAC1F030000
HOST_DATAPATHS = 0x0000AC1F00000100
"""Locally administered MAC addresses and datapath ids are these plus the item's position, from 1."""

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
    """A machine with a VNF-ACL bridge; `datapath_id` is what its switch calls itself, 16 hexadecimal digits."""

    name: str
    datapath_id: str

    @property
    def uplink(self) -> str:
        """Its bridge's interface towards the edge."""
        return f"up-{self.name}"

    @property
    def edge_port(self) -> str:
        """The other end of the uplink, on the edge bridge."""
        return f"to-{self.name}"


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
"""What a firewall's interfaces are called inside it: towards clients, towards tenants."""


@dataclass(frozen=True, slots=True)
class FirewallSpec:
    """A firewall VNF between the edge and the hosts, and what it filters with; `number` tells several apart."""

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
    """A point of presence. Raises BadInput or BadPolicy, with the place, for one that could not be built."""

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
        self._check_tenants()
        for index, endpoint in enumerate(self.endpoints):
            self._check_endpoint(endpoint, f"endpoints[{index}]")
        self._check_addresses()

    def _check_names(self) -> None:
        if not self.hosts:
            raise BadInput("a point of presence needs at least one host", place="hosts")
        nodes: dict[str, str] = {}
        interfaces: dict[str, str] = {}
        for index, client in enumerate(self.clients):
            _claim(nodes, client.name, f"clients[{index}].name")
            _claim(interfaces, client.port, f"clients[{index}].name")
        for index, host in enumerate(self.hosts):
            _claim(nodes, host.name, f"hosts[{index}].name")
            for interface in (host.name, host.uplink, host.edge_port):
                _claim(interfaces, interface, f"hosts[{index}].name")
        for index, endpoint in enumerate(self.endpoints):
            _claim(nodes, endpoint.name, f"endpoints[{index}].name")
            _claim(interfaces, endpoint.port, f"endpoints[{index}].port")
        if len(self.firewalls) > 1:
            raise BadInput("a lab has one firewall in its path at most", place="firewalls[1]")
        if bool(self.firewalls) + self.spread + bool(self.servers) > 1:
            reason = "a lab has a firewall in its path, spreads over several, or has an edge switch: one of these"
            raise BadInput(reason, place="spread" if self.spread else "servers")
        for index, server in enumerate(self.servers):
            _claim(nodes, server.name, f"servers[{index}].name")
            for interface in (*(port for port, _, _ in server.ports), server.rehome_port):
                _claim(interfaces, interface, f"servers[{index}].name")
        for index, firewall in enumerate(self.firewalls):
            _claim(nodes, firewall.name, f"firewalls[{index}].name")
            for port, _, _ in firewall.ports:
                _claim(interfaces, port, f"firewalls[{index}].name")

    def _check_tenants(self) -> None:
        owned: list[tuple[Prefix, TenantId]] = []
        for index, tenant in enumerate(self.tenants):
            if tenant.id in (other.id for other in self.tenants[:index]):
                raise BadInput(f"'{tenant.id}' is described twice", place=f"tenants[{index}].id")
            for place, prefix in enumerate(tenant.prefixes):
                for other, owner in owned:
                    if prefix.overlaps(other):
                        raise BadPolicy(f"{prefix} overlaps {other} of {owner}", place=_at(index, place))
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
        for node, place in self._placed_nodes():
            for index, prefix in enumerate(node.addresses):
                if prefix in holders:
                    raise BadInput(f"{prefix} is already {holders[prefix]}'s", place=f"{place}.addresses[{index}]")
                holders[prefix] = node.name

    def _placed_nodes(self) -> Iterator[tuple[ClientSpec | EndpointSpec, str]]:
        for index, client in enumerate(self.clients):
            yield client, f"clients[{index}]"
        for index, endpoint in enumerate(self.endpoints):
            yield endpoint, f"endpoints[{index}]"

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
        """Raises NotFound."""
        return _only((host for host in self.hosts if host.name == name), f"no host is called '{name}'")

    def endpoint(self, name: str) -> EndpointSpec:
        """Raises NotFound."""
        return _only((item for item in self.endpoints if item.name == name), f"no endpoint is called '{name}'")

    def node(self, name: str) -> ClientSpec | EndpointSpec:
        """Raises NotFound."""
        return _only((node for node in self.nodes if node.name == name), f"no client or endpoint is called '{name}'")


def _only(found: Iterator[Item], otherwise: str) -> Item:
    for item in found:
        return item
    raise NotFound(otherwise)


def _claim(taken: dict[str, str], name: str, place: str) -> None:
    if name in RESERVED_NAMES:
        raise BadInput(f"'{name}' is a name that the lab itself uses", place=place)
    if name in taken:
        raise BadInput(f"'{name}' is taken by {taken[name]}", place=place)
    taken[name] = place


def _at(tenant: int, prefix: int) -> str:
    return f"tenants[{tenant}].prefixes[{prefix}]"


def load(path: Path = DEFAULT_FILE) -> PopSpec:
    """Read a description. Raises Missing for no such file, BadInput or BadPolicy for a wrong one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Missing(f"cannot read the description: {error.strerror}", place=str(path)) from None
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8 text", place=str(path)) from None
    try:
        return parse(text)
    except AclflowError as error:
        raise error.within(str(path)) from None


def parse(text: str) -> PopSpec:
    """Read a description from YAML text."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else None
        raise BadInput(f"not YAML: {getattr(error, 'problem', None) or error}", place=place) from None
    top = Fields(document, "")
    spec = PopSpec(
        domain=top.text("domain", default="pop1"),
        clients=tuple(_client(fields, index) for index, fields in enumerate(top.items("clients"))),
        hosts=tuple(_host(fields, index) for index, fields in enumerate(top.items("hosts"))),
        tenants=tuple(_tenant(fields) for fields in top.items("tenants")),
        endpoints=tuple(_endpoint(fields, index) for index, fields in enumerate(top.items("endpoints"))),
        firewalls=tuple(_firewall(fields) for fields in top.items("firewalls")),
        spread=top.truth("spread"),
        servers=tuple(_firewall(fields, index + 1) for index, fields in enumerate(top.items("servers"))),
    )
    top.no_more()
    return spec


def dump(spec: PopSpec) -> str:
    """YAML text that `parse` reads back as the same description."""
    document = {
        "domain": spec.domain,
        "clients": [{"name": c.name, "addresses": [*map(str, c.addresses)], "silent": c.silent} for c in spec.clients],
        "hosts": [{"name": host.name, "datapath_id": host.datapath_id} for host in spec.hosts],
        "tenants": [{"id": str(t.id), "prefixes": [*map(str, t.prefixes)]} for t in spec.tenants],
        "endpoints": [
            {
                "name": endpoint.name,
                "tenant": str(endpoint.tenant),
                "host": endpoint.host,
                "port": endpoint.port,
                "mac": format_mac(endpoint.mac),
                "addresses": [*map(str, endpoint.addresses)],
                "silent": endpoint.silent,
            }
            for endpoint in spec.endpoints
        ],
        "firewalls": [{"name": firewall.name, "plane": firewall.plane.value} for firewall in spec.firewalls],
        "spread": spec.spread,
        "servers": [{"name": server.name, "plane": server.plane.value} for server in spec.servers],
    }
    return yaml.safe_dump(document, sort_keys=False)


def _client(fields: Fields, index: int) -> ClientSpec:
    client = ClientSpec(
        name=fields.text("name", NODE),
        mac=CLIENT_MACS + index + 1,
        addresses=fields.prefixes("addresses"),
        silent=fields.truth("silent"),
    )
    fields.no_more()
    return client


def _host(fields: Fields, index: int) -> HostSpec:
    numbered = f"{HOST_DATAPATHS + index + 1:016x}"
    host = HostSpec(fields.text("name", NODE), fields.text("datapath_id", DATAPATH, default=numbered))
    fields.no_more()
    return host


def _tenant(fields: Fields) -> TenantSpec:
    tenant = TenantSpec(TenantId(fields.text("id", NODE)), fields.prefixes("prefixes"))
    fields.no_more()
    return tenant


def _endpoint(fields: Fields, index: int) -> EndpointSpec:
    name = fields.text("name", NODE)
    endpoint = EndpointSpec(
        name=name,
        tenant=TenantId(fields.text("tenant", NODE)),
        host=fields.text("host", NODE),
        port=fields.text("port", PORT, default=name),
        mac=int(fields.text("mac", MAC, default=format_mac(ENDPOINT_MACS + index + 1)).replace(":", ""), 16),
        addresses=fields.prefixes("addresses"),
        silent=fields.truth("silent"),
    )
    fields.no_more()
    return endpoint


def _firewall(fields: Fields, number: int = 0) -> FirewallSpec:
    plane = fields.text("plane", default=Plane.NFTABLES.value)
    if plane not in {each.value for each in Plane}:
        raise BadInput(f"'{plane}' is none of {', '.join(each.value for each in Plane)}", place=fields.at("plane"))
    firewall = FirewallSpec(fields.text("name", NODE), Plane(plane), number)
    fields.no_more()
    return firewall


def format_mac(mac: int) -> str:
    """The usual text of a MAC address."""
    return mac.to_bytes(6, "big").hex(":")
