"""Read and write the description of a point of presence as YAML.

    domain: pop1
    clients:   [{name, addresses, silent?}]                   somebody on the Internet's side
    hosts:     [{name, datapath_id?}]                         a machine with a VNF-ACL bridge
    tenants:   [{id, prefixes}]
    endpoints: [{name, tenant, host, addresses, port?, mac?, silent?}]
    firewalls: [{name, plane?}]                               a VNF between the edge and the hosts; one at most
    servers:   [{name, plane?}]                               instead: an edge switch, and firewall servers behind it
    spread:    true                                           instead: a switch that spreads over a fleet of VNFs
    routed:    true                                           hosts' kernels route, through a plain router: `fabric.py`

Addresses may be prefixes: a node then is sent everything inside them, but its own network stack holds single addresses
only; that of a `silent` node holds none, so that it answers nothing. Left out, `port` is the endpoint's name; MAC
addresses and datapath ids are numbered in order.

Read a lab's description by field: values have places, no field is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from orchestrator.errors import AclflowError, BadInput, Missing
from orchestrator.lab.spec import (
    CLIENT_MACS,
    ENDPOINT_MACS,
    HOST_DATAPATHS,
    ClientSpec,
    EndpointSpec,
    FirewallSpec,
    HostSpec,
    PopSpec,
    TenantSpec,
)
from orchestrator.policy.addresses import Prefix, format_mac, read_mac
from orchestrator.policy.model import TenantId
from orchestrator.wire.firewalls import Plane

NODE = re.compile(r"[a-z][a-z0-9-]{0,11}\Z")
PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
DATAPATH = re.compile(r"[0-9a-f]{16}\Z")


class Fields:
    """One mapping of the document.

    Fields are taken one by one, so that an unknown field is noticed and named.
    """

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, Mapping):
            raise BadInput(f"expected fields with names, found {_shorten_value(value)}", place=place or None)
        self._values: dict[object, object] = dict(value)
        self._place = place

    def at(self, key: str) -> str:
        """The place of a field, for an error."""
        return f"{self._place}.{key}" if self._place else key

    def text(self, key: str, pattern: re.Pattern[str] = NODE, default: str | None = None) -> str:
        """A word of some form. Raises BadInput."""
        value = self._values.pop(key, default)
        if value is None:
            raise BadInput("is missing", place=self.at(key))
        if not isinstance(value, str) or not pattern.match(value):
            raise BadInput(f"{_shorten_value(value)} does not look like {_WORDS[pattern]}", place=self.at(key))
        return value

    def prefixes(self, key: str) -> tuple[Prefix, ...]:
        """A list of addresses or prefixes, at least one. Raises BadInput, BadPolicy."""
        values = self._values.pop(key, None)
        if not isinstance(values, list) or not values:
            raise BadInput(f"expected a list of addresses, found {_shorten_value(values)}", place=self.at(key))
        return tuple(self._read_prefix(value, f"{self.at(key)}[{index}]") for index, value in enumerate(values))

    @staticmethod
    def _read_prefix(value: object, place: str) -> Prefix:
        if not isinstance(value, str):
            raise BadInput(f"{_shorten_value(value)} is not an address: write it in quotes", place=place)
        try:
            return Prefix.parse(value)
        except AclflowError as error:
            raise error.within(place) from None

    def truth(self, key: str) -> bool:
        """True or false; false where it is left out. Raises BadInput."""
        value = self._values.pop(key, False)
        if not isinstance(value, bool):
            raise BadInput(f"expected true or false, found {_shorten_value(value)}", place=self.at(key))
        return value

    def items(self, key: str) -> Iterator[Fields]:
        """The mappings of a list; none where it is left out. Raises BadInput."""
        values = self._values.pop(key, [])
        if not isinstance(values, list):
            raise BadInput(f"expected a list, found {_shorten_value(values)}", place=self.at(key))
        for index, value in enumerate(values):
            yield Fields(value, f"{self.at(key)}[{index}]")

    def no_more(self) -> None:
        """Check that every field was read. Raises BadInput for a field that nobody took."""
        for key in self._values:
            raise BadInput("no such field here", place=self.at(str(key)))


_WORDS = {
    NODE: "a name: up to 12 small letters, digits and dashes, starting with a letter",
    PORT: "an interface name of up to 15 characters",
    MAC: "a MAC address such as 0a:ac:1f:01:00:01",
    DATAPATH: "a datapath id: 16 hexadecimal digits in quotes",
}


def _shorten_value(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


DEFAULT_FILE = Path(__file__).with_name("pop.yaml")


def load(path: Path = DEFAULT_FILE) -> PopSpec:
    """Read a description.

    Raises Missing for no such file, BadInput or BadPolicy for a wrong one.
    """
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
    """Read a description from YAML text. Raises BadInput with the place."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else None
        raise BadInput(f"not YAML: {getattr(error, 'problem', None) or error}", place=place) from None
    top = Fields(document, "")
    routed = top.truth("routed")
    spec = PopSpec(
        domain=top.text("domain", default="pop1"),
        clients=tuple(_read_client(fields, index) for index, fields in enumerate(top.items("clients"))),
        hosts=tuple(_read_host(fields, index, routed=routed) for index, fields in enumerate(top.items("hosts"))),
        tenants=tuple(_read_tenant(fields) for fields in top.items("tenants")),
        endpoints=tuple(_read_endpoint(fields, index) for index, fields in enumerate(top.items("endpoints"))),
        firewalls=tuple(_read_firewall(fields) for fields in top.items("firewalls")),
        spread=top.truth("spread"),
        servers=tuple(_read_firewall(fields, index + 1) for index, fields in enumerate(top.items("servers"))),
    )
    top.no_more()
    return spec


def dump(spec: PopSpec) -> str:
    """YAML text that `parse` reads back as the same description."""
    document = {
        "domain": spec.domain,
        "clients": [{"name": c.name, "addresses": [*map(str, c.addresses)], "silent": c.silent} for c in spec.clients],
        "routed": spec.routed,
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


def _read_client(fields: Fields, index: int) -> ClientSpec:
    client = ClientSpec(
        name=fields.text("name", NODE),
        mac=CLIENT_MACS + index + 1,
        addresses=fields.prefixes("addresses"),
        silent=fields.truth("silent"),
    )
    fields.no_more()
    return client


def _read_host(fields: Fields, index: int, *, routed: bool) -> HostSpec:
    numbered = f"{HOST_DATAPATHS + index + 1:016x}"
    host = HostSpec(fields.text("name", NODE), fields.text("datapath_id", DATAPATH, default=numbered), routed)
    fields.no_more()
    return host


def _read_tenant(fields: Fields) -> TenantSpec:
    tenant = TenantSpec(TenantId(fields.text("id", NODE)), fields.prefixes("prefixes"))
    fields.no_more()
    return tenant


def _read_endpoint(fields: Fields, index: int) -> EndpointSpec:
    name = fields.text("name", NODE)
    endpoint = EndpointSpec(
        name=name,
        tenant=TenantId(fields.text("tenant", NODE)),
        host=fields.text("host", NODE),
        port=fields.text("port", PORT, default=name),
        mac=read_mac(fields.text("mac", MAC, default=format_mac(ENDPOINT_MACS + index + 1))),
        addresses=fields.prefixes("addresses"),
        silent=fields.truth("silent"),
    )
    fields.no_more()
    return endpoint


def _read_firewall(fields: Fields, number: int = 0) -> FirewallSpec:
    plane = fields.text("plane", default=Plane.NFTABLES.value)
    if plane not in {each.value for each in Plane}:
        raise BadInput(f"'{plane}' is none of {', '.join(each.value for each in Plane)}", place=fields.at("plane"))
    firewall = FirewallSpec(fields.text("name", NODE), Plane(plane), number)
    fields.no_more()
    return firewall
